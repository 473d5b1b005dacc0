"""What `caffe train`, `caffe test` and `caffe time` do, with their log lines."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import numpy as np

from undertow.caffe.glog import log, number
from undertow.caffe.net import Net
from undertow.caffe.proto.api import read_solver
from undertow.caffe.proto.kinds import check_kind
from undertow.caffe.proto.schema import DEFAULT_FORK
from undertow.caffe.scores import MeanScores
from undertow.caffe.solver import NO_REQUEST, STOP, Solver
from undertow.caffe.solver_report import output_scores, score_text
from undertow.errors import UndertowError

PathLike = str | os.PathLike[str]
EFFECTS = ("stop", "snapshot", "none")
_TERMINATE = signal.SIGTERM


@dataclass
class Requests:
    """What signals have asked for since it was last asked. received: the last signal that stops."""

    pending: list[str] = field(default_factory=list)
    received: int | None = None

    def take(self) -> str:
        """The oldest request that has not been answered."""
        return self.pending.pop(0) if self.pending else NO_REQUEST


@contextmanager
def answering_signals(effects: Mapping[int, str]) -> Iterator[Requests]:
    """Within, signals become requests to the solver; a second one of a kind that stops interrupts at once."""
    requests = Requests()
    if threading.current_thread() is not threading.main_thread():
        yield requests  # only the main thread may set handlers
        return

    def handle(received: int, frame: FrameType | None) -> None:
        effect = effects[received]
        if effect == STOP:
            if requests.received is not None:
                raise KeyboardInterrupt
            requests.received = received
        if effect != NO_REQUEST:
            requests.pending.append(effect)

    before = {one: signal.signal(one, handle) for one in effects}
    try:
        yield requests
    finally:
        for one, usual in before.items():
            signal.signal(one, usual)


def signal_effects(sigint: str = "stop", sighup: str = "snapshot") -> dict[int, str]:
    """The effects of signals by their numbers; SIGTERM stops."""
    effects: dict[int, str] = {signal.SIGINT: sigint, _TERMINATE: STOP}
    if hasattr(signal, "SIGHUP"):
        effects[signal.SIGHUP] = sighup
    return effects


def train(
    solver: PathLike,
    *,
    snapshot: PathLike | None = None,
    weights: str = "",
    level: int = 0,
    stages: Sequence[str] = (),
    effects: Mapping[int, str] | None = None,
    options: Mapping[str, Any] | None = None,
    watch: Callable[[Solver], object] | None = None,
    keep_blobs: bool = True,
) -> int | None:
    """Train as a solver prototxt says; the signal that stopped it, if one did.

    snapshot: a solverstate to go on from. weights: caffemodels to begin with, separated by commas. level, stages: of
    the train net. effects: see `signal_effects`. options: of `Net`. watch: gets the solver before it starts.
    keep_blobs: whether `watch` may read blobs; otherwise the outputs alone are kept, which takes less memory.
    """
    if snapshot is not None and weights:
        raise UndertowError("snapshot and weights are both given", remedy="give the snapshot to go on, or the weights")
    settings = dict(options or {})
    fork = settings.pop("fork", DEFAULT_FORK)
    param = read_solver(solver, fork=fork)
    # Better known before the nets are built, which may take long.
    if snapshot is not None:
        check_kind(snapshot, "SolverState")
    _check_weights(weights)
    state = param.mutable("train_state")
    state.level = level
    state.stage.extend(stages)
    if snapshot is not None or weights:
        param.weights = [weights] if weights else []
    if param.has_field("solver_mode") and param.solver_mode == "GPU":
        log("The solver asks for a GPU; this program computes on the CPU.", "caffe.cpp:197")
    log("Use CPU.", "caffe.cpp:197")
    with answering_signals(effects or {}) as requests:
        trainer = Solver(param, options=settings, file=solver, fork=fork)
        trainer.request = requests.take
        for net in (trainer.net, *trainer.test_nets):
            net.plans.keep_all = keep_blobs
        if watch is not None:
            watch(trainer)
        try:
            if snapshot is not None:
                log(f"Resuming from {os.fspath(snapshot)}", "caffe.cpp:235")
                trainer.restore(snapshot)
            log("Starting Optimization", "caffe.cpp:239")
            trainer.solve()
        finally:
            trainer.close()
    log("Optimization Done.", "caffe.cpp:250")
    return requests.received


def score_net(
    model: PathLike,
    weights: str,
    *,
    iterations: int = 50,
    level: int = 0,
    stages: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
) -> dict[str, list[float]]:
    """Run a net in phase TEST and report its outputs, batch by batch and their means; the means by blob name."""
    log("Use CPU.", "caffe.cpp:275")
    _check_weights(weights)
    net = Net(model, "TEST", level=level, stages=stages, **dict(options or {}))
    for name in weights.split(","):
        net.copy_from(name.strip())
    log(f"Running for {iterations} iterations.", "caffe.cpp:281")
    loss, scores = 0.0, MeanScores()
    net.plans.keep_all = False
    for turn in range(iterations):
        loss += net.evaluate()
        scores.add(net)
        for name, _, value in output_scores(net):
            log(f"Batch {turn}, {name} = {number(value)}", "caffe.cpp:304")
    log(f"Loss: {number(loss / iterations)}", "caffe.cpp:309")
    means: dict[str, list[float]] = {}
    for name, weight, mean in scores.results():
        log(score_text(name, weight, mean), "caffe.cpp:321")
        means.setdefault(name, []).append(mean)
    return means


def _check_weights(names: str) -> None:
    for name in names.split(",") if names else ():
        check_kind(name.strip(), "NetParameter")


def time_net(
    model: PathLike,
    *,
    phase: str = "TRAIN",
    iterations: int = 50,
    level: int = 0,
    stages: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
) -> dict[str, tuple[float, float]]:
    """Time forward and backward of every layer: milliseconds by layer name, and under "" those of the whole net."""
    log("Use CPU.", "caffe.cpp:343")
    net = Net(model, phase, level=level, stages=stages, **dict(options or {}))
    log("Performing Forward", "caffe.cpp:351")
    log(f"Initial loss: {number(net.forward())}", "caffe.cpp:356")
    log("Performing Backward", "caffe.cpp:357")
    net.backward()
    log("*** Benchmark begins ***", "caffe.cpp:365")
    log(f"Testing for {iterations} iterations.", "caffe.cpp:366")
    spent = np.zeros((2, len(net.layers)))
    started = time.perf_counter()
    for turn in range(iterations):
        before = time.perf_counter()
        for index in range(len(net.layers)):
            spent[0, index] += _seconds(net.forward_from_to, index)
        for index in reversed(range(len(net.layers))):
            spent[1, index] += _seconds(net.backward_from_to, index)
        took = number(1000 * (time.perf_counter() - before))
        log(f"Iteration: {turn + 1} forward-backward time: {took} ms.", "caffe.cpp:394")
    total = 1000 * (time.perf_counter() - started)
    spent *= 1000 / iterations
    log("Average time per layer: ", "caffe.cpp:397")
    for index, name in enumerate(net.layer_names):
        log(f"{name:>10}\tforward: {number(spent[0, index])} ms.", "caffe.cpp:400")
        log(f"{name:>10}\tbackward: {number(spent[1, index])} ms.", "caffe.cpp:403")
    forward, backward = spent.sum(axis=1)
    log(f"Average Forward pass: {number(forward)} ms.", "caffe.cpp:408")
    log(f"Average Backward pass: {number(backward)} ms.", "caffe.cpp:410")
    log(f"Average Forward-Backward: {number(total / iterations)} ms.", "caffe.cpp:412")
    log(f"Total Time: {number(total)} ms.", "caffe.cpp:414")
    log("*** Benchmark ends ***", "caffe.cpp:415")
    times = {name: (float(a), float(b)) for name, a, b in zip(net.layer_names, *spent, strict=True)}
    return {**times, "": (float(forward), float(backward))}


def _seconds(run: Callable[[int, int], object], index: int) -> float:
    before = time.perf_counter()
    run(index, index)
    return time.perf_counter() - before
