"""Shapes: broadcasting and its way back, reshape, transposition, and the axes of length one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from undertow.core.function import Function
from undertow.core.registry import Sample, register
from undertow.core.variable import Operand, Variable, as_variable
from undertow.errors import ShapeError

__all__ = [
    "BroadcastTo",
    "Reshape",
    "SumTo",
    "Transpose",
    "broadcast_to",
    "expand_dims",
    "flatten",
    "moveaxis",
    "reshape",
    "squeeze",
    "sum_to",
    "swapaxes",
    "transpose",
]

Shape = tuple[int, ...]


def sum_to_array(x: np.ndarray, shape: Shape) -> np.ndarray:
    """Sum an array over the axes along which `shape` was broadcast; the array itself when there are none."""
    if x.shape == shape:
        return x
    lead = x.ndim - len(shape)
    kept = tuple(lead + i for i, length in enumerate(shape) if length == 1 and x.shape[lead + i] != 1)
    total = np.asarray(x.sum(axis=(*range(lead), *kept), keepdims=True))
    return total.reshape(shape)


def _broadcast_samples(rng: np.random.Generator) -> list[Sample]:
    pairs: list[tuple[Shape, Shape]] = [((3,), (2, 3)), ((), (2, 3)), ((2, 1, 3), (4, 2, 5, 3)), ((2, 3), (2, 3))]
    return [
        Sample((rng.standard_normal(a),), lambda x, b=b: broadcast_to(x, b), lambda x, b=b: x + np.zeros(b))
        for a, b in pairs
    ]


@register(
    "broadcast_to",
    gradient="twice",
    forward="y = x repeated along new axes and along axes of length 1",
    backward="gx = sum of gy over the repeated axes",
    samples=_broadcast_samples,
    whole=True,
)
class BroadcastTo(Function):
    """Repeat along new leading axes and along axes of length 1, until the shape fits (a read-only view)."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape

    def forward(self, x: np.ndarray) -> np.ndarray:
        return np.broadcast_to(x, self.shape)

    def backward(self, gy: np.ndarray) -> np.ndarray:
        return sum_to_array(gy, self.inputs[0].data.shape)

    def backward_graph(self, gy: Variable) -> Variable:
        return sum_to(gy, self.input.shape)


def broadcast_to(x: Operand, shape: Shape) -> Variable:
    """Repeat x to `shape` by NumPy's broadcasting rule. Raises ShapeError when it does not fit."""
    x = as_variable(x)
    shape = tuple(shape)
    if x.shape == shape:
        return x
    _check_broadcast(x.shape, shape)
    return BroadcastTo(shape)(x)


def _check_broadcast(small: Shape, large: Shape) -> None:
    tail = large[len(large) - len(small) :]
    if len(small) > len(large) or any(s not in (1, t) for s, t in zip(small, tail, strict=True)):
        raise ShapeError(f"the shape {small} cannot be broadcast to {large}")


def _sum_to_samples(rng: np.random.Generator) -> list[Sample]:
    def reference(x: np.ndarray, shape: Shape) -> np.ndarray:
        result = np.zeros(shape)
        for index in np.ndindex(x.shape):
            tail = index[len(index) - len(shape) :]
            result[tuple(0 if length == 1 else i for i, length in zip(tail, shape, strict=True))] += x[index]
        return result

    pairs: list[tuple[Shape, Shape]] = [((2, 3), (3,)), ((2, 3), ()), ((4, 2, 5, 3), (2, 1, 3)), ((2, 3), (2, 1))]
    return [
        Sample((rng.standard_normal(a),), lambda x, b=b: sum_to(x, b), lambda x, b=b: reference(x, b)) for a, b in pairs
    ]


@register(
    "sum_to",
    gradient="twice",
    forward="y = sum of x over the axes that broadcasting to x's shape would repeat",
    backward="gx = gy broadcast to x's shape",
    samples=_sum_to_samples,
    whole=True,
)
class SumTo(Function):
    """The way back of broadcasting: sum over leading axes and over axes that have length 1 in `shape`."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape

    def forward(self, x: np.ndarray) -> np.ndarray:
        return sum_to_array(x, self.shape)

    def backward(self, gy: np.ndarray) -> np.ndarray:
        return np.broadcast_to(gy, self.inputs[0].data.shape)

    def backward_graph(self, gy: Variable) -> Variable:
        return broadcast_to(gy, self.input.shape)


def sum_to(x: Operand, shape: Shape) -> Variable:
    """Sum x to `shape`, which must be broadcastable to x's shape (else ShapeError)."""
    x = as_variable(x)
    shape = tuple(shape)
    if x.shape == shape:
        return x
    _check_broadcast(shape, x.shape)
    return SumTo(shape)(x)


def _reshape_samples(rng: np.random.Generator) -> list[Sample]:
    pairs: list[tuple[Shape, Shape]] = [((2, 6), (3, 4)), ((2, 3, 5), (-1,)), ((), (1, 1)), ((4, 3), (2, -1, 3))]
    return [
        Sample(
            (rng.standard_normal(a),),
            lambda x, b=b: reshape(x, b),
            lambda x, b=b: np.array(x.ravel().tolist()).reshape(b),
        )
        for a, b in pairs
    ]


