"""Softmax and cross entropy in one, against class numbers or against distributions."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from undertow.core.function import Function
from undertow.core.registry import Sample, register
from undertow.core.variable import Operand, Variable, as_variable
from undertow.errors import ShapeError
from undertow.functions.loss_options import Normalization, check_labels, check_same_shape, divisor
from undertow.functions.softmaxes import log_softmax, softmax
from undertow.kernels import select

__all__ = ["SoftCrossEntropy", "SoftmaxCrossEntropy", "soft_cross_entropy", "softmax_cross_entropy"]

Array = np.ndarray[Any, Any]


def _samples(rng: np.random.Generator) -> list[Sample]:
    weights = rng.uniform(0.5, 2, 4)

    def sample(shape: tuple[int, ...], note: str, ignored: bool = False, **options: Any) -> Sample:
        labels = rng.integers(0, shape[1], (shape[0], *shape[2:]))
        if ignored:
            labels.reshape(-1)[::3] = 255
            options["ignore_label"] = 255
        return Sample(
            (rng.standard_normal(shape) * 2, labels),
            lambda x, t: softmax_cross_entropy(x, t, **options),
            lambda x, t: _expected(x, t, **options),
            note,
        )

    return [
        sample((3, 4), "vectors"),
        sample((2, 1), "one class"),
        sample((2, 4, 2, 3), "a class per pixel"),
        sample((2, 3, 2, 2), "ignored label", ignored=True),
        sample((2, 3, 5), "all places count", ignored=True, normalization="full"),
        sample((2, 3, 2, 2), "samples count", ignored=True, normalization="batch_size"),
        sample((2, 4, 3), "plain sum, class weights", normalization="none", class_weight=weights),
        sample((2, 4, 3), "weighted mean", True, normalization="weight", class_weight=weights),
        sample((2, 4, 3), "one loss per label", True, class_weight=weights, elementwise=True),
    ]


def _expected(
    x: Array,
    t: Array,
    ignore_label: int | None = None,
    class_weight: Array | None = None,
    normalization: Normalization = "valid",
    elementwise: bool = False,
) -> Array:
    """Label by label."""
    losses = np.zeros(t.shape)
    valid = weight_sum = 0.0
    for place, label in np.ndenumerate(t):
        if label == ignore_label:
            continue
        scores = x[(place[0], slice(None), *place[1:])]
        weight = 1.0 if class_weight is None else class_weight[label]
        losses[place] = -weight * np.log(np.exp(scores[label]) / np.exp(scores).sum())
        valid, weight_sum = valid + 1, weight_sum + weight
    if elementwise:
        return losses
    counts = {"valid": valid, "full": t.size, "batch_size": len(t), "none": 1, "weight": weight_sum}
    return losses.sum() / counts[normalization]


@register(
    "softmax_cross_entropy",
    gradient="twice",
    forward="y = -sum over labels of weight[t] log softmax(x)[t] / divisor",
    backward="gx = (softmax(x) - onehot(t)) weight[t] gy / divisor, 0 where the label is ignored",
    samples=_samples,
    labels=(1,),
)
class SoftmaxCrossEntropy(Function):
    """`softmax_cross_entropy` for given options; classes along axis 1."""

    def __init__(
        self,
        ignore_label: int | None = None,
        class_weight: Array | None = None,
        normalization: Normalization = "valid",
        elementwise: bool = False,
    ) -> None:
        self.ignore_label = ignore_label
        self.class_weight = None if class_weight is None else np.asarray(class_weight)
        self.normalization: Normalization = normalization
        self.elementwise = elementwise

    def forward(self, x: Array, t: Array) -> Array:
        valid = None if self.ignore_label is None else t != self.ignore_label
        check_labels("softmax_cross_entropy", x.shape, t, valid)
        labels = t if valid is None else np.where(valid, t, 0)
        self._places = _places(labels)
        weights = self._label_weights(x, labels, valid)
        self._log_p = select.log_softmax(x, 1)
        found = self._log_p[self._places]
        self._weights: Any = x.dtype.type(1) if weights is None else weights[:, None]
        if self.elementwise:
            return -found if weights is None else -found * weights
        self._weights = self._weights / divisor(
            self.normalization,
            valid=t.size if valid is None else int(valid.sum()),
            full=t.size,
            batch=len(t),
            weight=t.size if weights is None else float(weights.sum(dtype=np.float64)),
        )
        return np.asarray(-np.sum(found[:, None] * self._weights, dtype=np.float64), x.dtype)

    def backward(self, gy: Array) -> tuple[Array, None]:
        gx = np.exp(self._log_p)
        gx[self._places] -= 1
        gx *= self._weights * (gy[:, None] if self.elementwise else gy)
        return gx, None

    def backward_graph(self, gy: Variable) -> tuple[Variable, None]:
        x = self.inputs[0]
        onehot = np.zeros_like(x.data)
        onehot[self._places] = 1
        gy = gy.reshape(gy.shape[0], 1, *gy.shape[1:]) if self.elementwise else gy
        return (softmax(x, 1) - onehot) * (self._weights * gy), None

    def _label_weights(self, x: Array, labels: Array, valid: Array | None) -> Array | None:
        """For each label its class weight, 0 where it is ignored; None where all count 1."""
        if self.class_weight is None:
            return None if valid is None else valid.astype(x.dtype)
        if self.class_weight.shape != x.shape[1:2]:
            raise ShapeError(f"{x.shape[1]} classes need {x.shape[1]} class weights, got {self.class_weight.shape}")
        weights = self.class_weight.astype(x.dtype)[labels]
        return weights if valid is None else weights * valid


def _places(labels: Array) -> tuple[Array, ...]:
    """The index of each label's score in an array (batch, classes, *spatial)."""
    first, *others = _mesh(labels.shape)
    return first, labels, *others


