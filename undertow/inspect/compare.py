"""Where two traces part: the first layer on the way forward, the first on the way back, and by how much."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import dropwhile, takewhile

import numpy as np

from undertow.errors import ShapeError
from undertow.inspect.match import Step, alike, matched, same_sizes
from undertow.inspect.record import Array
from undertow.inspect.trace import LayerTrace, Trace

TOLERANCE = 1e-3
_SAME = "trace both with the same batch and size"


@dataclass(frozen=True)
class Difference:
    """One layer in both runs. output, gradient, parameters: relative distances, nan where there is nothing to compare.

    parameters: the largest distance of a parameter's gradient, and its name.
    """

    one: LayerTrace
    other: LayerTrace
    output: float
    gradient: float
    parameters: float
    parameter: str


@dataclass(frozen=True)
class Path:
    """A gradient that a layer sends to an earlier one besides the layer before it: its norm in both runs."""

    layer: int
    type: str
    source: int
    one: float
    other: float

    @property
    def lost(self) -> bool:
        """Whether one run loses all of it."""
        return (self.one == 0) != (self.other == 0)


@dataclass(frozen=True)
class Comparison:
    """layers: in forward order. forward, backward: the first that parts, on the way forward and back; None: nowhere.

    same_batch: whether both runs saw the same batch. paths: see `Path`. gap: of nets that are not the same, the first
    steps without a counterpart, of the one and of the other net; None where it lacks none there.
    """

    one: Trace
    other: Trace
    tolerance: float
    same_batch: bool
    layers: list[Difference]
    forward: Difference | None
    backward: Difference | None
    paths: list[Path]
    gap: tuple[Step | None, Step | None] = (None, None)


def compare(one: Trace, other: Trace, tolerance: float = TOLERANCE) -> Comparison:
    """Compare two traces layer by layer; layers are told by their order.

    Where the layers are others (a converted network, or one that was changed), those are compared that
    `undertow.inspect.match` finds to be the same step. tolerance: relative distance beyond which they part.
    Raises ShapeError where nothing can be compared.
    """
    if not alike(one.layers, other.layers):
        return _compare_unlike(one, other, tolerance)
    pairs = list(zip(one.layers, other.layers, strict=True))
    apart = next(((a, b) for a, b in pairs if not same_sizes(a, b)), None)
    if apart is not None:
        if same_input(one, other):
            return _compare_unlike(one, other, tolerance)
        a, b = apart
        raise ShapeError(f"the output of layer {a.name} has shape {a.shape} in one trace, {b.shape} in the other",
                         remedy=_SAME)  # fmt: skip
    layers = []
    for a, b in pairs:
        parameters, name = _of_parameters(a, b)
        layers.append(Difference(a, b, _of(a, b, "output"), _of(a, b, "gradient"), parameters, name))
    paths = [
        Path(a.index, a.type, source, a.sent[source], b.sent[source])
        for a, b in zip(one.layers, other.layers, strict=True)
        for source in a.sent
        if source in b.sent
    ]
    return _judged(one, other, tolerance, layers, paths)


def same_input(one: Trace, other: Trace) -> bool:
    """Whether both batches had the same size, as far as it shows."""
    batches = {layers[0].shape[:1] for layers in (one.layers, other.layers) if layers}
    return one.input_sample.size == other.input_sample.size and len(batches) < 2


def _compare_unlike(one: Trace, other: Trace, tolerance: float) -> Comparison:
    layers = []
    steps = matched(one.layers, other.layers)
    for a, b in steps:
        if a is None or b is None:
            continue
        weights = _of_both(a.first, b.first, "gradient of weights")
        output, gradient = _of(a.last, b.last, "output"), _of_both(a.last, b.last, "gradient")
        layers.append(Difference(a.last, b.last, output, gradient, weights, "" if math.isnan(weights) else "weights"))
    if not layers:
        remedy = "compare runs of the same net, or of one and its conversion" if same_input(one, other) else _SAME
        raise ShapeError(f"no layer of {one.source} has the kind and shape of one of {other.source}", remedy=remedy)
    return replace(_judged(one, other, tolerance, layers, []), gap=_first_gap(steps))


def _first_gap(steps: list[tuple[Step | None, Step | None]]) -> tuple[Step | None, Step | None]:
    alone = dropwhile(lambda pair: None not in pair, steps)
    gap = list(takewhile(lambda pair: None in pair, alone))
    return next((a for a, _ in gap if a is not None), None), next((b for _, b in gap if b is not None), None)


def _judged(one: Trace, other: Trace, tolerance: float, layers: list[Difference], paths: list[Path]) -> Comparison:
    forward = next((layer for layer in layers if layer.output > tolerance), None)
    back = (layer for layer in reversed(layers) if max_of(layer.gradient, layer.parameters) > tolerance)
    same = distance(one.input_sample, other.input_sample) == 0
    return Comparison(one, other, tolerance, same, layers, forward, next(back, None), paths)


def distance(a: Array | None, b: Array | None) -> float:
    """|a - b| over the larger of |a| and |b|: 0 when equal, 1 when one is 0, inf where only one is finite.

    None stands for an array that is not there: nan when neither is.
    """
    if a is None or b is None:
        return math.nan if a is b else math.inf
    if a.shape != b.shape:
        return math.inf
    finite = np.isfinite(a)
    if not np.array_equal(finite, np.isfinite(b)):
        return math.inf
    x, y = a[finite].astype(np.float64), b[finite].astype(np.float64)
    largest = max(float(np.linalg.norm(x)), float(np.linalg.norm(y)))
    return float(np.linalg.norm(x - y)) / largest if largest else 0.0


def max_of(*values: float) -> float:
    """The largest, nan left out; 0 when all are."""
    return max((value for value in values if not math.isnan(value)), default=0.0)


def _of(a: LayerTrace, b: LayerTrace, kind: str) -> float:
    return distance(a.samples.get(kind), b.samples.get(kind))


def _of_both(a: LayerTrace, b: LayerTrace, kind: str) -> float:
    """nan where one side has none: formats differ in where the way back begins."""
    return _of(a, b, kind) if kind in a.samples and kind in b.samples else math.nan


def _of_parameters(a: LayerTrace, b: LayerTrace) -> tuple[float, str]:
    found = [(_of(a, b, f"gradient of {name}"), name) for name in a.parameters if name in b.parameters]
    return max(((d, name) for d, name in found if not math.isnan(d)), default=(math.nan, ""))
