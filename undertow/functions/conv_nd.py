"""Convolution and its transpose over any number of spatial dimensions: sound (1), images (2), volumes (3)..."""

from __future__ import annotations

from undertow.core.registry import register
from undertow.core.variable import Operand, Variable, as_variable
from undertow.errors import ShapeError
from undertow.functions.conv import Conv, Deconv
from undertow.functions.window_samples import CONV_ND, DECONV_ND, conv_samples, deconv_samples
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


register(
    "convnd",
    gradient="twice",
    forward="y[i,f,p] = b[f] + sum over c,u of w[f,c,u] x[i,c, p s - before + u d], p and u over all dimensions",
    backward="gx = deconvnd(gy, w), gw = convnd_weights(gy, x), gb = sum of gy over images and places",
    samples=conv_samples(CONV_ND, convnd, geometry_nd),
)(Conv)

register(
    "deconvnd",
    gradient="twice",
    forward="y[i,c, p s - before + u d] += w[f,c,u] x[i,f,p], p and u over all dimensions; y += b",
    backward="gx = convnd(gy, w), gw = convnd_weights(x, gy), gb = sum of gy over images and places",
    samples=deconv_samples(DECONV_ND, deconvnd, geometry_nd),
)(Deconv)
