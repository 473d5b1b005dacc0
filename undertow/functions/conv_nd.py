"""Convolution and its transpose over any number of spatial dimensions: sound (1), images (2), volumes (3)..."""

from __future__ import annotations

from typing import Any

import numpy as np

from undertow.core.registry import Sample, register
from undertow.core.variable import Operand, Variable, as_variable
from undertow.errors import ShapeError
from undertow.functions.conv import Conv, Deconv
from undertow.functions.windows import Sizes, geometry_nd, transposed_shape

__all__ = [
    "convnd",
    "deconvnd",
]


def convnd(
    x: Operand,
    w: Operand,
    b: Operand | None = None,
    stride: Sizes = 1,
    pad: Sizes = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Variable:
    """`conv2d` over the spatial dimensions that x has.

    x: (batch, channels, *spatial). w: (filters, channels/groups, *kernel). b: (filters,) or None.
    stride, dilation: one number or one per dimension. pad: one number, one per dimension, or (before, after) of
    the first dimension, then of the second, and so on. Returns (batch, filters, *out).
    ShapeError where shapes do not fit together.
    """
    x, w = as_variable(x), as_variable(w)
    _check_dimensions("convnd", x, w)
    function = Conv(geometry_nd(x.ndim - 2, stride, pad, dilation, groups))
    return function(x, w) if b is None else function(x, w, b)


def deconvnd(
    x: Operand,
    w: Operand,
    b: Operand | None = None,
    stride: Sizes = 1,
    pad: Sizes = 0,
    output_padding: Sizes = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Variable:
    """`deconv2d` over the spatial dimensions that x has.

    x: (batch, channels, *spatial). w: (channels, filters/groups, *kernel). b: (filters,) or None.
    Returns (batch, filters, *out). ShapeError where shapes do not fit together.
    """
    x, w = as_variable(x), as_variable(w)
    _check_dimensions("deconvnd", x, w)
    if x.shape[1] != w.shape[0]:
        raise ShapeError(
            f"deconvnd: weights {w.shape} take {w.shape[0]} channels, the input {x.shape} has another number"
        )
    geometry = geometry_nd(x.ndim - 2, stride, pad, dilation, groups)
    function = Deconv(geometry, transposed_shape(x.shape[2:], w.shape[2:], geometry, output_padding))
    return function(x, w) if b is None else function(x, w, b)


def _check_dimensions(name: str, x: Variable, w: Variable) -> None:
    if x.ndim < 3 or w.ndim != x.ndim:
        raise ShapeError(
            f"{name} needs an input (batch, channels, *spatial) and weights with as many axes, "
            f"got {x.shape} and {w.shape}"
        )


def _conv_samples(rng: np.random.Generator) -> list[Sample]:
    def sample(x: tuple[int, ...], w: tuple[int, ...], note: str, **options: Any) -> Sample:
        arrays = (rng.standard_normal(x), rng.standard_normal(w), rng.standard_normal(w[0]))
        return Sample(arrays, lambda *args: convnd(*args, **options), note=note)

    return [
        sample((2, 3, 9), (2, 3, 3), "sound: one dimension, sides apart", stride=2, pad=(1, 0)),
        sample((1, 2, 3, 4, 3), (4, 1, 2, 2, 3), "a volume, groups", pad=(1, 0, 1), groups=2),
        sample((1, 2, 5, 4), (1, 2, 3, 2), "an image, dilated", pad=1, dilation=(2, 1)),
    ]


def _deconv_samples(rng: np.random.Generator) -> list[Sample]:
    def sample(x: tuple[int, ...], w: tuple[int, ...], b: int, note: str, **options: Any) -> Sample:
        arrays = (rng.standard_normal(x), rng.standard_normal(w), rng.standard_normal(b))
        return Sample(arrays, lambda *args: deconvnd(*args, **options), note=note)

    return [
        sample((2, 3, 4), (3, 2, 3), 2, "sound, output padding", stride=2, pad=1, output_padding=1),
        sample((1, 2, 2, 3, 2), (2, 1, 2, 1, 2), 2, "a volume, groups", stride=(1, 2, 1), groups=2),
    ]


register(
    "convnd",
    gradient="twice",
    forward="y[i,f,p] = b[f] + sum over c,u of w[f,c,u] x[i,c, p s - before + u d], p and u over all dimensions",
    backward="gx = deconvnd(gy, w), gw = convnd_weights(gy, x), gb = sum of gy over images and places",
    samples=_conv_samples,
)(Conv)

register(
    "deconvnd",
    gradient="twice",
    forward="y[i,c, p s - before + u d] += w[f,c,u] x[i,f,p], p and u over all dimensions; y += b",
    backward="gx = convnd(gy, w), gw = convnd_weights(x, gy), gb = sum of gy over images and places",
    samples=_deconv_samples,
)(Deconv)
