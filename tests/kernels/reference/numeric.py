"""Gradients by central differences, for kernels that know nothing of Variables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def numeric_gradient(f: Callable[[Array], Array], x: Array, gy: Array, step: float = 1e-5) -> Array:
    """The gradient of sum(gy * f(x)) with respect to x, element by element, in float64."""
    gradient = np.zeros_like(x)
    for place in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[place] += step
        down[place] -= step
        gradient[place] = np.sum(gy * (f(up) - f(down))) / (2 * step)
    return gradient
