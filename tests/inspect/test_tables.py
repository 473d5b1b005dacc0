"""Tables on a terminal: what does not fit is left out column by column, and named; formulas wrap."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pytest

from tests.scope.networks import LENET, RESIDUAL
from undertow.cli import main
from undertow.cli.looking import fitted

HEAD = ("layer", "type", "one", "two", "three")
ROWS = [("0", "convolutional", "1.25", "2", "3"), ("1", "softmax", "10", "20", "30")]


def test_a_table_that_fits_is_whole() -> None:
    lines, left_out = fitted(HEAD, ROWS, 80, ((1,), (2, 3)))
    assert lines[0] == "layer  type            one  two  three"
    assert left_out == []


@pytest.mark.parametrize(
    ("width", "head", "left_out"),
    [
        (30, "layer   one  two  three", ["type"]),
        (20, "layer  three", ["type", "one", "two"]),
        (5, "layer  three", ["type", "one", "two"]),
    ],
)
def test_columns_are_left_out_together_and_in_order(width: int, head: str, left_out: list[str]) -> None:
    lines, missed = fitted(HEAD, ROWS, width, ((1,), (2, 3)))
    assert lines[0] == head
    assert missed == left_out
    assert len(lines) == 3


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(words: list[str], width: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    assert main(words) == 0
    return re.sub(r"\x1b\[[\d;]*m", "", terminal.getvalue()).splitlines()


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_nothing_is_wider_than_the_terminal(width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "net.prototxt").write_text(LENET)
    (tmp_path / "net.cfg").write_text(RESIDUAL)
    monkeypatch.chdir(tmp_path)
    for words in (
        ["explain", "net.prototxt"],
        ["trace", "net.cfg"],
        ["trace", "net.cfg", "-dialects", "exact,darknet-cpu"],
    ):
        lines = shown(words, width, monkeypatch)
        assert max(map(len, lines)) <= max(width, 75), words
        left_out = [line for line in lines if line.startswith("left out, for a wider terminal: ")]
        assert bool(left_out) == (width < 90 or (width == 100 and "trace" in words)), words


def test_a_wide_terminal_shows_what_a_file_gets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "net.cfg").write_text(RESIDUAL)
    monkeypatch.chdir(tmp_path)
    for words in (["explain", "net.cfg"], ["trace", "net.cfg"]):
        assert main(words) == 0
        plain = capsys.readouterr().out.splitlines()
        with monkeypatch.context() as patch:
            told = " ".join(" ".join(shown(words, 400, patch)).split())
        for line in plain:
            assert " ".join(line.split()) in told
