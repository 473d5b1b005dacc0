"""DataTransformer: mean, scale, crop and mirror, as `transform_param` asks for them.

y = (x - mean) * scale, in float32, on the crop; then mirrored. The mean picture is cropped with the picture.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from undertow.caffe.data.mean import read_mean
from undertow.caffe.proto.message import Message
from undertow.errors import FormatError, ShapeError

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]


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
        self.phase, self.crop_size, self.dtype = phase, int(param.crop_size), np.dtype(dtype)
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
        return self.mirror or (self.phase == "TRAIN" and self.crop_size > 0)

    def shape_of(self, picture: Shape) -> Shape:
        """The shape of the result for a picture of this shape (channels, height, width)."""
        channels, height, width = picture
        crop = self.crop_size
        if crop and (height < crop or width < crop):
            raise ShapeError(
                f"crop_size {crop} does not fit into a picture of {height} x {width} (height, width)",
                remedy="use a smaller crop_size, or larger pictures",
            )
        return (channels, crop, crop) if crop else (channels, height, width)

    def transform(self, picture: Array, rng: np.random.Generator | None = None) -> Array:
        """The values of one picture (channels, height, width), of bytes or floats; or of several (n, channels, ...).

        rng: gives mirroring, then the crop's row and column; needed where `random` is true.
        Raises ShapeError where crop, mean picture or mean values do not fit the picture.
        """
        one = picture.shape[-3:]
        channels, rows, columns = self.shape_of(one)
        mirrored = self.mirror and _generator(rng).integers(2) == 1
        top, left = self._corner(one, rng)
        part = np.s_[..., top : top + rows, left : left + columns]
        values = picture[part].astype(self.dtype)
        if self.mean is not None:
            if self.mean.shape != one:
                raise ShapeError(f"the mean picture has shape {self.mean.shape}, the picture {one}")
            values -= self.mean[part]
        elif self.mean_values.size:
            values -= self._mean_values(channels)
        if self.scale != 1:
            values *= self.scale
        return values[..., ::-1] if mirrored else values

    def _corner(self, picture: Shape, rng: np.random.Generator | None) -> tuple[int, int]:
        if not self.crop_size:
            return 0, 0
        spare_rows, spare_columns = picture[1] - self.crop_size, picture[2] - self.crop_size
        if self.phase != "TRAIN":
            return spare_rows // 2, spare_columns // 2
        draw = _generator(rng).integers
        return int(draw(spare_rows + 1)), int(draw(spare_columns + 1))

    def _mean_values(self, channels: int) -> Array:
        if self.mean_values.size not in (1, channels):
            raise ShapeError(
                f"{self.mean_values.size} mean_value for {channels} channels",
                remedy="give mean_value once, or once for every channel",
            )
        return self.mean_values.reshape(-1, 1, 1)


def _generator(rng: np.random.Generator | None) -> np.random.Generator:
    if rng is None:
        raise ValueError("mirroring and random crops need a random generator")
    return rng
