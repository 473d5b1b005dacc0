"""Max and average pooling over windows of (batch, channels, height, width) arrays.

A window is a rectangle, so both go one dimension at a time: along the rows, then along the columns of what
that gives. The rule that fixes windows and output size is in the PoolGeometry (`undertow.kernels.geometry`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from undertow.errors import ShapeError
from undertow.kernels.geometry import PoolGeometry, by

Array = np.ndarray[Any, Any]
Index = tuple[Any, ...]
VERTICAL, HORIZONTAL = 0, 1
PoolKind = Literal["max", "average"]


def pool2d(kind: PoolKind, x: Array, geometry: PoolGeometry) -> tuple[Array, Array | None]:
    """`max_pool2d` (with its indexes) or `average_pool2d` (with None)."""
    if kind == "max":
        return max_pool2d(x, geometry)
    return average_pool2d(x, geometry), None


def pool2d_backward(
    kind: PoolKind, gy: Array, indexes: Array | None, x_shape: Sequence[int], geometry: PoolGeometry
) -> Array:
    """The gradient with respect to the input of `pool2d`; max needs the indexes that `pool2d` gave."""
    if kind == "average":
        return average_pool2d_backward(gy, x_shape, geometry)
    if indexes is None:
        raise ShapeError("the backward of max pooling needs the indexes of its forward pass")
    return max_pool2d_backward(gy, indexes, x_shape)


def max_pool2d(x: Array, geometry: PoolGeometry) -> tuple[Array, Array]:
    """y = the largest element of each window; padding is minus infinity, never 0.

    Returns y (batch, channels, *out) and indexes (int32, same shape): row*width + column of the winner in its
    image plane. Of equal elements the first in reading order wins. A NaN wins over everything, so that it is
    not hidden. A window that sees only padding gives the lowest finite number, as Darknet and Caffe do, and
    index -1.
    """
    _check(x.shape, geometry)
    height, width = x.shape[2:]
    columns = np.broadcast_to(np.arange(width, dtype=np.int32), x.shape)
    y, column = _window_max(x, columns, geometry, HORIZONTAL)
    rows = np.arange(height, dtype=np.int32)[:, None] * np.int32(width)
    index = np.where(column < 0, np.int32(-1), column + rows)
    return _window_max(y, index, geometry, VERTICAL)


def max_pool2d_backward(gy: Array, indexes: Array, x_shape: Sequence[int]) -> Array:
    """gx[index] += gy: every window gives its gradient to its winner. Windows without one (-1) give none."""
    batch, channels, height, width = x_shape
    if gy.shape != indexes.shape or gy.shape[:2] != (batch, channels):
        raise ShapeError(f"gradient {gy.shape}, indexes {indexes.shape} and input {tuple(x_shape)} do not fit")
    plane = height * width
    gx = np.empty((batch, channels * plane), gy.dtype)
    first = np.arange(channels).reshape(-1, 1, 1) * plane
    for i in range(batch):
        seen = indexes[i] >= 0
        position = (indexes[i] + first)[seen]
        gx[i] = np.bincount(position, gy[i][seen], minlength=channels * plane)
    return gx.reshape(tuple(x_shape))


def max_pool2d_gather(x: Array, indexes: Array) -> Array:
    """x at the winners: y = max_pool2d(x) for the x that gave the indexes, and linear in x. 0 where -1.

    This is the adjoint of `max_pool2d_backward`, so it carries second derivatives.
    """
    if x.shape[:2] != indexes.shape[:2]:
        raise ShapeError(f"indexes {indexes.shape} do not belong to an input of {x.shape}")
    flat = x.reshape(*x.shape[:2], -1)
    where = indexes.reshape(*indexes.shape[:2], -1)
    taken = np.take_along_axis(flat, np.maximum(where, 0).astype(np.intp), axis=2)
    return np.where(where < 0, x.dtype.type(0), taken).reshape(indexes.shape)


def average_pool2d(x: Array, geometry: PoolGeometry) -> Array:
    """y = (sum of the window's elements, padding being 0) / (number of its cells).

    Cells are counted inside image plus padding (pad and end_pad), or inside the image where
    count_include_pad is False; a window with no cell gives 0. Returns (batch, channels, *out).
    """
    _check(x.shape, geometry)
    sums = _window_sums(_window_sums(x, geometry, HORIZONTAL), geometry, VERTICAL)
    return sums / _window_cells(x.shape, geometry, x.dtype)


def average_pool2d_backward(gy: Array, x_shape: Sequence[int], geometry: PoolGeometry) -> Array:
    """gx = the sum, over the windows that see this element, of gy / (number of the window's cells)."""
    _check(x_shape, geometry)
    expected = (*x_shape[:2], *geometry.out)
    if gy.shape != expected:
        raise ShapeError(f"the gradient of the output should be {by(expected)}, got {by(gy.shape)}")
    share = gy / _window_cells(x_shape, geometry, gy.dtype)
    return _spread(_spread(share, x_shape[2], geometry, VERTICAL), x_shape[3], geometry, HORIZONTAL)


def _window_max(values: Array, indexes: Array, geometry: PoolGeometry, axis: int) -> tuple[Array, Array]:
    """Maximum over the windows along an axis, and the winner's entry in indexes; -1: nothing seen yet."""
    shape = _with_length(values.shape, axis, geometry.out[axis])
    best = np.full(shape, np.finfo(values.dtype).min, values.dtype)
    winner = np.full(shape, -1, np.int32)
    for outputs, inputs in _window_positions(values.shape[2 + axis], geometry, axis):
        value, index = values[inputs], indexes[inputs]
        so_far, so_far_index = best[outputs], winner[outputs]
        # "not <=" is true for a NaN as well; a NaN that already won stays.
        larger = ~(value <= so_far) & ~np.isnan(so_far)
        better = larger | (so_far_index < 0)
        np.copyto(so_far, value, where=better)
        np.copyto(so_far_index, index, where=better)
    return best, winner


def _window_sums(values: Array, geometry: PoolGeometry, axis: int) -> Array:
    """Sums over the windows along an axis."""
    sums = np.zeros(_with_length(values.shape, axis, geometry.out[axis]), values.dtype)
    for outputs, inputs in _window_positions(values.shape[2 + axis], geometry, axis):
        sums[outputs] += values[inputs]
    return sums


def _spread(values: Array, length: int, geometry: PoolGeometry, axis: int) -> Array:
    """The adjoint of `_window_sums`: each window's value added to all elements it sees."""
    spread = np.zeros(_with_length(values.shape, axis, length), values.dtype)
    for outputs, inputs in _window_positions(length, geometry, axis):
        spread[inputs] += values[outputs]
    return spread


def _window_positions(length: int, geometry: PoolGeometry, axis: int) -> list[tuple[Index, Index]]:
    """For each position inside the window: the outputs for which it lies in the image, and what they meet.

    Both as indexes into (batch, channels, height, width) arrays that cut only this axis.
    """
    size, stride = geometry.size[axis], geometry.stride[axis]
    pad, out = geometry.pad[axis], geometry.out[axis]
    rest = (slice(None),) if axis == VERTICAL else ()
    positions: list[tuple[Index, Index]] = []
    for offset in range(-pad, size - pad):
        first = max(0, -(offset // stride))
        last = min(out - 1, (length - 1 - offset) // stride)
        if first <= last:
            met = slice(first * stride + offset, last * stride + offset + 1, stride)
            positions.append(((..., slice(first, last + 1), *rest), (..., met, *rest)))
    return positions


def _with_length(shape: Sequence[int], axis: int, length: int) -> tuple[int, ...]:
    """The shape with another height (axis 0) or width (axis 1)."""
    return (*shape[: 2 + axis], length, *shape[3 + axis :])


def _window_cells(x_shape: Sequence[int], geometry: PoolGeometry, dtype: Any) -> Array:
    """(out_h, out_w): what each window's sum is divided by; 1 where there is no cell."""
    counts = []
    for axis, length in enumerate(x_shape[2:]):
        before = geometry.pad[axis] if geometry.count_include_pad else 0
        after = geometry.end_pad[axis] if geometry.count_include_pad else 0
        start = np.arange(geometry.out[axis]) * geometry.stride[axis] - geometry.pad[axis]
        stop = np.minimum(start + geometry.size[axis], length + after)
        counts.append(np.maximum(stop - np.maximum(start, -before), 0))
    return np.maximum(np.outer(*counts), 1).astype(dtype)


def _check(x_shape: Sequence[int], geometry: PoolGeometry) -> None:
    if len(x_shape) != 4 or 0 in x_shape[2:]:
        raise ShapeError(f"pooling needs a (batch, channels, height, width) input, got {tuple(x_shape)}")
