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
