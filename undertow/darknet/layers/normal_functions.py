"""Response normalisation and l2norm as Darknet computes them, with its gradients or the true ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from undertow.core.function import Function
from undertow.core.registry import Sample, register
from undertow.core.variable import Operand, Variable

Array = np.ndarray[Any, Any]


def lrn_window(channels: int, size: int) -> Array:
    """Which squares go into which sum, (channels, channels) of 0, 1 and -1; norms = kappa + alpha * window @ x^2.

    The original keeps a running sum that begins with channels 0..size/2-1: channel size/2 is never added, but
    taken away later (normalization_layer.c).
    """
    window = np.zeros((channels, channels), np.int64)
    window[0, : min(size // 2, channels)] = 1
    for k in range(1, channels):
        window[k] = window[k - 1]
        before, after = k - (size - 1) // 2 - 1, k + size // 2
        if before >= 0:
            window[k, before] -= 1
        if after < channels:
            window[k, after] += 1
    return window


def _lrn_samples(rng: np.random.Generator) -> list[Sample]:
    def by_hand(x: Array, size: int, alpha: float, beta: float, kappa: float) -> Array:
        """The loop of the C program."""
        squares, norms = x * x, np.full_like(x, kappa)
        for k in range(size // 2):
            norms[:, 0] += alpha * squares[:, k]
        for k in range(1, x.shape[1]):
            norms[:, k] = norms[:, k - 1]
            before, after = k - (size - 1) // 2 - 1, k + size // 2
            if before >= 0:
                norms[:, k] -= alpha * squares[:, before]
            if after < x.shape[1]:
                norms[:, k] += alpha * squares[:, after]
        return x * norms**-beta

    def sample(size: int, *numbers: float) -> Sample:
        arrays = (rng.uniform(-1, 1, (2, 7, 2, 3)),)
        call = lambda x: darknet_lrn(x, size, *numbers)  # noqa: E731
        return Sample(arrays, call, lambda x: by_hand(x, size, *numbers), note=f"size {size}")

    return [sample(5, 0.05, 0.75, 1.0), sample(4, 0.1, 0.6, 2.0), sample(1, 0.1, 0.5, 1.0)]


@register(
    "darknet_lrn",
    gradient="once",
    forward="y = x norms^-beta, norms = kappa + alpha W x^2 over channels, W the original's running window",
    backward="gx = gy norms^-beta - 2 alpha beta x W^T (gy x norms^(-beta-1)); approximate: gx = gy norms^-beta",
    samples=_lrn_samples,
)
class DarknetLrn(Function):
    """Local response normalisation of (batch, c, h, w). norms: of the last call. approximate: see `Dialect`."""

    def __init__(self, size: int, alpha: float, beta: float, kappa: float, approximate: bool = False) -> None:
        self.size, self.alpha, self.beta, self.kappa = size, alpha, beta, kappa
        self.approximate = approximate
        self.norms: Array

    def forward(self, x: Array) -> Array:
        self.window = lrn_window(x.shape[1], self.size).astype(x.dtype)
        squares = (x * x).reshape(*x.shape[:2], -1)
        self.norms = (self.kappa + self.alpha * (self.window @ squares)).reshape(x.shape).astype(x.dtype, copy=False)
        return x * self.norms**-self.beta

    def backward(self, gy: Array) -> Array:
        x = self.input.data
        gx = gy * self.norms**-self.beta
        if not self.approximate:
            owed = gy * x * self.norms ** (-self.beta - 1)
            owed = (self.window.T @ owed.reshape(*x.shape[:2], -1)).reshape(x.shape)
            gx -= 2 * self.alpha * self.beta * x * owed
        return gx


def darknet_lrn(x: Operand, size: int, alpha: float, beta: float, kappa: float) -> Variable:
    """Local response normalisation over `size` channels with Darknet's window; see `DarknetLrn`."""
    return DarknetLrn(size, alpha, beta, kappa)(x)


def _l2norm_samples(rng: np.random.Generator) -> list[Sample]:
    def by_hand(x: Array) -> Array:
        y = np.zeros_like(x)
        for i, p, q in np.ndindex(x.shape[0], *x.shape[2:]):
            y[i, :, p, q] = x[i, :, p, q] / np.linalg.norm(x[i, :, p, q])
        return y

    return [Sample((rng.standard_normal((2, 4, 3, 2)),), l2norm, by_hand)]


@register(
    "l2norm",
    gradient="once",
    forward="y = x / n, n = sqrt(sum of x^2 over channels)",
    backward="gx = (gy - y sum(gy y)) / n; identity: gx = gy",
    samples=_l2norm_samples,
)
class L2Norm(Function):
    """Each place of (batch, c, h, w) divided by the length of its channels; 0 where all are 0.

    lengths: n of the last call, (batch, 1, h, w). identity: see `Dialect.l2norm_identity`.
    """

    def __init__(self, identity: bool = False) -> None:
        self.identity = identity
        self.lengths: Array

    def forward(self, x: Array) -> Array:
        self.lengths = np.sqrt((x * x).sum(axis=1, keepdims=True))
        self._y = np.divide(x, self.lengths, out=np.zeros_like(x), where=self.lengths > 0)
        return self._y

    def backward(self, gy: Array) -> Array:
        if self.identity:
            return gy
        across = gy - self._y * (gy * self._y).sum(axis=1, keepdims=True)
        return np.divide(across, self.lengths, out=np.zeros_like(gy), where=self.lengths > 0)


def l2norm(x: Operand) -> Variable:
    """x, (batch, c, h, w), divided by the length of its channels at each place."""
    return L2Norm()(x)
