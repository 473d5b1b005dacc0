"""The other documents: their code runs, their links lead somewhere, and what they name exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import undertow as ut
from tests.docs.blocks import broken_links, run_all

ROOT = Path(__file__).parents[2]
DOCUMENTS = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", ROOT / "CHANGELOG.md"]


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning", "ignore:divide by zero:RuntimeWarning")
def test_engine_page_runs() -> None:
    run_all(ROOT / "docs" / "engine.md")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    assert not broken_links(document)


@pytest.mark.parametrize("name", ["porting.md", "engine.md"])
def test_names_exist(name: str) -> None:
    """Every `ut.something.other` in a document can be reached."""
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    names = set(re.findall(r"\but((?:\.\w+)+)", text))
    assert len(names) > 10
    for path in names:
        value: object = ut
        for part in path.strip(".").split("."):
            value = getattr(value, part)
