"""Resizing as the SSD fork's `resize_param` asks for it: modes, kinds of interpolation, and what becomes of boxes.

Pictures are uint8 (channels, height, width). LINEAR is OpenCV's own arithmetic, bit for bit; the other kinds follow its
formulas in float64 and may differ by one from its results.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from undertow.caffe.data.pictures import resize_picture
from undertow.caffe.proto.message import Message
from undertow.data.images import MAX_PIXELS
from undertow.errors import FormatError, ShapeError

Array = np.ndarray[Any, Any]
_PADS = {"CONSTANT": "constant", "MIRRORED": "reflect", "REPEAT_NEAREST": "edge"}


class Resizer:
    """What a ResizeParameter asks for. Raises FormatError for sizes that are missing."""

    def __init__(self, param: Message) -> None:
        self.mode, self.pad_mode = str(param.resize_mode), _PADS[str(param.pad_mode)]
        self.height, self.width = int(param.height), int(param.width)
        self.kinds = [str(kind) for kind in param.interp_mode] or ["LINEAR"]
        self.pad_values = list(param.pad_value)
        if min(self.height, self.width) < 1:
            raise FormatError("resize_param needs height and width", remedy="write height: 300 width: 300")
        if self.height * self.width > MAX_PIXELS:
            raise FormatError(f"resize_param asks for {self.height} x {self.width} pixels, too many",
                              remedy=f"at most {MAX_PIXELS} in all")  # fmt: skip
        fits = self.mode == "FIT_SMALL_SIZE" and param.height_scale and param.width_scale
        self.units = (int(param.height_scale), int(param.width_scale)) if fits else None

    @property
    def random(self) -> bool:
        """Whether the kind of interpolation is drawn anew for each picture."""
        return len(self.kinds) > 1

    def size(self, height: int, width: int) -> tuple[int, int]:
        """Height and width of the result."""
        if self.mode != "FIT_SMALL_SIZE":
            return self.height, self.width
        aspect = width / height
        if aspect < self.width / self.height:
            return int(self.width / aspect), self.width
        return self.height, int(aspect * self.height)

    def inner(self, height: int, width: int) -> tuple[int, int]:
        """Height and width of the picture in the result; the rest is padding."""
        if self.mode != "FIT_LARGE_SIZE_AND_PAD":
            return self.size(height, width)
        aspect = width / height
        if aspect > self.width / self.height:
            return max(1, int(self.width / aspect)), self.width
        return self.height, max(1, int(aspect * self.height))

    def resize(self, picture: Array, rng: np.random.Generator | None) -> Array:
        """The picture in its new size. rng: draws the kind of interpolation, where there are several."""
        kind = self.kinds[0]
        if self.random:
            assert rng is not None
            kind = self.kinds[int(rng.integers(len(self.kinds)))]
        rows, columns = self.inner(*picture.shape[1:])
        small = resize(picture, rows, columns, kind)
        height, width = self.size(*picture.shape[1:])
        above, before = (height - rows) // 2, (width - columns) // 2
        if (rows, columns) == (height, width):
            return small
        around = ((above, height - rows - above), (before, width - columns - before))
        if self.pad_mode == "constant":
            return np.stack([np.pad(plane, around, constant_values=self._pad_value(channel, len(picture)))
                             for channel, plane in enumerate(small)])  # fmt: skip
        return np.pad(small, ((0, 0), *around), mode="reflect" if self.pad_mode == "reflect" else "edge")

    def _pad_value(self, channel: int, channels: int) -> int:
        if len(self.pad_values) not in (0, 1, channels):
            raise ShapeError(
                f"{len(self.pad_values)} pad_value for {channels} channels", remedy="give one, or one each"
            )
        values = self.pad_values or [0]
        return int(np.clip(np.rint(values[channel % len(values)]), 0, 255))

    def in_units(self, boxes: Array, height: int, width: int, shown: tuple[float, float]) -> Array:
        """Boxes (n, 4) in parts of a crop, in parts of height_scale and width_scale where these are given.

        Only FIT_SMALL_SIZE has them: crops of pictures of all shapes are then told in one unit, and may pass 1.
        height, width: of the picture. shown: the parts of its height and width that the crop has. Source:
        ExtrapolateBBox in bbox_util.cpp. Raises ShapeError where the crop is smaller than the unit.
        """
        if self.units is None:
            return boxes
        aspect = width / height
        narrow = aspect < self.width / self.height
        whole = (self.width / aspect, self.width) if narrow else (self.height, self.height * aspect)
        rows, columns = whole[0] * shown[0], whole[1] * shown[1]
        if rows < self.units[0] or columns < self.units[1]:
            raise ShapeError(
                f"the crop of {rows:g} x {columns:g} is smaller than height_scale and width_scale, {self.units}",
                remedy="give those of crop_h and crop_w",
            )
        return boxes * np.array([columns / self.units[1], rows / self.units[0]] * 2)

    def boxes(self, boxes: Array, height: int, width: int) -> Array:
        """Boxes (n, 4) of a picture of this size, in parts of the result."""
        rows, columns = self.inner(height, width) if self.mode != "FIT_SMALL_SIZE" else (1, 1)
        full = self.size(height, width) if self.mode != "FIT_SMALL_SIZE" else (1, 1)
        share = np.array([columns / full[1], rows / full[0]] * 2)
        return (1 - share) / 2 + boxes.clip(0, 1) * share


def resize(picture: Array, height: int, width: int, kind: str) -> Array:
    """cv::resize on bytes. kind: LINEAR, NEAREST, AREA, CUBIC or LANCZOS4."""
    rows, columns = picture.shape[1:]
    if kind == "LINEAR" or (rows, columns) == (height, width):
        return resize_picture(picture, height, width)
    if kind == "NEAREST":
        down, across = _nearest(rows, height), _nearest(columns, width)
        return picture[:, down[:, None], across]
    shrinks = rows >= height and columns >= width
    down, across = _weights(rows, height, kind, shrinks), _weights(columns, width, kind, shrinks)
    return np.rint(down @ picture.astype(np.float64) @ across.T).clip(0, 255).astype(np.uint8)


def _nearest(size_in: int, size_out: int) -> Array:
    return np.minimum((np.arange(size_out) * (size_in / size_out)).astype(np.int64), size_in - 1)


@lru_cache(maxsize=64)
def _weights(size_in: int, size_out: int, kind: str, shrinks: bool) -> Array:
    """The matrix (size_out, size_in) of one axis; beyond the edge the outermost value is held."""
    scale, places = size_in / size_out, np.arange(size_out)
    if kind == "AREA" and shrinks:
        edges = np.arange(size_in)
        inside = np.minimum((places[:, None] + 1) * scale, edges + 1) - np.maximum(places[:, None] * scale, edges)
        return inside.clip(0) / scale
    if kind == "AREA":
        first = np.floor(places * scale).astype(np.int64)
        share = ((places + 1) - (first + 1) / scale).clip(0)
        taps, values = np.arange(2), np.stack([1 - share % 1, share % 1], 1)
    else:
        position = (places + 0.5) * scale - 0.5
        first = np.floor(position).astype(np.int64)
        share = (position - first)[:, None]
        taps = np.arange(-1, 3) if kind == "CUBIC" else np.arange(-3, 5)
        distance = np.abs(share - taps)
        if kind == "CUBIC":
            a = -0.75
            near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
            far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
            values = np.where(distance <= 1, near, far)
        else:
            values = np.sinc(distance) * np.sinc(distance / 4)
            values /= values.sum(1, keepdims=True)
    matrix = np.zeros((size_out, size_in))
    np.add.at(matrix, (places[:, None], (first[:, None] + taps).clip(0, size_in - 1)), values)
    return matrix
