"""Putting arrays together and taking them apart: concat, split, stack, pad, tile, repeat, flip."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from undertow.core.function import Function
from undertow.core.registry import Sample, register
from undertow.core.variable import Operand, Variable, as_variable
from undertow.errors import ShapeError
from undertow.functions.indexing import get_item
from undertow.functions.shape import broadcast_to, expand_dims, normal_axes, normal_axis, reshape

__all__ = ["Concat", "Pad", "Split", "concat", "flip", "pad", "repeat", "split", "stack", "tile"]

Shape = tuple[int, ...]


def _concat_samples(rng: np.random.Generator) -> list[Sample]:
    def reference(xs: tuple[np.ndarray, ...], axis: int) -> np.ndarray:
        slices = [piece for x in xs for piece in np.moveaxis(x, axis, 0)]
        return np.moveaxis(np.array(slices), 0, axis)

    cases: list[tuple[list[Shape], int]] = [
        ([(2,), (3,)], 0),
        ([(2, 3), (2, 1), (2, 4)], 1),
        ([(1, 2, 3), (3, 2, 3)], -3),
    ]
    return [
        Sample(
            tuple(rng.standard_normal(s) for s in shapes),
            lambda *xs, a=a: concat(xs, a),
            lambda *xs, a=a: reference(xs, a),
        )
        for shapes, a in cases
    ]


@register(
    "concat",
    gradient="twice",
    forward="y = x_0, x_1, ... one after the other along an axis",
    backward="gx_i = the piece of gy that came from x_i",
    samples=_concat_samples,
    whole=True,
)
class Concat(Function):
    """Arrays one after the other along an axis; their other lengths are equal."""

    def __init__(self, axis: int) -> None:
        self.axis = axis

    def forward(self, *xs: np.ndarray) -> np.ndarray:
        return np.concatenate(xs, axis=self.axis)

    def backward(self, gy: np.ndarray) -> tuple[np.ndarray, ...]:
        return tuple(np.split(gy, self._cuts(), axis=self.axis))

    def backward_graph(self, gy: Variable) -> tuple[Variable, ...]:
        return Split(self._cuts(), self.axis)(gy)

    def _cuts(self) -> list[int]:
        return [int(n) for n in np.cumsum([x.data.shape[self.axis] for x in self.inputs])[:-1]]


def _split_samples(rng: np.random.Generator) -> list[Sample]:
    def reference(x: np.ndarray, cuts: list[int], axis: int) -> tuple[np.ndarray, ...]:
        slices = list(np.moveaxis(x, axis, 0))
        pieces = [slices[a:b] for a, b in zip([0, *cuts], [*cuts, len(slices)], strict=True)]
        return tuple(np.moveaxis(np.array(piece), 0, axis) for piece in pieces)

    cases: list[tuple[Shape, Any, list[int], int]] = [((6,), 3, [2, 4], 0), ((2, 7), [1, 4], [1, 4], -1)]
    return [
        Sample((rng.standard_normal(s),), lambda x, n=n, a=a: split(x, n, a), lambda x, c=c, a=a: reference(x, c, a))
        for s, n, c, a in cases
    ]


@register(
    "split",
    gradient="twice",
    forward="y_0, y_1, ... = x cut into pieces along an axis",
    backward="gx = the pieces' gradients one after the other",
    samples=_split_samples,
    whole=True,
)
class Split(Function):
    """x cut before each of the positions `cuts` along an axis (views)."""

    def __init__(self, cuts: Sequence[int], axis: int) -> None:
        self.cuts, self.axis = list(cuts), axis

    def forward(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        return tuple(np.split(x, self.cuts, axis=self.axis))

    def backward(self, *gys: np.ndarray) -> np.ndarray:
        return np.concatenate(gys, axis=self.axis)

    def backward_graph(self, *gys: Variable) -> Variable:
        return concat(gys, self.axis)


def _pad_samples(rng: np.random.Generator) -> list[Sample]:
    def reference(x: np.ndarray, widths: list[tuple[int, int]], value: float) -> np.ndarray:
        result = np.full([n + a + b for n, (a, b) in zip(x.shape, widths, strict=True)], value)
        for index in np.ndindex(x.shape):
            result[tuple(i + before for i, (before, _) in zip(index, widths, strict=True))] = x[index]
        return result

    cases: list[tuple[Shape, Any, list[tuple[int, int]], float]] = [
        ((3,), 2, [(2, 2)], 0.0),
        ((2, 3), [(0, 1), (2, 0)], [(0, 1), (2, 0)], -1.5),
        ((1, 2, 2, 3), [(0, 0), (0, 0), (1, 2), (3, 0)], [(0, 0), (0, 0), (1, 2), (3, 0)], 0.0),
    ]
    return [
        Sample(
            (rng.standard_normal(s),),
            lambda x, w=w, v=v: pad(x, w, v),
            lambda x, full=full, v=v: reference(x, full, v),
            note=f"widths {w}, value {v}",
        )
        for s, w, full, v in cases
    ]


@register(
    "pad",
    gradient="twice",
    forward="y = x with a constant before and after it along each axis",
    backward="gx = the inner part of gy",
    samples=_pad_samples,
    whole=True,
)
class Pad(Function):
    """x framed by a constant; widths holds (before, after) for each axis."""

    def __init__(self, widths: Sequence[tuple[int, int]], value: float = 0.0) -> None:
        self.widths, self.value = tuple(widths), value

    def forward(self, x: np.ndarray) -> np.ndarray:
        return np.pad(x, self.widths, constant_values=self.value)

    def backward(self, gy: np.ndarray) -> np.ndarray:
        return gy[self._inner()]

    def backward_graph(self, gy: Variable) -> Variable:
        return get_item(gy, self._inner())

    def _inner(self) -> tuple[slice, ...]:
        lengths = self.inputs[0].data.shape
        return tuple(slice(before, before + n) for (before, _), n in zip(self.widths, lengths, strict=True))


def concat(xs: Sequence[Operand], axis: int = 0) -> Variable:
    """Arrays one after the other along `axis`. Raises ShapeError when another length differs or there is none."""
    variables = [as_variable(x) for x in xs]
    if not variables:
        raise ShapeError("concat needs at least one array")
    first = variables[0]
    axis = normal_axis(axis, first.ndim)
    for index, x in enumerate(variables):
        if x.ndim != first.ndim or any(x.shape[i] != n for i, n in enumerate(first.shape) if i != axis):
            raise ShapeError(
                f"concat along axis {axis}: array {index} of shape {x.shape} does not fit the first, {first.shape}"
            )
    return Concat(axis)(*variables)


def split(x: Operand, pieces: int | Sequence[int], axis: int = 0) -> tuple[Variable, ...]:
    """x in `pieces` equal pieces along `axis`, or cut before each of the given positions.

    Raises ShapeError when the length is no multiple of `pieces`.
    """
    x = as_variable(x)
    axis = normal_axis(axis, x.ndim)
    length = x.shape[axis]
    if isinstance(pieces, (int, np.integer)):
        if pieces < 1 or length % pieces:
            raise ShapeError(f"axis {axis} of length {length} cannot be split into {pieces} equal pieces")
        pieces = range(length // int(pieces), length, length // int(pieces)) if length else [0] * (int(pieces) - 1)
    return Split(pieces, axis)(x)


def stack(xs: Sequence[Operand], axis: int = 0) -> Variable:
    """Arrays of equal shape along a new axis, which stands at place `axis` of the result."""
    return concat([expand_dims(x, axis) for x in xs], axis)


def pad(x: Operand, widths: int | Sequence[tuple[int, int]], value: float = 0.0) -> Variable:
    """x framed by `value`: widths is one int for all sides, or (before, after) for each axis, none negative."""
    x = as_variable(x)
    pairs = [(widths, widths)] * x.ndim if isinstance(widths, int) else [(int(a), int(b)) for a, b in widths]
    if len(pairs) != x.ndim or any(a < 0 or b < 0 for a, b in pairs):
        raise ShapeError(f"pad widths {widths} do not fit shape {x.shape}: (before, after) >= 0 for each axis")
    return Pad(pairs, value)(x)


def tile(x: Operand, counts: int | Sequence[int]) -> Variable:
    """x repeated as a whole, counts[i] times along axis i; further counts make new leading axes."""
    x = as_variable(x)
    counts = (counts,) if isinstance(counts, int) else tuple(counts)
    counts = (1,) * (x.ndim - len(counts)) + counts
    shape = (1,) * (len(counts) - x.ndim) + x.shape
    apart = reshape(x, [n for length in shape for n in (1, length)])
    repeated = broadcast_to(apart, tuple(n for pair in zip(counts, shape, strict=True) for n in pair))
    return reshape(repeated, [count * n for count, n in zip(counts, shape, strict=True)])


def repeat(x: Operand, count: int, axis: int) -> Variable:
    """Each element `count` times in a row along `axis`."""
    x = as_variable(x)
    axis = normal_axis(axis, x.ndim)
    repeated = broadcast_to(expand_dims(x, axis + 1), (*x.shape[: axis + 1], count, *x.shape[axis + 1 :]))
    return reshape(repeated, (*x.shape[:axis], x.shape[axis] * count, *x.shape[axis + 1 :]))


def flip(x: Operand, axis: int | Sequence[int] | None = None) -> Variable:
    """The elements in reverse order along `axis` (an int, several, or None for all)."""
    x = as_variable(x)
    turned = normal_axes(axis, x.ndim)
    return get_item(x, tuple(slice(None, None, -1 if i in turned else None) for i in range(x.ndim)))
