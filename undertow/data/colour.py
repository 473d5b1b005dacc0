"""Colour: HSV and Darknet's distortion of hue, saturation and exposure.

Pictures are float arrays (3, height, width), red first, 0..1. Hue runs 0..1 once around the circle.
"""

from __future__ import annotations

import numpy as np

from undertow.data.crand import RandomSource
from undertow.data.resize import Picture

_BAND = 64


def rgb_to_hsv(image: Picture) -> Picture:
    """(3, h, w) RGB -> (3, h, w) hue 0..1, saturation 0..1, value; grey has hue 0 and saturation 0."""
    red, green, blue = image
    value = np.maximum(np.maximum(red, green), blue)
    spread = value - np.minimum(np.minimum(red, green), blue)
    safe = np.where(spread == 0, np.float32(1), spread)
    hue = np.where(
        value == red,
        (green - blue) / safe,
        np.where(value == green, 2 + (blue - red) / safe, 4 + (red - green) / safe),
    )
    hue += np.where(hue < 0, np.float32(6), np.float32(0))
    saturation = spread / np.where(value == 0, np.float32(1), value)
    return np.stack([hue / np.float32(6), saturation, value]).astype(image.dtype, copy=False)


def hsv_to_rgb(image: Picture) -> Picture:
    """(3, h, w) hue 0..1, saturation, value -> (3, h, w) RGB.

    Each colour is value * (1 - saturation * away): away is 0 on the colour's own third of the circle, 1 on the
    opposite third, and straight between.
    """
    hue, saturation, value = image
    turn = hue * 6
    chroma = value * saturation
    off_red = np.clip(2 - np.abs(turn - 3), 0, 1)
    off_green = np.clip(np.abs(turn - 2) - 1, 0, 1)
    off_blue = np.clip(np.abs(turn - 4) - 1, 0, 1)
    return np.stack([value - chroma * off_red, value - chroma * off_green, value - chroma * off_blue])


def distort_image(image: Picture, hue: float, saturation: float, exposure: float) -> Picture:
    """Shift the hue by `hue` turns, multiply saturation and value; the result is clipped to 0..1.

    Darknet's `distort_image`. Saturation may pass 1 on the way, as in the original. A few rows at a time, so that
    what lies between stays in the cache.
    """
    distorted = np.empty_like(image)
    for start in range(0, image.shape[1], _BAND):
        band = slice(start, start + _BAND)
        _distort(image[:, band], distorted[:, band], hue, saturation, exposure)
    return distorted


def _distort(image: Picture, out: Picture, hue: float, saturation: float, exposure: float) -> None:
    """The steps of rgb_to_hsv and hsv_to_rgb in one: value * saturation is the spread, which only has to be scaled."""
    value = np.maximum(np.maximum(image[0], image[1]), image[2])
    spread = value - np.minimum(np.minimum(image[0], image[1]), image[2])
    turn = _sixths(image, value, spread, 6 * hue)
    value *= exposure
    spread *= saturation * exposure
    away = np.empty_like(value)
    for colour, center in enumerate((3, 2, 4)):
        np.abs(np.subtract(turn, center, out=away), out=away)
        if colour == 0:
            np.subtract(2, away, out=away)
        else:
            away -= 1
        np.clip(away, 0, 1, out=away)
        away *= spread
        np.clip(np.subtract(value, away, out=away), 0, 1, out=out[colour])


def _sixths(image: Picture, value: Picture, spread: Picture, shift: float) -> Picture:
    """The hue in sixths of the circle plus `shift`, brought into 0..6: three cases, by which colour is largest."""
    red, green, blue = image
    turn = red - green
    start = np.full_like(turn, 4 + shift)
    for largest, minuend, subtrahend, sixth in ((green, blue, red, 2), (red, green, blue, 0)):
        chosen = value == largest
        np.subtract(minuend, subtrahend, out=turn, where=chosen)
        np.copyto(start, sixth + shift, where=chosen)
    turn /= np.maximum(spread, 1e-30)  # grey: 0 / 1e-30
    turn += start
    np.floor(np.divide(turn, 6, out=start), out=start)
    start *= 6
    turn -= start
    return turn


def random_distort(
    random: RandomSource, hue: float, saturation: float, exposure: float
) -> tuple[np.float32, np.float32, np.float32]:
    """Draw what `distort_image` takes, in Darknet's order: hue in +-hue, then two factors up to the given ones."""
    return random.uniform(-hue, hue), random.scale(saturation), random.scale(exposure)


def grayscale_image(image: Picture) -> Picture:
    """(3, h, w) -> (1, h, w): 0.299 red + 0.587 green + 0.114 blue."""
    weights = np.array([0.299, 0.587, 0.114], np.float32)
    return np.einsum("c,chw->hw", weights, image)[None]


def normalize_image(image: Picture) -> Picture:
    """Stretch the values so that the smallest is 0 and the largest 1; a flat picture stays as it is."""
    low, high = image.min(), image.max()
    if high - low < 1e-9:
        return image.copy()
    return (image - low) / (high - low)


def threshold_image(image: Picture, threshold: float) -> Picture:
    """1 where a value is above the threshold, else 0."""
    return (image > threshold).astype(image.dtype)


def rgbgr_image(image: Picture) -> Picture:
    """Red and blue exchanged."""
    return image[::-1].copy()
