"""`undertow caffe train|test|time`: words, logs that other programs read, signals."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.caffe.solver.nets import write_solver
from undertow.caffe.proto import read_solverstate
from undertow.cli import main

ROOT = Path(__file__).parents[2]
FAST = "momentum: 0.9 display: 2 test_iter: 2 test_interval: 4 average_loss: 3 gamma: 0.5 snapshot: 4"

# What tools/extra/parse_log.py and extract_seconds.py of Caffe look for.
ITERATION = re.compile(r"Iteration (\d+)")
TRAIN = re.compile(r"Train net output #(\d+): (\S+) = ([\.\deE+-]+)")
TEST = re.compile(r"Test net output #(\d+): (\S+) = ([\.\deE+-]+)")
RATE = re.compile(r"lr = ([-+]?[0-9]*\.?[0-9]+([eE]?[-+]?[0-9]+)?)")


def train(folder: Path, *words: str, text: str = FAST + " max_iter: 8") -> int:
    return main(["caffe", "train", f"--solver={write_solver(folder, text)}", *words])


def test_a_log_is_read_as_the_originals_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(tmp_path) == 0
    lines = capsys.readouterr().err.splitlines()
    start = next(i for i, line in enumerate(lines) if "Solving" in line)
    found: dict[str, list[tuple[int, str]]] = {"train": [], "test": [], "rate": []}
    iteration = -1
    for line in lines[start:]:
        match = ITERATION.search(line)
        iteration = int(match[1]) if match else iteration
        for name, pattern in (("train", TRAIN), ("test", TEST), ("rate", RATE)):
            if hit := pattern.search(line):
                found[name].append((iteration, hit[2] if name != "rate" else hit[1]))
        words = line.split()
        # Month and day, and a time with microseconds, as extract_seconds takes them apart.
        assert 1 <= int(words[0][1:3]) <= 12
        assert 1 <= int(words[0][3:]) <= 31
        assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{6}", words[1])
        # parse_log.sh counts columns: the eleventh is the value.
        if "Test net output" in line:
            assert float(words[10]) >= 0
    assert found["train"] == [(i, "loss") for i in (0, 2, 4, 6)]
    assert found["test"] == [(i, name) for i in (0, 4, 8) for name in ("acc", "loss")]
    assert found["rate"] == [(i, "0.1") for i in (0, 2, 4, 6)]


def test_a_log_in_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "caffe.INFO").symlink_to("one_of_yesterday")
    assert train(tmp_path, f"--log_dir={tmp_path}") == 0
    text = (tmp_path / "caffe.INFO").read_text(encoding="utf-8").splitlines()
    assert text[0].startswith("Log file created at: 2")
    assert text[2].startswith("Log line format: [IWEF]mmdd")
    assert text[3:] == capsys.readouterr().err.splitlines()
    assert len(list(tmp_path.glob("caffe.*.log.INFO.*"))) == 1
    assert train(tmp_path, f"--log_dir={tmp_path}/nowhere") != 0
    assert "make the folder" in capsys.readouterr().err


def test_numbers_as_csv(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same rows as parse_log.py makes of the log."""
    assert train(tmp_path, f"--csv={tmp_path}/run") == 0
    text = capsys.readouterr().err
    rows = {name: (tmp_path / f"run.{name}").read_text().splitlines() for name in ("train", "test")}
    assert rows["train"][0] == "NumIters,Seconds,LearningRate,loss"
    assert rows["test"][0] == "NumIters,Seconds,LearningRate,acc,loss"
    assert [row.split(",")[3] for row in rows["train"][1:]] == re.findall(r"Train net output #0: loss = (\S+)", text)
    assert [row.split(",")[4] for row in rows["test"][1:]] == re.findall(r"Test net output #1: loss = (\S+)", text)
    assert [row.split(",")[0] for row in rows["train"][1:]] == ["0.0", "2.0", "4.0", "6.0"]
    assert [row.split(",")[2] for row in rows["train"][1:]] == re.findall(r", lr = (\S+)", text)
    assert train(tmp_path, f"--snapshot={tmp_path}/snap_iter_4.solverstate", f"--csv={tmp_path}/run") == 0
    longer = (tmp_path / "run.train").read_text().splitlines()
    assert longer[:3] == rows["train"][:3]
    assert [row.split(",")[0] for row in longer[3:]] == ["4.0", "6.0"]
    capsys.readouterr()
    once = (tmp_path / "run.train").read_text().splitlines()
    (tmp_path / "run.train").write_text("\n".join([*once, once[-1][:3]]))  # killed while it wrote
    assert train(tmp_path, f"--snapshot={tmp_path}/snap_iter_4.solverstate", f"--csv={tmp_path}/run") == 0
    again = (tmp_path / "run.train").read_text().splitlines()
    assert [row.split(",")[0] for row in again] == [row.split(",")[0] for row in once]
    assert train(tmp_path, f"--csv={tmp_path}/nowhere/run") == 2
    assert "look at --csv" in capsys.readouterr().err


