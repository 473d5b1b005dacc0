"""Softmax and its logarithm along an axis, safe against overflow."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def softmax(x: Array, axis: int = 1) -> Array:
    """y = exp(x) / sum(exp(x)) along the axis, computed from x - max(x)."""
    y = np.exp(x - x.max(axis=axis, keepdims=True))
    y /= y.sum(axis=axis, keepdims=True)
    return y


def softmax_backward(gy: Array, y: Array, axis: int = 1) -> Array:
    """gx = y * (gy - sum(gy * y)) along the axis."""
    return y * (gy - np.sum(gy * y, axis=axis, keepdims=True))


def log_softmax(x: Array, axis: int = 1) -> Array:
    """y = x - log(sum(exp(x))) along the axis, computed from x - max(x)."""
    shifted = x - x.max(axis=axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))


def log_softmax_backward(gy: Array, y: Array, axis: int = 1) -> Array:
    """gx = gy - exp(y) * sum(gy) along the axis."""
    return gy - np.exp(y) * gy.sum(axis=axis, keepdims=True)
