"""Batch normalisation on float32 arrays (batch, channels) or (batch, channels, height, width).

Sums are float32 within 256 values and float64 across them; the variance is summed from differences to a value
near the mean, so a large mean costs no digits.
"""

from __future__ import annotations

import numpy as np

from undertow.errors import ShapeError
from undertow.kernels.cpu.memory import as_nhwc, empty_nhwc, view
from undertow.kernels.cpu.raw import batchnorm as raw
from undertow.kernels.cpu.raw.parts import SLOTS
from undertow.kernels.cpu.raw.tensor import scratch
from undertow.kernels.reference.batchnorm import (
    EXACT,
    BatchNormForward,
    BatchNormGradients,
    BatchNormRule,
    Scaling,
)
from undertow.kernels.reference.darknet_blas import deviation

Array = np.ndarray


def batch_norm(x: Array, gamma: Array, beta: Array, rule: BatchNormRule = EXACT) -> BatchNormForward:
    """`reference.batch_norm`."""
    _check(x, gamma, beta)
    image = as_nhwc(_image(x))
    pixels, channels = image.size // image.shape[1], image.shape[1]
    divisor = _divisor(pixels, rule.forward)
    centre = np.empty(channels, np.float32)
    raw.pivot(view(image), _at(centre))
    sums = np.zeros((SLOTS, 2, channels))
    raw.statistics(view(image), _at(centre), sums.ctypes.data, scratch())
    first, second = sums.sum(axis=0)
    mean = centre + first / pixels
    variance = np.maximum(second - first * (first / pixels), 0) / divisor
    inverse = 1 / deviation(variance, rule.forward.epsilon, rule.forward.placement)
    hat, y = empty_nhwc(*image.shape), empty_nhwc(*image.shape)
    mean, variance, inverse, gamma, beta = (_floats(a) for a in (mean, variance, inverse, gamma, beta))
    raw.normalize(view(image), view(hat), view(y), _at(mean), _at(inverse), _at(gamma), _at(beta))
    return BatchNormForward(y.reshape(x.shape), hat.reshape(x.shape), mean, variance)


def batch_norm_backward(
    gy: Array, x_hat: Array, gamma: Array, variance: Array, rule: BatchNormRule = EXACT
) -> BatchNormGradients:
    """`reference.batch_norm_backward`."""
    _check(gy, gamma, variance)
    if x_hat.shape != gy.shape:
        raise ShapeError(f"x_hat {x_hat.shape} and the gradient {gy.shape} of a batch norm differ in shape")
    scaling = rule.backward or rule.forward
    image, hat = as_nhwc(_image(gy)), as_nhwc(_image(x_hat))
    pixels, channels = image.size // image.shape[1], image.shape[1]
    divisor = _divisor(pixels, scaling)
    gbeta, ggamma = _sums(image, hat, np.ones(channels), np.zeros(channels))
    spread, weight = variance.astype(np.float64), gamma.astype(np.float64)
    s = deviation(spread, scaling.epsilon, scaling.placement)
    forward_s = deviation(spread, rule.forward.epsilon, rule.forward.placement)
    gvariance = -ggamma * weight * forward_s / (s * s) * _slope(spread, scaling)
    c1, c2, c3 = (_floats(a) for a in (weight / s, gvariance * 2 * forward_s / divisor, -gbeta * weight / s / pixels))
    gx = empty_nhwc(*image.shape)
    raw.backward(view(image), view(hat), view(gx), _at(c1), _at(c2), _at(c3))
    return BatchNormGradients(gx.reshape(gy.shape), _floats(ggamma), _floats(gbeta))


def batch_norm_inference(
    x: Array, gamma: Array, beta: Array, mean: Array, variance: Array, rule: BatchNormRule = EXACT
) -> Array:
    """`reference.batch_norm_inference`."""
    _check(x, gamma, beta, mean, variance)
    image = as_nhwc(_image(x))
    s = deviation(variance.astype(np.float64), rule.forward.epsilon, rule.forward.placement)
    scale, shift = _floats(gamma / s), _floats(beta - mean * (gamma / s))
    y = empty_nhwc(*image.shape)
    raw.affine(view(image), view(y), _at(scale), _at(shift))
    return y.reshape(x.shape)


def batch_norm_inference_backward(
    gy: Array, x: Array, gamma: Array, mean: Array, variance: Array, rule: BatchNormRule = EXACT
) -> BatchNormGradients:
    """`reference.batch_norm_inference_backward`."""
    _check(gy, gamma, mean, variance)
    if x.shape != gy.shape:
        raise ShapeError(f"the input {x.shape} and the gradient {gy.shape} of a batch norm differ in shape")
    grad, image = as_nhwc(_image(gy)), as_nhwc(_image(x))
    s = deviation(variance.astype(np.float64), rule.forward.epsilon, rule.forward.placement)
    gbeta, ggamma = _sums(grad, image, 1 / s, -mean / s)
    scale, zero = _floats(gamma / s), np.zeros(gamma.size, np.float32)
    gx = empty_nhwc(*grad.shape)
    raw.affine(view(grad), view(gx), _at(scale), _at(zero))
    return BatchNormGradients(gx.reshape(gy.shape), _floats(ggamma), _floats(gbeta))


def _sums(gy: Array, u: Array, k1: Array, k0: Array) -> Array:
    """float64 (2, C): sum of gy, sum of gy * (u * k1 + k0)."""
    k1, k0 = _floats(k1), _floats(k0)
    sums = np.zeros((SLOTS, 2, gy.shape[1]))
    raw.backward_sums(view(gy), view(u), _at(k1), _at(k0), sums.ctypes.data, scratch())
    return np.asarray(sums.sum(axis=0))


def _divisor(pixels: int, scaling: Scaling) -> int:
    divisor = pixels - (scaling.divisor == "N-1")
    if divisor < 1:
        raise ShapeError("a variance over N - 1 needs at least two values per channel")
    return divisor


def _slope(variance: Array, scaling: Scaling) -> Array:
    """ds/dvariance; 0 for epsilon outside the root and variance 0."""
    if scaling.placement == "inside":
        return np.asarray(0.5 / np.sqrt(variance + scaling.epsilon))
    root = np.sqrt(variance)
    return np.divide(0.5, root, out=np.zeros_like(root), where=root > 0)


def _image(x: Array) -> Array:
    """x with four dimensions."""
    return x if x.ndim == 4 else x[:, :, None, None]


def _floats(a: Array) -> Array:
    return np.ascontiguousarray(a, dtype=np.float32)


def _at(a: Array) -> int:
    return int(a.ctypes.data)


def _check(x: Array, *per_channel: Array) -> None:
    if x.ndim not in (2, 4) or any(a.shape != (x.shape[1],) for a in per_channel):
        raise ShapeError(
            f"batch norm needs (batch, channels, ...) and one value per channel, got {x.shape} and "
            f"{[a.shape for a in per_channel]}"
        )