def test_resuming_and_finetuning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(tmp_path, "-threads", "1") == 0
    whole = (tmp_path / "snap_iter_8.caffemodel").read_bytes()
    assert train(tmp_path, f"--snapshot={tmp_path}/snap_iter_4.solverstate", "-threads", "1") == 0
    assert (tmp_path / "snap_iter_8.caffemodel").read_bytes() == whole
    capsys.readouterr()
    assert train(tmp_path, "--weights", f"{tmp_path}/snap_iter_8.caffemodel", text="max_iter: 0") == 0
    assert "Finetuning from" in capsys.readouterr().err
    both = ["--weights=x", "--snapshot=y"]
    assert train(tmp_path, *both) == 2
    assert "snapshot and weights are both given" in capsys.readouterr().err


def test_test_and_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(tmp_path) == 0
    capsys.readouterr()
    net, weights = f"{tmp_path}/net.prototxt", f"{tmp_path}/snap_iter_8.caffemodel"
    assert main(["caffe", "test", f"-model={net}", f"-weights={weights}", "-iterations", "2"]) == 0
    text = capsys.readouterr().err
    assert len(re.findall(r"Batch \d, (?:acc|loss) = ", text)) == 4
    assert re.search(r"\] Loss: [\d.]+\n.*\] acc = [\d.]+\n.*\] loss = ([\d.]+) \(\* 1 = \1 loss\)", text)
    assert main(["caffe", "time", "-model", net, "-iterations=2", "-phase=TRAIN"]) == 0
    text = capsys.readouterr().err
    for name in ("d", "ip1", "relu", "drop", "ip2", "loss"):
        assert re.search(rf" {name}\tforward: [\d.e-]+ ms\.", text)
        assert re.search(rf" {name}\tbackward: [\d.e-]+ ms\.", text)
    assert "Average Forward-Backward: " in text


def test_wrong_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, message in (
        (["train"], "--solver is missing"),
        (["test", "--model=x"], "--weights is missing"),
        (["time"], "--model is missing"),
        (["train", "--solvr=x"], "did you mean -solver"),
        (["trian"], "did you mean train"),
        (["train", "--solver=x", "--sigint_effect=explode"], "there is stop, snapshot, none"),
        (["train", f"--solver={tmp_path}/none.prototxt"], "cannot be read"),
    ):
        assert main(["caffe", *words]) == 2
        assert message in capsys.readouterr().err
    assert main(["caffe", "device_query"]) == 0
    assert main(["caffe", "help"]) == 0
    assert "--solver" in capsys.readouterr().out.replace("-solver", "--solver")


