"""Recording the training of a Caffe net.

A plan leaves in a blob what its last layer has made of it. Where layers work in place, a look lets the layers do the
pass once more, one by one, so that each is seen as it is when it is done; other looks read the blobs.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from pathlib import Path

from undertow.caffe.net import Net
from undertow.caffe.solver import Callback, Solver
from undertow.core.modes import modes
from undertow.inspect.caffe_run import SOURCES, parameter_names
from undertow.inspect.marks import marks_of
from undertow.inspect.statistics import statistics_of
from undertow.inspect.trace import LayerTrace
from undertow.inspect.trace_nets import HANDED_ON
from undertow.inspect.watch import norm_of
from undertow.scope.runs.looks import LossAlarm, Schedule, numbers_of
from undertow.scope.runs.records import Header, now
from undertow.scope.runs.writer import RunWriter


class SolverRecorder:
    """Writes a run's folder while a solver trains; what it learns stays the same, bit for bit.

    folder: SNAPSHOT_PREFIX_run unless given. every: iterations between two looks at the layers, see `Schedule`;
    besides, those are looked at whose loss is the first not finite, or explodes. ready: called with the writer when
    the first iteration, or the test before it, begins. Iterations are numbered from 1, by the updates that are done.
    """

    def __init__(
        self,
        solver: Solver,
        folder: str | os.PathLike[str] | None = None,
        every: int | None = None,
        ready: Callable[[RunWriter], object] = lambda writer: None,
    ) -> None:
        self._solver, self._net, self._ready = solver, solver.net, ready
        self._schedule, self._alarm = Schedule(every, int(solver.param.max_iter)), LossAlarm()
        self._look_next = False
        self._folder = folder or f"{solver.param.snapshot_prefix or 'caffe'}_run"
        self._written: RunWriter | None = None
        self._images = _samples(solver.net) * int(solver.param.iter_size)
        self._traces: list[LayerTrace] = []
        pairs = zip(solver.net.bottom_ids, solver.net.top_ids, strict=True)
        self._in_place = any(set(bottoms) & set(tops) for bottoms, tops in pairs)
        self._watching = False
        self._rate, self._clock = math.nan, time.perf_counter()
        solver.callbacks.append(Callback(self._begin, self._gradients_are_there))
        solver.after_iteration.append(self._iterated)
        solver.after_test.append(self._tested)

    @property
    def writer(self) -> RunWriter:
        """Made when it is first needed: a snapshot that training goes on from has been restored by then."""
        if self._written is None:
            solver = self._solver
            header = Header(
                solver.net.name or Path(self._folder).name, "caffe", Path(solver.file or "").name, now(),
                how=f"{solver.param.type}, dialect {solver.net.dialect.name}", last=int(solver.param.max_iter),
                every=self._schedule.every, first=solver.iter,
                layers=tuple((layer.name, layer.type) for layer in solver.net.layers),
            )  # fmt: skip
            self._written = RunWriter(self._folder, header)
            self._ready(self._written)
        return self._written

    def ended(self) -> None:
        """The training is over."""
        self.writer.end(self._solver.iter, self._solver.stopped)

    # --- one iteration ----------------------------------------------------------------------------------

    def _begin(self) -> None:
        _ = self.writer
        self._unwatched()
        self._traces = []
        self._rate, self._clock = self._solver.lr, time.perf_counter()
        coming = self._solver.iter + 1
        if self._schedule.is_due(coming) or self._look_next:
            self._look_next = False
            self._traces = self._new_traces()
            if self._runs_layer_by_layer():  # then watching the layers changes no bit of what they compute
                self._net.after_forward.append(self._see_outputs)
                self._net.before_backward.append(self._see_gradients)
                self._watching = True

    def _new_traces(self) -> list[LayerTrace]:
        pairs = enumerate(self._net.layers)
        found = [LayerTrace(i, layer.name, layer.type, activation=layer.type) for i, layer in pairs]
        for seen in found:
            seen.computes = seen.type not in HANDED_ON and seen.type not in SOURCES
        return found

    def _runs_layer_by_layer(self) -> bool:
        """Whether the passes of this iteration do so anyway, and are no plans; see `undertow.caffe.planned`."""
        p = self._solver.param
        told = bool(p.debug_info) and p.display > 0 and self._solver.iter % p.display == 0
        return told or self._net.plans.reason is not None or bool(modes.hooks) or modes.precision == "reference"

    def _unwatched(self) -> None:
        if self._watching:
            self._net.after_forward.remove(self._see_outputs)
            self._net.before_backward.remove(self._see_gradients)
            self._watching = False

    def _gradients_are_there(self) -> None:
        """After the last of iter_size passes, before gradients are clipped, divided by iter_size and decayed."""
        if self._alarm(self._solver.last_loss) and not self._traces:
            if self._in_place and self._runs_layer_by_layer():
                self._look_next = True  # what was written over is gone
            else:
                self._traces = self._new_traces()
        if not self._traces:
            return
        for seen, layer in zip(self._traces, self._net.layers, strict=True):
            for number, (name, blob) in enumerate(zip(parameter_names(len(layer.blobs)), layer.blobs, strict=True)):
                wanted = layer.need_backward and layer.param_propagate_down[number]
                seen.see_parameter(name, blob.data, blob.diff if wanted else None, 0.0)
        if self._watching:
            self._unwatched()
        elif self._in_place:
            self._pass_once_more()
        else:
            for index in range(len(self._traces)):
                self._see_outputs(index)
                self._see_gradients(index)

    def _pass_once_more(self) -> None:
        net = self._net
        kept = [blob.diff.copy() for blob in net.learnable_params]
        net.before_backward.append(self._see_gradients)
        try:
            net.plans.run_again(self._see_outputs)
            net.backward()
        finally:
            net.before_backward.remove(self._see_gradients)
            for blob, diff in zip(net.learnable_params, kept, strict=True):
                blob.diff[...] = diff

    def _see_outputs(self, index: int) -> None:
        seen, tops = self._traces[index], self._net.tops(index)
        if tops:
            seen.shape, seen.output = tops[0].shape, statistics_of(tops[0].data, seen.activation)

    def _see_gradients(self, index: int) -> None:
        layer, tops = self._net.layers[index], self._net.tops(index)
        if tops and layer.need_backward and layer.type not in SOURCES:
            self._traces[index].gradient = statistics_of(tops[0].diff)

    def _iterated(self) -> None:
        solver = self._solver
        seconds = time.perf_counter() - self._clock
        values = {
            "loss": solver.last_loss, "average": solver.loss.value, "rate": self._rate, "seconds": seconds,
            "images": solver.iter * self._images,
        }  # fmt: skip
        if self._images and seconds > 0:
            values["speed"] = self._images / seconds
        self.writer.iteration(solver.iter, values)
        if self._traces:
            numbers = numbers_of(self._traces, [self._moved(index) for index in range(len(self._traces))])
            marks = marks_of(self._traces, _input_rms(self._net))
            numbers.marks = [(mark.kind, mark.layer, mark.text) for mark in marks]
            self.writer.layers(solver.iter, numbers)
            self._traces = []

    def _moved(self, index: int) -> float:
        """After an update the diffs hold what was subtracted: its norm over that of the parameters before."""
        ratios = []
        blobs = self._net.layers[index].blobs
        for name, blob in zip(parameter_names(len(blobs)), blobs, strict=True):
            before = self._traces[index].parameters[name]
            if before.norm > 0 and not math.isnan(before.gradient):
                ratios.append(norm_of(blob.diff) / before.norm)
        return max(ratios, default=math.nan)

    def _tested(self, index: int, scores: list[tuple[str, float, float]]) -> None:
        several = len(self._solver.test_nets) > 1
        values: dict[str, float] = {}
        for name, _, value in scores:
            name = f"test {index} {name}" if several else f"test {name}"
            while name in values:  # an output of several numbers
                name += "'"
            values[name] = value
        self.writer.measure(self._solver.iter, values)


def _samples(net: Net) -> int:
    """Samples of one pass: of the first blob that a data layer makes; 0 without one."""
    for layer, tops in zip(net.layers, net.top_ids, strict=True):
        if layer.type in SOURCES and tops and net.blob_list[tops[0]].shape:
            return net.blob_list[tops[0]].shape[0]
    return 0


def _input_rms(net: Net) -> float:
    """Of the largest blob that a data layer makes."""
    pairs = zip(net.layers, net.top_ids, strict=True)
    blobs = [net.blob_list[i] for layer, tops in pairs if layer.type in SOURCES for i in tops]
    largest = max(blobs, key=lambda blob: blob.data.size, default=None)
    return 1.0 if largest is None else statistics_of(largest.data).rms
