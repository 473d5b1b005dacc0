"""Turning, zooming and shifting in one step: Darknet's `rotate_crop_image`, which augments classifier pictures."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from undertow.data.resize import Picture


def sample_bilinear(image: Picture, x: NDArray[np.floating], y: NDArray[np.floating]) -> Picture:
    """Values of (c, h, w) at real positions (column x, row y of shape S), bilinear, 0 outside: (c, *S).

    Positions are taken in float32, as in the original's `bilinear_interpolate`.
    """
    x, y = np.asarray(x, np.float32), np.asarray(y, np.float32)
    column, row = np.floor(x).astype(np.intp), np.floor(y).astype(np.intp)
    dx, dy = x - column.astype(np.float32), y - row.astype(np.float32)
    return (
        (1 - dy) * (1 - dx) * _pixels(image, column, row)
        + dy * (1 - dx) * _pixels(image, column, row + 1)
        + (1 - dy) * dx * _pixels(image, column + 1, row)
        + dy * dx * _pixels(image, column + 1, row + 1)
    )


def rotate_crop_image(
    image: Picture,
    radians: float,
    scale: float,
    width: int,
    height: int,
    dx: float = 0,
    dy: float = 0,
    aspect: float = 1,
) -> Picture:
    """A width x height view of the picture's middle, turned by `radians`, enlarged by `scale`, moved by dx, dy.

    (c, h, w) -> (c, height, width), zeros outside the picture. aspect: columns are read that much wider.
    """
    x = ((np.arange(width) - width / 2) / scale * aspect + dx / scale * aspect)[None, :]
    y = ((np.arange(height) - height / 2) / scale + dy / scale)[:, None]
    return _turned(image, radians, x, y)


def rotate_image(image: Picture, radians: float) -> Picture:
    """The picture turned by `radians` about its middle, same size, zeros outside."""
    _, height, width = image.shape
    return _turned(image, radians, np.arange(width)[None, :] - width / 2, np.arange(height)[:, None] - height / 2)


def _turned(image: Picture, radians: float, x: NDArray[np.floating], y: NDArray[np.floating]) -> Picture:
    cosine, sine = np.cos(radians), np.sin(radians)
    return sample_bilinear(
        image,
        cosine * x - sine * y + image.shape[2] / 2,
        sine * x + cosine * y + image.shape[1] / 2,
    )


def _pixels(image: Picture, column: NDArray[np.intp], row: NDArray[np.intp]) -> Picture:
    _, height, width = image.shape
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    return image[:, np.clip(row, 0, height - 1), np.clip(column, 0, width - 1)] * inside
