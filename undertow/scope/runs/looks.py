"""What a look at all layers finds, and how often to look."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile

from undertow.inspect.record import Array
from undertow.inspect.trace import LayerTrace
from undertow.inspect.watch import norm_of
from undertow.scope.runs.records import LayerNumbers, there

# Unless told otherwise, the layers are looked at so many times in a run, but not more often than every 20 iterations,
# unless there would be less than so many looks.
LOOKS, LEAST_EVERY, LEAST_LOOKS = 400, 20, 20
# A loss so many times the smallest average before explodes; another look is taken when it has grown tenfold again.
_EXPLODED, _AGAIN = 100.0, 10.0


def usual_every(iterations: int) -> int:
    """Iterations between two looks at the layers, for a training of so many (0: nobody knows)."""
    least = min(LEAST_EVERY, max(iterations // LEAST_LOOKS, 1)) if iterations else LEAST_EVERY
    every = max(least, iterations // LOOKS)
    return next(number for number in _round_numbers() if number >= every)


def _round_numbers() -> Iterator[int]:
    """1, 2 and 5 times the powers of ten."""
    power = 1
    while True:
        yield from (power, 2 * power, 5 * power)
        power *= 10


class Schedule:
    """When to look: every so many iterations; before, in the first, and unless told how often, in 2, 5, 10, 20..."""

    def __init__(self, every: int | None, iterations: int) -> None:
        self.every = every or usual_every(iterations)
        self._early = {1} if every else set(takewhile(lambda number: number < self.every, _round_numbers()))

    def is_due(self, iteration: int) -> bool:
        return iteration % self.every == 0 or iteration in self._early


class LossAlarm:
    """Whether a loss calls for a look of its own: the first that is not finite, or one that explodes."""

    def __init__(self) -> None:
        self._average, self._least, self._told = math.nan, math.inf, 0.0

    def __call__(self, loss: float) -> bool:
        """loss: of this iteration; once for each."""
        size = abs(loss) if math.isfinite(loss) else math.inf
        rings = size > max(_EXPLODED * self._least, _AGAIN * self._told)
        if rings:
            self._told = size
        if math.isfinite(loss):
            self._average = size if math.isnan(self._average) else 0.9 * self._average + 0.1 * size
            self._least = min(self._least, self._average)
        return rings


def together(norms: Sequence[float]) -> float:
    """The norm of several arrays side by side; nan without any."""
    return math.hypot(*norms) if norms else math.nan


def update_ratio(before: Mapping[str, Array], after: Mapping[str, Array]) -> float:
    """The largest |after - before| / |before| of a layer's parameters; nan without any that is not 0."""
    ratios = []
    for name, array in before.items():
        weights = norm_of(array)
        if weights > 0:
            ratios.append(norm_of(after[name], array) / weights)
    return max(ratios, default=math.nan)


def numbers_of(layers: Sequence[LayerTrace], updates: Sequence[float]) -> LayerNumbers:
    """One record, from the traces of all layers and the update-to-weight ratio of each."""
    rows: dict[str, list[float | None]] = {"update": there(updates)}
    for name, part in (("output", "norm"), ("mean", "mean"), ("deviation", "deviation"), ("zeros", "zeros"),
                       ("saturated", "saturated"), ("dead", "dead")):  # fmt: skip
        wrong = [layer.output.bad > 0 and part not in ("saturated", "dead") for layer in layers]
        rows[name] = there([getattr(layer.output, part) for layer in layers], wrong)
    rows["gradient"] = there([layer.gradient.norm for layer in layers], [layer.gradient.bad > 0 for layer in layers])
    rows["weights"] = there(
        [together([p.norm for p in layer.parameters.values()]) for layer in layers],
        [any(p.bad > 0 for p in layer.parameters.values()) for layer in layers],
    )
    slopes = [_gradients(layer) for layer in layers]
    rows["weight_gradient"] = there(map(together, slopes), map(bool, slopes))
    rows["bad"] = there(map(_bad, layers))
    return LayerNumbers(rows)


def _gradients(layer: LayerTrace) -> list[float]:
    """The norms of those gradients of its parameters that are there; NaN for one without any finite value."""
    return [
        p.gradient
        for name, p in layer.parameters.items()
        if f"gradient of {name}" in layer.samples and (p.bad > 0 or not math.isnan(p.gradient))
    ]


def _bad(layer: LayerTrace) -> float:
    """Values that are not finite, in output, gradient and parameters."""
    counts = [layer.output.bad, layer.gradient.bad, *(p.bad for p in layer.parameters.values())]
    known = [count for count in counts if not math.isnan(count)]
    return sum(known) if known else math.nan
