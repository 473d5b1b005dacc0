"""Batch normalisation over the batch and all spatial positions of each channel, with its variants as a rule.

The original programs disagree on where epsilon stands, on the divisor of the variance, and Darknet even on both
between its forward and its backward pass. A BatchNormRule holds these choices; no kernel knows a dialect.
Arrays x, y and their gradients are (batch, channels, *spatial); everything per channel is (channels,).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from undertow.errors import ShapeError
from undertow.kernels.reference.darknet_blas import Epsilon, deviation, filter_sums, mean, variance

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Scaling:
    """What a centred value is divided by.

    placement: "inside" sqrt(variance + epsilon), "outside" sqrt(variance) + epsilon.
    divisor: what the sum of squares is divided by, the number N of values per channel or N - 1.
    """

    epsilon: float = 1e-5
    placement: Epsilon = "inside"
    divisor: Literal["N", "N-1"] = "N"


@dataclass(frozen=True)
class BatchNormRule:
    """forward: the scaling of the forward pass. backward: the one whose derivative is taken; None: the same.

    None gives the true derivative whatever the forward scaling is.
    """

    forward: Scaling = Scaling()
    backward: Scaling | None = None


EXACT = BatchNormRule()
DARKNET_CPU = BatchNormRule(Scaling(1e-6, "outside", "N-1"), Scaling(1e-5, "inside", "N"))


class BatchNormForward(NamedTuple):
    """y, and what the backward pass and the running statistics need."""

    y: Array
    x_hat: Array
    mean: Array
    variance: Array


class BatchNormGradients(NamedTuple):
    """The gradients with respect to x, gamma and beta."""

    gx: Array
    ggamma: Array
    gbeta: Array


def batch_norm(x: Array, gamma: Array, beta: Array, rule: BatchNormRule = EXACT) -> BatchNormForward:
    """y = gamma * x_hat + beta with x_hat = (x - mean) / s, statistics from this batch.

    s = sqrt(variance + epsilon) or sqrt(variance) + epsilon; variance = sum((x - mean)^2) / (N or N - 1).
    Returns (y, x_hat, mean, variance). ShapeError where shapes do not fit, for N = 0, and for N - 1 = 0.
    """
    _check(x, gamma, beta)
    if not x.size:
        raise ShapeError(
            f"batch norm takes its statistics from the batch, and there is no value in an input of {x.shape}",
            remedy="leave out empty batches, or use test_mode, which takes running statistics",
        )
    centre = mean(x)
    spread = variance(x, centre, rule.forward.divisor)
    x_hat = _normalized(x, centre, spread, rule.forward)
    return BatchNormForward(_scaled(x_hat, gamma, beta), x_hat, centre, spread)


def batch_norm_backward(
    gy: Array, x_hat: Array, gamma: Array, variance: Array, rule: BatchNormRule = EXACT
) -> BatchNormGradients:
    """The gradients of `batch_norm` from what it saved.

    With c = x - mean = x_hat * s_forward, s and divisor D of the backward scaling:
        gbeta = sum(gy), ggamma = sum(gy * x_hat)
        gvariance = -sum(gy * gamma * c) / s^2 * ds/dvariance,  gmean = -sum(gy * gamma) / s
        gx = gy * gamma / s + gvariance * 2 c / D + gmean / N
    where ds/dvariance = 1 / (2 sqrt(variance + epsilon)), or 1 / (2 sqrt(variance)) with epsilon outside (taken
    as 0 where the variance is 0, since c is 0 there). Darknet's mean_delta, variance_delta and normalize_delta
    are the case of epsilon 1e-5 inside and D = N.
    """
    _check(gy, gamma, variance)
    scaling = rule.backward or rule.forward
    count = gy.size // gy.shape[1]
    divisor = count - (scaling.divisor == "N-1")
    s = deviation(variance, scaling.epsilon, scaling.placement)
    forward_s = deviation(variance, rule.forward.epsilon, rule.forward.placement)
    gbeta, ggamma = filter_sums(gy), filter_sums(gy * x_hat)
    gvariance = -ggamma * gamma * forward_s / (s * s) * _slope(variance, scaling)
    gmean = -gbeta * gamma / s
    gx = gy * _spread(gamma / s, gy)
    gx += x_hat * _spread(gvariance * 2 * forward_s / divisor, gy)
    gx += _spread(gmean / count, gy)
    return BatchNormGradients(gx, ggamma, gbeta)


def batch_norm_inference(
    x: Array, gamma: Array, beta: Array, mean: Array, variance: Array, rule: BatchNormRule = EXACT
) -> Array:
    """y = gamma * (x - mean) / s + beta with given (running) statistics."""
    _check(x, gamma, beta, mean, variance)
    return _scaled(_normalized(x, mean, variance, rule.forward), gamma, beta)


def batch_norm_inference_backward(
    gy: Array, x: Array, gamma: Array, mean: Array, variance: Array, rule: BatchNormRule = EXACT
) -> BatchNormGradients:
    """The gradients of `batch_norm_inference`, the statistics being constants: gx = gy * gamma / s."""
    _check(gy, gamma, mean, variance)
    s = deviation(variance, rule.forward.epsilon, rule.forward.placement)
    x_hat = _normalized(x, mean, variance, rule.forward)
    return BatchNormGradients(gy * _spread(gamma / s, gy), filter_sums(gy * x_hat), filter_sums(gy))


def _normalized(x: Array, mean: Array, variance: Array, scaling: Scaling) -> Array:
    x_hat = x - _spread(mean, x)
    x_hat /= _spread(deviation(variance, scaling.epsilon, scaling.placement), x)
    return x_hat


def _scaled(x_hat: Array, gamma: Array, beta: Array) -> Array:
    y = x_hat * _spread(gamma, x_hat)
    y += _spread(beta, x_hat)
    return y


def _slope(variance: Array, scaling: Scaling) -> Array:
    """ds/dvariance."""
    if scaling.placement == "inside":
        return 0.5 / np.sqrt(variance + scaling.epsilon)
    root = np.sqrt(variance)
    return np.divide(0.5, root, out=np.zeros_like(root), where=root > 0)


def _spread(per_channel: Array, x: Array) -> Array:
    """(channels,) in a shape that broadcasts over (batch, channels, *spatial), in x's type."""
    return per_channel.astype(x.dtype, copy=False).reshape(-1, *(1,) * (x.ndim - 2))


def _check(x: Array, *per_channel: Array) -> None:
    if x.ndim < 2 or any(a.shape != (x.shape[1],) for a in per_channel):
        raise ShapeError(
            f"batch norm needs (batch, channels, ...) and one value per channel, got {x.shape} and "
            f"{[a.shape for a in per_channel]}"
        )
