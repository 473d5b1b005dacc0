"""Embedding: rows of a table, picked by number."""

from __future__ import annotations

from typing import Any

import numpy as np

from undertow.core.function import Function
from undertow.core.registry import Sample, register
from undertow.core.variable import Operand, Variable
from undertow.errors import ShapeError

__all__ = ["Embedding", "EmbeddingRows", "embedding"]

Array = np.ndarray[Any, Any]


def _samples(rng: np.random.Generator) -> list[Sample]:
    def by_hand(indexes: Array, ignored: int | None) -> Any:
        return lambda w: np.array([np.zeros(w.shape[1]) if i == ignored else w[i] for i in indexes.ravel()]).reshape(
            *indexes.shape, w.shape[1]
        )

    def sample(indexes: Array, ignored: int | None, note: str) -> Sample:
        return Sample(
            (rng.standard_normal((4, 3)),), lambda w: embedding(indexes, w, ignored), by_hand(indexes, ignored), note
        )

    return [
        sample(np.array([2, 0, 2, 2]), None, "a row used three times"),
        sample(np.array([[1, -1], [3, 1]]), -1, "ignored places"),
        sample(np.array(3), None, "one row"),
    ]


@register(
    "embedding",
    gradient="twice",
    forward="y[place] = w[index[place]], 0 where the index is ignored",
    backward="gw[index[place]] += gy[place]",
    samples=_samples,
    whole=True,
)
class Embedding(Function):
    """`embedding` for given numbers."""

    def __init__(self, indexes: Array, ignore_index: int | None = None) -> None:
        self.indexes, self.ignore_index = indexes, ignore_index

    def forward(self, w: Array) -> Array:
        if w.ndim != 2 or self.indexes.dtype.kind not in "iu":
            raise ShapeError(
                f"embedding needs a table (rows, size) and whole numbers, got {w.shape} and {self.indexes.dtype}"
            )
        self._skipped = _skipped(self.indexes, self.ignore_index, len(w))
        y = w[np.where(self._skipped, 0, self.indexes)]
        y[self._skipped] = 0
        return y

    def backward(self, gy: Array) -> Array:
        return _add_rows(gy, self.indexes, self._skipped, self.input.shape)

    def backward_graph(self, gy: Variable) -> Variable:
        return EmbeddingRows(self.indexes, self.input.shape, self.ignore_index)(gy)


def embedding(indexes: Array, w: Operand, ignore_index: int | None = None) -> Variable:
    """The rows of the table w with these numbers; a row used several times gets the sum of its gradients.

    indexes: integers of any shape, from 0 to rows - 1, or ignore_index, which gives a row of zeros. w: (rows, size).
    Returns (*indexes.shape, size). Raises ValueError for a number that is no row, ShapeError for wrong arrays.
    """
    return Embedding(np.asarray(indexes.data if isinstance(indexes, Variable) else indexes), ignore_index)(w)


def _rows_samples(rng: np.random.Generator) -> list[Sample]:
    indexes = np.array([2, 0, 2, -1])

    def by_hand(x: Array) -> Array:
        w = np.zeros((4, 3))
        for index, row in zip(indexes, x, strict=True):
            if index >= 0:
                w[index] += row
        return w

    return [Sample((rng.standard_normal((4, 3)),), lambda x: EmbeddingRows(indexes, (4, 3), -1)(x), by_hand)]


@register(
    "embedding_rows",
    gradient="twice",
    forward="y[index[place]] += x[place]",
    backward="gx[place] = gy[index[place]], 0 where the index is ignored",
    samples=_rows_samples,
)
class EmbeddingRows(Function):
    """The way back of `embedding`, its transpose: rows added into a table of the given shape."""

    def __init__(self, indexes: Array, shape: tuple[int, ...], ignore_index: int | None = None) -> None:
        self.indexes, self.shape, self.ignore_index = indexes, shape, ignore_index

    def forward(self, x: Array) -> Array:
        return _add_rows(x, self.indexes, _skipped(self.indexes, self.ignore_index, self.shape[0]), self.shape)

    def backward_graph(self, gy: Variable) -> Variable:
        return Embedding(self.indexes, self.ignore_index)(gy)


def _skipped(indexes: Array, ignore_index: int | None, rows: int) -> Array:
    """Where the index is to be ignored. ValueError for one that is no row."""
    skipped = np.zeros(indexes.shape, bool) if ignore_index is None else indexes == ignore_index
    wrong = ~skipped & ((indexes < 0) | (indexes >= rows))
    if wrong.any():
        raise ValueError(f"embedding: {indexes[wrong].flat[0]} is not one of the {rows} rows of the table")
    return skipped


def _add_rows(x: Array, indexes: Array, skipped: Array, shape: tuple[int, ...]) -> Array:
    """Sorted by index, equal rows lie side by side and are added in one sweep, in a fixed order."""
    y = np.zeros(shape, x.dtype)
    kept = ~skipped.reshape(-1)
    flat, rows = indexes.reshape(-1)[kept], x.reshape(-1, shape[1])[kept]
    if flat.size:
        order = np.argsort(flat, kind="stable")
        flat = flat[order]
        first = np.flatnonzero(np.r_[True, flat[1:] != flat[:-1]])
        y[flat[first]] = np.add.reduceat(rows[order], first, axis=0)
    return y