@register(
    "reshape",
    gradient="twice",
    forward="y = the elements of x, row by row, in another shape",
    backward="gx = gy in the shape of x",
    samples=_reshape_samples,
    whole=True,
)
class Reshape(Function):
    """The same elements, last axis fastest, in another shape."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape

    def forward(self, x: np.ndarray) -> np.ndarray:
        return x.reshape(self.shape)

    def backward(self, gy: np.ndarray) -> np.ndarray:
        return gy.reshape(self.inputs[0].data.shape)

    def backward_graph(self, gy: Variable) -> Variable:
        return reshape(gy, self.input.shape)


def reshape(x: Operand, shape: int | Sequence[int]) -> Variable:
    """The elements of x in `shape`; one length may be -1. Raises ShapeError when the counts differ."""
    x = as_variable(x)
    shape = (int(shape),) if isinstance(shape, (int, np.integer)) else tuple(int(length) for length in shape)
    if x.shape == shape:
        return x
    known = math.prod(length for length in shape if length != -1)
    fits = shape.count(-1) == 0 and known == x.size
    fits = fits or (shape.count(-1) == 1 and known > 0 and x.size % known == 0)
    if not fits or any(length < -1 for length in shape):
        raise ShapeError(f"{x.size} elements of shape {x.shape} do not fit into shape {shape}")
    return Reshape(shape)(x)


def _transpose_samples(rng: np.random.Generator) -> list[Sample]:
    def reference(x: np.ndarray, axes: tuple[int, ...] | None) -> np.ndarray:
        order = [a % x.ndim for a in axes] if axes else list(reversed(range(x.ndim)))
        result = np.empty([x.shape[a] for a in order])
        for index in np.ndindex(x.shape):
            result[tuple(index[a] for a in order)] = x[index]
        return result

    cases: list[tuple[Shape, tuple[int, ...] | None]] = [
        ((2, 3), None),
        ((2, 3, 5), (2, 0, 1)),
        ((2, 3, 4, 5), (0, -1, 1, 2)),
    ]
    return [
        Sample((rng.standard_normal(s),), lambda x, a=a: transpose(x, a), lambda x, a=a: reference(x, a))
        for s, a in cases
    ]


@register(
    "transpose",
    gradient="twice",
    forward="y[i_axes0, i_axes1, ...] = x[i0, i1, ...]",
    backward="gx = gy with the axes put back",
    samples=_transpose_samples,
    whole=True,
)
class Transpose(Function):
    """The axes in another order (a view); axes=None reverses them."""

    def __init__(self, axes: tuple[int, ...] | None = None) -> None:
        self.axes = axes

    def forward(self, x: np.ndarray) -> np.ndarray:
        return x.transpose(self.axes)

    def backward(self, gy: np.ndarray) -> np.ndarray:
        return gy.transpose(self._inverse())

    def backward_graph(self, gy: Variable) -> Variable:
        return transpose(gy, self._inverse())

    def _inverse(self) -> tuple[int, ...] | None:
        if self.axes is None:
            return None
        order = [axis % len(self.axes) for axis in self.axes]
        return tuple(order.index(i) for i in range(len(order)))


def transpose(x: Operand, axes: Sequence[int] | None = None) -> Variable:
    """The axes of x in the order `axes`, reversed when None. Raises ShapeError when axes is no permutation."""
    x = as_variable(x)
    if axes is not None:
        axes = tuple(int(axis) for axis in axes)
        if sorted(axis % max(x.ndim, 1) for axis in axes) != list(range(x.ndim)):
            raise ShapeError(f"axes {axes} are not a permutation of the {x.ndim} axes of shape {x.shape}")
    return Transpose(axes)(x)


def moveaxis(x: Operand, source: int, destination: int) -> Variable:
    """Move one axis to another place, the others keep their order."""
    x = as_variable(x)
    order = list(range(x.ndim))
    order.insert(normal_axis(destination, x.ndim), order.pop(normal_axis(source, x.ndim)))
    return transpose(x, order)


def swapaxes(x: Operand, first: int, second: int) -> Variable:
    """Exchange two axes."""
    x = as_variable(x)
    order = list(range(x.ndim))
    first, second = normal_axis(first, x.ndim), normal_axis(second, x.ndim)
    order[first], order[second] = second, first
    return transpose(x, order)


def expand_dims(x: Operand, axis: int) -> Variable:
    """Insert an axis of length 1 at place `axis` of the result."""
    x = as_variable(x)
    axis = normal_axis(axis, x.ndim + 1)
    return reshape(x, (*x.shape[:axis], 1, *x.shape[axis:]))


def squeeze(x: Operand, axis: int | Sequence[int] | None = None) -> Variable:
    """Drop axes of length 1: the named ones (ShapeError if one is longer), or all."""
    x = as_variable(x)
    dropped = normal_axes(axis, x.ndim) if axis is not None else tuple(i for i, n in enumerate(x.shape) if n == 1)
    for i in dropped:
        if x.shape[i] != 1:
            raise ShapeError(f"axis {i} of shape {x.shape} has length {x.shape[i]}; only axes of length 1 can go")
    return reshape(x, tuple(n for i, n in enumerate(x.shape) if i not in dropped))


def flatten(x: Operand, start_axis: int = 0) -> Variable:
    """All axes from `start_axis` on as one; start_axis=1 keeps a batch axis."""
    x = as_variable(x)
    if x.ndim == 0:
        return reshape(x, (1,))
    start = normal_axis(start_axis, x.ndim)
    return reshape(x, (*x.shape[:start], math.prod(x.shape[start:])))


def normal_axis(axis: int, ndim: int) -> int:
    """The axis counted from the front. Raises ShapeError when there is no such axis."""
    if not -ndim <= axis < ndim:
        raise ShapeError(f"axis {axis} does not exist in an array of {ndim} axes")
    return axis % ndim


def normal_axes(axis: Any, ndim: int) -> tuple[int, ...]:
    """One axis, several, or None for all, counted from the front, each once."""
    if axis is None:
        return tuple(range(ndim))
    axes = tuple(normal_axis(int(a), ndim) for a in (axis if isinstance(axis, (tuple, list)) else (axis,)))
    if len(set(axes)) != len(axes):
        raise ShapeError(f"axes {axis} name an axis twice")
    return axes
