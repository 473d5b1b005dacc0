"""Losses whose gradient in Caffe is not the derivative."""

from __future__ import annotations

from typing import Any

import numpy as np

import undertow.functions as F
from undertow.core.function import Function
from undertow.core.registry import Sample, register

Array = np.ndarray[Any, Any]


def _samples(rng: np.random.Generator) -> list[Sample]:
    def by_hand(a: Array, b: Array, similar: Array) -> Array:
        distance = np.sqrt(((a - b) ** 2).sum(1))
        return np.where(similar != 0, distance**2, np.maximum(4 - distance, 0) ** 2).sum() / (2 * len(a))

    return [
        Sample(
            (rng.standard_normal((4, 3)), rng.standard_normal((4, 3)), np.array([1, 0, 0, 1])),
            lambda a, b, similar: PaddedContrastiveLoss(4.0, False, 1e-4)(a, b, similar),
            by_hand,
        )
    ]


@register(
    "padded_contrastive_loss",
    gradient="estimate",
    forward="y = sum of s d^2 + (1 - s) max(margin - d, 0)^2, over 2 batch; d = |a - b|",
    backward="ga = (s (a - b) - (1 - s) max(margin - d, 0) (a - b) / (d + epsilon)) gy / batch, gb = -ga",
    samples=_samples,
    labels=(2,),
)
class PaddedContrastiveLoss(F.ContrastiveLoss):
    """Caffe's ContrastiveLoss: its gradient divides by the distance plus epsilon."""

    def __init__(self, margin: float = 1.0, legacy: bool = False, epsilon: float = 1e-4) -> None:
        super().__init__(margin, legacy)
        self.epsilon = epsilon

    # Not the derivative, so nothing to differentiate again.
    backward_graph = Function.backward_graph  # type: ignore[assignment]

    def _weight(self, squares: Any, root: Any) -> Any:
        if self.legacy:
            return super()._weight(squares, root)
        distance = root(squares * self._near + (1 - self._near))
        return self._similar - self._near * ((self.margin - distance) / (distance + self.epsilon))
