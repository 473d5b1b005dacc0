"""Windows of images as matrix columns, and the way back: each is the other's transpose."""

from __future__ import annotations

from typing import Any

import numpy as np

from undertow.core.function import Function
from undertow.core.registry import register
from undertow.core.variable import Operand, Variable
from undertow.functions.window_samples import column_samples, image_samples
from undertow.functions.windows import Sizes, geometry_2d, pair
from undertow.kernels import select
from undertow.kernels.geometry import ConvGeometry, Pair

__all__ = [
    "Col2Im",
    "Im2Col",
    "col2im",
    "im2col",
]

Array = np.ndarray[Any, Any]


def _geometry(dims: int, **options: Any) -> ConvGeometry:
    return geometry_2d(**options)


@register(
    "im2col",
    gradient="twice",
    forward="y[i, (c kh + u) kw + v, p out_w + q] = x[i, c, p s - top + u d, q s - left + v d]",
    backward="gx = col2im(gy)",
    samples=column_samples(lambda *args, **options: im2col(*args, **options), _geometry),
    whole=True,
)
class Im2Col(Function):
    """`im2col` for a given window."""

    def __init__(self, kernel: Pair, geometry: ConvGeometry) -> None:
        self.kernel, self.geometry = kernel, geometry

    def forward(self, x: Array) -> Array:
        return select.im2col(x, self.kernel, self.geometry)

    def backward_graph(self, gy: Variable) -> Variable:
        return Col2Im(self.input.shape, self.kernel, self.geometry)(gy)


def im2col(x: Operand, kernel: Sizes, stride: Sizes = 1, pad: Sizes = 0, dilation: Sizes = 1) -> Variable:
    """The windows a convolution would look at, one per column.

    x: (batch, channels, height, width). kernel, stride, dilation: one number or (vertical, horizontal).
    pad: one number, (vertical, horizontal) or (top, bottom, left, right); outside the image is 0.

    Returns (batch, channels*kh*kw, out_h*out_w): `w.reshape(filters, -1) @ cols` is the convolution.
    ShapeError where the window does not fit.
    """
    return Im2Col(pair(kernel, "kernel"), geometry_2d(stride, pad, dilation))(x)


@register(
    "col2im",
    gradient="twice",
    forward="y[i, c, p s - top + u d, q s - left + v d] += x[i, (c kh + u) kw + v, p out_w + q]",
    backward="gx = im2col(gy)",
    samples=image_samples(lambda *args, **options: col2im(*args, **options), _geometry),
)
class Col2Im(Function):
    """`col2im` for a given image shape and window."""

    def __init__(self, image_shape: tuple[int, ...], kernel: Pair, geometry: ConvGeometry) -> None:
        self.image_shape, self.kernel, self.geometry = image_shape, kernel, geometry

    def forward(self, cols: Array) -> Array:
        return select.col2im(cols, self.image_shape, self.kernel, self.geometry)

    def backward_graph(self, gy: Variable) -> Variable:
        return Im2Col(self.kernel, self.geometry)(gy)


def col2im(
    cols: Operand,
    image_shape: tuple[int, ...],
    kernel: Sizes,
    stride: Sizes = 1,
    pad: Sizes = 0,
    dilation: Sizes = 1,
) -> Variable:
    """Lay the columns back into images; where windows overlap, they add up.

    cols: (batch, channels*kh*kw, out_h*out_w). image_shape: (batch, channels, height, width), what `im2col` with
    the same options would have been given. Returns an array of image_shape.
    ShapeError where the sizes do not belong together.
    """
    return Col2Im(tuple(image_shape), pair(kernel, "kernel"), geometry_2d(stride, pad, dilation))(cols)
