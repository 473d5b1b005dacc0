"""docs/explain.md: its files are written, its commands and blocks run, and they print what is stated."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import FENCE, Block, compare, run
from tests.inspect.yolov3 import yolov3_cfg
from undertow.cli import main

DOCUMENT = Path(__file__).parents[2] / "docs" / "explain.md"


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


def test_every_command_prints_what_is_stated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "model", raising=False)
    (tmp_path / "yolov3.cfg").write_text(yolov3_cfg())
    commands = 0
    for match in FENCE.finditer(DOCUMENT.read_text(encoding="utf-8")):
        kind, _, name = match["kind"].partition(" ")
        if name:
            (tmp_path / name).write_text(match["body"])
        elif kind == "console":
            first, *stated = match["body"].rstrip("\n").split("\n")
            words = shlex.split(first.removeprefix("$ undertow "))
            capsys.readouterr()
            assert main(words) == 0, first
            missed = agrees(stated, capsys.readouterr().out.rstrip("\n").split("\n"))
            assert missed is None, f"{first}\n{missed}"
            commands += 1
    assert commands == 7
    sys.modules.pop("model", None)


def test_the_python_blocks_print_what_is_stated() -> None:
    names: dict[str, object] = {"__name__": "explain"}
    matches = [m for m in FENCE.finditer(DOCUMENT.read_text(encoding="utf-8")) if m["kind"] in ("python", "text")]
    assert [m["kind"] for m in matches] == ["python", "text"] * 2
    for code, output in zip(matches[::2], matches[1::2], strict=True):
        block = Block(0, code["body"], output["body"])
        compare(block, run(block, DOCUMENT, names))


def test_the_comparison_of_lines_notices_a_change() -> None:
    assert agrees(["a 1.00", "...", "b 2"], ["a 1.01", "x", "y", "b 2"]) is None
    assert agrees(["a 1.00"], ["a 1.2"]) == "a 1.00"
    assert agrees(["a", "b"], ["a", "c"]) == "b"
    assert agrees(["a"], ["a", "more"]) == "more"


def test_yolov3_from_its_plan_has_107_layers_and_23_residuals(tmp_path: Path) -> None:
    from undertow.darknet.files.cfg import read_cfg
    from undertow.darknet.files.shapes import infer_shapes

    path = tmp_path / "yolov3.cfg"
    path.write_text(yolov3_cfg())
    shapes = infer_shapes(read_cfg(path))
    assert len(shapes) == 107
    assert sum(layer.type == "shortcut" for layer in shapes) == 23
    assert shapes.parameters == 62_001_757  # of the published yolov3.weights: (248007048 bytes - 20) / 4
