"""The SSD fork's `distort_param`: brightness, contrast, saturation, hue and order of the channels drawn by chance.

Pictures are uint8 BGR (3, height, width). Colours go through OpenCV's bytes of HSV (hue in 180 steps).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from undertow.caffe.proto.message import Message
from undertow.errors import FormatError, ShapeError

Array = np.ndarray[Any, Any]


class Distorter:
    """What a DistortionParameter asks for. Raises FormatError for limits that exclude each other."""

    def __init__(self, param: Message) -> None:
        self.o = param
        for name in ("contrast", "saturation"):
            lower, upper = getattr(param, f"{name}_lower"), getattr(param, f"{name}_upper")
            if getattr(param, f"{name}_prob") and not 0 <= lower <= upper:
                raise FormatError(
                    f"{name}_lower {lower:g} and {name}_upper {upper:g}: from 0 to upper is needed",
                    remedy=f"write {name}_lower: 0.5 {name}_upper: 1.5",
                )
        if min(param.brightness_delta, param.hue_delta) < 0:
            raise FormatError(
                "brightness_delta and hue_delta are 0 or more", remedy="write brightness_delta: 32 hue_delta: 18"
            )

    def distort(self, picture: Array, rng: np.random.Generator) -> Array:
        """The picture with what chance decides; half of the time contrast comes early, half of the time late."""
        if len(picture) != 3:
            raise ShapeError(f"distort_param needs pictures with 3 channels, not {len(picture)}",
                             remedy="transform_param { force_color: true }")  # fmt: skip
        early = rng.random() > 0.5
        picture = self._brightness(picture, rng)
        if early:
            picture = self._contrast(picture, rng)
        picture = self._hue(self._saturation(picture, rng), rng)
        if not early:
            picture = self._contrast(picture, rng)
        return picture[rng.permutation(3)] if rng.random() < self.o.random_order_prob else picture

    def _brightness(self, picture: Array, rng: np.random.Generator) -> Array:
        delta = rng.uniform(-self.o.brightness_delta, self.o.brightness_delta)
        return scaled(picture, 1, delta) if rng.random() < self.o.brightness_prob else picture

    def _contrast(self, picture: Array, rng: np.random.Generator) -> Array:
        factor = rng.uniform(self.o.contrast_lower, max(self.o.contrast_lower, self.o.contrast_upper))
        return scaled(picture, factor, 0) if rng.random() < self.o.contrast_prob else picture

    def _saturation(self, picture: Array, rng: np.random.Generator) -> Array:
        factor = rng.uniform(self.o.saturation_lower, max(self.o.saturation_lower, self.o.saturation_upper))
        if rng.random() >= self.o.saturation_prob:
            return picture
        hue, saturation, value = bgr_to_hsv(picture)
        return hsv_to_bgr(np.stack([hue, scaled(saturation, factor, 0), value]))

    def _hue(self, picture: Array, rng: np.random.Generator) -> Array:
        delta = rng.uniform(-self.o.hue_delta, self.o.hue_delta)
        if rng.random() >= self.o.hue_prob:
            return picture
        hue, saturation, value = bgr_to_hsv(picture)
        return hsv_to_bgr(np.stack([scaled(hue, 1, delta), saturation, value]))


def scaled(values: Array, factor: float, shift: float) -> Array:
    """cv::Mat::convertTo on bytes: rounded, and held between 0 and 255."""
    return np.rint(values * factor + shift).clip(0, 255).astype(np.uint8)


def bgr_to_hsv(picture: Array) -> Array:
    """Bytes of hue (0..179), saturation and value, as cv::cvtColor has them."""
    b, g, r = picture.astype(np.float64)
    value, spread = picture.max(0).astype(np.float64), np.ptp(picture, axis=0).astype(np.float64)
    saturation = np.divide(255 * spread, value, out=np.zeros_like(value), where=value > 0)
    place = np.where(value == r, g - b, np.where(value == g, b - r + 2 * spread, r - g + 4 * spread))
    hue = np.divide(30 * place, spread, out=np.zeros_like(value), where=spread > 0)
    hue = np.rint(np.where(hue < 0, hue + 180, hue)) % 180
    return np.stack([hue, np.rint(saturation), value]).astype(np.uint8)


def hsv_to_bgr(hsv: Array) -> Array:
    """The way back; hues of 180 and more go round."""
    hue, saturation, value = hsv[0] / 30.0, hsv[1] / 255.0, hsv[2].astype(np.float64)
    # Each channel falls from value by value * saturation, as far as the hue is from it (Smith 1978).
    steps = (np.array([1, 3, 5]).reshape(3, 1, 1) + hue) % 6
    share = np.minimum(steps, 4 - steps).clip(0, 1)
    return np.rint(value - value * saturation * share).astype(np.uint8)
