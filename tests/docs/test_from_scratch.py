"""Runs docs/from-scratch.md block by block and compares what is printed with what the document says."""

from __future__ import annotations

import contextlib
import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

DOCUMENT = Path(__file__).parents[2] / "docs" / "from-scratch.md"
FENCE = re.compile(r"^```(?P<kind>[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"-?\d+\.?\d*")


@dataclass
class Block:
    """One piece of code, its line in the document, and the output stated below it (None: it prints nothing)."""

    line: int
    code: str
    output: str | None = None
    how: str = ""


def blocks() -> list[Block]:
    text = DOCUMENT.read_text(encoding="utf-8")
    found: list[Block] = []
    for match in FENCE.finditer(text):
        if match["kind"] == "python":
            found.append(Block(text.count("\n", 0, match.start()) + 1, match["body"]))
        elif match["kind"].startswith("text"):
            assert found[-1].output is None, f"two outputs for the block in line {found[-1].line}"
            found[-1].output = match["body"]
            found[-1].how = match["kind"].removeprefix("text").strip()
    return found


def run(block: Block, names: dict[str, Any]) -> str:
    printed = io.StringIO()
    # Padded so that a traceback names the line of the document.
    code = compile("\n" * block.line + block.code, DOCUMENT.name, "exec")
    with contextlib.redirect_stdout(printed):
        exec(code, names)
    return printed.getvalue()


def compare(block: Block, printed: str) -> None:
    stated = block.output or ""
    where = f"line {block.line}"
    if block.how == "about":  # the same words, numbers within a tenth
        assert NUMBER.sub("n", printed) == NUMBER.sub("n", stated), where
        ours, theirs = (list(map(float, NUMBER.findall(text))) for text in (printed, stated))
        assert ours == pytest.approx(theirs, rel=0.1, abs=0.03), where
    elif block.how == "picture":  # 95 of 100 characters
        assert len(printed) == len(stated), where
        equal = sum(a == b for a, b in zip(printed, stated, strict=True))
        assert equal >= 0.95 * len(stated), f"{where}\n{printed}"
    else:
        assert block.how == "", f"unknown comparison '{block.how}' in {where}"
        assert printed == stated, where


@pytest.mark.filterwarnings("error")
def test_every_block_runs_and_prints_what_is_stated() -> None:
    names: dict[str, Any] = {"__name__": "from_scratch"}
    for block in blocks():
        compare(block, run(block, names))


def test_the_document_states_outputs_and_links_to_files_that_exist() -> None:
    found = blocks()
    assert len(found) >= 25
    assert sum(block.output is not None for block in found) >= 20
    text = DOCUMENT.read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#][^)]*)\)", text)
    assert links
    for link in links:
        assert (DOCUMENT.parent / link).exists(), link
    headings = {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in re.findall(r"^## (.*)$", text, re.M)}
    for anchor in re.findall(r"\]\(#([^)]*)\)", text):
        assert anchor in headings, anchor


def test_the_miniature_does_not_lean_on_undertow_before_its_last_chapter() -> None:
    users = [block.line for block in blocks() if "undertow" in block.code]
    assert users == [blocks()[-1].line]
