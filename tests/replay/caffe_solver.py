"""Replaying trainings of Caffe: parameters, gradients and updates of five iterations, snapshots, resuming, logs."""

from __future__ import annotations

import json
import logging
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from tests.replay.caffe import Arrays, Closeness, compare_params, load_trace, set_inputs
from undertow.caffe.glog import LOGGER
from undertow.caffe.net import Net
from undertow.caffe.proto import Message, blob_array, read_caffemodel, read_solver, read_solverstate, walk
from undertow.caffe.solver import Solver

_ITERATION = re.compile(r"it(\d+)/")
_RATE = re.compile(r"\([^()]* iter/s, [^()]* iters\)")
# Lines of the tool that this program has no counterpart of.
# What is said while a net is built; the recorded logs were kept without it.
_BUILDING = re.compile(r"\S+ (?:->|<-) .*|    with loss weight .*|\S+ (?:needs|does not need) backward computation\.")
_SKIPPED = re.compile(r".*\.h5$")


def kind_of(folder: Path) -> Callable[[Path, Closeness], None] | None:
    """How a case is replayed; None for those that train nothing."""
    if (folder / "train_log.txt").is_file():
        return replay_tool
    if (folder / "solver.prototxt").is_file() and (folder / "trace.npz").is_file():
        return replay_training
    if any(path.is_dir() and (path / "restored.npz").is_file() for path in folder.iterdir()):
        return replay_restored
    return None


def make_solver(folder: Path, prefix: Path) -> Solver:
    """The case's solver in Caffe's dialect, with its initial parameters; it writes its snapshots elsewhere."""
    param = read_solver(folder / "solver.prototxt")
    param.snapshot_prefix = str(prefix)
    solver = Solver(param, options={"dialect": "caffe"})
    init = next(place for place in (folder, folder.parent / "lenet") if (place / "init.caffemodel").is_file())
    solver.net.copy_from(init / "init.caffemodel")
    return solver


def replay_training(folder: Path, result: Closeness) -> None:
    """All recorded iterations, one by one."""
    arrays = load_trace(folder)
    with tempfile.TemporaryDirectory() as place:
        solver = make_solver(folder, Path(place) / "snap")
        _wiring(folder, solver, result)
        _run(folder, solver, arrays, result)
        solver.close()


def _run(folder: Path, solver: Solver, arrays: Arrays, result: Closeness) -> None:
    compare_params(solver.net, arrays, "", "data", result)
    set_inputs(solver.net, arrays, "input/")
    for index, net in enumerate(solver.test_nets):
        set_inputs(net, arrays, f"test{index}/input/")
    recorded = {int(match[1]) for name in arrays if (match := _ITERATION.match(name))}
    rates: list[float] = []
    outputs: dict[str, list[np.ndarray]] = {name: [] for name in solver.net.outputs}

    def ready() -> None:
        rates.append(solver.lr)
        for name, values in outputs.items():
            values.append(solver.net.blobs[name].data.copy())
        _parameters(solver.net, arrays, solver.iter + 1, "grad", "diff", result)

    solver.callbacks.append(_callback(ready))
    for number in range(1, len(arrays["lr"]) + 1):
        solver.step(1)
        _parameters(solver.net, arrays, number, "update", "diff", result)
        _parameters(solver.net, arrays, number, "data", "data", result)
        if number in recorded:
            _tests(solver, arrays, number, result)
            _snapshots(folder, solver, result)
    result.arrays("lr", np.array(rates), arrays["lr"])
    for name, values in outputs.items():
        result.arrays(f"outputs/{name}", np.array(values).reshape(arrays[f"outputs/{name}"].shape),
                      arrays[f"outputs/{name}"])  # fmt: skip


def _callback(ready: Callable[[], None]) -> object:
    from undertow.caffe.solver import Callback

    return Callback(lambda: None, ready)


def _parameters(net: Net, arrays: Arrays, number: int, what: str, field: str, result: Closeness) -> None:
    """Every array `itK/param/LAYER/INDEX/what` of an iteration."""
    for name, recorded in arrays.items():
        if name.startswith(f"it{number}/param/") and name.endswith(f"/{what}"):
            layer, _, index = name.removeprefix(f"it{number}/param/").removesuffix(f"/{what}").rpartition("/")
            result.arrays(name, getattr(net.params[layer][int(index)], field), recorded)


def _tests(solver: Solver, arrays: Arrays, number: int, result: Closeness) -> None:
    for index, net in enumerate(solver.test_nets):
        head = f"it{number}/test{index}/"
        wanted = [name for name in arrays if name.startswith(head)]
        if wanted:
            net.share_with(solver.net)
            net.forward()
        for name in wanted:
            result.arrays(name, net.blobs[name.removeprefix(head)].data, arrays[name])


def _wiring(folder: Path, solver: Solver, result: Closeness) -> None:
    path = folder / "nets.json"
    if path.is_file():
        nets = json.loads(path.read_text(encoding="utf-8"))
        result.text("layers of the train net", solver.net.layer_names, nets["train"])
        result.text("layers of the test nets", [net.layer_names for net in solver.test_nets], nets["test"])


