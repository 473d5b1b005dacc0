"""Cross entropy of yes-or-no answers, from logits or from probabilities."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from undertow.core.function import Function
from undertow.core.reals import as_reals
from undertow.core.registry import Sample, register
from undertow.core.variable import Operand, Variable
from undertow.errors import ShapeError
from undertow.functions.activations import sigmoid, sigmoid_array
from undertow.functions.elementary import log
from undertow.functions.loss_options import Normalization, Reduction, check_same_shape, divisor, factor, reduced

__all__ = ["BinaryCrossEntropy", "SigmoidCrossEntropy", "binary_cross_entropy", "sigmoid_cross_entropy"]

Array = np.ndarray[Any, Any]

# No logarithm below this one: a probability of 0 costs 100, not infinity (as in PyTorch).
LOWEST_LOG = -100.0
SMALLEST_SPREAD = 1e-12


def _sigmoid_samples(rng: np.random.Generator) -> list[Sample]:
    def sample(shape: tuple[int, ...], note: str, ignored: bool = False, **options: Any) -> Sample:
        t = np.asarray(rng.integers(0, 2, shape) if ignored else rng.uniform(0, 1, shape))
        if ignored:
            t.reshape(-1)[::3] = -1
            options["ignore_label"] = -1
        return Sample(
            (np.asarray(rng.standard_normal(shape) * 3), t),
            lambda x, t: sigmoid_cross_entropy(x, t, **options),
            lambda x, t: _sigmoid_by_hand(x, t, **options),
            note,
        )

    return [
        sample((3, 4), "all labels count"),
        sample((), "a single answer"),
        sample((2, 3, 2), "ignored labels", True),
        sample((2, 5), "ignored labels, all count", True, normalization="full"),
        sample((2, 5), "samples count", True, normalization="batch_size"),
        sample((4,), "plain sum", normalization="none"),
        sample((2, 3), "one loss per label", True, elementwise=True),
    ]


def _sigmoid_by_hand(
    x: Array,
    t: Array,
    ignore_label: int | None = None,
    normalization: Normalization = "valid",
    elementwise: bool = False,
) -> Any:
    losses, valid = np.zeros(x.shape), 0
    for place, label in np.ndenumerate(t):
        if ignore_label is None or label != ignore_label:
            p = 1 / (1 + math.exp(-x[place]))
            losses[place] = -label * math.log(p) - (1 - label) * math.log(1 - p)
            valid += 1
    if elementwise:
        return losses
    return (
        losses.sum() / {"valid": valid, "full": x.size, "batch_size": len(x) if x.ndim else 1, "none": 1}[normalization]
    )


@register(
    "sigmoid_cross_entropy",
    gradient="twice",
    forward="y = sum of (max(x, 0) - x t + log(1 + exp(-|x|))) / divisor",
    backward="gx = (sigmoid(x) - t) gy / divisor, gt = -x gy / divisor, 0 where the label is ignored",
    samples=_sigmoid_samples,
    labels=(1,),
)
class SigmoidCrossEntropy(Function):
    """`sigmoid_cross_entropy` for given options."""

    def __init__(
        self, ignore_label: int | None = None, normalization: Normalization = "valid", elementwise: bool = False
    ) -> None:
        self.ignore_label = ignore_label
        self.normalization: Normalization = normalization
        self.elementwise = elementwise

    def forward(self, x: Array, t: Array) -> Array:
        check_same_shape("sigmoid_cross_entropy", x, t)
        valid = np.ones(t.shape, bool) if self.ignore_label is None else t != self.ignore_label
        losses = np.maximum(x, 0) - x * t.astype(x.dtype, copy=False) + np.log1p(np.exp(-np.abs(x)))
        self._weights = valid.astype(x.dtype)
        if self.elementwise:
            return losses * self._weights
        self._weights /= divisor(self.normalization, valid=int(valid.sum()), full=t.size, batch=len(t) if t.ndim else 1)
        return np.asarray(np.sum(losses * self._weights, dtype=np.float64), x.dtype)

    def backward(self, gy: Array) -> tuple[Array, Array | None]:
        x, t = as_reals([v.data for v in self.inputs])
        weights = gy * self._weights
        gx = (sigmoid_array(x) - t) * weights
        return gx, -x * weights if self.needs_input_grad[1] else None

    def backward_graph(self, gy: Variable) -> tuple[Variable, Variable | None]:
        x, t = self.inputs
        weights = gy * self._weights
        return (sigmoid(x) - t) * weights, x * -weights if self.needs_input_grad[1] else None


def sigmoid_cross_entropy(
    x: Operand,
    t: Operand,
    ignore_label: int | None = None,
    normalization: Normalization = "valid",
    elementwise: bool = False,
) -> Variable:
    """-t log sigmoid(x) - (1 - t) log(1 - sigmoid(x)), from the logits x, safe for any of them.

    x, t: arrays of one shape (batch, ...); t from 0 to 1, integers or floats; entries equal to ignore_label do not
    count. elementwise: return one loss per entry instead of one number.
    normalization: the sum is divided by the number of "valid" entries (not ignored; without ignore_label this is
    the mean), by the "full" number, by the "batch_size", or by 1 for "none".
    """
    return SigmoidCrossEntropy(ignore_label, normalization, elementwise)(x, t)


def _binary_samples(rng: np.random.Generator) -> list[Sample]:
    def by_hand(p: Array, t: Array, reduction: Reduction) -> Any:
        pairs = zip(p.ravel(), t.ravel(), strict=True)
        values = np.array([-b * math.log(a) - (1 - b) * math.log(1 - a) for a, b in pairs]).reshape(p.shape)
        return {"mean": values.sum() / values.size, "sum": values.sum(), "none": values}[reduction]

    def sample(shape: tuple[int, ...], reduction: Reduction) -> Sample:
        return Sample(
            (rng.uniform(0.1, 0.9, shape), rng.uniform(0, 1, shape)),
            lambda p, t: binary_cross_entropy(p, t, reduction),
            lambda p, t: by_hand(p, t, reduction),
            reduction,
        )

    return [sample((3, 4), "mean"), sample((5,), "sum"), sample((2, 1, 3), "none")]


@register(
    "binary_cross_entropy",
    gradient="twice",
    forward="y = mean (or sum) of -t log x - (1 - t) log(1 - x)",
    backward="gx = (x - t) / (x (1 - x)) gy / n, gt = (log(1 - x) - log x) gy / n",
    samples=_binary_samples,
)
class BinaryCrossEntropy(Function):
    """`binary_cross_entropy`.

    Kinks: x = 0 and x = 1, where the logarithm is cut off at -100 and the second derivative is not finite.
    """

    def __init__(self, reduction: Reduction = "mean") -> None:
        self.reduction: Reduction = reduction

    def forward(self, x: Array, t: Array) -> Array:
        check_same_shape("binary_cross_entropy", x, t)
        if x.size and not (x.min() >= 0 and x.max() <= 1):
            raise ShapeError(
                f"binary_cross_entropy takes probabilities from 0 to 1, got {x.min():g} to {x.max():g}",
                remedy="use sigmoid_cross_entropy for logits",
            )
        yes, no = _logs(x)
        return reduced(-(t * yes + (1 - t) * no), self.reduction)

    def backward(self, gy: Array) -> tuple[Array, Array | None]:
        x, t = as_reals([v.data for v in self.inputs])
        scale = gy * factor(x.size, self.reduction)
        gx = scale * (x - t) / np.maximum(x * (1 - x), SMALLEST_SPREAD)
        if not self.needs_input_grad[1]:
            return gx, None
        yes, no = _logs(x)
        return gx, scale * (no - yes)

    def backward_graph(self, gy: Variable) -> tuple[Variable, Variable]:
        x, t = self.inputs
        scale = gy * factor(x.size, self.reduction)
        return scale * (x - t) / (x * (1 - x)), scale * (log(1 - x) - log(x))


def binary_cross_entropy(x: Operand, t: Operand, reduction: Reduction = "mean") -> Variable:
    """-t log x - (1 - t) log(1 - x), from the probabilities x.

    x, t: arrays of one shape, both from 0 to 1, else ShapeError. reduction: "mean", "sum" or "none".
    A certain and wrong answer costs 100 instead of infinity. From logits, `sigmoid_cross_entropy` is exact.
    """
    return BinaryCrossEntropy(reduction)(x, t)


def _logs(x: Array) -> tuple[Array, Array]:
    """log x and log(1 - x), neither below LOWEST_LOG."""
    with np.errstate(divide="ignore"):
        return np.maximum(np.log(x), LOWEST_LOG), np.maximum(np.log1p(-x), LOWEST_LOG)
