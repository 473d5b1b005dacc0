"""What the documents name exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import undertow as ut

ROOT = Path(__file__).parents[2]


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


def test_all_variables_of_the_environment_are_explained() -> None:
    read = re.compile(r"environ(?:\.get\(|\[)\"(\w+)\"")
    names = {name for path in (ROOT / "undertow").rglob("*.py") for name in read.findall(path.read_text("utf-8"))}
    assert len(names) > 5
    text = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert names <= set(re.findall(r"^\| `(\w+)` \|", text, re.M))
