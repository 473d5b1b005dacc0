"""The per-channel arithmetic of batch norm between the passes over the pixels, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np

from undertow.kernels.reference.batchnorm import BatchNormRule, Scaling
from undertow.kernels.reference.darknet_blas import deviation

Array = np.ndarray

# From here on the variance is summed from differences to a value near the mean: E[y^2] - E[y]^2 has lost its digits.
_FAR = 1e3


class Norm:
    """A batch norm over `count` values of each of `channels` channels, and what it keeps between its passes.

    scale, shift: the batch norm as y * scale + shift. k1, k0: x_hat = v * k1 + k0. c1, c2, c3: gx = c1 g + c2 v + c3.
    """

    def __init__(self, rule: BatchNormRule, channels: int, count: int) -> None:
        self.rule, self.count = rule, count
        names = ("scale", "shift", "k1", "k0", "c1", "c2", "c3")
        self._rows = np.zeros((len(names), channels), np.float32)
        self.scale, self.shift, self.k1, self.k0, self.c1, self.c2, self.c3 = self._rows
        self.mean: Array = np.zeros(channels)
        self.variance: Array = np.zeros(channels)

    def take_statistics(self, first: Array, second: Array, centre: Array | None = None) -> bool:
        """Mean and variance from the sums of y - centre and of its square; False where they have to be taken anew.

        That is where, without a centre, the mean lies so far from 0 that the sums are too coarse.
        """
        divisor = self.count - (self.rule.forward.divisor == "N-1")
        mean = first / self.count
        spread = np.maximum(second - first * mean, 0)
        if centre is None and (mean * mean * self.count > _FAR * spread + 1e-30).any():
            return False
        self.mean = mean if centre is None else mean + centre
        self.variance = spread / divisor
        return True

    def set_affine(self, gamma: Array, beta: Array) -> None:
        """scale and shift for the statistics in force."""
        s = self._deviation(self.rule.forward)
        scale = gamma / s
        self.scale[:] = scale
        self.shift[:] = beta - self.mean * scale

    def set_hat_from_input(self) -> None:
        """v is the input of the batch norm."""
        s = self._deviation(self.rule.forward)
        self.k1[:] = 1 / s
        self.k0[:] = -self.mean / s

    def set_hat_from_output(self, gamma: Array, beta: Array) -> None:
        """v is gamma * x_hat + beta."""
        self.k1[:] = 1 / gamma.astype(np.float64)
        self.k0[:] = -beta / gamma.astype(np.float64)

    def set_gradient(self, gamma: Array, gbeta: Array, ggamma: Array) -> None:
        """c1, c2, c3 from the sums of g and of g * x_hat (see the reference kernel for the formula)."""
        scaling = self.rule.backward or self.rule.forward
        divisor = self.count - (scaling.divisor == "N-1")
        weight = gamma.astype(np.float64)
        s, forward_s = self._deviation(scaling), self._deviation(self.rule.forward)
        gvariance = -ggamma * weight * forward_s / (s * s) * self._slope(scaling)
        of_hat = gvariance * 2 * forward_s / divisor
        constant = -gbeta * weight / s / self.count
        self.c1[:] = weight / s
        self.c2[:] = of_hat * self.k1
        self.c3[:] = of_hat * self.k0 + constant

    def _deviation(self, scaling: Scaling) -> Array:
        found: Any = deviation(self.variance, scaling.epsilon, scaling.placement)
        return np.asarray(found)

    def _slope(self, scaling: Scaling) -> Array:
        if scaling.placement == "inside":
            return np.asarray(0.5 / np.sqrt(self.variance + scaling.epsilon))
        root = np.sqrt(self.variance)
        return np.divide(0.5, root, out=np.zeros_like(root), where=root > 0)
