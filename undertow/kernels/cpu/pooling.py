"""Pooling and nearest-neighbour resampling on float32 arrays (batch, channels, height, width)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from undertow.errors import ShapeError
from undertow.kernels.cpu.memory import as_nhwc, empty_nhwc, view
from undertow.kernels.cpu.raw import pooling as raw
from undertow.kernels.cpu.raw.pooling import Pool
from undertow.kernels.geometry import Pair, PoolGeometry, by
from undertow.kernels.reference.pooling import PoolKind

Array = np.ndarray


def pool2d(kind: PoolKind, x: Array, geometry: PoolGeometry) -> tuple[Array, Array | None]:
    """`reference.pool2d`."""
    if x.ndim != 4:
        raise ShapeError(f"pooling needs a (batch, channels, height, width) input, got {x.shape}")
    x = as_nhwc(x)
    y = empty_nhwc(x.shape[0], x.shape[1], *geometry.out)
    pool = _pool(geometry)
    if kind == "max":
        indexes = empty_nhwc(*y.shape).view(np.int32)
        raw.max_forward(view(x), view(y), indexes.ctypes.data, pool)
        return y, indexes
    cells_y, cells_x = cells(x.shape, geometry)
    raw.average_forward(view(x), view(y), cells_y.ctypes.data, cells_x.ctypes.data, pool)
    return y, None


def pool2d_backward(
    kind: PoolKind, gy: Array, indexes: Array | None, x_shape: Sequence[int], geometry: PoolGeometry
) -> Array:
    """`reference.pool2d_backward`."""
    expected = (*x_shape[:2], *geometry.out)
    if gy.shape != expected:
        raise ShapeError(f"the gradient of the output should be {by(expected)}, got {by(gy.shape)}")
    gy = as_nhwc(gy)
    gx = empty_nhwc(*x_shape)
    pool = _pool(geometry)
    if kind == "average":
        cells_y, cells_x = cells(x_shape, geometry)
        raw.average_backward(view(gy), view(gx), cells_y.ctypes.data, cells_x.ctypes.data, pool)
        return gx
    if indexes is None:
        raise ShapeError("the backward of max pooling needs the indexes of its forward pass")
    if indexes.shape != gy.shape:
        raise ShapeError(f"indexes {indexes.shape} do not belong to a gradient of {gy.shape}")
    indexes = _dense(indexes)
    raw.max_backward(view(gy), indexes.ctypes.data, view(gx), pool)
    return gx


def upsample2d(x: Array, factor: Pair, scale: float = 1.0) -> Array:
    """`reference.upsample2d`."""
    _check(x, factor)
    x = as_nhwc(x)
    n, c, h, w = x.shape
    y = empty_nhwc(n, c, h * factor[0], w * factor[1])
    raw.replicate(view(x), view(y), *factor, scale)
    return y


def downsample2d(x: Array, factor: Pair, scale: float = 1.0) -> Array:
    """`reference.downsample2d`."""
    _check(x, factor)
    n, c, h, w = x.shape
    if h % factor[0] or w % factor[1]:
        raise ShapeError(f"shrinking by {by(factor)} needs a size it divides, got {h}x{w}")
    x = as_nhwc(x)
    y = empty_nhwc(n, c, h // factor[0], w // factor[1])
    raw.block_sum(view(x), view(y), *factor, scale)
    return y


def upsample2d_backward(gy: Array, factor: Pair, scale: float = 1.0) -> Array:
    """`reference.upsample2d_backward`."""
    return downsample2d(gy, factor, scale)


def downsample2d_backward(gy: Array, factor: Pair, scale: float = 1.0) -> Array:
    """`reference.downsample2d_backward`."""
    return upsample2d(gy, factor, scale)


def _pool(geometry: PoolGeometry) -> Pool:
    return Pool(*geometry.size, *geometry.stride, *geometry.pad)


def _dense(indexes: Array) -> Array:
    """int32 indexes in memory order NHWC without gaps."""
    n, c, h, w = indexes.shape
    wanted = np.asarray(indexes, np.int32)
    moved = wanted.transpose(0, 2, 3, 1)
    if moved.flags.c_contiguous:
        return wanted
    return np.ascontiguousarray(as_nhwc(wanted.view(np.float32)).transpose(0, 2, 3, 1)).reshape(n, h, w, c)


def cells(x_shape: Sequence[int], geometry: PoolGeometry) -> tuple[Array, Array]:
    """float32 tables whose product is what a window's sum is divided by."""
    tables = []
    for axis, length in enumerate(x_shape[2:]):
        before = geometry.pad[axis] if geometry.count_include_pad else 0
        after = geometry.end_pad[axis] if geometry.count_include_pad else 0
        start = np.arange(geometry.out[axis]) * geometry.stride[axis] - geometry.pad[axis]
        stop = np.minimum(start + geometry.size[axis], length + after)
        # A window without cells has the sum 0; dividing by 1 keeps it.
        tables.append(np.maximum(stop - np.maximum(start, -before), 1).astype(np.float32))
    return tables[0], tables[1]


def _check(x: Array, factor: Pair) -> None:
    if x.ndim != 4 or min(factor) < 1:
        raise ShapeError(
            f"up- and downsampling need a (batch, channels, height, width) input and factors of at least 1, "
            f"got {x.shape} and {factor}"
        )
