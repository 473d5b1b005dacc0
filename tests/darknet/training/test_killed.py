"""Trainings that are killed, at random moments and before each step of a save, end with the same bytes."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.darknet.training import killed
from undertow.files import keep_copy

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that fork")


def run(*words: object) -> str:
    """What the program of this folder prints, when it ends well."""
    answer = subprocess.run(
        [sys.executable, "-m", "tests.darknet.training.killed", *map(str, words)],
        env={**os.environ, "UNDERTOW_THREADS": "1"}, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert answer.returncode == 0, f"{words}: {answer.stdout}{answer.stderr}"
    print(answer.stdout)
    return answer.stdout


def test_killed_at_random_moments(tmp_path: Path) -> None:
    seed = 1 if "CI" in os.environ else random.SystemRandom().randrange(10**6)
    found = re.search(r"(\d+) kills", run(tmp_path, 30, seed))
    assert found is not None
    assert int(found[1]) >= 30


@pytest.mark.long
def test_killed_a_thousand_times(tmp_path: Path) -> None:
    assert "runs equal to the byte" in run(tmp_path, 1000, random.SystemRandom().randrange(10**6))


def test_killed_before_each_step_that_touches_a_file(tmp_path: Path) -> None:
    found = re.match(r"(\d+) steps", run(tmp_path, "steps"))
    assert found is not None
    assert int(found[1]) > 30


def test_these_processes_are_really_killed(tmp_path: Path) -> None:
    child = killed.fork(lambda: os.kill(os.getpid(), signal.SIGKILL))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


@pytest.mark.parametrize("links", [True, False])
def test_a_copy_is_kept_with_and_without_second_names(
    tmp_path: Path, links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not links:

        def refuse(*given: object) -> None:
            raise PermissionError("no second names here")

        monkeypatch.setattr(os, "link", refuse)
    (tmp_path / "a").write_text("new")
    (tmp_path / "b").write_text("old")
    for _ in range(2):
        keep_copy(tmp_path / "a", tmp_path / "b")
        assert [path.read_text() for path in sorted(tmp_path.iterdir())] == ["new", "new"]
