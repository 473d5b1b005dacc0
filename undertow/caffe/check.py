"""What is wrong with a net or a solver, its data and weights, told before a training begins."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from undertow.caffe.check_data import check_labels, count_samples, look_at_data
from undertow.caffe.layer import PythonLoader
from undertow.caffe.layers_data import FeedLayer
from undertow.caffe.memory import bytes_needed, physical_memory
from undertow.caffe.net import Net
from undertow.caffe.proto import parse_text
from undertow.caffe.proto.api import find_beside, read_caffemodel, read_prototxt, read_solver
from undertow.caffe.proto.blobs import blob_shape
from undertow.caffe.proto.files import read_text
from undertow.caffe.proto.message import Message
from undertow.caffe.scores import scores_for
from undertow.caffe.solver_nets import NetMaker
from undertow.caffe.solver_options import Checker
from undertow.caffe.weights import fits
from undertow.errors import UndertowError, UndertowWarning
from undertow.findings import Level, Report

PathLike = str | os.PathLike[str]
_SHOWN = 3


def check(source: PathLike, weights: PathLike | None = None, *, python: PythonLoader | None = None) -> Report:
    """Look at everything that a solver's or a net's prototxt needs; parameters take no memory, nothing is written.

    weights: a caffemodel to begin with, besides those that a solver names. python: makes Python layers, see `Net`.
    Problems are findings, not exceptions.
    """
    report = Report()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", UndertowWarning)
        try:
            solver = _is_solver(source)
        except UndertowError as problem:
            report.add("error", "net", str(problem))
        else:
            files = [weights] if weights else []
            (_check_solver if solver else _check_net)(report, source, files, python)
    for message in dict.fromkeys(str(entry.message) for entry in told if issubclass(entry.category, UndertowWarning)):
        report.add("warning", "files", message)
    return report


def _is_solver(source: PathLike) -> bool:
    """Whether the text knows more fields of a solver than of a net."""
    text = read_text(source)
    unknown = {
        kind: len(parse_text(text, kind, file=source, unknown="keep").unknown_fields)
        for kind in ("NetParameter", "SolverParameter")
    }
    return unknown["SolverParameter"] < unknown["NetParameter"]


@dataclass
class _Built:
    """A net without memory for its parameters. what: how findings call it."""

    net: Net
    what: str

    @property
    def feeds(self) -> list[FeedLayer]:
        return [layer for layer in self.net.layers if isinstance(layer, FeedLayer)]

    @property
    def samples(self) -> int | None:
        """Samples of its first source of data, None where that is not known."""
        return count_samples(self.feeds[0]) if self.feeds else None

    @property
    def batch(self) -> int:
        """Samples of one pass from its first source of data; 0 without one."""
        return int(self.feeds[0].feed.shapes[0][0]) if self.feeds else 0


def _check_net(report: Report, source: PathLike, weights: list[PathLike], python: PythonLoader | None) -> None:
    """Both phases of a net by itself; of a net without data layers they are mostly the same, which is told once."""
    try:
        message = read_prototxt(source)
    except UndertowError as problem:
        report.add("error", "net", str(problem))
        return
    phases = [str(message.state.phase)] if message.state.has_field("phase") else ["TRAIN", "TEST"]
    built: list[_Built] = []
    failures: list[str] = []
    for phase in phases:
        one = _try(failures, f"{phase} net", partial(Net, source, phase, fill=False, python=python))
        if one is not None and not (built and one.net.layer_names == built[0].net.layer_names):
            built.append(one)
    # Many nets are meant for one phase; where both fail, which one it is cannot be told.
    _tell_failures(report, failures, "warning" if built else "error")
    if len(built) == 1 and not failures and len(phases) > 1:
        built[0].what = "net"
    _check_built(report, built)
    for file in weights:
        _check_weights(report, file, built)


def _check_solver(report: Report, source: PathLike, weights: list[PathLike], python: PythonLoader | None) -> None:
    try:
        param = read_solver(source)
        without = param.copy()
        without.snapshot = 0  # where snapshots go is looked at by itself: a missing folder hides nothing else
        Checker(without, source).all()
        scores_for(param)
    except UndertowError as problem:
        report.add("error", "solver", str(problem))
        return
    if param.snapshot or param.snapshot_after_train:
        try:
            Checker(param, source).snapshots_can_be_written()
        except UndertowError as problem:
            report.add("error", "solver", str(problem))
    named = [find_beside(name.strip(), source) for name in ",".join(param.weights).split(",") if name.strip()]
    param.clear_field("weights")  # these nets have no memory to take them
    maker = NetMaker(param, source, options={"fill": False, "python": python})
    failures: list[str] = []
    train = _try(failures, "train net", maker.train_net)
    tests: list[_Built] = []
    nets = maker.test_nets()
    for number in range(len(param.test_iter)):
        one = _try(failures, f"test net {number}", lambda: next(nets))
        if one is None:
            break  # what made it cannot go on
        tests.append(one)
    _tell_failures(report, failures)
    built = [one for one in (train, *tests) if one is not None]
    _check_built(report, built)
    if train is not None:
        if not any(train.net.layer_need_backward):
            report.add(
                "error", "net", f"{train.what}: no loss reaches a layer with parameters; nothing would be learned"
            )
        _check_schedule(report, param, train, tests)
    for file in (*named, *weights):
        _check_weights(report, file, built)


def _try(failures: list[str], what: str, make: Callable[[], Net]) -> _Built | None:
    try:
        return _Built(make(), what)
    except UndertowError as problem:
        failures.append(f"{what}: {problem}")
        return None


def _tell_failures(report: Report, failures: list[str], level: Level = "error") -> None:
    """Errors of several nets; the same one, of layers that they share, once."""
    seen: set[str] = set()
    for failure in failures:
        _, _, text = failure.partition(": ")
        if text not in seen:
            report.add(level, "net", failure)
        seen.add(text)


def _check_built(report: Report, built: list[_Built]) -> None:
    for one in built:
        net = one.net
        parameters = sum(blob.count for blob in net.learnable_params)
        shapes = ", ".join(f"{name} {_sizes(net.blobs[name].shape)}" for name in net.outputs[:_SHOWN])
        report.add("note", "net", f"{one.what}: {len(net.layers)} layers, {parameters:,} parameters; gives {shapes}")
        for layer in one.feeds:
            look_at_data(report, layer, one.what)
        check_labels(report, net, one.what)
    if built:
        _check_memory(report, built)
    for one in built:
        for layer in one.feeds:
            layer.close()


def _check_memory(report: Report, built: list[_Built]) -> None:
    """All nets of a solver are there at the same time."""
    needed, limit = sum(bytes_needed(one.net) for one in built), physical_memory()
    report.numbers["memory_bytes"] = needed
    report.add("note", "memory", f"about {needed / 2**20:,.0f} MiB for blobs and parameters (estimated)")
    if limit is not None and needed > limit:
        report.add(
            "error",
            "memory",
            f"this machine has {limit / 2**20:,.0f} MiB, which is less. To mend it: use smaller batches or images",
        )


def _check_schedule(report: Report, param: Message, train: _Built, tests: list[_Built]) -> None:
    last, per = int(param.max_iter), train.batch * int(param.iter_size)
    report.numbers |= {"max_iter": last, "samples_per_iteration": per}
    if last < 1:
        report.add(
            "error", "schedule", "max_iter is missing or 0: nothing is trained. To mend it: write max_iter: 10000"
        )
        return
    if per:
        report.add("note", "schedule", f"{per} samples in an iteration (batch_size, iter_size), {last} iterations")
    samples = train.samples
    if samples and per:
        rounds = last * per / samples
        report.numbers["rounds"] = rounds
        report.add("note", "schedule", f"{rounds:.1f} rounds through the {samples} samples to learn from")
        if rounds < 1:
            report.add("warning", "schedule", f"max_iter={last} ends before every sample was seen once")
    late = [step for step in param.stepvalue if step >= last]
    if param.lr_policy in ("multistep", "multifixed") and late:
        report.add(
            "warning", "schedule", f"stepvalue {late[0]} is not before max_iter={last}: the rate never changes there"
        )
    if param.lr_policy == "step" and param.stepsize >= last:
        report.add(
            "warning", "schedule", f"stepsize {param.stepsize} is not below max_iter={last}: the rate never changes"
        )
    for one, iterations in zip(tests, param.test_iter, strict=False):
        there, wanted = one.samples, int(iterations) * one.batch
        if there and wanted and wanted != there:
            share = f"{100 * wanted / there:.0f} % of" if wanted < there else f"{wanted / there:.1f} times"
            report.add("note", "schedule", f"{one.what}: a test takes {wanted} samples, {share} the {there} there are")


def _check_weights(report: Report, file: PathLike, built: list[_Built]) -> None:
    """What of a caffemodel the nets would take, and what does not fit."""
    try:
        source = read_caffemodel(file)
    except UndertowError as problem:
        report.add("error", "weights", str(problem))
        return
    stored = {str(layer.name): layer for layer in source.layer if layer.blobs}
    for one in built[:1]:  # a solver's test nets share the parameters of the one that learns
        taken = [name for name in one.net.params if name in stored]
        for problem_text in _misfits(one.net, taken, stored):
            report.add("error", "weights", f"{os.fspath(file)}: {problem_text}")
        missing = [name for name in one.net.params if name not in stored]
        surplus = [name for name in stored if name not in one.net.params]
        report.numbers |= {"layers_loaded": len(taken), "layers_wanted": len(one.net.params)}
        report.add("note", "weights", f"{os.fspath(file)} fills {len(taken)} of {len(one.net.params)} layers")
        if missing and taken:
            report.add("note", "weights", f"layers with parameters that it does not have: {_some(missing)}")
        if surplus:
            report.add("note", "weights", f"layers that only the file has: {_some(surplus)}")
        if not taken:
            remedy = "use the weights of this net, or name its layers as the file does"
            report.add(
                "error",
                "weights",
                f"{os.fspath(file)} has no layer of this net: {_some(surplus)}. To mend it: {remedy}",
            )


def _misfits(net: Net, names: list[str], stored: dict[str, Message]) -> Iterator[str]:
    remedy = (
        "To mend it: rename the layer in the prototxt to learn it from the start, or make its options those of the file"
    )
    for name in names:
        blobs, protos = net.params[name], stored[name].blobs
        if len(blobs) != len(protos):
            yield f"layer '{name}' has {len(protos)} parameters there, {len(blobs)} in the net. {remedy}"
            continue
        for number, (blob, proto) in enumerate(zip(blobs, protos, strict=True)):
            shape = blob_shape(proto)
            if not fits(blob.shape, shape, legacy=not proto.has_field("shape")):
                there, here = _sizes(shape), _sizes(blob.shape)
                yield f"layer '{name}', parameter {number}: {there} there, {here} in the net. {remedy}"


def _sizes(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "a number"


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
