"""The feed of WindowData layers: rectangles cut out of pictures and brought to one size (R-CNN)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from undertow.caffe.data.feed import Array, Feed, empty_batch
from undertow.caffe.data.pictures import decode, read_file, read_picture, resize_picture
from undertow.caffe.data.windowfile import Window, WindowFile
from undertow.errors import FormatError, ShapeError

_F = np.float32


@dataclass(frozen=True)
class WindowOptions:
    """crop_size: side of the results. context_pad: border around the window in the result. square: keep its shape.

    mean: a picture (channels, height, width) of at least crop_size, one value per channel (channels, 1, 1), or None.
    """

    batch_size: int
    crop_size: int
    context_pad: int = 0
    square: bool = False
    mirror: bool = False
    scale: float = 1.0
    foreground_share: float = 0.25
    mean: Array | None = None
    cache: bool = False
    dtype: Any = np.float32


class Placed(NamedTuple):
    """Which part of the picture is taken, the size it is brought to, and where that lies in the result."""

    x1: int
    y1: int
    x2: int
    y2: int
    height: int
    width: int
    top: int
    left: int


class WindowFeed(Feed):
    """Batches of drawn windows: first background, then foreground. find: from a path in the file to the picture."""

    random = True

    def __init__(self, windows: WindowFile, options: WindowOptions, find: Callable[[str], str], seed: int = 0) -> None:
        super().__init__(seed)
        self.windows, self.options, self.find = windows, options, find
        if windows.channels != 3:
            raise FormatError(
                f"pictures are read in colour, the file says {windows.channels} channels",
                remedy="write 3 channels, and save the pictures in colour",
            )
        if not 0 <= options.foreground_share <= 1:
            raise FormatError(
                f"fg_fraction lies from 0 to 1, here it is {options.foreground_share:g}",
                remedy="write fg_fraction: 0.25",
            )
        crop, pad, mean = options.crop_size, options.context_pad, options.mean
        if crop < 1 or crop <= 2 * pad:
            raise ShapeError(
                f"a crop_size of {crop} has no room for context_pad {pad} on both sides",
                remedy="use a smaller context_pad: less than half of crop_size",
            )
        self._mean_offset = 0
        if mean is not None and mean.shape[1:] != (1, 1):
            self._mean_offset = (mean.shape[2] - crop) // 2
            if self._mean_offset < 0 or self._mean_offset + crop > mean.shape[1]:
                raise ShapeError(
                    f"the mean picture of shape {mean.shape} is smaller than crop_size {crop}",
                    remedy="use a mean picture of at least crop_size, or mean_value",
                )
        if mean is not None and len(mean) not in (1, 3):
            raise ShapeError(
                f"the mean has {len(mean)} channels, pictures have 3",
                remedy="make the mean from pictures in colour, or give three mean_value",
            )
        self._cached: dict[int, bytes] = {}
        self.shapes = [(options.batch_size, 3, crop, crop), (options.batch_size,)]

    def load(self) -> list[Array]:
        o = self.options
        foreground = int(_F(o.batch_size) * _F(o.foreground_share))
        batch = empty_batch(self.shapes[0], o.dtype)
        batch[...] = 0
        labels: Any = np.empty(o.batch_size, o.dtype)
        for index in range(o.batch_size):
            draws = self.draws(self.counter)
            kind = self.windows.foreground if index >= o.batch_size - foreground else self.windows.background
            window = kind[int(draws.integers(len(kind)))]
            self._fill(batch[index], window, o.mirror and draws.integers(2) == 1)
            labels[index] = window.label
            self.counter += 1
        return [batch, labels]

    def _picture(self, number: int) -> Array:
        path = self.find(self.windows.images[number])
        if not self.options.cache:
            return read_picture(path)
        if number not in self._cached:
            self._cached[number] = read_file(path)
        return decode(self._cached[number], file=path)

    def _fill(self, out: Array, window: Window, mirrored: bool) -> None:
        picture = self._picture(window.image)
        try:
            placed = place(window, picture.shape[1:], self.options, mirrored)
        except ShapeError as error:
            raise ShapeError(f"{self.windows.images[window.image]}: {error.reason}", remedy=error.remedy) from error
        part = picture[:, placed.y1 : placed.y2 + 1, placed.x1 : placed.x2 + 1]
        part = resize_picture(part, placed.height, placed.width)
        values = (part[:, :, ::-1] if mirrored else part).astype(out.dtype)
        rows = slice(placed.top, placed.top + placed.height)
        columns = slice(placed.left, placed.left + placed.width)
        mean = self.options.mean
        if mean is not None and mean.shape[1:] == (1, 1):
            values -= mean
        elif mean is not None:
            shift = self._mean_offset
            values -= mean[:, rows.start + shift : rows.stop + shift, columns.start + shift : columns.stop + shift]
        out[:, rows, columns] = values * out.dtype.type(self.options.scale)


def place(window: Window, size: tuple[int, ...], options: WindowOptions, mirrored: bool) -> Placed:
    """How a window is cut out of a picture of `size` (height, width), in the original's float32.

    With context_pad or square it is grown around its centre; what then lies outside the picture stays empty.
    Raises ShapeError where nothing of it lies inside.
    """
    height, width = size
    x1, y1, x2, y2 = window[2:]
    crop, pad = options.crop_size, options.context_pad
    if not pad and not options.square:
        _check_inside(x1, y1, x2, y2, size)
        return Placed(x1, y1, x2, y2, crop, crop, 0, 0)
    grow = _F(crop) / _F(crop - 2 * pad)
    half_height, half_width = _F(y2 - y1 + 1) / _F(2), _F(x2 - x1 + 1) / _F(2)
    center_x, center_y = _F(x1) + half_width, _F(y1) + half_height
    if options.square:
        half_width = half_height = max(half_height, half_width)
    x1, x2 = _round(center_x - half_width * grow), _round(center_x + half_width * grow)
    y1, y2 = _round(center_y - half_height * grow), _round(center_y + half_height * grow)
    scale_x, scale_y = _F(crop) / _F(x2 - x1 + 1), _F(crop) / _F(y2 - y1 + 1)
    left, top = max(0, -x1), max(0, -y1)
    right, bottom = max(0, x2 - width + 1), max(0, y2 - height + 1)
    x1, x2, y1, y2 = x1 + left, x2 - right, y1 + top, y2 - bottom
    _check_inside(x1, y1, x2, y2, size)
    new_width, new_height = _round(_F(x2 - x1 + 1) * scale_x), _round(_F(y2 - y1 + 1) * scale_y)
    left_pad, right_pad, top_pad = _round(_F(left) * scale_x), _round(_F(right) * scale_x), _round(_F(top) * scale_y)
    side = right_pad if mirrored else left_pad
    new_height, new_width = min(new_height, crop - top_pad), min(new_width, crop - side)
    if new_height < 1 or new_width < 1:
        raise ShapeError(
            f"nothing is left of the window {tuple(window[2:])} at crop_size {crop}",
            remedy="use a smaller context_pad, or leave such windows out",
        )
    return Placed(x1, y1, x2, y2, new_height, new_width, top_pad, side)


def _check_inside(x1: int, y1: int, x2: int, y2: int, size: tuple[int, ...]) -> None:
    height, width = size
    if not (0 <= x1 <= x2 < width and 0 <= y1 <= y2 < height):
        raise ShapeError(
            f"the window {x1} {y1} {x2} {y2} (x1 y1 x2 y2) does not lie in a picture of {height} x {width}",
            remedy="correct the window in the file: 0 <= x1 <= x2 < width",
        )


def _round(value: Any) -> int:
    """C's round: halves away from zero."""
    return int(np.copysign(np.floor(np.abs(np.float64(value)) + 0.5), value))
