from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.darknet.training.scenes import Scene, make_scene

Run = Callable[..., "subprocess.CompletedProcess[str]"]
ROOT = Path(__file__).parents[2]


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """A small data set in its own folder; the working folder is the one above it."""
    monkeypatch.chdir(tmp_path)
    return make_scene(tmp_path / "scene")


@pytest.fixture
def undertow(capfd: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """Run a command line within this process."""
    from undertow.cli import main

    def run(*arguments: object) -> Answer:
        capfd.readouterr()
        status = main([str(argument) for argument in arguments])
        return Answer(status, *capfd.readouterr())

    return run


class Answer:
    """Exit status and what was written."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err

    @property
    def error(self) -> str:
        """The one line that says what is wrong; fails when there is none, or more than that."""
        lines = [line for line in self.err.splitlines() if line.startswith("error: ")]
        assert self.status == 2, (self.status, self.err)
        assert len(lines) == 1, self.err
        assert "Traceback" not in self.err
        return lines[0]

    @property
    def warnings(self) -> list[str]:
        return [line for line in self.err.splitlines() if line.startswith("warning: ")]


def start(*arguments: object, cwd: Path) -> subprocess.Popen[str]:
    """The command as a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "undertow", *map(str, arguments)],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
