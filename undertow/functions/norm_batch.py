"""Batch normalisation: every channel brought to mean 0 and deviation 1, then scaled and shifted.

The programs that train with it differ in where epsilon stands, in what the variance is divided by, and Darknet
also in its way back; a BatchNormRule says which is meant (see `undertow.kernels.reference.batchnorm`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from undertow.core.function import Function
from undertow.core.registry import Sample, register
from undertow.core.variable import Operand, Variable, as_variable
from undertow.errors import ShapeError
from undertow.functions.elementary import sqrt
from undertow.kernels import select
from undertow.kernels.reference.batchnorm import EXACT, BatchNormRule, Scaling

__all__ = ["BatchNorm", "BatchNormRule", "RunningStatistics", "Scaling", "batch_norm", "fixed_batch_norm"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class RunningStatistics:
    """Running mean and variance, (channels,) each, which every batch moves: running += momentum (batch - running).

    momentum: share of the new batch. divisor: of the variance that goes in (N-1: PyTorch, Caffe, Darknet).
    """

    mean: Array
    variance: Array
    momentum: float
    divisor: Literal["N", "N-1"] = "N-1"

    def take(self, mean: Array, variance: Array, count: int, divisor: Literal["N", "N-1"]) -> None:
        """Move, in place, by one batch of `count` values per channel whose variance was divided by `divisor`."""
        divisors = {"N": count, "N-1": max(count - 1, 1)}
        corrected = variance * (divisors[divisor] / divisors[self.divisor])
        for running, batch in ((self.mean, mean), (self.variance, corrected)):
            running *= 1 - self.momentum
            running += self.momentum * batch


def _samples(rng: np.random.Generator) -> list[Sample]:
    def arrays(shape: tuple[int, ...]) -> tuple[Array, Array, Array]:
        return rng.standard_normal(shape) * 2 + 1, rng.uniform(0.5, 2, shape[1]), rng.standard_normal(shape[1])

    def sample(shape: tuple[int, ...], note: str, *scaling: Any) -> Sample:
        rule = BatchNormRule(Scaling(*scaling))
        return Sample(
            arrays(shape),
            lambda x, gamma, beta: batch_norm(x, gamma, beta, rule),
            lambda *args: _expected(rule, *args),
            note,
        )

    def fixed(shape: tuple[int, ...], note: str, *scaling: Any) -> Sample:
        rule = BatchNormRule(Scaling(*scaling))
        mean, variance = rng.standard_normal(shape[1]), rng.uniform(0.5, 2, shape[1])

        def call(x: Variable, gamma: Variable, beta: Variable) -> Variable:
            return fixed_batch_norm(x, gamma, beta, mean.astype(x.dtype), variance.astype(x.dtype), rule)

        return Sample(arrays(shape), call, lambda *args: _expected(rule, *args, mean, variance), note)

    return [
        sample((2, 3, 3, 2), "images"),
        sample((3, 1, 2, 2), "one channel"),
        sample((5, 4), "vectors"),
        sample((2, 2, 2, 2, 2), "volumes"),
        sample((2, 3, 3, 2), "Darknet's forward", 1e-6, "outside", "N-1"),
        sample((3, 2, 2), "divisor N-1, epsilon inside", 1e-3, "inside", "N-1"),
        fixed((2, 3, 2, 2), "given statistics"),
        fixed((3, 2), "given statistics, epsilon outside", 1e-6, "outside"),
    ]


def _expected(rule: BatchNormRule, x: Array, gamma: Array, beta: Array, *given: Array) -> Array:
    """Channel by channel, with NumPy's own mean and variance."""
    y = np.empty_like(x)
    scaling = rule.forward
    for c in range(x.shape[1]):
        mean, variance = x[:, c].mean(), x[:, c].var(ddof=int(scaling.divisor == "N-1"))
        if given:
            mean, variance = given[0][c], given[1][c]
        inside = scaling.placement == "inside"
        s = np.sqrt(variance + scaling.epsilon) if inside else np.sqrt(variance) + scaling.epsilon
        y[:, c] = gamma[c] * (x[:, c] - mean) / s + beta[c]
    return y


