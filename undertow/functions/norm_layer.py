"""Layer, group and instance normalisation: each sample, or each group of its channels, by itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from undertow.core.function import Function
from undertow.core.registry import Sample, register
from undertow.core.variable import Operand, Variable, as_variable
from undertow.errors import ShapeError
from undertow.functions.elementary import sqrt
from undertow.functions.norm_batch import BatchNormRule, Scaling, batch_norm
from undertow.kernels import select

__all__ = ["LayerNorm", "group_norm", "instance_norm", "layer_norm"]

Array = np.ndarray[Any, Any]


def _samples(rng: np.random.Generator) -> list[Sample]:
    def by_hand(x: Array, gamma: Array, beta: Array) -> Array:
        rows = x.reshape(-1, gamma.size)
        y = [(row - row.mean()) / np.sqrt(row.var() + 1e-5) for row in rows]
        return np.stack(y).reshape(x.shape) * gamma + beta

    def sample(shape: tuple[int, ...], normalized: tuple[int, ...], note: str) -> Sample:
        arrays = (rng.standard_normal(shape) * 2 + 1, rng.uniform(0.5, 2, normalized), rng.standard_normal(normalized))
        return Sample(arrays, lambda x, gamma, beta: layer_norm(x, gamma, beta), by_hand, note)

    return [
        sample((3, 5), (5,), "vectors"),
        sample((2, 3, 4), (4,), "sequences"),
        sample((2, 3, 2, 2), (3, 2, 2), "whole images"),
        sample((4,), (4,), "no batch"),
    ]


@register(
    "layer_norm",
    gradient="twice",
    forward="y = gamma (x - mean) / s + beta, s = sqrt(variance + eps), over the dimensions gamma has",
    backward="gx = (g - mean(g) - x_hat mean(g x_hat)) / s with g = gamma gy, x_hat = (x - mean) / s; "
    "ggamma = sum of gy x_hat, gbeta = sum of gy over the leading dimensions",
    samples=_samples,
)
class LayerNorm(Function):
    """`layer_norm` with a given epsilon."""

    def __init__(self, eps: float = 1e-5) -> None:
        self.eps = eps

    def forward(self, x: Array, gamma: Array, beta: Array) -> Array:
        y, self._x_hat, self._deviation = select.layer_norm(x, gamma, beta, self.eps)
        return y

    def backward(self, gy: Array) -> tuple[Array, Array, Array]:
        return select.layer_norm_backward(gy, self._x_hat, self._deviation, self.inputs[1].data)

    def backward_graph(self, gy: Variable) -> tuple[Variable, Variable, Variable]:
        x, gamma = self.inputs[:2]
        own, leading = tuple(range(x.ndim - gamma.ndim, x.ndim)), tuple(range(x.ndim - gamma.ndim))
        centred = x - x.mean(own, keepdims=True)
        s = sqrt((centred * centred).mean(own, keepdims=True) + self.eps)
        x_hat = centred / s
        g = gy * gamma
        gx = (g - g.mean(own, keepdims=True) - x_hat * (g * x_hat).mean(own, keepdims=True)) / s
        return gx, (gy * x_hat).sum(leading), gy.sum(leading)


def layer_norm(
    x: Operand,
    gamma: Operand | None = None,
    beta: Operand | None = None,
    shape: tuple[int, ...] | None = None,
    eps: float = 1e-5,
) -> Variable:
    """Bring the trailing dimensions of each sample to mean 0 and deviation 1, then scale and shift.

    x: (..., *shape). gamma, beta: arrays of that shape, 1 and 0 when None. shape: the trailing dimensions that are
    normalised together, taken from gamma or beta when None, else the last dimension.
    Returns an array of x's shape; ShapeError where shapes do not fit. Source: Ba, Kiros and Hinton 2016.
    """
    x = as_variable(x)
    if shape is None:
        given = next((as_variable(p).shape for p in (gamma, beta) if p is not None), x.shape[-1:])
        shape = given
    return LayerNorm(eps)(
        x,
        np.ones(shape, x.dtype) if gamma is None else gamma,
        np.zeros(shape, x.dtype) if beta is None else beta,
    )


def group_norm(
    x: Operand, groups: int, gamma: Operand | None = None, beta: Operand | None = None, eps: float = 1e-5
) -> Variable:
    """Bring each group of neighbouring channels of each sample to mean 0 and deviation 1, then scale and shift.

    x: (batch, channels, *spatial); groups divides channels. gamma, beta: (channels,), 1 and 0 when None.
    Returns an array of x's shape; ShapeError where shapes do not fit. Source: Wu and He 2018.
    """
    x = as_variable(x)
    if x.ndim < 2 or groups < 1 or x.shape[1] % groups:
        raise ShapeError(
            f"group_norm needs an input (batch, channels, *spatial) and a number of groups that divides the channels, "
            f"got {x.shape} and {groups}"
        )
    # A batch norm in which every group of every sample is a channel of its own.
    y = batch_norm(x.reshape(1, x.shape[0] * groups, -1), rule=BatchNormRule(Scaling(eps))).reshape(x.shape)
    if gamma is not None:
        y = y * _per_channel(gamma, x)
    return y if beta is None else y + _per_channel(beta, x)


def instance_norm(x: Operand, gamma: Operand | None = None, beta: Operand | None = None, eps: float = 1e-5) -> Variable:
    """`group_norm` with every channel a group. Source: Ulyanov, Vedaldi and Lempitsky 2016."""
    x = as_variable(x)
    return group_norm(x, x.shape[1] if x.ndim > 1 else 1, gamma, beta, eps)


def _per_channel(parameter: Operand, x: Variable) -> Variable:
    """In a shape that broadcasts over x; ShapeError unless there is one for each channel."""
    parameter = as_variable(parameter)
    if parameter.shape != x.shape[1:2]:
        raise ShapeError(f"{x.shape[1]} channels need as many scales and shifts, got {parameter.shape}")
    return parameter.reshape(-1, *(1,) * (x.ndim - 2))
