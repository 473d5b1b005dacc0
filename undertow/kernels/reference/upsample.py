"""Nearest-neighbour upsampling by an integer factor, and the shrinking by sums that is its adjoint."""

from __future__ import annotations

from typing import Any

import numpy as np

from undertow.errors import ShapeError
from undertow.kernels.geometry import Pair, by

Array = np.ndarray[Any, Any]


def upsample2d(x: Array, factor: Pair, scale: float = 1.0) -> Array:
    """y[b, c, p, q] = scale * x[b, c, p // fy, q // fx].

    x: (batch, channels, height, width). Returns (batch, channels, height * fy, width * fx).
    Source: upsample_cpu in blas.c, forward.
    """
    _check(x, factor)
    fy, fx = factor
    batch, channels, height, width = x.shape
    y = np.empty((batch, channels, height, fy, width, fx), x.dtype)
    y[...] = (x * scale)[:, :, :, None, :, None]
    return y.reshape(batch, channels, height * fy, width * fx)


def upsample2d_backward(gy: Array, factor: Pair, scale: float = 1.0) -> Array:
    """gx[b, c, i, j] = scale * (sum of gy over the fy x fx block that came from there)."""
    return downsample2d(gy, factor, scale)


def downsample2d(x: Array, factor: Pair, scale: float = 1.0) -> Array:
    """y[b, c, i, j] = scale * (sum of x over the block of rows i*fy.. and columns j*fx..).

    Darknet's upsample with a negative stride. Returns (batch, channels, height / fy, width / fx); ShapeError
    where the factor does not divide the size (the C program would read the image with a wrong row length).
    """
    _check(x, factor)
    fy, fx = factor
    batch, channels, height, width = x.shape
    if height % fy or width % fx:
        raise ShapeError(f"shrinking by {by(factor)} needs a size it divides, got {height}x{width}")
    y = x.reshape(batch, channels, height // fy, fy, width // fx, fx).sum(axis=(3, 5))
    y *= scale
    return y


def downsample2d_backward(gy: Array, factor: Pair, scale: float = 1.0) -> Array:
    """gx[b, c, p, q] = scale * gy[b, c, p // fy, q // fx]."""
    return upsample2d(gy, factor, scale)


def _check(x: Array, factor: Pair) -> None:
    if x.ndim != 4 or min(factor) < 1:
        raise ShapeError(
            f"up- and downsampling need a (batch, channels, height, width) input and factors of at least 1, "
            f"got {x.shape} and {factor}"
        )
