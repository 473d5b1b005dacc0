"""Dropout: switching off a random part of the values during training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from undertow.core.function import Function
from undertow.core.modes import fresh_generator, is_training
from undertow.core.registry import Sample, register
from undertow.core.variable import Operand, Variable, as_variable
from undertow.functions.loss_options import check_same_shape

__all__ = ["Dropout", "dropout"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class CountedDraws:
    """Random numbers that follow from a seed and from `calls`, an integer array of shape () that counts the draws.

    A saved count is all that is needed to go on with the same numbers.
    """

    seed: int
    calls: Array

    def random(self, shape: tuple[int, ...], dtype: type[np.float32]) -> Array:
        """Uniform numbers from 0 up to, not including, 1."""
        generator = np.random.default_rng((self.seed, int(self.calls)))
        self.calls[...] += 1
        return generator.random(shape, dtype=dtype)


def _samples(rng: np.random.Generator) -> list[Sample]:
    def sample(shape: tuple[int, ...], ratio: float) -> Sample:
        uniform = np.asarray(rng.uniform(0, 1, shape))

        def by_hand(x: Array) -> Array:
            y = np.zeros(shape)
            for place, r in np.ndenumerate(uniform):
                y[place] = 0 if r < ratio else x[place] / (1 - ratio)
            return y

        return Sample(
            (rng.standard_normal(shape),),
            lambda x: dropout(x, ratio, uniform=uniform.astype(x.dtype)),
            by_hand,
            f"ratio {ratio}",
        )

    return [sample((3, 5), 0.5), sample((2, 3, 2, 2), 0.2)]


@register(
    "dropout",
    gradient="twice",
    forward="y = 0 where r < ratio, else x / (1 - ratio)",
    backward="gx = 0 where r < ratio, else gy / (1 - ratio)",
    samples=_samples,
)
class Dropout(Function):
    """`dropout` with given uniform numbers r, or with ones drawn at every forward from rng (fresh when None)."""

    def __init__(
        self, ratio: float, uniform: Array | None = None, rng: np.random.Generator | CountedDraws | None = None
    ) -> None:
        self.ratio, self.uniform, self.rng = ratio, uniform, rng

    def forward(self, x: Array) -> Array:
        uniform: Any = self.uniform
        if uniform is None:
            generator = fresh_generator() if self.rng is None else self.rng
            uniform = generator.random(x.shape, dtype=np.float32)
        check_same_shape("dropout", x, uniform)
        self._factors = np.where(uniform < self.ratio, 0, 1 / (1 - self.ratio)).astype(x.dtype)
        return x * self._factors

    def backward(self, gy: Array) -> Array:
        return gy * self._factors

    def backward_graph(self, gy: Variable) -> Variable:
        return gy * self._factors


def dropout(
    x: Operand,
    ratio: float = 0.5,
    rng: np.random.Generator | CountedDraws | None = None,
    uniform: Array | None = None,
) -> Variable:
    """Set each value to 0 with probability ratio and divide the others by 1 - ratio, so that the mean stays.

    In `test_mode` x passes unchanged. ratio: from 0 up to, not including, 1.
    rng: where the random numbers come from; a given generator makes a run repeatable. uniform: the numbers
    themselves, of x's shape, from 0 to 1 (Darknet keeps them as l.rand: r < ratio drops).

    Raises ValueError for a ratio outside that range. Source: Srivastava and others 2014.
    """
    if not 0 <= ratio < 1:
        raise ValueError(f"the ratio of dropout lies from 0 to below 1, got {ratio}")
    x = as_variable(x)
    if not is_training():
        return x
    return Dropout(ratio, uniform, rng)(x)
