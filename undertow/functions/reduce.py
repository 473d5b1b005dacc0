"""Reductions over axes: sum, mean, max, min, var, cumsum, prod."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from undertow.core.function import Function
from undertow.core.registry import Sample, register
from undertow.core.variable import Operand, Variable, as_variable
from undertow.functions.shape import broadcast_to, normal_axes, reshape

__all__ = ["Mean", "Sum", "mean", "sum"]

Axis = int | tuple[int, ...] | None


def reduction_samples(call: Any, reference: Any, make: Any = lambda rng, shape: rng.standard_normal(shape)) -> Any:
    """Samples over all axes, one, several, negative, kept and not; `reference` reduces a list of floats."""
    cases: list[tuple[tuple[int, ...], Axis, bool]] = [
        ((7,), None, False),
        ((), None, False),
        ((3, 5), 0, False),
        ((3, 5), -1, True),
        ((2, 3, 5), (0, 2), False),
        ((2, 3, 5), (1,), True),
        ((2, 3, 5), None, True),
    ]

    def samples(rng: np.random.Generator) -> list[Sample]:
        return [
            Sample(
                (make(rng, shape),),
                lambda x, a=axis, k=keep: call(x, axis=a, keepdims=k),
                lambda x, a=axis, k=keep: reduce_by_hand(reference, x, a, k),
                note=f"shape {shape}, axis {axis}, keepdims {keep}",
            )
            for shape, axis, keep in cases
        ]

    return samples


def reduce_by_hand(reference: Any, x: np.ndarray, axis: Axis, keepdims: bool) -> np.ndarray:
    """Gather the elements that fall together, one list for each element of the result, and reduce the lists."""
    axes = normal_axes(axis, x.ndim)
    groups: dict[tuple[int, ...], list[float]] = {}
    for index in np.ndindex(x.shape):
        key = tuple(0 if i in axes else n for i, n in enumerate(index))
        groups.setdefault(key, []).append(float(x[index]))
    result = np.zeros([1 if i in axes else n for i, n in enumerate(x.shape)])
    for key, values in groups.items():
        result[key] = reference(values)
    return result if keepdims else result.reshape([n for i, n in enumerate(x.shape) if i not in axes])


def kept_shape(shape: tuple[int, ...], axis: Axis) -> tuple[int, ...]:
    """The shape of a reduction's result with keepdims."""
    axes = normal_axes(axis, len(shape))
    return tuple(1 if i in axes else n for i, n in enumerate(shape))


class Reduction(Function):
    """Base of the reductions: over `axis` (None: all), which stays with length 1 if `keepdims`."""

    def __init__(self, axis: Axis = None, keepdims: bool = False) -> None:
        self.axis, self.keepdims = axis, keepdims

    def kept(self, g: Any) -> Any:
        """An array or Variable of the result's shape, with the reduced axes put back at length 1."""
        shape = kept_shape(self.inputs[0].data.shape, self.axis)
        return g.reshape(shape) if isinstance(g, np.ndarray) else reshape(g, shape)


@register(
    "sum",
    gradient="twice",
    forward="y = sum of x over axes",
    backward="gx = gy, repeated over those axes",
    samples=reduction_samples(lambda x, **k: sum(x, **k), math.fsum),
)
class Sum(Reduction):
    """Sum over axes."""

    def forward(self, x: np.ndarray) -> np.ndarray:
        return x.sum(axis=self.axis, keepdims=self.keepdims)

    def backward(self, gy: np.ndarray) -> np.ndarray:
        return np.broadcast_to(self.kept(gy), self.inputs[0].data.shape)

    def backward_graph(self, gy: Variable) -> Variable:
        return broadcast_to(self.kept(gy), self.input.shape)


def sum(x: Operand, axis: Axis = None, keepdims: bool = False) -> Variable:  # noqa: A001
    """Sum over `axis` (an int, several, or None for all). keepdims leaves the axes with length 1."""
    x = as_variable(x)
    return Sum(checked_axis(axis, x.ndim), keepdims)(x)


def checked_axis(axis: Any, ndim: int) -> Axis:
    """None, or a tuple of existing axes. Raises ShapeError otherwise."""
    return None if axis is None else normal_axes(axis, ndim)


@register(
    "mean",
    gradient="twice",
    forward="y = (sum of x over axes) / n, n elements each",
    backward="gx = gy / n, repeated over those axes",
    samples=reduction_samples(lambda x, **k: mean(x, **k), lambda values: math.fsum(values) / len(values)),
)
class Mean(Reduction):
    """Mean over axes."""

    def forward(self, x: np.ndarray) -> np.ndarray:
        return x.mean(axis=self.axis, keepdims=self.keepdims)

    def backward(self, gy: np.ndarray) -> np.ndarray:
        return np.broadcast_to(self.kept(gy) / self._count(), self.inputs[0].data.shape)

    def backward_graph(self, gy: Variable) -> Variable:
        return broadcast_to(self.kept(gy) / self._count(), self.input.shape)

    def _count(self) -> int:
        shape = self.inputs[0].data.shape
        return math.prod(shape[i] for i in normal_axes(self.axis, len(shape)))


def mean(x: Operand, axis: Axis = None, keepdims: bool = False) -> Variable:
    """Mean over `axis` (an int, several, or None for all). keepdims leaves the axes with length 1."""
    x = as_variable(x)
    return Mean(checked_axis(axis, x.ndim), keepdims)(x)
