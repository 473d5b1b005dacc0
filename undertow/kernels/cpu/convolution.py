"""Convolution on NumPy arrays, logically NCHW, float32.

Arrays may be C-contiguous (they are packed once) or views of NHWC memory, which is what these functions return.
Any window, stride, padding, dilation and number of groups; with stride 1 and from 16 channels on, 3x3 goes through
Winograd's transform, F(4x4) or F(5x5) in "fast" and F(2x2) in "precise", and so do 5x5, F(4x4), and 3x3 with
stride 2 and padding 1 where it pays, in "fast". Results depend neither on the number of threads nor on timing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from undertow.core.modes import current_precision
from undertow.errors import ShapeError
from undertow.kernels.cpu.memory import as_nhwc, empty, empty_nhwc, view
from undertow.kernels.cpu.raw import depthwise
from undertow.kernels.cpu.raw.convolution import Convolution, convolution
from undertow.kernels.cpu.raw.parts import Epilogue
from undertow.kernels.cpu.raw.tensor import scratch
from undertow.kernels.geometry import ConvGeometry


def conv2d(
    x: np.ndarray, w: np.ndarray, b: np.ndarray | None, geometry: ConvGeometry, precision: str | None = None
) -> np.ndarray:
    """y = conv(x, w) + b. x: (N, Ci, H, W), w: (Co, Ci/groups, kh, kw), b: (Co,) or None; y: (N, Co, Ho, Wo)."""
    layer = _layer(x.shape, w.shape, geometry, precision)
    if b is not None and b.shape != w.shape[:1]:
        raise ShapeError(f"a bias of shape {b.shape} does not fit weights of shape {w.shape}")
    x, w = as_nhwc(x), np.ascontiguousarray(w)
    bias = None if b is None else np.ascontiguousarray(b)
    y = empty_nhwc(x.shape[0], w.shape[0], layer.out_h, layer.out_w)
    then = Epilogue(bias=0 if bias is None else bias.ctypes.data)
    if depthwise.fits(w.shape, geometry):
        depthwise.forward(view(x), w.ctypes.data, view(y), layer.window, scratch(), then)
        return y
    inputs, outputs = layer.inputs, layer.outputs
    for g in range(geometry.groups):
        xs, ys = view(x).channels(g * inputs, inputs), view(y).channels(g * outputs, outputs)
        layer.forward_oihw(xs, w[g * outputs :].ctypes.data, ys, scratch(), then.channels(g * outputs))
    return y


def conv2d_backward_data(
    gy: np.ndarray,
    w: np.ndarray,
    x_shape: Sequence[int],
    geometry: ConvGeometry,
    precision: str | None = None,
) -> np.ndarray:
    """The gradient of x of shape x_shape from gy, the gradient of conv2d's result."""
    layer = _layer(x_shape, w.shape, geometry, precision)
    _check_gradient(gy.shape, x_shape, w.shape, layer)
    gy, w = as_nhwc(gy), np.ascontiguousarray(w)
    gx = empty_nhwc(*x_shape)
    if depthwise.fits(w.shape, geometry):
        depthwise.backward_data(view(gy), w.ctypes.data, view(gx), layer.window, scratch())
        return gx
    inputs, outputs = layer.inputs, layer.outputs
    for g in range(geometry.groups):
        gys, gxs = view(gy).channels(g * outputs, outputs), view(gx).channels(g * inputs, inputs)
        layer.backward_data_oihw(gys, w[g * outputs :].ctypes.data, gxs, scratch())
    return gx


def conv2d_backward_weights(
    gy: np.ndarray,
    x: np.ndarray,
    w_shape: Sequence[int],
    geometry: ConvGeometry,
    precision: str | None = None,
) -> np.ndarray:
    """The gradient of w of shape w_shape, C-contiguous."""
    layer = _layer(x.shape, w_shape, geometry, precision)
    _check_gradient(gy.shape, x.shape, w_shape, layer)
    gy, x = as_nhwc(gy), as_nhwc(x)
    gw = empty(tuple(w_shape))
    if depthwise.fits(w_shape, geometry):
        depthwise.backward_weights(view(x), view(gy), gw.ctypes.data, layer.window, scratch())
        return gw
    inputs, outputs = layer.inputs, layer.outputs
    for g in range(geometry.groups):
        xs, gys = view(x).channels(g * inputs, inputs), view(gy).channels(g * outputs, outputs)
        layer.backward_weights_oihw(xs, gys, gw[g * outputs :].ctypes.data, scratch())
    return gw


def _layer(
    x_shape: Sequence[int], w_shape: Sequence[int], geometry: ConvGeometry, precision: str | None
) -> Convolution:
    """The layer's convolution (of one group); checks that the shapes fit together."""
    groups = geometry.groups
    if len(x_shape) != 4 or len(w_shape) != 4:
        raise ShapeError(f"a convolution needs 4-D input and weights, got {x_shape} and {w_shape}")
    if x_shape[1] != w_shape[1] * groups or w_shape[0] % groups:
        raise ShapeError(f"weights {w_shape} with {groups} groups do not fit an input of shape {x_shape}")
    n, _, h, w = x_shape
    fast = (precision or current_precision()) == "fast"
    return convolution(n, h, w, w_shape[1], w_shape[0] // groups, (w_shape[2], w_shape[3]), geometry, fast)


def _check_gradient(
    gy_shape: Sequence[int], x_shape: Sequence[int], w_shape: Sequence[int], layer: Convolution
) -> None:
    expected = (x_shape[0], w_shape[0], layer.out_h, layer.out_w)
    if tuple(gy_shape) != expected:
        raise ShapeError(f"the gradient of a convolution's output has shape {tuple(gy_shape)}, not {expected}")
