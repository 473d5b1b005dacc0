"""docs/from-scratch.md: every block runs, and the miniature stands on its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.blocks import blocks, broken_links, run_all

DOCUMENT = Path(__file__).parents[2] / "docs" / "from-scratch.md"


@pytest.mark.filterwarnings("error")
def test_every_block_runs_and_prints_what_is_stated() -> None:
    run_all(DOCUMENT)


def test_the_document_states_outputs_and_links_to_places_that_exist() -> None:
    found = blocks(DOCUMENT)
    assert len(found) >= 25
    assert sum(block.output is not None for block in found) >= 20
    assert not broken_links(DOCUMENT)
    text = DOCUMENT.read_text(encoding="utf-8")
    headings = {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in re.findall(r"^## (.*)$", text, re.M)}
    for anchor in re.findall(r"\]\(#([^)]*)\)", text):
        assert anchor in headings, anchor


def test_the_miniature_does_not_lean_on_undertow_before_its_last_chapter() -> None:
    users = [block.line for block in blocks(DOCUMENT) if "undertow" in block.code]
    assert users == [blocks(DOCUMENT)[-1].line]
