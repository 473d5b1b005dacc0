"""Operations that draw random numbers when they run: Darknet's dropout and crop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from undertow.core.function import Function
from undertow.core.registry import Sample, register
from undertow.core.variable import Variable
from undertow.kernels import select

Array = np.ndarray[Any, Any]


def _dropout_samples(rng: np.random.Generator) -> list[Sample]:
    uniform = rng.uniform(0, 1, (3, 5)).astype(np.float32)

    def sample(activation: str, forward: Callable[[Array], Array]) -> Sample:
        def call(x: Variable) -> Variable:
            return DarknetDropout(0.4, lambda shape: uniform, activation)(x)

        def by_hand(x: Array) -> Array:
            return np.where(uniform < 0.4, 0, forward(x) / 0.6)

        return Sample((rng.standard_normal((3, 5)),), call, by_hand, note=activation)

    return [sample("linear", lambda x: x), sample("leaky", lambda x: np.where(x > 0, x, 0.1 * x))]


@register(
    "darknet_dropout",
    gradient="once",
    forward="y = 0 where r < probability, else f(x) / (1 - probability), f an activation",
    backward="gx = f' gy / (1 - probability) where r >= probability, else 0; f' is taken from y",
    samples=_dropout_samples,
)
class DarknetDropout(Function):
    """Dropout that draws when it runs, perhaps on top of the activation whose output it changes in place.

    draw: from a shape to uniform numbers of that shape. uniform: those of the last call. With an activation, its slope
    is taken from what was dropped and scaled, as in the original; that is the derivative for those made of two
    straight lines through 0 (linear, relu, leaky) and not for curved ones.
    """

    def __init__(
        self, probability: float, draw: Callable[[tuple[int, ...]], Array], activation: str = "linear"
    ) -> None:
        self.probability, self.draw, self.activation = probability, draw, activation
        self.uniform: Array

    def forward(self, x: Array) -> Array:
        self.uniform = self.draw(x.shape)
        kept = self.uniform >= np.float32(self.probability)
        self._factors = np.where(kept, 1 / (1 - self.probability), 0).astype(x.dtype)
        self._y = select.activate(x, self.activation) * self._factors
        return self._y

    def backward(self, gy: Array) -> Array:
        return select.activate_backward(gy * self._factors, self._y, self.activation, True)


class CropDraws(Protocol):
    """What a crop draws from."""

    def index(self, count: int) -> int: ...

    def coin(self) -> bool: ...


@dataclass(frozen=True)
class CropRule:
    """out: (height, width) of the part. flip: mirrored by chance. adjust: values become 2x - 1."""

    out: tuple[int, int]
    flip: bool
    adjust: bool


class _Given:
    """Draws that are known."""

    def __init__(self, flip: bool, *numbers: int) -> None:
        self.flip, self.numbers = flip, list(numbers)

    def index(self, count: int) -> int:
        return self.numbers.pop(0)

    def coin(self) -> bool:
        return self.flip


def _crop_samples(rng: np.random.Generator) -> list[Sample]:
    def sample(rule: CropRule, note: str, flip: bool, *offsets: int) -> Sample:
        def call(x: Variable) -> Variable:
            return Crop(rule, _Given(flip, *offsets) if offsets else None)(x)

        def by_hand(x: Array) -> Array:
            top, left = offsets or (1, 1)
            y = np.empty((2, 3, *rule.out))
            for i, c, p, q in np.ndindex(*y.shape):
                column = x.shape[3] - left - q - 1 if flip else q + left
                y[i, c, p, q] = x[i, c, p + top, column] * 2 - 1 if rule.adjust else x[i, c, p + top, column]
            return y

        return Sample((rng.standard_normal((2, 3, 5, 6)),), call, by_hand, note)

    return [
        sample(CropRule((3, 4), True, True), "the middle", False),
        sample(CropRule((3, 4), True, False), "drawn and mirrored", True, 2, 1),
        sample(CropRule((3, 4), True, True), "drawn", False, 0, 2),
    ]


@register(
    "darknet_crop",
    gradient="once",
    forward="y = 2x - 1 over a part of each picture, perhaps mirrored; x itself with noadjust",
    backward="gx = 2 gy (or gy) in that part, 0 elsewhere",
    samples=_crop_samples,
)
class Crop(Function):
    """A part of (batch, c, h, w), the same for all of the batch; the middle when there is nothing to draw from."""

    def __init__(self, rule: CropRule, draws: CropDraws | None) -> None:
        self.rule, self.draws = rule, draws

    def forward(self, x: Array) -> Array:
        height, width = self.rule.out
        high, wide = x.shape[2] - height, x.shape[3] - width
        flip, top, left = False, high // 2, wide // 2
        if self.draws is not None:
            flip = self.rule.flip and self.draws.coin()
            top, left = self.draws.index(high + 1), self.draws.index(wide + 1)
        columns = slice(left, left + width)
        if flip:
            last = x.shape[3] - left - 1
            columns = slice(last, last - width if last >= width else None, -1)
        self._part = (slice(None), slice(None), slice(top, top + height), columns)
        part = x[self._part]
        return part * np.asarray(2, x.dtype) - np.asarray(1, x.dtype) if self.rule.adjust else part.copy()

    def backward(self, gy: Array) -> Array:
        gx = np.zeros(self.input.shape, gy.dtype)
        gx[self._part] = 2 * gy if self.rule.adjust else gy
        return gx
