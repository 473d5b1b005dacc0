"""Layer normalisation: each sample over its trailing dimensions."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from undertow.errors import ShapeError

Array = np.ndarray[Any, Any]


class LayerNormForward(NamedTuple):
    """y, and what the backward pass needs: x_hat of x's shape, deviation (*leading, 1, ...)."""

    y: Array
    x_hat: Array
    deviation: Array


class LayerNormGradients(NamedTuple):
    """The gradients with respect to x, gamma and beta."""

    gx: Array
    ggamma: Array
    gbeta: Array


def layer_norm(x: Array, gamma: Array, beta: Array, epsilon: float = 1e-5) -> LayerNormForward:
    """y = gamma * x_hat + beta, x_hat = (x - mean) / sqrt(variance + epsilon), variance with 1/N.

    gamma and beta have the shape of x's trailing dimensions; mean and variance are taken over these.
    """
    if not gamma.ndim or gamma.shape != x.shape[-gamma.ndim :] or beta.shape != gamma.shape:
        raise ShapeError(
            f"layer norm needs gamma and beta of the trailing dimensions of {x.shape}, "
            f"got {gamma.shape} and {beta.shape}"
        )
    axes = _trailing(gamma)
    centred = x - x.mean(axis=axes, keepdims=True)
    deviation = np.sqrt(np.mean(centred * centred, axis=axes, keepdims=True) + epsilon)
    x_hat = centred / deviation
    return LayerNormForward(x_hat * gamma + beta, x_hat, deviation)


def layer_norm_backward(gy: Array, x_hat: Array, deviation: Array, gamma: Array) -> LayerNormGradients:
    """gx = (g - mean(g) - x_hat * mean(g * x_hat)) / deviation with g = gy * gamma.

    gbeta = sum of gy and ggamma = sum of gy * x_hat over the leading dimensions.
    """
    axes = _trailing(gamma)
    g = gy * gamma
    gx = g - g.mean(axis=axes, keepdims=True) - x_hat * np.mean(g * x_hat, axis=axes, keepdims=True)
    gx /= deviation
    rows = (math.prod(gy.shape[: gy.ndim - gamma.ndim]), *gamma.shape)
    ggamma = (gy * x_hat).reshape(rows).sum(axis=0)
    return LayerNormGradients(gx, ggamma, gy.reshape(rows).sum(axis=0))


def _trailing(gamma: Array) -> tuple[int, ...]:
    return tuple(range(-gamma.ndim, 0))
