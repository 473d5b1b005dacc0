"""A Darknet network in one or several dialects, recorded for a page."""

from __future__ import annotations

import os
from collections.abc import Sequence

from undertow.darknet.dialect import DARKNET_CPU, EXACT, dialect_named
from undertow.darknet.files.datafile import read_data
from undertow.darknet.files.names import read_names
from undertow.darknet.network import Network
from undertow.errors import UndertowError
from undertow.inspect.batches import Batch, darknet_batch
from undertow.inspect.darknet_run import DarknetRun, open_network, read_by
from undertow.inspect.record import Array
from undertow.inspect.sending import Sending
from undertow.inspect.trace_nets import trace_network
from undertow.scope.detection import heads_of
from undertow.scope.recording import Recording, Request, Run, picture_of, rows_and_stories, told_otherwise


def record_darknet(request: Request) -> Recording:
    """The usual dialects: the one the cfg was made for, and the C program's CPU code beside `exact`."""
    first = _open(request, request.dialects[0] if request.dialects else None)
    names: Sequence[str] = request.dialects
    if not names:
        names = [EXACT.name, DARKNET_CPU.name] if first.dialect == EXACT else [first.dialect.name]
    found = _Recorder(request)
    found.run(first)
    for name in names[1:]:
        found.run(_open(request, name))
    return found.recording


def _open(request: Request, dialect: str | None) -> Network:
    chosen = dialect_named(dialect) if dialect else None
    return open_network(request.net, request.weights, dialect=chosen, size=request.size, seed=request.seed)


class _Recorder:
    """Runs networks that differ in their dialects on the same batch."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.recording: Recording
        self._batch: Batch | None = None

    def run(self, net: Network) -> None:
        if self._batch is None:
            count = self.request.batch or 2 * net.options.time_steps
            given = (self.request.data, self.request.truth)
            self._batch = darknet_batch(net, *given, count=count, seed=self.request.seed)
        run = Run(net.dialect.name)
        batch = self._batch
        run.trace = trace_network(
            net,
            batch,
            rate=self.request.rate,
            seed=self.request.seed,
            phase=self.request.phase,
            look=lambda seen, sent: self._look(run, seen, sent),
        )
        self.recording.runs.append(run)
        self.recording.notes += [note for note in run.trace.notes if note not in self.recording.notes]

    def _look(self, run: Run, seen: DarknetRun, sending: Sending) -> None:
        net = seen.net
        known = [p.data for p in net.parameters()]
        if not hasattr(self, "recording"):
            self.recording = self._begin(seen, known)
        else:
            run.told = told_otherwise(self.recording.rows, self.request.net, seen.layers, known, self.request.seed)
        for layer in net.layers:
            run.keep(layer.index, "output", layer.output)
            run.keep(layer.index, "gradient", layer.output_variable.grad)
        run.sent = sending.sent
        run.heads = heads_of(net)

    def _begin(self, seen: DarknetRun, known: Sequence[Array]) -> Recording:
        net, batch = seen.net, self._batch
        assert batch is not None
        rows, stories = rows_and_stories(self.request.net, seen.layers, known, self.request.seed)
        size = f"{net.w}x{net.h}x{net.c}" if net.c else f"{net.inputs} values"
        return Recording(
            self.request.net,
            f"{net.n} layers, input {size}; {batch.about}",
            "darknet",
            rows,
            [record.details for record in seen.layers],
            [read_by(net, record.index) for record in seen.layers],
            stories,
            [],
            picture_of(batch.images),
            names=_names(self.request),
        )


def _names(request: Request) -> Sequence[str]:
    """Of the classes: those given, or those that a .data file names; none where there are none."""
    if request.names or request.data is None or not os.fspath(request.data).endswith(".data"):
        return request.names
    try:
        return read_names(read_data(request.data).path("names"))
    except (UndertowError, OSError):
        return ()
