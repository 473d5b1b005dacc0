"""Operations that draw random numbers when they run: Darknet's dropout and crop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from undertow.core.function import Function
from undertow.core.registry import Sample, register
from undertow.core.variable import Variable
from undertow.darknet.layers.draws import LayerDraws, uniforms
from undertow.kernels import select

Array = np.ndarray[Any, Any]


def _dropout_samples(rng: np.random.Generator) -> list[Sample]:
    draws = LayerDraws(3, 0, lambda: 0)

    def sample(activation: str, forward: Callable[[Array], Array]) -> Sample:
        def call(x: Variable) -> Variable:
            return DarknetDropout(0.4, draws, activation)(x)

        def by_hand(x: Array) -> Array:
            return np.where(uniforms(draws.start(), x.shape) < 0.4, 0, forward(x) / 0.6)

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

    draws: where the numbers come from. uniform: those of the last call. With an activation, its slope
    is taken from what was dropped and scaled, as in the original; that is the derivative for those made of two
    straight lines through 0 (linear, relu, leaky) and not for curved ones.
    """

    def __init__(self, probability: float, draws: LayerDraws, activation: str = "linear") -> None:
        self.probability, self.draws, self.activation = probability, draws, activation
        self.uniform: Array

    def forward(self, x: Array) -> Array:
        self.uniform = uniforms(self.draws.start(), x.shape)
        kept = self.uniform >= np.float32(self.probability)
        self._factors = np.where(kept, 1 / (1 - self.probability), 0).astype(x.dtype)
        self._y = select.activate(x, self.activation) * self._factors
        return self._y

    def backward(self, gy: Array) -> Array:
        return select.activate_backward(gy * self._factors, self._y, self.activation, True)


@dataclass(frozen=True)
class CropRule:
    """out: (height, width) of the part. flip: mirrored by chance. adjust: values become 2x - 1."""

    out: tuple[int, int]
    flip: bool
    adjust: bool


def _crop_samples(rng: np.random.Generator) -> list[Sample]:
    def sample(rule: CropRule, note: str, draws: LayerDraws | None = None) -> Sample:
        def by_hand(x: Array) -> Array:
            flip, top, left = False, 1, 1
            if draws is not None:
                source = draws.start()
                flip = rule.flip and source.rand() % 2 == 1
                top, left = source.rand() % 3, source.rand() % 3
            y = np.empty((2, 3, *rule.out))
            for i, c, p, q in np.ndindex(*y.shape):
                column = x.shape[3] - left - q - 1 if flip else q + left
                y[i, c, p, q] = x[i, c, p + top, column] * 2 - 1 if rule.adjust else x[i, c, p + top, column]
            return y

        return Sample((rng.standard_normal((2, 3, 5, 6)),), lambda x: Crop(rule, draws)(x), by_hand, note)

    drawn = [
        sample(CropRule((3, 4), True, seed % 2 == 0), "drawn", LayerDraws(seed, 0, lambda: 0)) for seed in range(6)
    ]
    return [sample(CropRule((3, 4), True, True), "the middle"), *drawn]


@register(
    "darknet_crop",
    gradient="once",
    forward="y = 2x - 1 over a part of each picture, perhaps mirrored; x itself with noadjust",
    backward="gx = 2 gy (or gy) in that part, 0 elsewhere",
    samples=_crop_samples,
)
class Crop(Function):
    """A part of (batch, c, h, w), the same for all of the batch.

    draws: where the numbers come from; without them, it is the middle.
    """

    def __init__(self, rule: CropRule, draws: LayerDraws | None) -> None:
        self.rule, self.draws = rule, draws

    def forward(self, x: Array) -> Array:
        height, width = self.rule.out
        high, wide = x.shape[2] - height, x.shape[3] - width
        flip, top, left = False, high // 2, wide // 2
        if self.draws is not None:
            source = self.draws.start()
            flip = self.rule.flip and source.coin()
            top, left = source.index(high + 1), source.index(wide + 1)
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
