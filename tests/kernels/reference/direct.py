"""The same operations written down from their definitions, one output element at a time: slow and obvious."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from undertow.kernels.geometry import PoolGeometry, Windows

Array = np.ndarray[Any, Any]


def windows(
    spatial: tuple[int, ...], kernel: tuple[int, ...], out: tuple[int, ...], geometry: Windows
) -> list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]]:
    """All (output position, kernel position, input position) where the input position lies in the image."""
    triples = []
    for position in itertools.product(*map(range, out)):
        for offset in itertools.product(*map(range, kernel)):
            source = tuple(
                position[i] * geometry.stride[i] - geometry.pad[2 * i] + offset[i] * geometry.dilation[i]
                for i in range(len(spatial))
            )
            if all(0 <= s < n for s, n in zip(source, spatial, strict=True)):
                triples.append((position, offset, source))
    return triples


def out_size(spatial: tuple[int, ...], kernel: tuple[int, ...], geometry: Windows) -> tuple[int, ...]:
    """Counts windows one by one instead of dividing."""
    out = []
    for i, length in enumerate(spatial):
        last = length + geometry.pad[2 * i] + geometry.pad[2 * i + 1] - 1
        starts = range(0, last + 1, geometry.stride[i])
        out.append(sum(s + geometry.dilation[i] * (kernel[i] - 1) <= last for s in starts))
    return tuple(out)


def convolution(x: Array, w: Array, b: Array | None, geometry: Windows) -> Array:
    filters, per_group = w.shape[:2]
    out = out_size(x.shape[2:], w.shape[2:], geometry)
    y = np.zeros((x.shape[0], filters, *out))
    for f in range(filters):
        first = f // (filters // geometry.groups) * per_group
        for position, offset, source in windows(x.shape[2:], w.shape[2:], out, geometry):
            for c in range(per_group):
                y[(slice(None), f, *position)] += w[(f, c, *offset)] * x[(slice(None), first + c, *source)]
        if b is not None:
            y[:, f] += b[f]
    return y


def convolution_gradients(gy: Array, x: Array, w: Array, geometry: Windows) -> tuple[Array, Array]:
    """(gx, gw) by handing each product of the forward sum its share."""
    filters, per_group = w.shape[:2]
    gx, gw = np.zeros(x.shape), np.zeros(w.shape)
    for f in range(filters):
        first = f // (filters // geometry.groups) * per_group
        for position, offset, source in windows(x.shape[2:], w.shape[2:], gy.shape[2:], geometry):
            delta = gy[(slice(None), f, *position)]
            for c in range(per_group):
                gx[(slice(None), first + c, *source)] += delta * w[(f, c, *offset)]
                gw[(f, c, *offset)] += np.sum(delta * x[(slice(None), first + c, *source)])
    return gx, gw


def pool_window(geometry: PoolGeometry, position: tuple[int, int]) -> list[tuple[int, int]]:
    """The cells of one window, in reading order, inside the image or not."""
    top = position[0] * geometry.stride[0] - geometry.pad[0]
    left = position[1] * geometry.stride[1] - geometry.pad[1]
    return [(top + i, left + j) for i in range(geometry.size[0]) for j in range(geometry.size[1])]


def max_pool(x: Array, geometry: PoolGeometry) -> tuple[Array, Array]:
    height, width = x.shape[2:]
    y = np.full((*x.shape[:2], *geometry.out), np.finfo(x.dtype).min, x.dtype)
    index = np.full(y.shape, -1)
    for b, c, p, q in itertools.product(*map(range, y.shape)):
        cells = [(i, j) for i, j in pool_window(geometry, (p, q)) if 0 <= i < height and 0 <= j < width]
        values = [x[b, c, i, j] for i, j in cells]
        if values:
            nans = [n for n, value in enumerate(values) if np.isnan(value)]
            best = nans[0] if nans else values.index(max(values))
            y[b, c, p, q] = values[best]
            index[b, c, p, q] = cells[best][0] * width + cells[best][1]
    return y, index


def average_pool(x: Array, geometry: PoolGeometry) -> Array:
    height, width = x.shape[2:]
    pad, end = geometry.pad, geometry.end_pad
    y = np.zeros((*x.shape[:2], *geometry.out), x.dtype)
    for b, c, p, q in itertools.product(*map(range, y.shape)):
        total, inside, padded = 0.0, 0, 0
        for i, j in pool_window(geometry, (p, q)):
            padded += -pad[0] <= i < height + end[0] and -pad[1] <= j < width + end[1]
            if 0 <= i < height and 0 <= j < width:
                inside += 1
                total += x[b, c, i, j]
        cells = padded if geometry.count_include_pad else inside
        y[b, c, p, q] = total / cells if cells else 0.0
    return y
