"""The array kernels of Darknet under their C names (blas.c, convolutional_layer.c, batchnorm_layer.c).

The names, the order of the arguments and what is written in place follow the C sources; sizes that an array
knows itself are not passed. "Image-like" arrays are (batch, filters, *spatial): (batch, filters) as well as
(batch, filters, height, width); per-filter arrays are (filters,). Whatever is written in place must be
C-contiguous. ShapeError where sizes do not fit.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from undertow.errors import ShapeError

Array = np.ndarray[Any, Any]
Epsilon = Literal["inside", "outside"]


def fill(n: int, alpha: float, x: Array, incx: int = 1) -> None:
    """x[i*incx] = alpha for i < n, in place."""
    _strided(n, x, incx, "x")[...] = alpha


def copy(n: int, x: Array, incx: int, y: Array, incy: int) -> None:
    """y[i*incy] = x[i*incx] for i < n, in place in y."""
    _strided(n, y, incy, "y")[...] = _strided(n, x, incx, "x")


def axpy(n: int, alpha: float, x: Array, incx: int, y: Array, incy: int) -> None:
    """y[i*incy] += alpha * x[i*incx] for i < n, in place in y."""
    target = _strided(n, y, incy, "y")
    target += alpha * _strided(n, x, incx, "x")


def scal(n: int, alpha: float, x: Array, incx: int = 1) -> None:
    """x[i*incx] *= alpha for i < n, in place."""
    target = _strided(n, x, incx, "x")
    target *= alpha


def add_bias(output: Array, biases: Array) -> None:
    """output[b, i, j] += biases[i], in place."""
    view = _per_filter(output, biases)
    view += biases[:, None]


def scale_bias(output: Array, scales: Array) -> None:
    """output[b, i, j] *= scales[i], in place."""
    view = _per_filter(output, scales)
    view *= scales[:, None]


def backward_bias(bias_updates: Array, delta: Array) -> None:
    """bias_updates[i] += sum over b, j of delta[b, i, j], in place in bias_updates."""
    bias_updates += filter_sums(_per_filter(delta, bias_updates))


def backward_scale(x_norm: Array, delta: Array, scale_updates: Array) -> None:
    """scale_updates[i] += sum over b, j of delta[b, i, j] * x_norm[b, i, j], in place in scale_updates."""
    scale_updates += filter_sums(_per_filter(delta, scale_updates) * _per_filter(x_norm, scale_updates))


def mean(x: Array) -> Array:
    """mean[i] = (1/N) * sum over b, j of x[b, i, j], with N = batch * spatial. Returns (filters,)."""
    return filter_sums(x) / _values_per_filter(x)


def variance(x: Array, mean: Array, divisor: Literal["N-1", "N"] = "N-1") -> Array:
    """variance[i] = sum over b, j of (x[b, i, j] - mean[i])^2 / divisor. Returns (filters,).

    Darknet divides by N - 1 in its forward pass (and by N in its backward). ShapeError for N - 1 = 0, where
    the C program goes on with NaN.
    """
    count = _values_per_filter(x) - (divisor == "N-1")
    if count < 1:
        raise ShapeError(
            f"the variance with divisor {divisor} of one value per filter is undefined",
            remedy="use a larger batch, or a batch norm that divides by N",
        )
    centred = _per_filter(x, mean) - mean[:, None]
    return filter_sums(centred * centred) / count


def normalize(x: Array, mean: Array, variance: Array, epsilon: float = 1e-6, placement: Epsilon = "outside") -> None:
    """x[b, i, j] = (x[b, i, j] - mean[i]) / s[i], in place.

    s = sqrt(variance) + epsilon with placement "outside" (Darknet on the CPU, 1e-6), or
    sqrt(variance + epsilon) with "inside" (its GPU code, 1e-5, and everybody else).
    """
    view = _per_filter(x, mean)
    view -= mean[:, None]
    view /= deviation(variance, epsilon, placement)[:, None]


def mean_delta(delta: Array, variance: Array, epsilon: float = 1e-5) -> Array:
    """mean_delta[i] = -sum over b, j of delta[b, i, j] / sqrt(variance[i] + epsilon). Returns (filters,)."""
    return -filter_sums(_per_filter(delta, variance)) / np.sqrt(variance + epsilon)


def variance_delta(x: Array, delta: Array, mean: Array, variance: Array, epsilon: float = 1e-5) -> Array:
    """variance_delta[i] = -1/2 (variance[i] + epsilon)^(-3/2) * sum of delta[b, i, j] (x[b, i, j] - mean[i]).

    Returns (filters,).
    """
    centred = _per_filter(x, mean) - mean[:, None]
    return -0.5 * (variance + epsilon) ** -1.5 * filter_sums(_per_filter(delta, mean) * centred)


def normalize_delta(
    x: Array,
    mean: Array,
    variance: Array,
    mean_delta: Array,
    variance_delta: Array,
    delta: Array,
    epsilon: float = 1e-5,
) -> None:
    """delta = delta / sqrt(variance + epsilon) + variance_delta * 2 (x - mean) / N + mean_delta / N, in place."""
    count = _values_per_filter(x)
    centred = _per_filter(x, mean) - mean[:, None]
    view = _per_filter(delta, mean)
    view /= np.sqrt(variance + epsilon)[:, None]
    view += (2 * variance_delta / count)[:, None] * centred
    view += (mean_delta / count)[:, None]


def shortcut(add: Array, out: Array, s1: float = 1, s2: float = 1) -> None:
    """out[b, k, j*sample, i*sample] = s1 * itself + s2 * add[b, k, j*stride, i*stride], in place in out.

    add: (batch, c1, h1, w1), out: (batch, c2, h2, w2). Only the first min(c1, c2) channels and min(h1, h2) by
    min(w1, w2) positions take part; stride = w1/w2 and sample = w2/w1 (integer division, at least 1) thin out
    the larger of the two. ShapeError where the heights give another stride or sample than the widths, which
    ends the C program.
    """
    batch, c1, h1, w1 = add.shape
    batch_out, c2, h2, w2 = out.shape
    stride, sample = w1 // w2, w2 // w1
    if batch != batch_out or stride != h1 // h2 or sample != h2 // h1:
        raise ShapeError(
            f"a shortcut from {add.shape} to {out.shape} needs equal batches and the same integer ratio of "
            f"heights and widths"
        )
    stride, sample = max(stride, 1), max(sample, 1)
    c, h, w = min(c1, c2), min(h1, h2), min(w1, w2)
    target = out[:, :c, : (h - 1) * sample + 1 : sample, : (w - 1) * sample + 1 : sample]
    source = add[:, :c, : (h - 1) * stride + 1 : stride, : (w - 1) * stride + 1 : stride]
    target *= s1
    target += s2 * source


def deviation(variance: Array, epsilon: float, placement: Epsilon) -> Array:
    """sqrt(variance + epsilon) for "inside", sqrt(variance) + epsilon for "outside"."""
    if placement == "inside":
        return np.sqrt(variance + epsilon)
    return np.sqrt(variance) + epsilon


def filter_sums(x: Array) -> Array:
    """sum over b, j of x[b, i, j]: (filters,). Exact to a few units in the last place also in float32.

    NumPy sums contiguous rows pairwise; the few row sums are added in float64.
    """
    rows = x.reshape(x.shape[0], x.shape[1], -1).sum(axis=2)
    return rows.sum(axis=0, dtype=np.float64).astype(x.dtype)


def _values_per_filter(x: Array) -> int:
    return x.size // x.shape[1]


def _per_filter(x: Array, filters: Array) -> Array:
    """x as (batch, filters, spatial), a view where x is contiguous; ShapeError where filters do not fit."""
    if x.ndim < 2 or filters.shape != (x.shape[1],):
        raise ShapeError(f"an array of shape {x.shape} has no {filters.shape} filters")
    return x.reshape(x.shape[0], x.shape[1], -1)


def _strided(n: int, x: Array, increment: int, name: str) -> Array:
    """The view x[0], x[increment], ... of n elements of a contiguous array."""
    if increment < 1:
        raise ShapeError(f"the increment of {name} must be at least 1, got {increment}")
    if not x.flags.c_contiguous:
        raise ShapeError(f"{name} is not C-contiguous", remedy="pass np.ascontiguousarray of it")
    needed = (n - 1) * increment + 1 if n > 0 else 0
    if x.size < needed:
        raise ShapeError(f"{name} has {x.size} elements; {n} with increment {increment} need {needed}")
    return x.reshape(-1)[:needed:increment]
