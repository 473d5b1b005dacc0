"""Running the code blocks of a document in order, and comparing what they print with what the document says."""

from __future__ import annotations

import contextlib
import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

FENCE = re.compile(r"^```(?P<kind>[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"-?\d+\.?\d*")


@dataclass
class Block:
    """One piece of code, its line in the document, and the output stated below it (None: it prints nothing)."""

    line: int
    code: str
    output: str | None = None
    how: str = ""


def blocks(document: Path) -> list[Block]:
    """The python blocks of a document, each with the text block that follows it."""
    text = document.read_text(encoding="utf-8")
    found: list[Block] = []
    for match in FENCE.finditer(text):
        if match["kind"] == "python":
            found.append(Block(text.count("\n", 0, match.start()) + 1, match["body"]))
        elif match["kind"].startswith("text"):
            assert found[-1].output is None, f"two outputs for the block in line {found[-1].line}"
            found[-1].output = match["body"]
            found[-1].how = match["kind"].removeprefix("text").strip()
    return found


def run(block: Block, document: Path, names: dict[str, Any]) -> str:
    """Run one block; returns what it printed."""
    printed = io.StringIO()
    # Padded so that a traceback names the line of the document.
    code = compile("\n" * block.line + block.code, document.name, "exec")
    with contextlib.redirect_stdout(printed):
        exec(code, names)
    return printed.getvalue()


def compare(block: Block, printed: str) -> None:
    """Assert that it printed what the document states."""
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


def run_all(document: Path) -> None:
    """Run every block, in one session, and compare."""
    names: dict[str, Any] = {"__name__": document.stem}
    for block in blocks(document):
        compare(block, run(block, document, names))


def broken_links(document: Path) -> list[str]:
    """Links to files that are not there."""
    text = FENCE.sub("", document.read_text(encoding="utf-8"))
    links = re.findall(r"\]\(([^)#][^)]*)\)", text)
    targets = [link.partition("#")[0] for link in links if "://" not in link]
    return [target for target in targets if not (document.parent / target).exists()]