def _snapshots(folder: Path, solver: Solver, result: Closeness) -> None:
    """Our snapshot beside the recorded one: the same fields, the same numbers."""
    for path in sorted(folder.glob(f"snap_iter_{solver.iter}.*")):
        solver.snapshot()
        ours = Path(solver.param.snapshot_prefix).with_name(path.name)
        if not ours.is_file():
            result.problems.append(f"{path.name} was not written")
            continue
        read = read_solverstate if "solverstate" in path.name else read_caffemodel
        compare_messages(path.name, read(ours), read(path), result)


def compare_messages(name: str, ours: Message, recorded: Message, result: Closeness) -> None:
    """Two snapshots: arrays within the tolerance, all other fields equal."""
    if ours.descriptor.name == "SolverState":
        ours.learned_net = Path(ours.learned_net).name
    for (place, mine), (_, theirs) in zip(walk(ours), walk(recorded), strict=True):
        if mine.descriptor.name == "BlobProto":
            for diff, field in ((False, "data"), (True, "diff")):
                if theirs.has_field(field):
                    result.arrays(f"{name} {place}", blob_array(mine, diff=diff), blob_array(theirs, diff=diff))
    result.text(name, _without_arrays(ours), _without_arrays(recorded))


def _without_arrays(message: Message) -> str:
    copy = message.copy()
    for _, item in walk(copy):
        if item.descriptor.name == "BlobProto":
            for field in ("data", "diff"):
                item.clear_field(field)
    return copy.to_text()


def replay_restored(folder: Path, result: Closeness) -> None:
    """Each training in the folder, and again from Caffe's snapshot after two iterations."""
    from contextlib import chdir

    for case in sorted(path for path in folder.iterdir() if path.is_dir()):
        with chdir(case), tempfile.TemporaryDirectory() as place:
            replay_training(case, result)
            with np.load(case / "restored.npz", allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
            solver = make_solver(case, Path(place) / "snap")
            solver.restore(case / "snap_iter_2.solverstate")
            result.text("iteration", solver.iter, 2)
            set_inputs(solver.net, load_trace(case), "input/")
            rates: list[float] = []
            solver.callbacks.append(_callback(lambda rates=rates, solver=solver: rates.append(solver.lr)))  # type: ignore[misc]
            solver.step(3)
            result.arrays("restored/lr", np.array(rates), arrays["restored/lr"])
            compare_params(solver.net, arrays, "restored/it5/", "data", result)


# --- the command line tool ------------------------------------------------------------------------------


@contextmanager
def lines_said() -> Iterator[list[str]]:
    """The lines logged within."""
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    keep, level = Keep(), LOGGER.level
    LOGGER.addHandler(keep)
    LOGGER.setLevel(logging.INFO)
    try:
        yield lines
    finally:
        LOGGER.removeHandler(keep)
        LOGGER.setLevel(level)


def replay_tool(folder: Path, result: Closeness) -> None:
    """`caffe train` with weights, then from its own snapshot as Caffe does, then `caffe test`: line by line."""
    from undertow.caffe.brew import score_net, train

    with tempfile.TemporaryDirectory() as place:
        text = (folder / "solver.prototxt").read_text(encoding="utf-8")
        solver = Path(place) / "solver.prototxt"
        solver.write_text(text.replace('"cli"', f'"{place}/cli"').replace('"net.prototxt"', f'"{folder}/net.prototxt"'))
        with lines_said() as lines:
            train(str(solver), weights="init.caffemodel")
        _compare_logs("train_log.txt", folder, lines, place, result)
        _compare_files("cli_iter_5.*", folder, place, result)
        with lines_said() as lines:
            score_net(str(folder / "net.prototxt"), f"{place}/cli_iter_10.caffemodel", iterations=3)
        _compare_logs("test_log.txt", folder, lines, place, result)
        (Path(place) / "cli_iter_5.resume.npz").unlink()
        with lines_said() as lines:
            train(str(solver), snapshot=f"{place}/cli_iter_5.solverstate")
        _compare_logs("resume_log.txt", folder, lines, place, result)
        # The recorded files after 10 iterations are those of the resumed run.
        _compare_files("cli_iter_10.*", folder, place, result)


def _compare_files(pattern: str, folder: Path, place: str, result: Closeness) -> None:
    for path in sorted(folder.glob(pattern)):
        read = read_solverstate if path.suffix == ".solverstate" else read_caffemodel
        compare_messages(path.name, read(Path(place) / path.name), read(path), result)


def _compare_logs(name: str, folder: Path, lines: list[str], place: str, result: Closeness) -> None:
    recorded = (folder / name).read_text(encoding="utf-8").splitlines()
    wanted = [line for line in recorded if not _SKIPPED.fullmatch(line)]
    found = [_RATE.sub("(RATE)", line).replace(f"{place}/", "") for line in lines]
    heads = {line.split(" ")[0] for line in wanted} | {""}
    found = [line for line in found if line.split(" ")[0] in heads and line.split("\n")[0] == line]
    found = [line for line in found if not _BUILDING.fullmatch(line)]
    numbers = re.compile(r"(?<== )[-\d.e+]+|(?<=Loss: )[-\d.e+]+")
    result.text(name, [numbers.sub("N", line) for line in found], [numbers.sub("N", line) for line in wanted])
    ours = [float(n) for line in found for n in numbers.findall(line)]
    theirs = [float(n) for line in wanted for n in numbers.findall(line)]
    if len(ours) == len(theirs):
        result.arrays(f"numbers of {name}", np.array(ours), np.array(theirs))
