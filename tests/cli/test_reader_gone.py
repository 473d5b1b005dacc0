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


def run_with_lost_reader(
    words: list[str], until: str | None, both: bool = True, module: str = "undertow"
) -> tuple[int, str]:
    """Read up to a line, then no more; the exit status, and what stderr says where that is not among what is lost."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, *words], env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True,
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


@pytest.mark.parametrize(
    "words",
    ["undertow caffe help", "undertow darknet -h", "undertow.caffe -h", "benchmarks rows"],
)
def test_what_prints_ends_without_a_word(words: str) -> None:
    module, *rest = words.split()
    assert run_with_lost_reader(rest, None, both=False, module=module) == (141, "")


def test_a_broken_pipe_of_a_script_s_own_is_shown(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("raise BrokenPipeError('mine')\n")
    done = subprocess.run([sys.executable, "-m", "undertow.caffe", str(tmp_path / "script.py")], capture_output=True,
                          env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True)  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.endswith("BrokenPipeError: mine\n")


@pytest.mark.parametrize("module", ["undertow.caffe", "undertow.darknet"])
@pytest.mark.parametrize(
    "end",
    ["while True:\n    print('more')", "print('more' * 100000)", "raise SystemExit", "print('more', flush=False)"],
)
def test_scripts_end_without_a_word(tmp_path: Path, module: str, end: str) -> None:
    (tmp_path / "script.py").write_text(f"print('begun', flush=True)\nimport sys, time\nsys.stdin.read()\n{end}\n")
    process = subprocess.Popen(
        [sys.executable, "-m", module, str(tmp_path / "script.py")], env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == "begun\n"
    process.stdout.close()
    process.stdin.close()
    told = process.stderr.read()
    status = process.wait(timeout=60)
    assert (status, told) == (0 if end == "raise SystemExit" else 141, "")
