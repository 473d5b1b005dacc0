"""Recording the training of a Darknet network."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from undertow.darknet.detection.evaluate import Evaluation
from undertow.darknet.learning.trainer import Iteration, Trainer, TrainingWatcher, TrainResult
from undertow.darknet.network import Network
from undertow.errors import NonFiniteError, UndertowError
from undertow.inspect.record import Array
from undertow.inspect.trace import Trace
from undertow.inspect.watch import norm_of
from undertow.scope.runs.looks import LossAlarm, Schedule, numbers_of, together, update_ratio
from undertow.scope.runs.probe import SAMPLES, can_probe, probe
from undertow.scope.runs.records import Header, LayerNumbers, now, there
from undertow.scope.runs.writer import RunWriter


class RunRecorder(TrainingWatcher):
    """Writes a run's folder while a detector is trained; what it learns stays the same, bit for bit.

    folder: FOLDER/NAME_run of the weights unless given. every: iterations between two looks at the layers, see
    `Schedule`; besides, those are looked at whose loss explodes, and the one in which the training breaks off.
    ready: called with the writer when the training starts.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        every: int | None = None,
        ready: Callable[[RunWriter], object] = lambda writer: None,
    ) -> None:
        self._folder, self._every, self._ready = folder, every, ready
        self.writer: RunWriter | None = None
        self._net: Network | None = None
        self._probes = False
        self._before: dict[int, dict[str, Array]] = {}
        self._schedule, self._alarm = Schedule(every, 0), LossAlarm()

    def started(self, trainer: Trainer) -> None:
        net = self._net = trainer.net
        self._schedule = Schedule(self._every, trainer.last_iteration)
        self._probes = can_probe(net)
        folder = Path(self._folder or trainer.output.folder / f"{trainer.output.name}_run")
        header = Header(
            trainer.output.name, "darknet", Path(net.config.file).name, now(),
            how=f"dialect {net.dialect.name}", last=trainer.last_iteration, every=self._schedule.every,
            samples=min(SAMPLES, net.batch), first=trainer.iteration,
            layers=tuple((str(layer.index), layer.type) for layer in net.layers),
        )  # fmt: skip
        self.writer = RunWriter(folder, header)
        if not self._probes:
            self.writer.note(trainer.iteration, "this net carries state on: only its parameters are looked at")
        self._remember(trainer.iteration + 1)
        self._ready(self.writer)

    def iterated(self, iteration: Iteration) -> None:
        assert self.writer is not None
        number, took = iteration.number, iteration.seconds + iteration.waited
        values = {
            "loss": iteration.loss, "average": iteration.average, "rate": iteration.rate,
            "seconds": iteration.seconds, "waited": iteration.waited, "images": iteration.images,
            "width": iteration.size[0], "height": iteration.size[1],
        }  # fmt: skip
        if took > 0:
            values["speed"] = iteration.images / number / took
        self.writer.iteration(number, values)
        if self._alarm(iteration.loss) or self._before:
            self.writer.layers(number, self._look())
        self._remember(number + 1)

    def note(self, text: str) -> None:
        if self.writer is not None and self._net is not None:
            self.writer.note(self._net.batch_number, text)

    def validated(self, number: int, evaluation: Evaluation, best: bool) -> None:
        assert self.writer is not None
        total = evaluation.counts
        values = {
            "mAP": evaluation.mean_average_precision, "precision": total.precision, "recall": total.recall,
            "f1": total.f1, "average_iou": total.average_iou,
        }  # fmt: skip
        values |= {f"ap {result.name}": result.average_precision for result in evaluation.classes}
        self.writer.measure(number, values)

    def saved(self, path: Path) -> None:
        if self.writer is not None:
            self.writer.sync()

    def finished(self, result: TrainResult) -> None:
        assert self.writer is not None
        self.writer.end(result.iteration, result.stopped)

    def broke_off(self, problem: BaseException) -> None:
        if self.writer is None:
            return
        if isinstance(problem, NonFiniteError):
            self._before = {}  # the iteration made no step of its own
            # All pictures of the pass: the first ones need not be those that ruined it.
            with suppress(MemoryError, UndertowError):
                self.writer.layers(self.writer.last + 1, self._look(samples=None))
        self.writer.broke_off(problem)

    def _remember(self, coming: int) -> None:
        """Copies of the parameters where the coming iteration is one of those that are looked at."""
        assert self._net is not None
        self._before = {}
        if self._schedule.is_due(coming):
            self._before = {
                layer.index: {name: p.data.copy() for name, p in layer.parameters.items()}
                for layer in self._net.layers
                if layer.parameters
            }

    def _look(self, samples: int | None = SAMPLES) -> LayerNumbers:
        net = self._net
        assert net is not None
        updates = [math.nan] * net.n
        for index, before in self._before.items():
            after = {name: p.data for name, p in net.layers[index].parameters.items()}
            updates[index] = update_ratio(before, after)
        found: Trace | None = probe(net, samples=samples or net.batch) if self._probes else None
        if found is None:
            return LayerNumbers({"update": there(updates), "weights": there(_weights(net, i) for i in range(net.n))})
        numbers = numbers_of(found.layers, updates)
        numbers.marks = [(mark.kind, mark.layer, mark.text) for mark in found.marks]
        return numbers


def _weights(net: Network, index: int) -> float:
    return together([norm_of(p.data) for p in net.layers[index].parameters.values()])
