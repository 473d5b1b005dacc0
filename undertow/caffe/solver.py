"""Solver: trains a net as a solver prototxt says.

solver = Solver("lenet_solver.prototxt")
solver.step(100)                       # then read and write solver.net.blobs, .params
solver.solve()                         # to max_iter, with tests, snapshots and log lines
solver.restore("lenet_iter_5000.solverstate")

One iteration: clear the gradients, test if it is time, iter_size times forward and backward, update, snapshot if it is
time. An update: clip the summed gradient, divide by iter_size, add the decay, apply the rule; the parameters' diffs
then hold what was subtracted.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from undertow.caffe import snapshot
from undertow.caffe.arguments import path_of, whole
from undertow.caffe.glog import log, number
from undertow.caffe.net import Net
from undertow.caffe.proto.api import read_solver
from undertow.caffe.proto.message import Message
from undertow.caffe.proto.schema import DEFAULT_FORK, ForkLike
from undertow.caffe.proto.upgrade import upgrade_solver
from undertow.caffe.scores import scores_for
from undertow.caffe.solver_nets import NetMaker
from undertow.caffe.solver_options import Checker, learning_rate, rule_options
from undertow.caffe.solver_report import SmoothedLoss, Stopwatch, report_train_outputs, score_text
from undertow.errors import NonFiniteError, UndertowError, UndertowWarning
from undertow.kernels.select import Together
from undertow.optimizers.caffe import RULES

PathLike = str | os.PathLike[str]
NO_REQUEST, STOP, SNAPSHOT = "none", "stop", "snapshot"


@dataclass(frozen=True)
class Callback:
    """on_start: before the passes of an iteration. on_gradients_ready: after them, before the update."""

    on_start: Callable[[], object]
    on_gradients_ready: Callable[[], object]


class Solver:
    """A training.

    source: the path of a solver prototxt, or a SolverParameter. type: overrides the prototxt's. seed: where the
    prototxt has no random_seed. options: more of `Net`: dialect, dtype, python. file: where a
    SolverParameter comes from.

    param: the SolverParameter. net, test_nets. iter: updates done. history: arrays in the order of a solverstate.
    request: asked once per iteration for "stop", "snapshot" or "none". after_iteration: called after every update.
    after_test: called with a test net's number and the means of its outputs. last_loss: of the last iteration.
    Raises FormatError with file, line and remedy for a prototxt that cannot be used.
    """

    def __init__(
        self,
        source: PathLike | Message,
        *,
        type: str | None = None,
        seed: int | None = None,
        fork: ForkLike = DEFAULT_FORK,
        options: Mapping[str, Any] | None = None,
        file: PathLike | None = None,
    ) -> None:
        path = file if isinstance(source, Message) else source
        self.file = None if path is None else os.fspath(path)
        self.param = source.copy() if isinstance(source, Message) else read_solver(source, fork=fork)
        if isinstance(source, Message):
            upgrade_solver(self.param)
        if type is not None:
            self.param.type = type
        Checker(self.param, self.file).all()
        scores_for(self.param)  # an unknown eval_type is told before anything is built
        self.rule = RULES[str(self.param.type)]
        self._update_together = Together("caffe")
        log(f"Initializing solver from parameters: \n{self.param.to_text()}", "solver.cpp:45")
        seed = int(self.param.random_seed) if self.param.random_seed >= 0 else seed
        maker = NetMaker(self.param, self.file, seed, fork, dict(options or {}))
        self.net: Net = maker.train_net()
        self.test_nets: list[Net] = list(maker.test_nets())
        log("Solver scaffolding done.", "solver.cpp:57")
        self.iter = self.current_step = 0
        parameters = self.net.learnable_params * self.rule.histories
        self.history = [np.zeros(blob.shape, blob.dtype) for blob in parameters]
        self.callbacks: list[Callback] = []
        self.after_iteration: list[Callable[[], object]] = []
        self.after_test: list[Callable[[int, list[tuple[str, float, float]]], object]] = []
        self.last_loss = math.nan
        self.request: Callable[[], str] = lambda: NO_REQUEST
        self.loss = SmoothedLoss(self.param.average_loss)
        self.stopped = False
        self._stopwatch = Stopwatch()
        self._warned = self._told = False

    # --- training ---------------------------------------------------------------------------------------

    def step(self, iterations: int) -> None:
        """So many iterations, with the tests, snapshots and lines that fall due; fewer after a request to stop.

        Raises WrongKind, a TypeError, unless their number is a whole one.
        """
        iterations = whole(iterations, "the number of iterations of step")
        p, first = self.param, self.iter
        if self.net.plans.reason and not self._told:
            self._told = True
            log(f"{self.net.name} runs layer by layer: {self.net.plans.reason}", "net.cpp:0")
        last = first + iterations
        self.loss.clear()
        self._stopwatch.start()
        while self.iter < last:
            self.net.clear_param_diffs()
            if _due(self.iter, p.test_interval) and (self.iter > 0 or p.test_initialization):
                self.test_all()
                if self.stopped:
                    return
            for callback in self.callbacks:
                callback.on_start()
            self._passes(first)
            for callback in self.callbacks:
                callback.on_gradients_ready()
            self.apply_update()
            for watcher in self.after_iteration:
                watcher()
            request = self.request()
            if _due(self.iter, p.snapshot) or request == SNAPSHOT:
                self.snapshot()
            if request == STOP:
                self.stopped = True
                return

    def _passes(self, first: int) -> None:
        """The forward and backward passes of one iteration, and its lines."""
        p = self.param
        display = _due(self.iter, p.display)
        self.net.debug_info = display and bool(p.debug_info)
        total = 0.0
        for _ in range(p.iter_size):
            total += self.net.forward_backward()
        loss = self.last_loss = total / p.iter_size
        self._look_at(loss)
        self.loss.add(loss, self.iter - first)
        if display:
            lap = self._stopwatch.lap(self.iter, p.display)
            log(f"Iteration {self.iter} {lap}, loss = {number(self.loss.value)}", "solver.cpp:239")
            report_train_outputs(self.net)

    def _look_at(self, loss: float) -> None:
        if not math.isfinite(loss) and not self._warned:
            self._warned = True
            warnings.warn(
                UndertowWarning(
                    f"the loss is {loss} at iteration {self.iter}. To mend it: a smaller base_lr, clip_gradients, or a "
                    "look at the labels"
                ),
                stacklevel=4,
            )

    def solve(self, resume: PathLike | None = None) -> None:
        """Train to max_iter, with a last snapshot, loss and test as the prototxt asks; from a snapshot if given."""
        p = self.param
        resume = None if resume is None else path_of(resume, "a solverstate")
        if p.snapshot_after_train:
            Checker(p, self.file).snapshots_can_be_written()
        log(f"Solving {self.net.name}", "solver.cpp:289")
        log(f"Learning Rate Policy: {p.lr_policy}", "solver.cpp:290")
        self.stopped = False
        if resume is not None:
            log(f"Restoring previous solver status from {os.fspath(resume)}", "solver.cpp:296")
            self.restore(resume)
        first = self.iter
        if first >= p.max_iter > 0:  # with 0 it is asked for tests alone
            warnings.warn(
                UndertowWarning(
                    f"iteration {first} has been reached, max_iter is {p.max_iter}: nothing is left to train. To go "
                    "on, write a larger max_iter"
                ),
                stacklevel=2,
            )
        self.step(p.max_iter - self.iter)
        if p.snapshot_after_train and not _due(self.iter, p.snapshot):
            self.snapshot()
        if self.stopped:
            log("Optimization stopped early.", "solver.cpp:311")
            return
        if _due(self.iter, p.display):
            self.loss.add(self.net.forward(), self.iter - first)
            log(f"Iteration {self.iter}, loss = {number(self.loss.value)}", "solver.cpp:327")
        if _due(self.iter, p.test_interval):
            self.test_all()
        log("Optimization Done.", "solver.cpp:332")

    # --- updating ---------------------------------------------------------------------------------------

    @property
    def lr(self) -> float:
        """The learning rate of the next update."""
        return learning_rate(self.param, self.iter, self._next_step())

    def _next_step(self) -> int:
        """How many steps of the policy are behind at this iteration; one iteration passes at most one of multistep."""
        p = self.param
        if p.lr_policy == "step":
            return self.iter // int(p.stepsize)
        if p.lr_policy == "multistep":
            step = self.current_step
            return step + (step < len(p.stepvalue) and self.iter >= p.stepvalue[step])
        return self.current_step

    def apply_update(self) -> None:
        """One update from the gradients that stand in the parameters' diffs."""
        p, step = self.param, self._next_step()
        if p.lr_policy == "multistep" and step != self.current_step:
            log(f"MultiStep Status: Iteration {self.iter}, step = {step}", "sgd_solver.cpp:50")
        rate, self.current_step = self.lr, step
        if not math.isfinite(rate):
            raise NonFiniteError(
                f"the learning rate at iteration {self.iter} is {rate}", file=self.file,
                remedy="look at base_lr, gamma and power; with lr_policy poly, train no further than max_iter",
            )  # fmt: skip
        if _due(self.iter, p.display):
            log(f"Iteration {self.iter}, lr = {number(rate)}", "sgd_solver.cpp:112")
        self._clip()
        options, count = rule_options(p), len(self.net.learnable_params)
        if self.rule is RULES["SGD"] and p.regularization_type == "L2" and count:
            self._update_together(
                [
                    (blob.data, blob.diff, old)
                    for blob, old in zip(self.net.learnable_params, self.history, strict=True)
                ],
                [
                    (1 / p.iter_size, p.weight_decay * decay, rate * factor, options.momentum)
                    for decay, factor in zip(self.net.params_weight_decay, self.net.params_lr, strict=True)
                ],
            )
            self.iter += 1
            return
        for index, blob in enumerate(self.net.learnable_params):
            local, histories = rate * self.net.params_lr[index], self.history[index::count]
            diff = blob.diff
            if p.iter_size != 1:
                diff *= 1 / p.iter_size
            self._decay(index)
            self.rule.update(diff, histories, local, self.iter + 1, options)
            data = blob.data
            data -= diff
        self.iter += 1

    def _clip(self) -> None:
        limit = self.param.clip_gradients
        if limit < 0:
            return
        diffs = [blob.diff.reshape(-1) for blob in self.net.learnable_params]
        norm = math.sqrt(math.fsum(float(np.dot(diff, diff)) for diff in diffs))
        if norm > limit:
            scale = limit / norm
            log(
                f"Gradient clipping: scaling down gradients (L2 norm {number(norm)} > {number(limit)}) "
                f"by scale factor {number(scale)}",
                "sgd_solver.cpp:99",
            )
            for diff in diffs:
                diff *= scale

    def _decay(self, index: int) -> None:
        blob, p = self.net.learnable_params[index], self.param
        decay = p.weight_decay * self.net.params_weight_decay[index]
        if decay:
            diff = blob.diff
            diff += decay * (blob.data if p.regularization_type == "L2" else np.sign(blob.data))

    # --- testing ----------------------------------------------------------------------------------------

    def test_all(self) -> None:
        """Test all test nets with the parameters of the train net."""
        for index in range(len(self.test_nets)):
            if not self.stopped:
                self.test(index)

    def test(self, index: int) -> list[tuple[str, float, float]]:
        """Run a test net test_iter times: (blob name, loss weight, mean) for every number of its outputs.

        Requests are answered between its passes; after one to stop the result is empty.
        """
        net, passes = self.test_nets[index], int(self.param.test_iter[index])
        log(f"Iteration {self.iter}, Testing net (#{index})", "solver.cpp:347")
        net.share_with(self.net)
        loss, scores = 0.0, scores_for(self.param)
        for _ in range(passes):
            if self._stop_requested():
                log("Test interrupted.", "solver.cpp:396")
                return []
            loss += net.evaluate()
            scores.add(net)
        if self.param.test_compute_loss:
            log(f"Test loss: {number(loss / passes)}", "solver.cpp:401")
        means = scores.results()
        for number_, score in enumerate(means):
            log(f"    Test net output #{number_}: {score_text(*score)}", "solver.cpp:414")
        for watcher in self.after_test:
            watcher(index, means)
        return means

    def _stop_requested(self) -> bool:
        while (request := self.request()) != NO_REQUEST:
            if request == SNAPSHOT:
                self.snapshot()
            elif request == STOP:
                self.stopped = True
        return self.stopped

    # --- snapshots --------------------------------------------------------------------------------------

    def snapshot_path(self, suffix: str) -> str:
        """The path of a snapshot's file at this iteration."""
        return f"{self.param.snapshot_prefix}_iter_{self.iter}{suffix}"

    def snapshot(self) -> str:
        """Write caffemodel and solverstate, and beside them what Caffe forgets; the path of the solverstate.

        Raises UndertowError where they cannot be written; what was there before is as it was.
        """
        try:
            return self._snapshot()
        except OSError as problem:
            raise UndertowError(
                f"the snapshot '{self.snapshot_path('')}' cannot be written: {problem.strerror or problem}",
                file=self.file,
                remedy="look at snapshot_prefix, and at the room on the disk",
            ) from problem

    def _snapshot(self) -> str:
        p = self.param
        hdf5 = p.snapshot_format == "HDF5"
        ending, kind = (".h5", "HDF5") if hdf5 else ("", "binary proto")
        model, state = self.snapshot_path(".caffemodel" + ending), self.snapshot_path(".solverstate" + ending)
        log(f"Snapshotting to {kind} file {model}", "solver.cpp:474" if hdf5 else "solver.cpp:464")
        snapshot.save_model(self.net, model, bool(p.snapshot_diff))
        # The solverstate comes last: where it is, the others are whole.
        snapshot.save_rest(snapshot.side_file(state), self.iter, self.history, [self.net, *self.test_nets])
        log(f"Snapshotting solver state to {kind} file {state}", "sgd_solver.cpp:296" if hdf5 else "sgd_solver.cpp:284")
        snapshot.save_state(state, self.iter, self.current_step, model, self.history)
        return state

    def restore(self, path: PathLike) -> None:
        """Go on from a snapshot, this project's or Caffe's: parameters, history, iteration, and where the data stood.

        Raises FormatError or ShapeError where it does not belong to this solver; the solver is then as before, but for
        parameters when only the data positions are damaged.
        """
        path = path_of(path, "a solverstate")
        state, history = snapshot.read_state(path, self.history)
        model = snapshot.model_beside(state, path)
        if model is not None:
            self.net.copy_from(model)
        log("SGDSolver: restoring history", "sgd_solver.cpp:336")
        for ours, theirs in zip(self.history, history, strict=True):
            ours[...] = theirs
        self.iter, self.current_step = int(state.iter), int(state.current_step)
        self._stopwatch.iteration = self.iter
        rest = snapshot.side_file(path)
        if rest.is_file() and not snapshot.load_rest(rest, self.iter, self.history, [self.net, *self.test_nets]):
            log(f"{rest} belongs to another snapshot: data layers begin at their first record", "solver.cpp:0")

    def close(self) -> None:
        """Stop the threads that read data ahead; the solver can go on afterwards."""
        for net in (self.net, *self.test_nets):
            for layer in net.layers:
                close = getattr(layer, "close", None)
                if close is not None:
                    close()


def _due(iteration: int, interval: int) -> bool:
    return interval > 0 and iteration % interval == 0
