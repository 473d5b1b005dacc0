"""What a look at all layers finds, and how often to look."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from undertow.inspect.record import Array
from undertow.inspect.trace import LayerTrace
from undertow.inspect.watch import norm_of
from undertow.scope.runs.records import LayerNumbers, there

# Unless told otherwise, the layers are looked at so many times in a run, but not more often than every 20 iterations.
LOOKS, LEAST_EVERY = 400, 20


def usual_every(iterations: int) -> int:
    """Iterations between two looks at the layers, for a training of so many."""
    every = max(LEAST_EVERY, iterations // LOOKS)
    # A round number: 1, 2 or 5 times a power of ten.
    power = 10 ** int(math.log10(every))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= every)


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
