"""Handing a value on as it is."""

from __future__ import annotations

from typing import Any

import numpy as np

from undertow.core.function import Function
from undertow.core.registry import Sample, register
from undertow.core.variable import Operand, Variable

__all__ = ["Tap", "tap"]

Array = np.ndarray[Any, Any]


@register(
    "tap",
    gradient="twice",
    forward="y = x",
    backward="gx = gy",
    samples=lambda rng: [Sample((rng.standard_normal((2, 3)),), tap, lambda x: x)],
    whole=True,
)
class Tap(Function):
    """The same array as another Variable: a place where one path's gradient can be read by itself."""

    passes_on = True  # a plan gives the result its input's memory

    def forward(self, x: Array) -> Array:
        return x

    def backward_graph(self, gy: Variable) -> Variable:
        return gy


def tap(x: Operand) -> Variable:
    """x itself, as a new place in the graph."""
    return Tap()(x)
