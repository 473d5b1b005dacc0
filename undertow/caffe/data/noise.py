"""The SSD fork's `noise_param`: pictures made worse on purpose, before the crop.

The steps, each only where it is asked for, in this order: decolorize, gauss_blur, hist_eq, clahe, jpeg, erode,
posterize, inverse, saltpepper, convert_to_hsv. Every picture gets them: as in the original, `prob` has no effect.
Pictures are uint8 BGR or grey, (channels, height, width). Histogram equalization, erosion and posterization are
OpenCV's to the bit; grey, blur, CLAHE and HSV may differ by one level. Source: ApplyNoise in im_transforms.cpp.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from undertow.caffe.data.distortion import bgr_to_hsv
from undertow.caffe.data.pictures import opencv_grey, recompressed
from undertow.caffe.proto.message import Message
from undertow.errors import FormatError, ShapeError

Array = np.ndarray[Any, Any]

_BLUR, _SIGMA = 7, 1.5
_TILES, _CLIP = 8, 4.0
_POSTER = 64
_LEVELS = 256
_SHIFT, _HALF = 14, 1 << 13
_IN_COLOUR = ("decolorize", "convert_to_hsv")


class Noise:
    """What a NoiseParameter asks for. Raises FormatError for what cannot be."""

    def __init__(self, param: Message) -> None:
        self.o, salt = param, param.saltpepper_param
        if param.convert_to_lab:
            raise FormatError(
                "convert_to_lab makes floats, which the original then reads as bytes", remedy="remove convert_to_lab"
            )
        if param.jpeg > 100:
            raise FormatError(f"jpeg is a quality up to 100, here it is {param.jpeg:g}", remedy="write jpeg: 50")
        if param.saltpepper and not (salt.value and 0 <= salt.fraction <= 1):
            raise FormatError(
                "saltpepper needs values, and a fraction from 0 to 1",
                remedy="write saltpepper_param { fraction: 0.05 value: 0 }",
            )
        self.random = bool(param.saltpepper)

    def apply(self, picture: Array, rng: np.random.Generator | None) -> Array:
        """The picture with all of it. rng: where salt and pepper fall."""
        o, salt = self.o, self.o.saltpepper_param
        if len(picture) != 3 and any(getattr(o, name) for name in _IN_COLOUR):
            raise ShapeError(f"decolorize and convert_to_hsv need 3 channels, the picture has {len(picture)}",
                             remedy="transform_param { force_color: true }")  # fmt: skip
        if o.decolorize:
            picture = np.repeat(opencv_grey(picture), 3, axis=0)
        if o.gauss_blur:
            picture = blurred(picture)
        if o.hist_eq:
            picture = _in_light(picture, equalized)
        if o.clahe:
            picture = _in_light(picture, equalized_by_tiles)
        if o.jpeg > 0:
            picture = recompressed(picture, int(o.jpeg))
        if o.erode:
            picture = eroded(picture)
        if o.posterize:
            picture = picture // _POSTER * _POSTER + _POSTER // 2
        if o.inverse:
            picture = 255 - picture
        if o.saltpepper:
            picture = salted(picture, salt.fraction, list(salt.value), rng)
        return bgr_to_hsv(picture) if o.convert_to_hsv else picture


def blurred(picture: Array) -> Array:
    """cv::GaussianBlur with a window of 7 and a deviation of 1.5; beyond the edge the picture is mirrored."""
    places = np.arange(_BLUR) - _BLUR // 2
    weights = np.exp(-(places**2) / (2 * _SIGMA**2))
    weights /= weights.sum()
    margin = _BLUR // 2
    wide = np.pad(picture.astype(np.float64), ((0, 0), (margin, margin), (margin, margin)), "reflect")
    height, width = picture.shape[1:]
    lines = sum(weight * wide[:, i : i + height] for i, weight in enumerate(weights))
    result: Array = sum(weight * lines[:, :, i : i + width] for i, weight in enumerate(weights))
    return np.rint(result).astype(np.uint8)


def _in_light(picture: Array, change: Any) -> Array:
    """Change the light (Y of YCrCb) of a picture in colour, or the one channel of a grey one."""
    if len(picture) == 1:
        return np.asarray(change(picture[0]))[None]
    b, g, r = picture.astype(np.int64)
    y = (1868 * b + 9617 * g + 4899 * r + _HALF) >> _SHIFT
    cr = (((r - y) * 11682 + (128 << _SHIFT) + _HALF) >> _SHIFT).clip(0, 255) - 128
    cb = (((b - y) * 9241 + (128 << _SHIFT) + _HALF) >> _SHIFT).clip(0, 255) - 128
    y = np.asarray(change(y.clip(0, 255).astype(np.uint8))).astype(np.int64)
    blue = y + ((cb * 29049 + _HALF) >> _SHIFT)
    green = y + ((cb * -5636 + cr * -11698 + _HALF) >> _SHIFT)
    red = y + ((cr * 22987 + _HALF) >> _SHIFT)
    return np.stack([blue, green, red]).clip(0, 255).astype(np.uint8)


def equalized(plane: Array) -> Array:
    """cv::equalizeHist of a plane (height, width) of bytes."""
    counts = np.bincount(plane.reshape(-1), minlength=_LEVELS)
    first = int(np.flatnonzero(counts)[0])
    if counts[first] == plane.size:
        return plane
    scale = np.float32(_LEVELS - 1) / np.float32(plane.size - counts[first])
    counts[first] = 0
    table = np.rint(counts.cumsum().astype(np.float32) * scale).clip(0, 255).astype(np.uint8)
    return np.asarray(table[plane])


def equalized_by_tiles(plane: Array) -> Array:
    """cv::CLAHE with a clip limit of 4 and 8 x 8 tiles, whose tables are mixed in between."""
    height, width = plane.shape
    # As there, where one side is no multiple of 8 the other grows too, by 8 pixels.
    more = 0 if height % _TILES == width % _TILES == 0 else 1
    rows, columns = height // _TILES + more, width // _TILES + more
    whole = np.pad(plane, ((0, rows * _TILES - height), (0, columns * _TILES - width)), "reflect")
    tiles = whole.reshape(_TILES, rows, _TILES, columns).swapaxes(1, 2).reshape(_TILES, _TILES, -1)
    tables = np.array([[_table(tile) for tile in line] for line in tiles], np.float32)
    (up, down, y), (left, right, x) = _between(height, rows), _between(width, columns)
    y, values = y[:, None], plane.astype(np.int64)

    def look(tile_rows: Array, tile_columns: Array) -> Array:
        return np.asarray(tables[tile_rows[:, None], tile_columns[None], values])

    top = look(up, left) * (1 - x) + look(up, right) * x
    bottom = look(down, left) * (1 - x) + look(down, right) * x
    return np.rint(top * (1 - y) + bottom * y).clip(0, 255).astype(np.uint8)


def _table(tile: Array) -> Array:
    """The table of one tile: its histogram, cut at the limit, what was cut spread over all levels, summed."""
    counts = np.bincount(tile, minlength=_LEVELS)
    limit = max(1, int(_CLIP * tile.size / _LEVELS))
    surplus = int((counts - limit).clip(0).sum())
    counts = np.minimum(counts, limit) + surplus // _LEVELS
    rest = surplus % _LEVELS
    if rest:
        counts[:: max(1, _LEVELS // rest)][:rest] += 1
    return np.rint(counts.cumsum() * np.float32((_LEVELS - 1) / tile.size)).clip(0, 255)


def _between(length: int, tile: int) -> tuple[Array, Array, Array]:
    """The tiles before and behind each place of an axis, and how far it is towards the second."""
    place = np.arange(length, dtype=np.float32) / np.float32(tile) - np.float32(0.5)
    first = np.floor(place).astype(np.int64)
    return first.clip(0, _TILES - 1), (first + 1).clip(0, _TILES - 1), place - first.astype(np.float32)


def eroded(picture: Array) -> Array:
    """cv::erode with a cross of 3 x 3: the least of a pixel and its four neighbours."""
    wide = np.pad(picture, ((0, 0), (1, 1), (1, 1)), constant_values=255)
    height, width = picture.shape[1:]
    places = ((0, 1), (1, 0), (1, 1), (1, 2), (2, 1))
    return np.min([wide[:, i : i + height, j : j + width] for i, j in places], axis=0)


def salted(picture: Array, fraction: float, values: list[float], rng: np.random.Generator | None) -> Array:
    """A fraction of the pixels (drawn with repetition) set to a value for all channels, or to one for each."""
    channels, height, width = picture.shape
    if len(values) not in (1, channels):
        raise ShapeError(f"{len(values)} values of saltpepper_param for {channels} channels",
                         remedy="give one, or one for each")  # fmt: skip
    assert rng is not None
    count = int(np.floor(np.float32(fraction) * np.float32(width * height)))
    rows, columns = rng.integers(height, size=count), rng.integers(width, size=count)
    result = picture.copy()
    result[:, rows, columns] = np.array(values).astype(np.int64).astype(np.uint8).reshape(-1, 1)
    return result
