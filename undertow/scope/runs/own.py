"""Recording a training that is your own code, with `ut.watch`, so that `undertow scope` shows it.

with OwnRun("runs/first", model, every=10) as run:
    for images, labels in batches:
        with run.iteration() as told:
            loss = model_loss(images, labels)
            loss.backward()
            optimizer.update()
            told(loss=float(loss.data), rate=optimizer.rate)
        optimizer.clear_grads()
    run.measure(accuracy=0.97)
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from undertow.inspect.watch import watch
from undertow.scope.runs.records import Header, LayerNumbers, now, there
from undertow.scope.runs.writer import RunWriter

FIELDS = ("weights", "weight_gradient", "update", "bad")


class OwnRun:
    """Context manager for a training; writes a run's folder, whose rows are the parameters.

    model, every: as of `ut.watch`; what is learned stays the same. last: iterations there will be, 0 where unknown.
    first: iterations done before: the folder's run is gone on with. about: a few words that the page shows.
    Raises UndertowError where the folder cannot be made.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        model: Any,
        *,
        every: int = 10,
        last: int = 0,
        first: int = 0,
        about: str = "",
    ) -> None:
        self._seen = watch(model, every=every)
        self._seen.iteration = self._done = first
        name = Path(folder).name
        layers = tuple((number, "") for number in self._seen.names)
        header = Header(
            name, "python", type(model).__name__, now(), how=about, last=last, every=every, first=first, layers=layers,
            fields=FIELDS,
        )  # fmt: skip
        self.writer = RunWriter(folder, header)

    @contextmanager
    def iteration(self) -> Iterator[Callable[..., None]]:
        """One iteration, update included; `as` gives what takes its numbers: loss, rate, ... by name.

        An iteration that raises is not counted.
        """
        numbers: dict[str, float] = {}
        begun, recorded = time.perf_counter(), len(self._seen.iterations)
        with self._seen:
            yield numbers.update
        self._done += 1
        self.writer.iteration(self._done, {**numbers, "seconds": time.perf_counter() - begun})
        if len(self._seen.iterations) > recorded:
            self.writer.layers(self._done, self._look())

    def _look(self) -> LayerNumbers:
        seen = self._seen
        weights, slopes, updates, bad = (
            [float(x) for x in seen.last(field)] for field in ("weight", "gradient", "update", "bad")
        )
        found = LayerNumbers(
            {
                "weights": weights,
                "weight_gradient": there(slopes, seen.with_gradient),
                "update": there(
                    updates, [count > 0 and weight != 0 for count, weight in zip(bad, weights, strict=True)]
                ),
                "bad": bad,
            }
        )
        found.marks = [
            ("non-finite", i, f"{count:.0f} of its values or its gradient's are not finite")
            for i, count in enumerate(bad)
            if count > 0
        ]
        return found

    def measure(self, **values: float) -> None:
        """What a validation found, by name."""
        self.writer.measure(self._done, values)

    def __enter__(self) -> OwnRun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.writer.broke_off(error)
        else:
            self.writer.end(self._done, stopped=False)
