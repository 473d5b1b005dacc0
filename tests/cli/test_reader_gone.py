"""`undertow ... | head`: commands end when nobody reads what they say, and trainings save before."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.caffe.solver.nets import write_solver
from tests.darknet.training.scenes import Scene
from undertow.caffe.proto import read_solverstate

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="pipes of Unix")
ROOT = Path(__file__).parents[2]


def run_with_lost_reader(words: list[str], until: str | None, both: bool = True) -> tuple[int, str]:
    """Read up to a line, then no more; the exit status, and what stderr says where that is not among what is lost."""
    process = subprocess.Popen(
        [sys.executable, "-m", "undertow", *words], env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT if both else subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    if until is not None:
        assert any(until in line for line in process.stdout)
    process.stdout.close()
    text = "" if process.stderr is None else process.stderr.read()
    return process.wait(timeout=120), text


def test_a_training_of_caffe_stops_with_a_snapshot(tmp_path: Path) -> None:
    path = write_solver(tmp_path, "display: 20 max_iter: 1000000000")
    words = ["caffe", "train", f"--solver={path}", "-threads=1", f"--log_dir={tmp_path}"]
    assert run_with_lost_reader(words, "Iteration 20")[0] == 141
    (state,) = tmp_path.glob("*.solverstate")
    assert read_solverstate(state).iter > 20
    assert "Optimization stopped early." in (tmp_path / "caffe.INFO").read_text()


def test_caffe_time_ends(tmp_path: Path) -> None:
    write_solver(tmp_path)
    words = ["caffe", "time", f"-model={tmp_path}/net.prototxt", "-iterations=1000000000"]
    assert run_with_lost_reader(words, "Iteration: 2 ")[0] == 141


@pytest.mark.parametrize("both", [True, False])
def test_a_training_of_darknet_saves(scene: Scene, both: bool) -> None:
    scene.write_cfg(max_batches=100000)
    words = ["darknet", "detector", "train", str(scene.data), str(scene.cfg), "-seed", "3"]
    status, text = run_with_lost_reader(words, "2: ", both)
    assert status == 141
    assert scene.backup.is_file()
    assert "Traceback" not in text
    assert both or "to go on: undertow darknet detector train" in text


@pytest.mark.parametrize("words", [["caffe", "help"], ["darknet", "-h"]], ids=lambda words: words[0])
def test_what_prints_ends_without_a_word(words: list[str]) -> None:
    assert run_with_lost_reader(words, None, both=False) == (141, "")
