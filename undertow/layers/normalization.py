"""Layers that normalise: BatchNorm, LayerNorm, GroupNorm, LRN."""

from __future__ import annotations

import numpy as np

from undertow import functions as F
from undertow.core import Parameter, Variable, as_variable, is_training
from undertow.core.variable import Operand
from undertow.functions.norm_batch import BatchNormRule, RunningStatistics, Scaling
from undertow.layers.module import Module


class BatchNorm(Module):
    """Every channel to mean 0 and deviation 1, then y = gamma x^ + beta.

    x: (batch, channels, *spatial); the same shape comes back. In training the statistics are the batch's, and the
    running ones move by running += momentum (batch - running), with the variance divided by N - 1; under
    `test_mode` the running ones are used.
    channels: taken from the first input when None. affine=False: without gamma and beta.
    rule: where eps stands and what divides the variance; Scaling(eps), inside the root and N, when None.
    """

    gamma: Parameter | None  # (channels,), starts at 1
    beta: Parameter | None  # (channels,), starts at 0
    running_mean: np.ndarray | None  # (channels,), starts at 0
    running_variance: np.ndarray | None  # (channels,), starts at 1

    def __init__(
        self,
        channels: int | None = None,
        *,
        momentum: float = 0.1,
        eps: float = 1e-5,
        affine: bool = True,
        rule: BatchNormRule | None = None,
    ) -> None:
        self.momentum = momentum
        self.rule = BatchNormRule(Scaling(eps)) if rule is None else rule
        self.gamma = Parameter(None) if affine else None
        self.beta = Parameter(None) if affine else None
        self.register_buffer("running_mean", None)
        self.register_buffer("running_variance", None)
        if channels is not None:
            self._make(channels)

    def _make(self, channels: int) -> None:
        if self.gamma is not None and self.beta is not None:
            self.gamma.data = np.ones(channels, self.dtype)
            self.beta.data = np.zeros(channels, self.dtype)
        self.running_mean = np.zeros(channels, self.dtype)
        self.running_variance = np.ones(channels, self.dtype)

    def forward(self, x: Operand) -> Variable:
        x = as_variable(x)
        if self.running_mean is None or self.running_variance is None:
            self._make(x.shape[1])
        assert self.running_mean is not None and self.running_variance is not None  # noqa: PT018
        if not is_training():
            return F.fixed_batch_norm(x, self.gamma, self.beta, self.running_mean, self.running_variance, self.rule)
        running = RunningStatistics(self.running_mean, self.running_variance, self.momentum)
        return F.batch_norm(x, self.gamma, self.beta, self.rule, running)


class LayerNorm(Module):
    """The trailing dimensions of each sample to mean 0 and deviation 1, then y = gamma x^ + beta.

    x: (..., *shape); the same shape comes back. shape: an int for the last axis alone.
    """

    gamma: Parameter  # shape, starts at 1
    beta: Parameter  # shape, starts at 0

    def __init__(self, shape: int | tuple[int, ...], *, eps: float = 1e-5) -> None:
        self.eps = eps
        self.gamma = Parameter(np.ones(shape, self.dtype))
        self.beta = Parameter(np.zeros(shape, self.dtype))

    def forward(self, x: Operand) -> Variable:
        return F.layer_norm(x, self.gamma, self.beta, eps=self.eps)


class GroupNorm(Module):
    """Each group of neighbouring channels of each sample to mean 0 and deviation 1, then y = gamma x^ + beta.

    x: (batch, channels, *spatial); the same shape comes back. groups: divides channels.
    """

    gamma: Parameter  # (channels,), starts at 1
    beta: Parameter  # (channels,), starts at 0

    def __init__(self, groups: int, channels: int, *, eps: float = 1e-5) -> None:
        self.groups, self.eps = groups, eps
        self.gamma = Parameter(np.ones(channels, self.dtype))
        self.beta = Parameter(np.zeros(channels, self.dtype))

    def forward(self, x: Operand) -> Variable:
        return F.group_norm(x, self.groups, self.gamma, self.beta, self.eps)

    def options(self) -> str:
        return f"{self.groups} groups"


class LRN(Module):
    """Local response normalisation; x: (batch, channels, height, width). Options: see `undertow.lrn`."""

    def __init__(
        self, size: int = 5, alpha: float = 1.0, beta: float = 0.75, k: float = 1.0, region: str = "across"
    ) -> None:
        self.size, self.alpha, self.beta, self.k, self.region = size, alpha, beta, k, region

    def forward(self, x: Operand) -> Variable:
        return F.lrn(x, self.size, self.alpha, self.beta, self.k, self.region)

    def options(self) -> str:
        return f"{self.size} {self.region}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
