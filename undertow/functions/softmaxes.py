"""Exponentials that are normalised or summed along an axis: softmax, log_softmax, logsumexp."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from undertow.core.function import Function
from undertow.core.registry import Sample, register
from undertow.core.variable import Operand, Variable, as_variable
from undertow.functions.elementary import exp
from undertow.functions.reduce import Axis, Reduction, checked_axis, reduction_samples
from undertow.functions.reduce import sum as sum_over
from undertow.functions.sampling import Samples
from undertow.functions.shape import normal_axis
from undertow.kernels import select

__all__ = ["LogSoftmax", "LogSumExp", "Softmax", "log_softmax", "logsumexp", "softmax"]


def _row_samples(call: Callable[..., Variable], reference: Callable[[list[float]], list[float]]) -> Samples:
    def samples(rng: np.random.Generator) -> list[Sample]:
        cases: list[tuple[tuple[int, ...], int]] = [((4, 5), 1), ((4, 5), 0), ((3,), -1), ((2, 3, 2, 4), 1)]
        return [
            Sample(
                (rng.uniform(-3, 3, shape),),
                lambda x, a=axis: call(x, a),
                lambda x, a=axis: np.apply_along_axis(lambda row: np.array(reference(list(row))), a, x),
                note=f"shape {shape}, axis {axis}",
            )
            for shape, axis in cases
        ]

    return samples


def _softmax_row(row: list[float]) -> list[float]:
    total = math.fsum(math.exp(v) for v in row)
    return [math.exp(v) / total for v in row]


@register(
    "softmax",
    gradient="twice",
    forward="y_i = e^x_i / (e^x_0 + ... + e^x_n) along an axis",
    backward="gx = y (gy - sum of gy y)",
    samples=_row_samples(lambda x, axis: softmax(x, axis), _softmax_row),
)
class Softmax(Function):
    """Positive numbers that sum to 1 along an axis."""

    def __init__(self, axis: int = 1) -> None:
        self.axis = axis

    def forward(self, x: np.ndarray) -> np.ndarray:
        return select.softmax(x, self.axis)

    def backward(self, gy: np.ndarray) -> np.ndarray:
        return select.softmax_backward(gy, self.output.data, self.axis)

    def backward_graph(self, gy: Variable) -> Variable:
        y = self.output
        return y * (gy - sum_over(gy * y, self.axis, keepdims=True))


@register(
    "log_softmax",
    gradient="twice",
    forward="y_i = x_i - ln(e^x_0 + ... + e^x_n) along an axis",
    backward="gx = gy - e^y sum of gy",
    samples=_row_samples(lambda x, axis: log_softmax(x, axis), lambda row: [math.log(p) for p in _softmax_row(row)]),
)
class LogSoftmax(Function):
    """The logarithm of softmax, exact where softmax itself would be 0."""

    def __init__(self, axis: int = 1) -> None:
        self.axis = axis

    def forward(self, x: np.ndarray) -> np.ndarray:
        return select.log_softmax(x, self.axis)

    def backward(self, gy: np.ndarray) -> np.ndarray:
        return select.log_softmax_backward(gy, self.output.data, self.axis)

    def backward_graph(self, gy: Variable) -> Variable:
        return gy - exp(self.output) * sum_over(gy, self.axis, keepdims=True)


@register(
    "logsumexp",
    gradient="twice",
    forward="y = ln(sum of e^x over axes)",
    backward="gx = e^(x - y) gy",
    samples=reduction_samples(
        lambda x, **k: logsumexp(x, **k), lambda values: math.log(math.fsum(math.exp(v) for v in values))
    ),
)
class LogSumExp(Reduction):
    """The logarithm of a sum of exponentials, safe against overflow."""

    def forward(self, x: np.ndarray) -> np.ndarray:
        top = x.max(axis=self.axis, keepdims=True)
        top = np.where(np.isfinite(top), top, x.dtype.type(0))
        total = np.exp(x - top).sum(axis=self.axis, keepdims=True)
        y = np.log(total) + top
        return y if self.keepdims else y.reshape(x.sum(axis=self.axis).shape)

    def backward(self, gy: np.ndarray) -> np.ndarray:
        return self.kept(gy) * np.exp(self.inputs[0].data - self.kept(self.output.data))

    def backward_graph(self, gy: Variable) -> Variable:
        return self.kept(gy) * exp(self.input - self.kept(self.output))


def softmax(x: Operand, axis: int = 1) -> Variable:
    """e^x divided by its sum along `axis` (channels by default): positive, sums to 1."""
    x = as_variable(x)
    return Softmax(normal_axis(axis, x.ndim))(x)


def log_softmax(x: Operand, axis: int = 1) -> Variable:
    """The logarithm of softmax along `axis` (channels by default)."""
    x = as_variable(x)
    return LogSoftmax(normal_axis(axis, x.ndim))(x)


def logsumexp(x: Operand, axis: Axis = None, keepdims: bool = False) -> Variable:
    """ln(sum of e^x) over `axis` (an int, several, or None for all), safe against overflow."""
    x = as_variable(x)
    return LogSumExp(checked_axis(axis, x.ndim), keepdims)(x)
