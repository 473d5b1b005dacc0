"""DataTransformer: size, crop, mirror, mean and scale, as `transform_param` asks for them.

y = (x - mean) * scale, in float32, on the crop; then mirrored. The mean picture is cropped with the picture. The fork
of SSD brings the picture to another size first (`resize_param`), and its crops have two sides (`crop_h`, `crop_w`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from undertow.caffe.data.mean import read_mean
from undertow.caffe.data.noise import Noise
from undertow.caffe.data.resizing import Resizer
from undertow.caffe.proto.message import Message
from undertow.errors import FormatError, ShapeError

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]
Change = Callable[[Array, "np.random.Generator | None"], Array]


class Part(NamedTuple):
    """A crop: its corner and size in pixels, and whether it is mirrored."""

    top: int
    left: int
    height: int
    width: int
    mirrored: bool


class DataTransformer:
    """What a TransformationParameter asks for. phase: crops lie at random places in "TRAIN", in the middle in "TEST".

    mean_file: the path to read the mean picture from, if not the one in the message. dtype: of the results.
    Raises FormatError for options that exclude each other and for mean files that cannot be read.
    """

    def __init__(
        self,
        param: Message,
        phase: str,
        mean_file: str | os.PathLike[str] | None = None,
        dtype: Any = np.float32,
    ) -> None:
        self.phase, self.dtype = phase, np.dtype(dtype)
        sides = [int(getattr(param, name, 0)) for name in ("crop_h", "crop_w")]  # fields of a fork
        self.crop = (int(param.crop_size),) * 2 if param.crop_size else (sides[0], sides[1])
        asked = "resize_param" in param.descriptor.by_name and param.has_field("resize_param")
        self.resizer = Resizer(param.resize_param) if asked else None
        noisy = "noise_param" in param.descriptor.by_name and param.has_field("noise_param")
        self.noise = Noise(param.noise_param) if noisy else None
        if not np.isfinite([param.scale, *param.mean_value]).all():
            raise FormatError("scale and mean_value must be finite numbers", remedy="write scale: 0.00390625")
        self.scale = self.dtype.type(param.scale)
        self.mirror = bool(param.mirror)
        if param.has_field("mean_file") and param.mean_value:
            raise FormatError("mean_file and mean_value cannot both be given", remedy="take one of them out")
        if param.force_color and param.force_gray:
            raise FormatError("force_color and force_gray cannot both be set", remedy="take one of them out")
        self.color: bool | None = bool(param.force_color) if param.force_color or param.force_gray else None
        self.mean_values = np.array(param.mean_value, self.dtype)
        self.mean = read_mean(mean_file or param.mean_file) if param.has_field("mean_file") else None

    @property
    def random(self) -> bool:
        """Whether results depend on random numbers."""
        kinds = self.resizer is not None and self.resizer.random
        salt = self.noise is not None and self.noise.random
        return self.mirror or kinds or salt or (self.phase == "TRAIN" and min(self.crop) > 0)

    def shape_of(self, picture: Shape) -> Shape:
        """The shape of the result for a picture of this shape (channels, height, width)."""
        channels, height, width = picture
        if self.resizer is not None:
            height, width = self.resizer.size(height, width)
        rows, columns = self.crop
        if height < rows or width < columns:
            size = f"crop_size {rows}" if rows == columns else f"a crop of {rows} x {columns}"
            raise ShapeError(
                f"{size} does not fit into a picture of {height} x {width} (height, width)",
                remedy="use a smaller crop_size, or larger pictures",
            )
        return (channels, rows, columns) if min(self.crop) else (channels, height, width)

    def transform(self, picture: Array, rng: np.random.Generator | None = None) -> Array:
        """The values of one picture (channels, height, width), of bytes or floats; or of several (n, channels, ...).

        rng: gives mirroring, then the crop's row and column; needed where `random` is true.
        Raises ShapeError where crop, mean picture or mean values do not fit the picture.
        """
        return self.transform_part(picture, rng)[0]

    def transform_part(self, picture: Array, rng: np.random.Generator | None = None) -> tuple[Array, Part]:
        """What `transform` gives, and which part of the picture it shows."""
        channels, rows, columns = self.shape_of(picture.shape[-3:])
        mirrored = self.mirror and _generator(rng).integers(2) == 1
        if self.resizer is not None:
            picture = self._each(picture, rng, "resize_param", self.resizer.resize)
        if self.noise is not None:
            picture = self._each(picture, rng, "noise_param", self.noise.apply)
        one = picture.shape[-3:]
        top, left = self._corner(one, rng)
        part = np.s_[..., top : top + rows, left : left + columns]
        values = picture[part].astype(self.dtype)
        if self.mean is not None:
            if self.mean.shape != one:
                raise ShapeError(
                    f"the mean picture has shape {self.mean.shape}, the picture {one}",
                    remedy="make the mean picture from these pictures, or use mean_value",
                )
            values -= self.mean[part]
        elif self.mean_values.size:
            values -= self.mean_for(channels).reshape(-1, 1, 1)
        if self.scale != 1:
            values *= self.scale
        return values[..., ::-1] if mirrored else values, Part(top, left, rows, columns, bool(mirrored))

    def _each(self, picture: Array, rng: np.random.Generator | None, name: str, change: Change) -> Array:
        """Change one picture of bytes, or each of several."""
        if picture.dtype != np.uint8:
            raise ShapeError(
                f"{name} needs pictures of bytes, these are floats",
                remedy=f"store the pictures as bytes (data, not float_data), or remove {name}",
            )
        return change(picture, rng) if picture.ndim == 3 else np.stack([change(one, rng) for one in picture])

    def _corner(self, picture: Shape, rng: np.random.Generator | None) -> tuple[int, int]:
        if not min(self.crop):
            return 0, 0
        spare_rows, spare_columns = picture[1] - self.crop[0], picture[2] - self.crop[1]
        if self.phase != "TRAIN":
            return spare_rows // 2, spare_columns // 2
        draw = _generator(rng).integers
        return int(draw(spare_rows + 1)), int(draw(spare_columns + 1))

    def mean_for(self, channels: int) -> Array:
        """mean_value for each channel. Raises ShapeError where there are other numbers of them."""
        if self.mean_values.size not in (1, channels):
            raise ShapeError(
                f"{self.mean_values.size} mean_value for {channels} channels",
                remedy="give mean_value once, or once for every channel",
            )
        return np.broadcast_to(self.mean_values, (channels,))


def _generator(rng: np.random.Generator | None) -> np.random.Generator:
    if rng is None:
        raise ValueError("mirroring and random crops need a random generator")
    return rng