@register(
    "batch_norm",
    gradient="twice",
    forward="y = gamma (x - mean) / s + beta per channel, s = sqrt(variance + eps) or sqrt(variance) + eps",
    backward="gx = gamma/s (gy - sum(gy)/n - (x - mean) sum(gy (x - mean)) / (d s q)), d = n or n-1, q = sqrt(variance "
    "(+ eps)); ggamma = sum(gy (x - mean)) / s, gbeta = sum(gy); with given statistics gx = gamma/s gy",
    samples=_samples,
)
class BatchNorm(Function):
    """`batch_norm`, or `fixed_batch_norm` when mean and variance are given.

    After the call: mean, variance (with the divisor of the forward pass), both (channels,), and count, the number
    of values per channel. A rule whose backward is another scaling than its forward can be differentiated once.
    Kink: with epsilon outside the root, at a channel whose values are all equal.
    """

    def __init__(
        self,
        rule: BatchNormRule = EXACT,
        mean: Array | None = None,
        variance: Array | None = None,
        running: RunningStatistics | None = None,
    ) -> None:
        self.rule, self.running = rule, running
        self.given = mean is not None
        self.mean: Any = mean
        self.variance: Any = variance
        self.count = 0
        self._x_hat: Any = None

    def forward(self, x: Array, gamma: Array, beta: Array) -> Array:
        if x.ndim < 2:
            raise ShapeError(f"batch_norm needs an input (batch, channels, *spatial), got {x.shape}")
        self.count = x.size // x.shape[1]
        if self.given:
            return select.batch_norm_inference(x, gamma, beta, self.mean, self.variance, self.rule)
        y, self._x_hat, self.mean, self.variance = select.batch_norm(x, gamma, beta, self.rule)
        if self.running is not None:
            self.running.take(self.mean, self.variance, self.count, self.rule.forward.divisor)
        return y

    def backward(self, gy: Array) -> tuple[Array, Array, Array]:
        x, gamma = self.inputs[0].data, self.inputs[1].data
        if not self.given:
            return select.batch_norm_backward(gy, self._x_hat, gamma, self.variance, self.rule)
        if self.rule.backward is None:
            return select.batch_norm_inference_backward(gy, x, gamma, self.mean, self.variance, self.rule)
        one, zero = np.ones_like(self.mean), np.zeros_like(self.mean)
        x_hat = select.batch_norm_inference(x, one, zero, self.mean, self.variance, self.rule)
        return select.batch_norm_backward(gy, x_hat, gamma, self.variance, self.rule)

    def backward_graph(self, gy: Variable) -> tuple[Variable, Variable, Variable]:
        if self.rule.backward is not None:
            super().backward_graph(gy)
        x, gamma = self.inputs[:2]
        axes = (0, *range(2, x.ndim))
        per_channel = (1, -1) + (1,) * (x.ndim - 2)
        if self.given:
            s = as_variable(_deviation(self.variance.reshape(per_channel), self.rule.forward)[0])
            centred = x - self.mean.reshape(per_channel)
            return gy * gamma.reshape(per_channel) / s, (gy * centred / s).sum(axes), gy.sum(axes)
        divisor = self.count - (self.rule.forward.divisor == "N-1")
        centred = x - x.mean(axes, keepdims=True)
        s, root = _deviation((centred * centred).sum(axes, keepdims=True) / divisor, self.rule.forward)
        scaled = gy * gamma.reshape(per_channel) / s
        slope = (scaled * centred).sum(axes, keepdims=True) / (s * root * divisor)
        gx = scaled - scaled.mean(axes, keepdims=True) - centred * slope
        return gx, (gy * centred / s).sum(axes), gy.sum(axes)


def _deviation(variance: Any, scaling: Scaling) -> tuple[Any, Any]:
    """What centred values are divided by, and the root in it, of an array or a Variable."""
    if scaling.placement == "outside":
        root = sqrt(variance)
        return root + scaling.epsilon, root
    root = sqrt(variance + scaling.epsilon)
    return root, root


def batch_norm(
    x: Operand,
    gamma: Operand | None = None,
    beta: Operand | None = None,
    rule: BatchNormRule = EXACT,
    running: RunningStatistics | None = None,
) -> Variable:
    """Normalise every channel with the statistics of this batch, as in training.

    x: (batch, channels, *spatial). gamma, beta: (channels,), the scale (1 when None) and the shift (0 when None).
    rule: where epsilon stands, the divisor of the variance, and whether the way back is the true derivative.

    running: statistics that this batch moves, kept by a layer.

    Returns an array of x's shape. ShapeError where shapes do not fit, or one value per channel meets divisor N-1.
    Source: Ioffe and Szegedy 2015.
    """
    x = as_variable(x)
    return BatchNorm(rule, running=running)(x, *_affine(x, gamma, beta))


def fixed_batch_norm(
    x: Operand,
    gamma: Operand | None,
    beta: Operand | None,
    mean: Array,
    variance: Array,
    rule: BatchNormRule = EXACT,
) -> Variable:
    """Normalise every channel with given statistics, as at inference; they are constants.

    x: (batch, channels, *spatial). gamma, beta, mean, variance: (channels,). Where the rule has a backward scaling
    of its own, the gradient is what Darknet computes outside training: the formula for batch statistics, fed with
    the given ones.
    """
    x = as_variable(x)
    return BatchNorm(rule, mean, variance)(x, *_affine(x, gamma, beta))


def _affine(x: Variable, gamma: Operand | None, beta: Operand | None) -> tuple[Operand, Operand]:
    channels = x.shape[1:2]
    return (
        np.ones(channels, x.dtype) if gamma is None else gamma,
        np.zeros(channels, x.dtype) if beta is None else beta,
    )
