"""Indexing: x[...] with slices, numbers, arrays and masks, and its way back, which adds where indices repeat."""

from __future__ import annotations

from typing import Any

import numpy as np

from undertow.core.function import Function
from undertow.core.registry import Sample, register
from undertow.core.variable import Operand, Variable, as_variable
from undertow.errors import ShapeError

__all__ = ["GetItem", "Scatter", "get_item", "scatter"]

_CASES: list[tuple[tuple[int, ...], Any]] = [
    ((5,), 2),
    ((4, 5), slice(1, 4, 2)),
    ((4, 5), (slice(None, None, -1), slice(1, None))),
    ((4, 5), (..., None, 0)),
    ((4, 5), np.array([0, 2, 2, 2, -1])),
    ((4, 5), (np.array([[0, 1], [1, 1]]), np.array([[4, 0], [0, 0]]))),
    ((4, 5), (slice(None), np.array([1, 1]))),
    ((2, 3), np.array([[True, False, True], [False, False, True]])),
]


def _get_samples(rng: np.random.Generator) -> list[Sample]:
    def reference(x: np.ndarray, index: Any) -> np.ndarray:
        # The positions, picked from a table of them, looked up one by one.
        positions = np.arange(x.size).reshape(x.shape)[index]
        return np.array([x.ravel()[p] for p in np.ravel(positions)]).reshape(np.shape(positions))

    return [
        Sample((rng.standard_normal(s),), lambda x, i=i: x[i], lambda x, i=i: reference(x, i), note=f"index {i}")
        for s, i in _CASES
    ]


@register(
    "get_item",
    gradient="twice",
    forward="y = x[index]",
    backward="gx = zeros; gx[index] += gy, adding up where the index names an element twice",
    samples=_get_samples,
    whole=True,
)
class GetItem(Function):
    """The elements that an index of slices, numbers, None, ..., integer arrays or a mask picks."""

    def __init__(self, index: Any) -> None:
        self.index = index

    def forward(self, x: np.ndarray) -> np.ndarray:
        return x[self.index]

    def backward(self, gy: np.ndarray) -> np.ndarray:
        return scatter_array(gy, self.index, self.inputs[0].data.shape)

    def backward_graph(self, gy: Variable) -> Variable:
        return Scatter(self.index, self.input.shape)(gy)


def _scatter_samples(rng: np.random.Generator) -> list[Sample]:
    def reference(x: np.ndarray, index: Any, shape: tuple[int, ...]) -> np.ndarray:
        result = np.zeros(shape)
        positions = np.arange(result.size).reshape(shape)[index]
        for p, value in zip(np.ravel(positions), x.ravel(), strict=True):
            result.ravel()[p] += value
        return result

    return [
        Sample(
            (rng.standard_normal(np.zeros(s)[i].shape),),
            lambda x, i=i, s=s: scatter(x, i, s),
            lambda x, i=i, s=s: reference(x, i, s),
            note=f"index {i}",
        )
        for s, i in _CASES
    ]


@register(
    "scatter",
    gradient="twice",
    forward="y = zeros; y[index] += x, adding up where the index names an element twice",
    backward="gx = gy[index]",
    samples=_scatter_samples,
)
class Scatter(Function):
    """Zeros of `shape` with x added at an index: the way back of `GetItem`."""

    def __init__(self, index: Any, shape: tuple[int, ...]) -> None:
        self.index, self.shape = index, shape

    def forward(self, x: np.ndarray) -> np.ndarray:
        return scatter_array(x, self.index, self.shape)

    def backward(self, gy: np.ndarray) -> np.ndarray:
        return gy[self.index]

    def backward_graph(self, gy: Variable) -> Variable:
        return GetItem(self.index)(gy)


def scatter_array(x: np.ndarray, index: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Zeros of `shape` with x added at `index`; only integer arrays can name an element twice."""
    y = np.zeros(shape, x.dtype)
    parts = index if isinstance(index, tuple) else (index,)
    if any(isinstance(part, np.ndarray) and part.dtype.kind in "iu" for part in parts):
        np.add.at(y, index, x)
    else:
        y[index] = x
    return y


def get_item(x: Operand, index: Any) -> Variable:
    """x[index] with NumPy's rules; Variables and lists in the index are taken as arrays."""
    return GetItem(_as_index(index))(x)


def scatter(x: Operand, index: Any, shape: tuple[int, ...]) -> Variable:
    """Zeros of `shape` with x added at `index`. Raises ShapeError when x does not have the shape of y[index]."""
    x, index, shape = as_variable(x), _as_index(index), tuple(shape)
    place = np.broadcast_to(np.zeros((), bool), shape)[index].shape
    if x.shape != place:
        raise ShapeError(f"an array of shape {x.shape} cannot be scattered to places of shape {place}")
    return Scatter(index, shape)(x)


def _as_index(index: Any) -> Any:
    if isinstance(index, tuple):
        return tuple(_as_index(part) for part in index)
    if isinstance(index, Variable):
        return index.data
    return np.asarray(index, dtype=None if len(index) else np.intp) if isinstance(index, list) else index