@lru_cache(maxsize=64)
def _mesh(shape: tuple[int, ...]) -> tuple[Array, ...]:
    """Along each axis the numbers of its places, as arrays that are broadcast to the shape."""
    return tuple(np.ogrid[tuple(slice(n) for n in shape)])


def softmax_cross_entropy(
    x: Operand,
    t: Operand,
    ignore_label: int | None = None,
    class_weight: Array | None = None,
    normalization: Normalization = "valid",
    elementwise: bool = False,
) -> Variable:
    """-log of the probability that softmax(x) gives to the right class, for every label, then averaged.

    x: scores (batch, classes, *spatial). t: integers (batch, *spatial), each from 0 to classes - 1 or ignore_label.
    class_weight: (classes,), what a label of that class counts. elementwise: return one loss per label, of t's
    shape, instead of one number (normalization then plays no part).
    normalization: what the sum is divided by (Caffe's LossParameter): the "valid" labels, those not ignored;
    the "full" number of labels; the "batch_size"; "none". "weight": the sum of the valid labels' class weights.

    Errors: ShapeError, TypeError for labels that are no integers, ValueError for a label that is no class.
    """
    return SoftmaxCrossEntropy(ignore_label, class_weight, normalization, elementwise)(x, t)


def _soft_samples(rng: np.random.Generator) -> list[Sample]:
    def sample(shape: tuple[int, ...], normalization: Normalization, count: float) -> Sample:
        t = rng.uniform(0.1, 1, shape)
        return Sample(
            (rng.standard_normal(shape), t / t.sum(1, keepdims=True)),
            lambda x, t: soft_cross_entropy(x, t, normalization),
            lambda x, t: -(t * np.log(np.exp(x) / np.exp(x).sum(1, keepdims=True))).sum() / count,
            normalization,
        )

    return [sample((3, 4), "full", 3), sample((2, 3, 2, 2), "full", 8), sample((2, 3, 2), "batch_size", 2),
            sample((2, 3), "none", 1)]  # fmt: skip


@register(
    "soft_cross_entropy",
    gradient="twice",
    forward="y = -sum of t log softmax(x) / divisor",
    backward="gx = (softmax(x) sum(t) - t) gy / divisor, gt = -log softmax(x) gy / divisor",
    samples=_soft_samples,
)
class SoftCrossEntropy(Function):
    """`soft_cross_entropy` for a given normalization; classes along axis 1."""

    def __init__(self, normalization: Normalization = "full") -> None:
        self.normalization: Normalization = normalization

    def forward(self, x: Array, t: Array) -> Array:
        check_same_shape("soft_cross_entropy", x, t)
        if x.ndim < 2:
            raise ShapeError(f"soft_cross_entropy needs scores (batch, classes, *spatial), got {x.shape}")
        places = x.size // max(x.shape[1], 1)
        self._factor = 1 / divisor(self.normalization, valid=places, full=places, batch=len(x))
        self._log_p = select.log_softmax(x, 1)
        return np.asarray(-np.sum(t * self._log_p, dtype=np.float64) * self._factor, x.dtype)

    def backward(self, gy: Array) -> tuple[Array | None, Array | None]:
        t = self.inputs[1].data
        scale = gy * self._factor
        gx = gt = None
        if self.needs_input_grad[0]:
            gx = np.exp(self._log_p)
            gx *= t.sum(1, keepdims=True)
            gx -= t
            gx *= scale
        if self.needs_input_grad[1]:
            gt = -scale * self._log_p
        return gx, gt

    def backward_graph(self, gy: Variable) -> tuple[Variable, Variable]:
        x, t = self.inputs
        scale = gy * self._factor
        return scale * (softmax(x, 1) * t.sum(1, keepdims=True) - t), -scale * log_softmax(x, 1)


def soft_cross_entropy(x: Operand, t: Operand, normalization: Normalization = "full") -> Variable:
    """-sum of t log softmax(x): cross entropy against distributions (smoothed labels, another net's output).

    x: scores (batch, classes, *spatial). t: of the same shape, a distribution over the classes at each place.
    normalization: "full", all places; "batch_size"; "none". Differentiable in both. Returns a number.
    """
    return SoftCrossEntropy(normalization)(as_variable(x), t)
