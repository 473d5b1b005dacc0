"""Changing the size of pictures: the rules of Darknet's image.c, and OpenCV's bilinear rule beside them.

Pictures are float arrays (channels, height, width); sizes are given as (width, height), as in the original. All
functions return new arrays, except `embed_image` and `place_image`, which draw into a given canvas.

Two bilinear rules are in use, and networks notice: Darknet aligns the corners, so output column c reads column
c*(in - 1)/(out - 1); OpenCV aligns pixel areas and reads (c + 0.5)*in/out - 0.5 (`stretch_image`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertow.errors import ShapeError

Picture = NDArray[np.float32]
GREY = 0.5
_BAND = 64  # rows at a time


class _Taps(NamedTuple):
    """For each output position: the two input positions, and the weight of the second."""

    first: NDArray[np.intp]
    second: NDArray[np.intp]
    weight: NDArray[np.float32]


def resize_image(image: NDArray[np.generic], width: int, height: int, *, exact: bool = False) -> Picture:
    """Bilinear with corners aligned, (c, h, w) -> (c, height, width); Darknet's `resize_image`.

    An output of one column (row) takes the last column (row). uint8 input gives values 0..255 in float32.
    exact: for some heights the original's float32 position of the last row falls a hair short of the last input
        row, whose share is then left out, and the row comes out all but black. True gives the proper row.
    Raises ShapeError for an empty input or output.
    """
    _check_sizes(image, width, height)
    if image.shape[1:] == (height, width):
        return image.astype(np.float32)
    vertical, last_share = _aligned_taps(image.shape[1], height), 1.0
    if not exact:
        vertical, last_share = _darknet_rows(image.shape[1], height)
    resized = np.empty((image.shape[0], height, width), np.float32)
    _resample(image, vertical, _aligned_taps(image.shape[2], width), resized)
    if last_share != 1:
        resized[:, -1] *= np.float32(last_share)
    return resized


def stretch_image(image: NDArray[np.generic], width: int, height: int) -> Picture:
    """Bilinear with half-pixel centres, (c, h, w) -> (c, height, width); OpenCV's INTER_LINEAR on float pixels.

    Beyond the outermost centres the edge value holds. Raises ShapeError for an empty input or output.
    """
    _check_sizes(image, width, height)
    stretched = np.empty((image.shape[0], height, width), np.float32)
    vertical, horizontal = _half_pixel_taps(image.shape[1], height), _half_pixel_taps(image.shape[2], width)
    _resample(image, vertical, horizontal, stretched)
    return stretched


def letterbox_size(width: int, height: int, net_width: int, net_height: int) -> tuple[int, int]:
    """The size a width x height picture takes inside net_width x net_height, its shape kept; Darknet's integers.

    A side that Darknet would round to 0 (a strip thinner than one pixel) stays 1, so boxes can be mapped back.
    """
    if np.float32(net_width) / np.float32(width) < np.float32(net_height) / np.float32(height):
        return net_width, max(1, height * net_width // width)
    return max(1, width * net_height // height), net_height


def letterbox_image(
    image: NDArray[np.generic], width: int, height: int, fill: float = GREY, *, exact: bool = False
) -> Picture:
    """Fit the picture into width x height without changing its shape, centred on `fill`; Darknet's rule.

    fill: in the picture's own range. exact: as in `resize_image`.
    """
    _check_sizes(image, width, height)
    inner_width, inner_height = letterbox_size(image.shape[2], image.shape[1], width, height)
    boxed = np.full((image.shape[0], height, width), fill, np.float32)
    resized = resize_image(image, inner_width, inner_height, exact=exact)
    embed_image(resized, boxed, (width - inner_width) // 2, (height - inner_height) // 2)
    return boxed


def embed_image(source: Picture, canvas: Picture, dx: int, dy: int) -> None:
    """Copy `source` into `canvas` with its corner at column dx, row dy; what falls outside is left out."""
    rows, from_rows = _overlap(dy, source.shape[1], canvas.shape[1])
    columns, from_columns = _overlap(dx, source.shape[2], canvas.shape[2])
    canvas[: source.shape[0], rows, columns] = source[:, from_rows, from_columns]


def place_image(image: NDArray[np.generic], width: int, height: int, dx: int, dy: int, canvas: Picture) -> None:
    """Draw the picture, scaled to width x height, into `canvas` at column dx, row dy; Darknet's `place_image`.

    Column x reads column x*w/width of the picture, bilinear, with zeros beyond its last row and column.
    Only the part that shows is computed.
    """
    if width <= 0 or height <= 0:
        return
    rows, from_rows = _overlap(dy, height, canvas.shape[1])
    columns, from_columns = _overlap(dx, width, canvas.shape[2])
    vertical, fade_y = _placed_taps(image.shape[1], height)
    horizontal, fade_x = _placed_taps(image.shape[2], width)
    placed = canvas[: image.shape[0], rows, columns]
    _resample(image, _sliced(vertical, from_rows), _sliced(horizontal, from_columns), placed)
    placed *= fade_y[from_rows, None]
    placed *= fade_x[from_columns]


def crop_image(image: Picture, dx: int, dy: int, width: int, height: int) -> Picture:
    """The width x height part whose corner is at column dx, row dy; beyond the picture its edge is repeated."""
    rows = np.clip(np.arange(dy, dy + height), 0, image.shape[1] - 1)
    columns = np.clip(np.arange(dx, dx + width), 0, image.shape[2] - 1)
    return np.take(np.take(image, rows, axis=1), columns, axis=2)


def center_crop_image(image: Picture, width: int, height: int) -> Picture:
    """The largest centred square, resized to width x height."""
    side = min(image.shape[1:])
    square = crop_image(image, (image.shape[2] - side) // 2, (image.shape[1] - side) // 2, side, side)
    return resize_image(square, width, height)


def resize_max(image: Picture, longest: int) -> Picture:
    """Resize so that the longer side is `longest`; the other follows in integers, at least 1."""
    _, height, width = image.shape
    if width > height:
        return resize_image(image, longest, max(1, height * longest // width))
    return resize_image(image, max(1, width * longest // height), longest)


def resize_min(image: Picture, shortest: int) -> Picture:
    """Resize so that the shorter side is `shortest`; the other follows in integers."""
    _, height, width = image.shape
    if width < height:
        return resize_image(image, shortest, height * shortest // width)
    return resize_image(image, width * shortest // height, shortest)


def flip_image(image: Picture) -> Picture:
    """Left and right exchanged."""
    return image[:, :, ::-1].copy()


def rotate_image_cw(image: Picture, times: int) -> Picture:
    """Turned by `times` quarter turns: counter-clockwise, as the original does in spite of the name."""
    return np.rot90(image, times, axes=(1, 2)).copy()


def _check_sizes(image: NDArray[np.generic], width: int, height: int) -> None:
    if image.ndim != 3 or 0 in image.shape:
        raise ShapeError(f"a picture has the shape (channels, height, width), none of them 0, not {image.shape}")
    if width < 1 or height < 1:
        raise ShapeError(f"a picture cannot be resized to {width} x {height}")


def _overlap(start: int, length: int, available: int) -> tuple[slice, slice]:
    """Where `length` cells from `start` fall inside 0..available, and which of them those are."""
    low, high = max(0, start), max(0, min(available, start + length))
    high = max(low, high)
    return slice(low, high), slice(low - start, high - start)


def _resample(image: NDArray[np.generic], vertical: _Taps, horizontal: _Taps, out: Picture) -> None:
    """Fill `out` (c, rows, columns), a few rows at a time so that what lies between stays in the cache.

    Rows first: they are copied whole, and shrinking first leaves less for the scattered column reads.
    """
    image = np.ascontiguousarray(image)
    for start in range(0, out.shape[1], _BAND):
        band = slice(start, start + _BAND)
        rows = _blend(image, _sliced(vertical, band), axis=1)
        out[:, band] = _blend(rows, horizontal, axis=2)


def _blend(image: NDArray[np.generic], taps: _Taps, axis: int) -> Picture:
    """first + weight * (second - first), with exact copies where the weight is 0."""
    weight = taps.weight[:, None] if axis == 1 else taps.weight
    first = np.take(image, taps.first, axis=axis).astype(np.float32, copy=False)
    second = np.take(image, taps.second, axis=axis).astype(np.float32, copy=False)
    second -= first
    second *= weight
    second += first
    return second


def _sliced(taps: _Taps, part: slice) -> _Taps:
    return _Taps(taps.first[part], taps.second[part], taps.weight[part])


@lru_cache(maxsize=512)
def _aligned_taps(size_in: int, size_out: int) -> _Taps:
    if size_in == 1 or size_out == 1:
        last = np.full(size_out, size_in - 1)
        return _frozen(last, last, np.zeros(size_out, np.float32))
    position = np.arange(size_out, dtype=np.float32) * (np.float32(size_in - 1) / np.float32(size_out - 1))
    position[-1] = size_in - 1
    return _taps_at(position, size_in)


@lru_cache(maxsize=512)
def _darknet_rows(size_in: int, size_out: int) -> tuple[_Taps, float]:
    """The aligned taps, and what is left of the last row where its position rounds to below the last input row."""
    taps = _aligned_taps(size_in, size_out)
    if size_in == 1 or size_out == 1:
        return taps, 1.0
    scale = np.float32(size_in - 1) / np.float32(size_out - 1)
    position = np.float32(size_out - 1) * scale
    if position >= size_in - 1:
        return taps, 1.0
    first, second = taps.first.copy(), taps.second.copy()
    first[-1] = second[-1] = size_in - 2
    return _frozen(first, second, taps.weight.copy()), float(1 - (position - np.float32(size_in - 2)))


@lru_cache(maxsize=512)
def _half_pixel_taps(size_in: int, size_out: int) -> _Taps:
    position = (np.arange(size_out) + 0.5) * (size_in / size_out) - 0.5
    return _taps_at(np.clip(position, 0, size_in - 1).astype(np.float32), size_in)


@lru_cache(maxsize=512)
def _placed_taps(size_in: int, size_out: int) -> tuple[_Taps, NDArray[np.float32]]:
    """Taps of `place_image`, and the factor by which its zeros beyond the edge darken each position."""
    position = np.arange(size_out, dtype=np.float32) / np.float32(size_out) * np.float32(size_in)
    taps = _taps_at(position, size_in)
    fade = np.where(taps.first == size_in - 1, 1 - (position - taps.first.astype(np.float32)), 1)
    fade = fade.astype(np.float32)
    fade.flags.writeable = False
    return taps, fade


def _taps_at(position: NDArray[np.float32], size_in: int) -> _Taps:
    first = np.minimum(position.astype(np.intp), size_in - 1)
    second = np.minimum(first + 1, size_in - 1)
    return _frozen(first, second, position - first.astype(np.float32))


def _frozen(first: NDArray[np.intp], second: NDArray[np.intp], weight: NDArray[np.float32]) -> _Taps:
    for array in (first, second, weight):
        array.flags.writeable = False
    return _Taps(first, second, weight)
