"""Convolution as matrix products, image by image and group by group, as in Darknet's convolutional_layer.c.

For one image and one group, with cols = im2col(image):
    forward           Y  = W cols
    backward weights  dW = dW + dY cols^T      (gemm with beta 1: images add up)
    backward data     dcols = W^T dY           (gemm with beta 0), then col2im adds dcols into the image
A 1x1 window with stride 1 and no padding needs no im2col: the image already is its matrix.
Nothing here depends on the number of spatial dimensions; `conv2d` and its kind only insist on two.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from undertow.errors import ShapeError
from undertow.kernels.geometry import ConvGeometry, Windows, by, output_shape
from undertow.kernels.reference.gemm import gemm
from undertow.kernels.reference.im2col import col2im, im2col

Array = np.ndarray[Any, Any]


def conv2d(x: Array, w: Array, b: Array | None, geometry: ConvGeometry) -> Array:
    """y[i,f,p,q] = b[f] + sum over c,ky,kx of w[f,c,ky,kx] * x[i, c, p*sy-top+ky*dy, q*sx-left+kx*dx].

    x: (batch, channels, height, width). w: (filters, channels/groups, kh, kw). b: (filters,) or None.
    Returns (batch, filters, out_h, out_w). Filters of group g see the g-th part of the channels.
    ShapeError where shapes do not fit together.
    """
    _two_dimensional(x.shape, w.shape)
    return convnd(x, w, b, geometry)


def conv2d_backward_data(gy: Array, w: Array, x_shape: Sequence[int], geometry: ConvGeometry) -> Array:
    """The gradient with respect to x, of shape x_shape; also the forward pass of a transposed convolution."""
    _two_dimensional(x_shape, w.shape)
    return convnd_backward_data(gy, w, x_shape, geometry)


def conv2d_backward_weights(gy: Array, x: Array, w_shape: Sequence[int], geometry: ConvGeometry) -> Array:
    """The gradient with respect to w, of shape w_shape, summed over the batch."""
    _two_dimensional(x.shape, w_shape)
    return convnd_backward_weights(gy, x, w_shape, geometry)


def convnd(x: Array, w: Array, b: Array | None, geometry: Windows) -> Array:
    """`conv2d` over any number of spatial dimensions.

    x: (batch, channels, *spatial). w: (filters, channels/groups, *kernel). Returns (batch, filters, *out).
    """
    out = _check(x.shape, w.shape, geometry)
    batch, filters, groups, kernel = x.shape[0], w.shape[0], geometry.groups, w.shape[2:]
    if b is not None and b.shape != (filters,):
        raise ShapeError(f"{filters} filters need {filters} biases, got an array of shape {b.shape}")
    m, k, n = filters // groups, math.prod(w.shape[1:]), math.prod(out)
    dtype = np.result_type(x, w)
    weights = np.ascontiguousarray(w).reshape(groups, m * k)
    y = np.empty((batch, groups, m * n), dtype)
    for i in range(batch):
        cols = _columns(x[i], kernel, geometry).reshape(groups, k * n)
        for j in range(groups):
            gemm(0, 0, m, n, k, 1, weights[j], k, cols[j], n, 0, y[i, j], n)
    y = y.reshape(batch, filters, *out)
    if b is not None:
        y += b.astype(dtype, copy=False).reshape(-1, *(1 for _ in out))
    return y


def convnd_backward_data(gy: Array, w: Array, x_shape: Sequence[int], geometry: Windows) -> Array:
    """`conv2d_backward_data` over any number of spatial dimensions."""
    out = _check(x_shape, w.shape, geometry, gy.shape)
    batch, filters, groups, kernel = x_shape[0], w.shape[0], geometry.groups, w.shape[2:]
    m, n, k = filters // groups, math.prod(w.shape[1:]), math.prod(out)
    weights = np.ascontiguousarray(w).reshape(groups, m * n)
    delta = np.ascontiguousarray(gy).reshape(batch, groups, m * k)
    gx = np.empty(tuple(x_shape), np.result_type(gy, w))
    cols = np.empty((groups, n * k), gx.dtype)
    for i in range(batch):
        for j in range(groups):
            gemm(1, 0, n, k, m, 1, weights[j], n, delta[i, j], k, 0, cols[j], k)
        if _is_pointwise(kernel, geometry):
            gx[i] = cols.reshape(x_shape[1:])
        else:
            gx[i] = col2im(cols.reshape(groups * n, k), x_shape[1:], kernel, geometry)
    return gx


def convnd_backward_weights(gy: Array, x: Array, w_shape: Sequence[int], geometry: Windows) -> Array:
    """`conv2d_backward_weights` over any number of spatial dimensions."""
    out = _check(x.shape, w_shape, geometry, gy.shape)
    batch, filters, groups, kernel = x.shape[0], w_shape[0], geometry.groups, w_shape[2:]
    m, n, k = filters // groups, math.prod(w_shape[1:]), math.prod(out)
    delta = np.ascontiguousarray(gy).reshape(batch, groups, m * k)
    weight_updates = np.zeros((groups, m * n), np.result_type(gy, x))
    for i in range(batch):
        cols = _columns(x[i], kernel, geometry).reshape(groups, n * k)
        for j in range(groups):
            gemm(0, 1, m, n, k, 1, delta[i, j], k, cols[j], k, 1, weight_updates[j], n)
    return weight_updates.reshape(tuple(w_shape))


def _columns(image: Array, kernel: Sequence[int], geometry: Windows) -> Array:
    """The image's matrix; for a pointwise convolution the image itself."""
    if _is_pointwise(kernel, geometry):
        return np.ascontiguousarray(image)
    return im2col(image, kernel, geometry)


def _is_pointwise(kernel: Sequence[int], geometry: Windows) -> bool:
    return max(kernel) == 1 and max(geometry.stride) == 1 and not any(geometry.pad)


def _check(
    x_shape: Sequence[int], w_shape: Sequence[int], geometry: Windows, y_shape: Sequence[int] | None = None
) -> tuple[int, ...]:
    """The spatial size of the output; ShapeError where input, weights (and output) do not fit together."""
    dims, groups = len(geometry.stride), geometry.groups
    if len(x_shape) != dims + 2 or len(w_shape) != dims + 2:
        raise ShapeError(
            f"a convolution over {dims} dimensions needs {dims + 2}-D input and weights, "
            f"got {tuple(x_shape)} and {tuple(w_shape)}"
        )
    if x_shape[1] != w_shape[1] * groups or w_shape[0] % groups:
        raise ShapeError(
            f"weights {tuple(w_shape)} with {groups} groups fit {w_shape[1] * groups} input channels and a "
            f"number of filters that {groups} divides, got an input of {tuple(x_shape)}"
        )
    out = output_shape(x_shape[2:], w_shape[2:], geometry)
    expected = (x_shape[0], w_shape[0], *out)
    if y_shape is not None and tuple(y_shape) != expected:
        raise ShapeError(f"the gradient of the output should be {by(expected)}, got {by(y_shape)}")
    return out


def _two_dimensional(x_shape: Sequence[int], w_shape: Sequence[int]) -> None:
    if len(x_shape) != 4 or len(w_shape) != 4:
        raise ShapeError(
            f"conv2d needs input (batch, channels, height, width) and weights (filters, channels/groups, kh, "
            f"kw), got {tuple(x_shape)} and {tuple(w_shape)}"
        )
