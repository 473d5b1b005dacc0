"""Enlarging images by repeating pixels, and shrinking them by adding blocks: each the other's transpose."""

from __future__ import annotations

from typing import Any

import numpy as np

from undertow.core.function import Function
from undertow.core.registry import Sample, register
from undertow.core.variable import Operand, Variable
from undertow.kernels import select

__all__ = [
    "Downsample",
    "Upsample",
    "downsample",
    "upsample",
]

Array = np.ndarray[Any, Any]


def _repeated(x: Array, n: int) -> Array:
    return x.repeat(n, axis=2).repeat(n, axis=3)


def _upsample_samples(rng: np.random.Generator) -> list[Sample]:
    def sample(shape: tuple[int, ...], factor: int, scale: float) -> Sample:
        return Sample(
            (rng.standard_normal(shape),),
            lambda x: upsample(x, factor, scale),
            lambda x: _repeated(x, factor) * scale,
            f"factor {factor}, scale {scale}",
        )

    return [sample((2, 1, 3, 2), 2, 1.0), sample((1, 3, 2, 3), 3, 0.5), sample((1, 2, 3, 1), 1, 1.0)]


@register(
    "upsample",
    gradient="twice",
    forward="y[i,c,p,q] = scale x[i,c, p // n, q // n]",
    backward="gx = downsample(gy)",
    samples=_upsample_samples,
)
class Upsample(Function):
    """`upsample` by a given factor."""

    def __init__(self, factor: int, scale: float = 1.0) -> None:
        self.factor, self.scale = factor, scale

    def forward(self, x: Array) -> Array:
        return select.upsample2d(x, (self.factor, self.factor), self.scale)

    def backward_graph(self, gy: Variable) -> Variable:
        return Downsample(self.factor, self.scale)(gy)


def upsample(x: Operand, factor: int, scale: float = 1.0) -> Variable:
    """Repeat every pixel factor x factor times (nearest neighbour), times scale.

    x: (batch, channels, height, width). Returns (batch, channels, height*factor, width*factor).
    Source: Darknet's [upsample] with a positive stride.
    """
    return Upsample(factor, scale)(x)


def _downsample_samples(rng: np.random.Generator) -> list[Sample]:
    def sample(shape: tuple[int, ...], factor: int, scale: float) -> Sample:
        def expected(x: Array) -> Array:
            blocks = [x[:, :, u::factor, v::factor] for u in range(factor) for v in range(factor)]
            return np.sum(blocks, axis=0) * scale

        return Sample(
            (rng.standard_normal(shape),), lambda x: downsample(x, factor, scale), expected, f"factor {factor}"
        )

    return [sample((2, 1, 4, 2), 2, 1.0), sample((1, 2, 3, 6), 3, 1 / 9)]


@register(
    "downsample",
    gradient="twice",
    forward="y[i,c,p,q] = scale * sum over u,v < n of x[i,c, p n + u, q n + v]",
    backward="gx = upsample(gy)",
    samples=_downsample_samples,
)
class Downsample(Function):
    """`downsample` by a given factor."""

    def __init__(self, factor: int, scale: float = 1.0) -> None:
        self.factor, self.scale = factor, scale

    def forward(self, x: Array) -> Array:
        return select.downsample2d(x, (self.factor, self.factor), self.scale)

    def backward_graph(self, gy: Variable) -> Variable:
        return Upsample(self.factor, self.scale)(gy)


def downsample(x: Operand, factor: int, scale: float = 1.0) -> Variable:
    """Add up blocks of factor x factor pixels, times scale (1/factor**2 makes it their mean).

    x: (batch, channels, height, width), both divisible by factor, else ShapeError.
    Returns (batch, channels, height/factor, width/factor). Source: Darknet's [upsample] with a negative stride.
    """
    return Downsample(factor, scale)(x)
