"""Arrays for the gradients of parameters, used again in every replay unless somebody holds them."""

from __future__ import annotations

import sys

import numpy as np

from undertow.core.variable import Variable


class Buffers:
    """Two arrays for each parameter: callers often hold what one call returned until the next has returned."""

    def __init__(self) -> None:
        self._arrays: dict[int, np.ndarray] = {}
        self._spare: dict[int, np.ndarray] = {}

    def take(self, variable: Variable, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """An array that nobody else holds."""
        key = id(variable)
        array = self._arrays.get(key)
        if array is None or sys.getrefcount(array) > 3 or array.shape != shape:
            held, array = array, self._spare.pop(key, None)
            if array is None or sys.getrefcount(array) > 2 or array.shape != shape:
                array = np.empty(shape, dtype)
            self._arrays[key] = array
            if held is not None:
                self._spare[key] = held
        return array

    def own(self, variable: Variable, array: np.ndarray) -> bool:
        """Whether this array was the one taken last for a parameter."""
        return array is self._arrays.get(id(variable))

    def clear(self) -> None:
        """Let go of all."""
        self._arrays.clear()
        self._spare.clear()
