"""Convolution and its transpose, differentiable as often as wanted.

Three operations, each linear in both of its arguments, are one another's derivatives:
    y  = Conv(x, w)            what a convolutional layer computes
    x' = Deconv(y, w)          its transpose in x: the way back to the data, and a layer of its own
    w' = ConvWeights(y, x)     its transpose in w: the way back to the weights
The derivative of each with respect to one argument is another of the three with the same geometry, so
gradients of any order stay inside the family. The classes work over any number of spatial dimensions; with a
ConvGeometry (two dimensions) they take the kernels written for images.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from undertow.core.function import Function
from undertow.core.registry import Sample, register
from undertow.core.variable import Operand, Variable, as_variable
from undertow.errors import ShapeError
from undertow.functions.window_samples import CONV_2D, DECONV_2D, conv_samples, correlate_weights, deconv_samples
from undertow.functions.windows import Sizes, geometry_2d, transposed_shape
from undertow.kernels import select
from undertow.kernels.geometry import ConvGeometry, Windows

__all__ = [
    "Conv",
    "ConvWeights",
    "Deconv",
    "conv2d",
    "conv_transpose2d",
    "deconv2d",
]

Array = np.ndarray[Any, Any]


def _geometry(dims: int, **options: Any) -> ConvGeometry:
    return geometry_2d(**options)


@register(
    "conv2d",
    gradient="twice",
    forward="y[i,f,p,q] = b[f] + sum over c,u,v of w[f,c,u,v] x[i,c, p s - top + u d, q s - left + v d]",
    backward="gx = deconv2d(gy, w), gw = conv2d_weights(gy, x), gb = sum of gy over images and pixels",
    samples=conv_samples(CONV_2D, lambda *args, **options: conv2d(*args, **options), _geometry),
)
class Conv(Function):
    """`conv2d` and `convnd` for a given geometry."""

    def __init__(self, geometry: Windows) -> None:
        self.geometry = geometry

    def forward(self, x: Array, w: Array, b: Array | None = None) -> Array:
        if isinstance(self.geometry, ConvGeometry):
            return select.conv2d(x, w, b, self.geometry)
        return select.convnd(x, w, b, self.geometry)

    def backward(self, gy: Array) -> tuple[Array | None, ...]:
        x, w = self.inputs[0].data, self.inputs[1].data
        wanted = self.needs_input_grad
        gx = _data_gradient(gy, w, x.shape, self.geometry) if wanted[0] else None
        gw = _weight_gradient(gy, x, w.shape, self.geometry) if wanted[1] else None
        if len(self.inputs) == 2:
            return gx, gw
        return gx, gw, gy.sum(_all_but_channels(gy.ndim)) if wanted[2] else None

    def backward_graph(self, gy: Variable) -> tuple[Variable | None, ...]:
        x, w = self.inputs[:2]
        wanted = self.needs_input_grad
        gx = Deconv(self.geometry, x.shape[2:])(gy, w) if wanted[0] else None
        gw = ConvWeights(self.geometry, w.shape)(gy, x) if wanted[1] else None
        if len(self.inputs) == 2:
            return gx, gw
        return gx, gw, gy.sum(_all_but_channels(gy.ndim)) if wanted[2] else None


def conv2d(
    x: Operand,
    w: Operand,
    b: Operand | None = None,
    stride: Sizes = 1,
    pad: Sizes = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Variable:
    """Slide the filters w over the images x (a cross-correlation, as every framework means it).

    x: (batch, channels, height, width). w: (filters, channels/groups, kh, kw). b: (filters,) or None.
    stride, dilation: one number or (vertical, horizontal). pad: zeros around the image: one number,
    (vertical, horizontal) or (top, bottom, left, right). groups: channels and filters in independent parts.

    Returns (batch, filters, out_h, out_w), out = floor((in + pads - dilation*(k-1) - 1) / stride) + 1.
    ShapeError where shapes do not fit together.
    """
    function = Conv(geometry_2d(stride, pad, dilation, groups))
    return function(x, w) if b is None else function(x, w, b)


@register(
    "deconv2d",
    gradient="twice",
    forward="y[i,c, p s - top + u d, q s - left + v d] += w[f,c,u,v] x[i,f,p,q]; y += b",
    backward="gx = conv2d(gy, w), gw = conv2d_weights(x, gy), gb = sum of gy over images and pixels",
    samples=deconv_samples(DECONV_2D, lambda *args, **options: deconv2d(*args, **options), _geometry),
)
class Deconv(Function):
    """`deconv2d` and `deconvnd` for a given geometry and spatial size of the result."""

    def __init__(self, geometry: Windows, out: tuple[int, ...]) -> None:
        self.geometry, self.out = geometry, out

    def forward(self, x: Array, w: Array, b: Array | None = None) -> Array:
        shape = (x.shape[0], w.shape[1] * self.geometry.groups, *self.out)
        y = _data_gradient(x, w, shape, self.geometry)
        if b is None:
            return y
        if b.shape != shape[1:2]:
            raise ShapeError(f"{shape[1]} output channels need {shape[1]} biases, got an array of shape {b.shape}")
        y += b.reshape(-1, *(1 for _ in self.out))
        return y

    def backward(self, gy: Array) -> tuple[Array | None, ...]:
        x, w = self.inputs[0].data, self.inputs[1].data
        wanted = self.needs_input_grad
        gx = Conv(self.geometry).forward(gy, w) if wanted[0] else None
        gw = _weight_gradient(x, gy, w.shape, self.geometry) if wanted[1] else None
        if len(self.inputs) == 2:
            return gx, gw
        return gx, gw, gy.sum(_all_but_channels(gy.ndim)) if wanted[2] else None

    def backward_graph(self, gy: Variable) -> tuple[Variable | None, ...]:
        x, w = self.inputs[:2]
        wanted = self.needs_input_grad
        gx = Conv(self.geometry)(gy, w) if wanted[0] else None
        gw = ConvWeights(self.geometry, w.shape)(x, gy) if wanted[1] else None
        if len(self.inputs) == 2:
            return gx, gw
        return gx, gw, gy.sum(_all_but_channels(gy.ndim)) if wanted[2] else None


def deconv2d(
    x: Operand,
    w: Operand,
    b: Operand | None = None,
    stride: Sizes = 1,
    pad: Sizes = 0,
    output_padding: Sizes = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Variable:
    """Transposed convolution: every pixel of x lays down a copy of its filters, weighted; copies add up.

    x: (batch, channels, height, width). w: (channels, filters/groups, kh, kw). b: (filters,) or None.
    Options as in `conv2d`; pad cuts off that much around the result, output_padding (less than the stride) adds
    rows and columns at bottom and right.

    Returns (batch, filters, out_h, out_w), out = (in - 1)*stride + dilation*(k-1) + 1 - pads + output_padding:
    the shape whose `conv2d` with the same options has the shape of x. ShapeError where shapes do not fit.
    """
    x, w = as_variable(x), as_variable(w)
    if x.ndim != 4 or w.ndim != 4 or x.shape[1] != w.shape[0]:
        raise ShapeError(
            "deconv2d needs input (batch, channels, height, width) and weights (channels, filters/groups, kh, kw), "
            f"got {x.shape} and {w.shape}"
        )
    geometry = geometry_2d(stride, pad, dilation, groups)
    function = Deconv(geometry, transposed_shape(x.shape[2:], w.shape[2:], geometry, output_padding))
    return function(x, w) if b is None else function(x, w, b)


conv_transpose2d = deconv2d


def _weights_samples(rng: np.random.Generator) -> list[Sample]:
    def sample(gy: tuple[int, ...], x: tuple[int, ...], w: tuple[int, ...], note: str, **options: Any) -> Sample:
        geometry = geometry_2d(**options)
        return Sample(
            (rng.standard_normal(gy), rng.standard_normal(x)),
            lambda *args: ConvWeights(geometry, w)(*args),
            lambda gy, x: correlate_weights(gy, x, w, geometry),
            note,
        )

    return [
        sample((2, 3, 4, 4), (2, 2, 4, 4), (3, 2, 3, 3), "3x3, padding 1", pad=1),
        sample((1, 4, 3, 2), (1, 2, 5, 5), (4, 1, 2, 3), "stride, groups", stride=2, pad=(0, 1, 0, 0), groups=2),
    ]


@register(
    "conv2d_weights",
    gradient="twice",
    forward="y[f,c,u,v] = sum over i,p,q of gy[i,f,p,q] x[i,c, p s - top + u d, q s - left + v d]",
    backward="ggy = conv2d(x, gw), gx = deconv2d(gy, gw)",
    samples=_weights_samples,
)
class ConvWeights(Function):
    """What the weights of a convolution receive from gy, the gradient of its output, and its input x.

    gy: (batch, filters, *out). x: (batch, channels, *spatial). Returns w_shape (filters, channels/groups, *kernel).
    """

    def __init__(self, geometry: Windows, w_shape: tuple[int, ...]) -> None:
        self.geometry, self.w_shape = geometry, w_shape

    def forward(self, gy: Array, x: Array) -> Array:
        return _weight_gradient(gy, x, self.w_shape, self.geometry)

    def backward(self, gw: Array) -> tuple[Array | None, Array | None]:
        gy, x = (v.data for v in self.inputs)
        ggy = Conv(self.geometry).forward(x, gw) if self.needs_input_grad[0] else None
        gx = _data_gradient(gy, gw, x.shape, self.geometry) if self.needs_input_grad[1] else None
        return ggy, gx

    def backward_graph(self, gw: Variable) -> tuple[Variable | None, Variable | None]:
        gy, x = self.inputs
        ggy = Conv(self.geometry)(x, gw) if self.needs_input_grad[0] else None
        gx = Deconv(self.geometry, x.shape[2:])(gy, gw) if self.needs_input_grad[1] else None
        return ggy, gx


def _data_gradient(gy: Array, w: Array, x_shape: tuple[int, ...], geometry: Windows) -> Array:
    if isinstance(geometry, ConvGeometry):
        return select.conv2d_backward_data(gy, w, x_shape, geometry)
    return select.convnd_backward_data(gy, w, x_shape, geometry)


def _weight_gradient(gy: Array, x: Array, w_shape: tuple[int, ...], geometry: Windows) -> Array:
    if isinstance(geometry, ConvGeometry):
        return select.conv2d_backward_weights(gy, x, w_shape, geometry)
    return select.convnd_backward_weights(gy, x, w_shape, geometry)


def _all_but_channels(ndim: int) -> tuple[int, ...]:
    return (0, *range(2, ndim))
