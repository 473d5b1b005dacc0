"""Losses with a margin, as Caffe has them: hinge over classes, contrastive over pairs."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from undertow.core.function import Function
from undertow.core.registry import Sample, register
from undertow.core.variable import Operand, Variable
from undertow.errors import ShapeError
from undertow.functions.elementary import sqrt
from undertow.functions.loss_options import check_labels
from undertow.functions.sampling import distinct

__all__ = ["ContrastiveLoss", "HingeLoss", "contrastive_loss", "hinge_loss"]

Array = np.ndarray[Any, Any]
Norm = Literal["L1", "L2"]


def _hinge_samples(rng: np.random.Generator) -> list[Sample]:
    def by_hand(x: Array, t: Array, norm: Norm) -> float:
        total = 0.0
        for place, score in np.ndenumerate(x):
            right = t[(place[0], *place[2:])] == place[1]
            miss = max(0.0, 1 - score if right else 1 + score)
            total += miss if norm == "L1" else miss * miss
        return total / len(x)

    def sample(shape: tuple[int, ...], norm: Norm) -> Sample:
        return Sample(
            (distinct(rng, shape, 0.19), rng.integers(0, shape[1], (shape[0], *shape[2:]))),
            lambda x, t: hinge_loss(x, t, norm),
            lambda x, t: by_hand(x, t, norm),
            norm,
        )

    return [sample((3, 4), "L1"), sample((3, 4), "L2"), sample((2, 1), "L1"), sample((2, 3, 2), "L2")]


@register(
    "hinge_loss",
    gradient="twice",
    forward="y = sum of max(0, 1 - s x)^p / batch, s = 1 for the right class, -1 for the others, p = 1 or 2",
    backward="gx = -s gy / batch where 1 - s x > 0 (p = 1), or -2 s max(0, 1 - s x) gy / batch (p = 2)",
    samples=_hinge_samples,
    labels=(1,),
)
class HingeLoss(Function):
    """`hinge_loss`. Kink with L1: scores exactly at the margin, where the gradient is 0."""

    def __init__(self, norm: Norm = "L1") -> None:
        if norm not in ("L1", "L2"):
            raise ValueError(f"the norm of a hinge loss is 'L1' or 'L2', got {norm!r}")
        self.norm = norm

    def forward(self, x: Array, t: Array) -> Array:
        check_labels("hinge_loss", x.shape, t, np.ones(t.shape, bool))
        sign = np.full(x.shape, -1, x.dtype)
        np.put_along_axis(sign, t[:, None], 1, 1)
        miss = np.maximum(1 - sign * x, 0)
        self._sign, self._missed = sign, (miss > 0).astype(x.dtype)
        self._share = 1 / max(len(x), 1)
        values = miss if self.norm == "L1" else miss * miss
        return np.asarray(values.sum(dtype=np.float64) * self._share, x.dtype)

    def backward(self, gy: Array) -> tuple[Array, None]:
        return gy * self._share * self._slope(self.inputs[0].data), None

    def backward_graph(self, gy: Variable) -> tuple[Variable, None]:
        return gy * self._share * self._slope(self.inputs[0]), None

    def _slope(self, x: Any) -> Any:
        """Of an array or a Variable."""
        if self.norm == "L1":
            return -self._sign * self._missed
        return (x - self._sign) * (2 * self._missed)


def hinge_loss(x: Operand, t: Operand, norm: Norm = "L1") -> Variable:
    """How far scores miss the margin: the right class should have 1 or more, every other -1 or less.

    x: scores (batch, classes, *spatial). t: integers (batch, *spatial), the right classes. norm: "L1" adds up the
    misses, "L2" their squares. Returns the sum divided by the batch size. Source: Caffe's HingeLoss.
    """
    return HingeLoss(norm)(x, t)


def _contrastive_samples(rng: np.random.Generator) -> list[Sample]:
    def by_hand(a: Array, b: Array, similar: Array, margin: float, legacy: bool) -> float:
        total = 0.0
        for left, right, same in zip(a, b, similar, strict=True):
            square = sum((p - q) ** 2 for p, q in zip(left.ravel(), right.ravel(), strict=True))
            apart = max(margin - square, 0) if legacy else max(margin - math.sqrt(square), 0) ** 2
            total += square if same else apart
        return total / (2 * len(a))

    def sample(margin: float, legacy: bool) -> Sample:
        return Sample(
            (rng.standard_normal((6, 3)), rng.standard_normal((6, 3)), np.array([1, 0, 0, 1, 0, 0])),
            lambda a, b, similar: contrastive_loss(a, b, similar, margin, legacy),
            lambda a, b, similar: by_hand(a, b, similar, margin, legacy),
            f"margin {margin}, legacy {legacy}",
        )

    return [sample(1.0, False), sample(4.0, False), sample(5.0, True)]


@register(
    "contrastive_loss",
    gradient="twice",
    forward="y = sum of s d^2 + (1 - s) max(margin - d, 0)^2, over 2 batch; d = |a - b|; legacy: max(margin - d^2, 0)",
    backward="ga = (s (a - b) - (1 - s) max(margin - d, 0) (a - b) / d) gy / batch, gb = -ga; "
    "legacy: the second term is (a - b) where margin > d^2",
    samples=_contrastive_samples,
    labels=(2,),
)
class ContrastiveLoss(Function):
    """`contrastive_loss`. Kinks: equal vectors that should differ (gradient 0), and legacy pairs at the margin."""

    def __init__(self, margin: float = 1.0, legacy: bool = False) -> None:
        self.margin, self.legacy = margin, legacy

    def forward(self, a: Array, b: Array, similar: Array) -> Array:
        if a.shape != b.shape or a.ndim < 1 or similar.shape != a.shape[:1]:
            raise ShapeError(
                "contrastive_loss needs two arrays (batch, ...) of one shape and a flag for each pair, "
                f"got {a.shape}, {b.shape} and {similar.shape}"
            )
        self._similar = (similar != 0).astype(a.dtype)
        square = _squares(a - b)
        apart = self.margin - square if self.legacy else self.margin - np.sqrt(square)
        self._near = ((apart > 0) & (similar == 0) & (square > 0)).astype(a.dtype)
        apart = np.maximum(apart, 0)
        values = np.where(similar != 0, square, apart if self.legacy else apart * apart)
        self._share = 1 / max(len(a), 1)
        return np.asarray(values.sum(dtype=np.float64) * self._share / 2, a.dtype)

    def backward(self, gy: Array) -> tuple[Array, Array, None]:
        difference = self.inputs[0].data - self.inputs[1].data
        weight = self._weight(_squares(difference), np.sqrt) * (self._share * gy)
        ga = difference * weight.reshape(-1, *(1,) * (difference.ndim - 1))
        return ga, -ga, None

    def backward_graph(self, gy: Variable) -> tuple[Variable, Variable, None]:
        difference = self.inputs[0] - self.inputs[1]
        squares = (difference * difference).reshape(difference.shape[0], -1).sum(1)
        weight = self._weight(squares, sqrt) * (self._share * gy)
        ga = difference * weight.reshape(-1, *(1,) * (difference.ndim - 1))
        return ga, -ga, None

    def _weight(self, squares: Any, root: Any) -> Any:
        """What each pair's difference is multiplied by; of arrays or Variables."""
        if self.legacy:
            return self._similar - self._near
        # Where the pair plays no part, 1 stands for the distance: no division by zero.
        distance = root(squares * self._near + (1 - self._near))
        return self._similar - self._near * ((self.margin - distance) / distance)


def contrastive_loss(a: Operand, b: Operand, similar: Operand, margin: float = 1.0, legacy: bool = False) -> Variable:
    """Pulls the vectors of similar pairs together and pushes others apart until they are `margin` away.

    a, b: (batch, ...). similar: (batch,), not 0 for pairs that belong together; a constant.
    legacy: compare the margin with the squared distance, as Caffe did before 2015.

    Returns the sum divided by 2 * batch. Source: Hadsell, Chopra and LeCun 2006; Caffe's ContrastiveLoss.
    """
    return ContrastiveLoss(margin, legacy)(a, b, similar)


def _squares(difference: Array) -> Array:
    return np.square(difference).reshape(len(difference), -1).sum(1)
