"""Running a whole page: its files are written, its Python and its commands run in one folder, in the order of the page.

    ```python            runs; a ```text block right below states what it prints (see `blocks.compare`)
    ```prototxt NAME     (or any language and a name) is written as a file
    ```console           lines `$ undertow ...` run; the other lines are what they print, `...` for any lines
    ```sh                lines `undertow ...` run

A block below `<!-- not run: REASON -->` is left out; a block of one of these kinds must be one or the other.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.docs.blocks import FENCE, Block, compare, run
from undertow.cli import main

NOT_RUN = re.compile(r"<!-- not run: (?P<reason>.*?) -->\s*\Z", re.DOTALL)
COMPARISONS = ("", "about", "picture")


@dataclass(frozen=True)
class Piece:
    """One fenced block of a page. kind: its language. name: what stands behind it. reason: why it is not run.

    follows: only blank lines part it from the block before.
    """

    line: int
    kind: str
    name: str
    body: str
    reason: str = ""
    follows: bool = False


def pieces(page: Path) -> Iterator[Piece]:
    """All fenced blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    end = 0
    for match in FENCE.finditer(text):
        kind, _, name = match["kind"].strip().partition(" ")
        mark = NOT_RUN.search(text, 0, match.start())
        line = text.count("\n", 0, match.start()) + 1
        reason = " ".join(mark["reason"].split()) if mark else ""
        yield Piece(line, kind, name, match["body"], reason, not text[end : match.start()].strip())
        end = match.end()


def commands(piece: Piece) -> list[tuple[list[str], list[str] | None]]:
    """The `undertow` commands of a block: their words, and the lines stated as output (None: none are)."""
    found: list[tuple[list[str], list[str] | None]] = []
    if piece.kind == "text":  # usage, and what commands print
        return found
    for row in piece.body.splitlines():
        if piece.kind == "console" and row.startswith("$ undertow "):
            found.append((shlex.split(row.removeprefix("$ undertow "), comments=True), []))
        elif piece.kind == "console":
            if found and found[-1][1] is not None:
                found[-1][1].append(row)
        elif row.startswith("undertow "):
            found.append((shlex.split(row.removeprefix("undertow "), comments=True), None))
    return found


@dataclass
class Session:
    """Runs a page's blocks in the working folder. ran: how many of each kind."""

    page: Path
    names: dict[str, Any] = field(default_factory=dict)
    ran: dict[str, int] = field(default_factory=dict)

    def run(self) -> None:
        """Run the page. AssertionError, with the line, where it does not do what it states."""
        self.names["__name__"] = self.page.stem
        waiting: Block | None = None
        for piece in pieces(self.page):
            if piece.kind == "text" and piece.name in COMPARISONS:
                if waiting is not None and piece.follows:
                    waiting.output, waiting.how = piece.body, piece.name
                continue
            self._python(waiting)
            waiting = None
            if piece.reason:
                continue
            if piece.name and piece.name not in COMPARISONS:
                Path(piece.name).parent.mkdir(parents=True, exist_ok=True)
                Path(piece.name).write_text(piece.body, encoding="utf-8")
            elif piece.kind == "python":
                waiting = Block(piece.line, piece.body)
            else:
                self._commands(piece)
        self._python(waiting)

    def _python(self, block: Block | None) -> None:
        if block is None:
            return
        printed = run(block, self.page, self.names)
        if block.output is not None:
            compare(block, printed)
        self.ran["python"] = self.ran.get("python", 0) + 1

    def _commands(self, piece: Piece) -> None:
        for words, stated in commands(piece):
            printed, told = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(told):
                status = main(words)
            where = f"{self.page.name}:{piece.line}: undertow {shlex.join(words)}"
            failing = bool(stated) and stated[0].startswith("error: ")
            assert status == (2 if failing else 0), f"{where}\n{told.getvalue()}"
            if stated:
                output = told.getvalue() if failing else printed.getvalue()
                missed = agrees(stated, output.rstrip("\n").split("\n"))
                assert missed is None, f"{where}\n{missed}\n\n{output}"
            self.ran["undertow"] = self.ran.get("undertow", 0) + 1


def same(stated: str, printed: str) -> bool:
    """Two lines with the same words, and numbers within a twentieth."""
    a, b = stated.split(), printed.split()
    return len(a) == len(b) and all(one == other or near(one, other) for one, other in zip(a, b, strict=True))


def near(one: str, other: str) -> bool:
    try:
        a, b = (float(text.strip("[];,%")) for text in (one, other))
    except ValueError:
        return False
    return a == pytest.approx(b, rel=0.05, abs=1e-9)


def agrees(stated: list[str], printed: list[str]) -> str | None:
    """None when the printed lines are the stated ones, `...` standing for any lines; else the stated line missed."""
    place, free = 0, False
    for line in stated:
        if line == "...":
            free = True
            continue
        while free and place < len(printed) and not same(line, printed[place]):
            place += 1
        if place == len(printed) or not same(line, printed[place]):
            return line
        place, free = place + 1, False
    return None if free or place == len(printed) else printed[place]
