"""Reductions over axes: sum, mean, max, min, var, cumsum, prod."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from undertow.core.function import Function
from undertow.core.registry import Sample, register
from undertow.core.variable import Operand, Variable, as_variable
from undertow.functions.sampling import distinct
from undertow.functions.shape import broadcast_to, normal_axes, normal_axis, reshape

__all__ = [
    "CumSum",
    "Max",
    "Mean",
    "Min",
    "Prod",
    "Sum",
    "Var",
    "cumsum",
    "max",
    "mean",
    "min",
    "prod",
    "sum",
    "var",
]

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
    whole=True,
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
    whole=True,
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


class Extreme(Reduction):
    """Base of max and min: the gradient goes to the elements that equal the result, in equal shares."""

    def backward(self, gy: np.ndarray) -> np.ndarray:
        return self.kept(gy) * self._shares()

    def backward_graph(self, gy: Variable) -> Variable:
        return self.kept(gy) * self._shares()

    def _shares(self) -> np.ndarray:
        """1 / (number of ties) at each element that equals the result, else 0."""
        x = self.inputs[0].data
        ties = x == self.kept(self.output.data)
        return (ties / ties.sum(axis=self.axis, keepdims=True)).astype(x.dtype)


@register(
    "max",
    gradient="twice",
    forward="y = largest x over axes",
    backward="gx = gy / n at each of the n elements equal to y, 0 elsewhere",
    samples=reduction_samples(lambda x, **k: max(x, **k), lambda values: sorted(values)[-1], distinct),
    whole=True,
)
class Max(Extreme):
    """Largest element over axes; ties share the gradient equally."""

    def forward(self, x: np.ndarray) -> np.ndarray:
        return x.max(axis=self.axis, keepdims=self.keepdims)


@register(
    "min",
    gradient="twice",
    forward="y = smallest x over axes",
    backward="gx = gy / n at each of the n elements equal to y, 0 elsewhere",
    samples=reduction_samples(lambda x, **k: min(x, **k), lambda values: sorted(values)[0], distinct),
    whole=True,
)
class Min(Extreme):
    """Smallest element over axes; ties share the gradient equally."""

    def forward(self, x: np.ndarray) -> np.ndarray:
        return x.min(axis=self.axis, keepdims=self.keepdims)


def _variance(values: list[float], correction: int = 0) -> float:
    middle = math.fsum(values) / len(values)
    return math.fsum((v - middle) ** 2 for v in values) / (len(values) - correction)


def _var_samples(rng: np.random.Generator) -> list[Sample]:
    corrected = Sample(
        (rng.standard_normal((4, 3)),),
        lambda x: var(x, axis=0, correction=1),
        lambda x: reduce_by_hand(lambda values: _variance(values, 1), x, 0, False),
        note="divided by n - 1",
    )
    return [*reduction_samples(lambda x, **k: var(x, **k), _variance)(rng), corrected]


@register(
    "var",
    gradient="twice",
    forward="y = sum of (x - mean x)^2 over axes / (n - correction)",
    backward="gx = 2 (x - mean x) gy / (n - correction)",
    samples=_var_samples,
    whole=True,
)
class Var(Reduction):
    """Variance over axes, divided by n - correction."""

    def __init__(self, axis: Axis = None, keepdims: bool = False, correction: int = 0) -> None:
        super().__init__(axis, keepdims)
        self.correction = correction

    def forward(self, x: np.ndarray) -> np.ndarray:
        return x.var(axis=self.axis, keepdims=self.keepdims, ddof=self.correction)

    def backward(self, gy: np.ndarray) -> np.ndarray:
        x = self.inputs[0].data
        return (x - x.mean(axis=self.axis, keepdims=True)) * (self.kept(gy) * self._factor())

    def backward_graph(self, gy: Variable) -> Variable:
        x = self.input
        return (x - mean(x, self.axis, keepdims=True)) * (self.kept(gy) * self._factor())

    def _factor(self) -> float:
        shape = self.inputs[0].data.shape
        divisor = math.prod(shape[i] for i in normal_axes(self.axis, len(shape))) - self.correction
        return 2 / divisor if divisor else math.nan  # as the variance itself


def _cumsum_samples(rng: np.random.Generator) -> list[Sample]:
    def reference(x: np.ndarray, axis: int) -> np.ndarray:
        rows = np.moveaxis(x, axis, -1)
        sums = [[math.fsum(row[: i + 1]) for i in range(len(row))] for row in rows.reshape(-1, rows.shape[-1])]
        return np.moveaxis(np.array(sums).reshape(rows.shape), -1, axis)

    return [
        Sample((rng.standard_normal(s),), lambda x, a=a: cumsum(x, a), lambda x, a=a: reference(x, a))
        for s, a in [((5,), 0), ((3, 4), 0), ((2, 3, 4), -2)]
    ]


@register(
    "cumsum",
    gradient="twice",
    forward="y_i = x_0 + ... + x_i along an axis",
    backward="gx_i = gy_i + ... + gy_last",
    samples=_cumsum_samples,
    whole=True,
)
class CumSum(Function):
    """Running sum along an axis; with reverse, from the end."""

    def __init__(self, axis: int, reverse: bool = False) -> None:
        self.axis, self.reverse = axis, reverse

    def forward(self, x: np.ndarray) -> np.ndarray:
        return running_sum(x, self.axis, self.reverse)

    def backward(self, gy: np.ndarray) -> np.ndarray:
        return running_sum(gy, self.axis, not self.reverse)

    def backward_graph(self, gy: Variable) -> Variable:
        return CumSum(self.axis, not self.reverse)(gy)


def running_sum(x: np.ndarray, axis: int, reverse: bool) -> np.ndarray:
    """Sums of all elements up to each one along an axis, or with reverse, from each one on."""
    if not reverse:
        return x.cumsum(axis=axis)
    return np.flip(np.flip(x, axis).cumsum(axis=axis), axis)


def _prod_samples(rng: np.random.Generator) -> list[Sample]:
    def one_zero(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        x = rng.uniform(0.5, 2.0, shape)
        x.reshape(-1)[0] = 0.0
        return x

    return reduction_samples(lambda x, **k: prod(x, **k), math.prod, one_zero)(rng)


@register(
    "prod",
    gradient="once",
    forward="y = product of x over axes",
    backward="gx_i = gy times the product of all others",
    samples=_prod_samples,
    whole=True,
)
class Prod(Reduction):
    """Product over axes; the gradient is right where elements are 0 too."""

    def forward(self, x: np.ndarray) -> np.ndarray:
        return x.prod(axis=self.axis, keepdims=self.keepdims)

    def backward(self, gy: np.ndarray) -> np.ndarray:
        x = self.inputs[0].data
        axes = normal_axes(self.axis, x.ndim)
        last = tuple(range(x.ndim - len(axes), x.ndim))
        moved = np.moveaxis(x, axes, last)
        rows = moved.reshape(*moved.shape[: x.ndim - len(axes)], -1)
        before, after = np.ones_like(rows), np.ones_like(rows)
        before[..., 1:] = rows[..., :-1].cumprod(axis=-1)
        after[..., :-1] = rows[..., :0:-1].cumprod(axis=-1)[..., ::-1]
        others = np.moveaxis((before * after).reshape(moved.shape), last, axes)
        return self.kept(gy) * others


def max(x: Operand, axis: Axis = None, keepdims: bool = False) -> Variable:  # noqa: A001
    """Largest element over `axis` (an int, several, or None for all); ties share the gradient equally."""
    x = as_variable(x)
    return Max(checked_axis(axis, x.ndim), keepdims)(x)


def min(x: Operand, axis: Axis = None, keepdims: bool = False) -> Variable:  # noqa: A001
    """Smallest element over `axis` (an int, several, or None for all); ties share the gradient equally."""
    x = as_variable(x)
    return Min(checked_axis(axis, x.ndim), keepdims)(x)


def var(x: Operand, axis: Axis = None, keepdims: bool = False, correction: int = 0) -> Variable:
    """Variance over `axis`, divided by n - correction (1 for the unbiased estimate)."""
    x = as_variable(x)
    return Var(checked_axis(axis, x.ndim), keepdims, correction)(x)


def cumsum(x: Operand, axis: int) -> Variable:
    """Running sum along an axis."""
    x = as_variable(x)
    return CumSum(normal_axis(axis, x.ndim))(x)


def prod(x: Operand, axis: Axis = None, keepdims: bool = False) -> Variable:
    """Product over `axis` (an int, several, or None for all). Differentiable once."""
    x = as_variable(x)
    return Prod(checked_axis(axis, x.ndim), keepdims)(x)