def test_python_layers_run_only_when_allowed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_solver(tmp_path, "max_iter: 1 snapshot_after_train: false")
    net = tmp_path / "net.prototxt"
    option = 'python_param { module: "tests.caffe.pycaffe.layers_for_tests" layer: "Times" param_str: "1" }'
    layer = f'layer {{ type: "Python" name: "times" bottom: "data" top: "t" {option} }}'
    silence = 'layer { type: "Silence" name: "s" bottom: "t" }'
    net.write_text(net.read_text() + layer + silence)
    assert main(["caffe", "train", f"--solver={path}"]) == 2
    assert "not allowed here" in capsys.readouterr().err
    assert main(["caffe", "train", f"--solver={path}", "--python_layers"]) == 0


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    """A training that ends only by a signal, once it has begun to iterate."""
    path = write_solver(folder, "display: 20 max_iter: 1000000000")
    process = subprocess.Popen(
        [sys.executable, "-m", "undertow", "caffe", "train", f"--solver={path}", "-threads=1", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    for line in process.stderr:
        if "Iteration 40" in line:
            break
    return process


def states(folder: Path) -> list[int]:
    return sorted(read_solverstate(path).iter for path in folder.glob("*.solverstate"))


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="signals of Unix")
@pytest.mark.parametrize(
    ("words", "sent", "status"),
    [((), signal.SIGINT, 0), ((), signal.SIGTERM, 143), (("--sighup_effect=stop",), signal.SIGHUP, 0)],
)
def test_signals_that_stop_leave_a_snapshot(tmp_path: Path, words: tuple[str, ...], sent: int, status: int) -> None:
    process = start(tmp_path, *words)
    process.send_signal(sent)
    _, text = process.communicate(timeout=60)
    assert process.returncode == status
    assert "Optimization stopped early." in text
    (iteration,) = states(tmp_path)
    assert (tmp_path / f"snap_iter_{iteration}.caffemodel").is_file()


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="signals of Unix")
def test_a_signal_for_a_snapshot_goes_on(tmp_path: Path) -> None:
    process = start(tmp_path)
    process.send_signal(signal.SIGHUP)
    end = time.monotonic() + 60
    while not states(tmp_path) and time.monotonic() < end:
        time.sleep(0.05)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert len(states(tmp_path)) == 2


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="signals of Unix")
def test_killed_while_writing_no_snapshot_is_half(tmp_path: Path) -> None:
    """Snapshots after every iteration; whatever is there after a kill can be resumed from."""
    path = write_solver(tmp_path, "snapshot: 1 max_iter: 1000000000")
    process = subprocess.Popen(
        [sys.executable, "-m", "undertow", "caffe", "train", f"--solver={path}", "-threads=1"],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    end = time.monotonic() + 60
    while len(list(tmp_path.glob("*.solverstate"))) < 3 and time.monotonic() < end:
        time.sleep(0.02)
    process.kill()
    process.wait()
    from undertow.caffe.solver import Solver

    found = sorted(tmp_path.glob("*.solverstate"))
    assert len(found) >= 3
    for state in found[-3:]:
        solver = Solver(path)
        solver.restore(state)
        solver.step(0)
        solver.close()


@pytest.mark.skipif(sys.platform == "win32", reason="terminals of Unix")
def test_on_a_terminal_a_line_shows_how_far_it_is(tmp_path: Path) -> None:
    import pty

    path = write_solver(tmp_path, "display: 10 max_iter: 30 snapshot_after_train: false")
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "undertow", "caffe", "train", f"--solver={path}", "-threads=1"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "60"}, stderr=follower,
    )  # fmt: skip
    os.close(follower)
    text = b""
    try:
        while part := os.read(leader, 65536):
            text += part
    except OSError:
        pass  # how Linux says that the other side is closed
    finally:
        os.close(leader)
    assert process.wait() == 0
    plain = re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b"", text).decode()
    assert re.search(r"iteration +\d+/30 ", plain)
    # Lines of the log are whole, however narrow the terminal is.
    assert re.search(r"\] Iteration 20 \([^\n]* iters\), loss = [\d.e-]+\r?\n", plain)
