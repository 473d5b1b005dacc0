"""Local response normalisation, across channels (AlexNet) or within each channel (Caffe)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from undertow.errors import ShapeError

Array = np.ndarray[Any, Any]
CHANNELS, ROWS, COLUMNS = 1, 2, 3


@dataclass(frozen=True)
class LrnOptions:
    """size: the window, odd. region: `size` neighbouring channels, or `size` x `size` pixels of one channel.

    Defaults are those of Caffe's LRNParameter (local_size, alpha, beta, k, norm_region). Caffe ignores k within
    channels (it is 1 there).
    """

    size: int = 5
    alpha: float = 1.0
    beta: float = 0.75
    k: float = 1.0
    region: Literal["across", "within"] = "across"

    def __post_init__(self) -> None:
        if self.size < 1 or self.size % 2 == 0:
            raise ShapeError(f"the window of an LRN must be odd, so that it has a middle; got {self.size}")

    @property
    def share(self) -> float:
        """alpha / (number of elements of a window), those outside the array counted."""
        return self.alpha / (self.size if self.region == "across" else self.size**2)


def lrn(x: Array, options: LrnOptions) -> tuple[Array, Array]:
    """y = x / scale^beta with scale = k + alpha/n * (sum of x^2 over the window centred here); outside is 0.

    x: (batch, channels, height, width). Returns (y, scale), both of x's shape. n is size, or size^2 within.
    """
    if x.ndim != 4:
        raise ShapeError(f"LRN needs a (batch, channels, height, width) input, got {x.shape}")
    scale = _window_sums(x * x, options)
    scale *= options.share
    scale += options.k
    return x * scale**-options.beta, scale


def lrn_backward(gy: Array, x: Array, y: Array, scale: Array, options: LrnOptions) -> Array:
    """gx = gy / scale^beta - 2 beta alpha/n * x * (sum of gy * y / scale over the window centred here)."""
    coupled = _window_sums(gy * y / scale, options)
    coupled *= 2 * options.beta * options.share
    return gy * scale**-options.beta - x * coupled


def _window_sums(values: Array, options: LrnOptions) -> Array:
    """Sums over the window around each element. Windows are symmetric, so this is its own adjoint."""
    half = options.size // 2
    if options.region == "across":
        return _sums_along(values, half, CHANNELS)
    return _sums_along(_sums_along(values, half, ROWS), half, COLUMNS)


def _sums_along(values: Array, half: int, axis: int) -> Array:
    sums = values.copy()
    source, target = np.moveaxis(values, axis, 0), np.moveaxis(sums, axis, 0)
    for distance in range(1, min(half, len(source) - 1) + 1):
        target[distance:] += source[:-distance]
        target[:-distance] += source[distance:]
    return sums
