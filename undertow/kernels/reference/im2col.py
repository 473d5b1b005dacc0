"""Windows of an image as the columns of a matrix, and the way back.

Both are written for any number of spatial dimensions; Darknet's im2col.c and col2im.c are the case of two.
An image is (channels, *spatial). In its matrix, row (channel*kh + ky)*kw + kx holds what kernel position
(ky, kx) of that channel meets, and column y*out_w + x belongs to the window of output pixel (y, x).
Axes before the channels pass through.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from undertow.errors import ShapeError
from undertow.kernels.geometry import Windows, by, output_shape

Array = np.ndarray[Any, Any]
Index = tuple[Any, ...]


def im2col(image: Array, kernel: Sequence[int], geometry: Windows) -> Array:
    """cols[(c*kh + ky)*kw + kx, y*out_w + x] = image[c, y*sy - top + ky*dy, x*sx - left + kx*dx].

    Outside the image is 0. image: (..., channels, *spatial). kernel: the window, one number per spatial dimension.
    Returns a new (..., channels * prod(kernel), prod(out)) array of the image's type.
    ShapeError where the window does not fit. Source: im2col.c, with stride, dilation and padding per side.
    """
    lead, channels, spatial = _split(image.shape, geometry)
    out = output_shape(spatial, kernel, geometry)
    padded = _pad(image, geometry.pad)
    cols = np.empty((*lead, channels, *kernel, *out), image.dtype)
    for offset, met in _kernel_offsets(kernel, out, geometry):
        cols[offset] = padded[met]
    return cols.reshape(*lead, channels * math.prod(kernel), math.prod(out))


def col2im(cols: Array, image_shape: Sequence[int], kernel: Sequence[int], geometry: Windows) -> Array:
    """The adjoint of im2col: image[pixel] = sum of all entries of cols that im2col reads from there.

    cols: (..., channels * prod(kernel), prod(out)). image_shape: (..., channels, *spatial).
    Returns a new array of image_shape. ShapeError where the sizes do not belong together. Source: col2im.c.
    """
    lead, channels, spatial = _split(tuple(image_shape), geometry)
    out = output_shape(spatial, kernel, geometry)
    expected = (*lead, channels * math.prod(kernel), math.prod(out))
    if cols.shape != expected:
        raise ShapeError(
            f"col2im: a matrix of {by(expected)} belongs to an image of {by(image_shape)} with a window of "
            f"{by(kernel)}, got {by(cols.shape)}"
        )
    windows = cols.reshape(*lead, channels, *kernel, *out)
    pads = list(zip(geometry.pad[::2], geometry.pad[1::2], strict=True))
    padded_size = [n + before + after for n, (before, after) in zip(spatial, pads, strict=True)]
    padded = np.zeros((*lead, channels, *padded_size), cols.dtype)
    for offset, met in _kernel_offsets(kernel, out, geometry):
        padded[met] += windows[offset]
    inside: Index = (..., *(slice(before, before + n) for n, (before, _) in zip(spatial, pads, strict=True)))
    return np.ascontiguousarray(padded[inside])


def _kernel_offsets(kernel: Sequence[int], out: Sequence[int], geometry: Windows) -> Iterator[tuple[Index, Index]]:
    """For each kernel position: its place in (..., *kernel, *out), and what of the padded image it meets."""
    everywhere = [slice(None)] * len(out)
    for offset in itertools.product(*(range(k) for k in kernel)):
        starts = [o * d for o, d in zip(offset, geometry.dilation, strict=True)]
        met = [
            slice(start, start + (n - 1) * stride + 1, stride)
            for start, n, stride in zip(starts, out, geometry.stride, strict=True)
        ]
        yield (..., *offset, *everywhere), (..., *met)


def _pad(image: Array, pad: Sequence[int]) -> Array:
    """The image with zeros around its spatial dimensions; the image itself where there is no padding."""
    if not any(pad):
        return image
    dims = len(pad) // 2
    widths = [(0, 0)] * (image.ndim - dims) + [(pad[2 * i], pad[2 * i + 1]) for i in range(dims)]
    return np.pad(image, widths)


def _split(shape: tuple[int, ...], geometry: Windows) -> tuple[tuple[int, ...], int, tuple[int, ...]]:
    """(axes before the channels, channels, spatial dimensions) of an image's shape."""
    dims = len(geometry.stride)
    if len(shape) < dims + 1:
        raise ShapeError(f"an image with {dims} spatial dimensions is (..., channels, *spatial), got {shape}")
    return shape[: -dims - 1], shape[-dims - 1], shape[-dims:]
