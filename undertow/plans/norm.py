"""A batch norm of a plan: its per-channel numbers, and the kernel calls that work them out between the passes."""

from __future__ import annotations

from typing import Any

import numpy as np

from undertow.functions.norm_batch import RunningStatistics
from undertow.kernels.cpu.raw import batchnorm as raw
from undertow.kernels.cpu.raw import plan_norm
from undertow.kernels.cpu.raw.parts import SLOTS
from undertow.kernels.cpu.raw.tensor import Scratch, Tensor
from undertow.kernels.reference.batchnorm import BatchNormRule, Scaling

Array = np.ndarray


class Norm:
    """A batch norm over `count` values of each of `channels` channels, and what it keeps between its passes.

    scale, shift: addresses of the batch norm as y * scale + shift. k1, k0: x_hat = v * k1 + k0. c1, c2, c3:
    gx = c1 g + c2 v + c3. mean, variance: of the last batch, in float32. ggamma, gbeta: gradients.
    All methods only call kernels.
    """

    def __init__(self, rule: BatchNormRule, channels: int, count: int) -> None:
        self.rule, self.count, self.channels = rule, count, channels
        self._rows = np.zeros((11, channels), np.float32)
        self.scale, self.shift, self.k1, self.k0, self.c1, self.c2, self.c3 = (_at(row) for row in self._rows[:7])
        self.mean, self.variance, self.ggamma, self.gbeta = self._rows[7:]
        self._wide = np.zeros((2, channels))
        self._mean, self._variance = (_at(row) for row in self._wide)
        self._numbers = np.array([count, *self._scaling(rule.forward), *self._scaling(rule.backward), 0, 0], np.float64)
        self._far = np.zeros(1, np.int64)

    def _scaling(self, scaling: Scaling | None) -> tuple[float, ...]:
        scaling = scaling or self.rule.forward
        return self.count - (scaling.divisor == "N-1"), scaling.epsilon, float(scaling.placement == "inside")

    def cleared_sums(self, memory: Scratch) -> int:
        """Address of zeroed sums, [SLOTS][2][channels] float64, in a frame of `memory`."""
        sums = memory.take(16 * SLOTS * self.channels)
        plan_norm.clear(sums, 2 * SLOTS * self.channels)
        return sums

    def take_sums(self, sums: int, groups: int) -> None:
        """Mean and variance from what a convolution summed up on its way, group after group.

        Too coarse where a mean lies far from 0: `take_statistics` has to follow.
        """
        plan_norm.clear(_at(self._far), 1)
        each = self.channels // groups
        plan_norm.statistics(
            sums, groups, SLOTS, each, 0, _at(self._numbers), self._mean, self._variance, _at(self._far)
        )

    def take_statistics(self, y: Tensor, memory: Scratch) -> None:
        """Where `take_sums` just now found its sums too coarse: mean and variance by a pass over y with its channels'
        means taken away first.
        """
        far = _at(self._far)
        with memory.frame():
            centre = memory.take(4 * self.channels)
            sums = self.cleared_sums(memory)
            raw.pivot(y, centre, far)
            raw.statistics(y, centre, sums, memory, far)
            plan_norm.statistics(
                sums, 1, SLOTS, self.channels, centre, _at(self._numbers), self._mean, self._variance, far
            )

    def set_affine(self, gamma: int, beta: int) -> None:
        """scale and shift for the statistics in force."""
        plan_norm.affine(
            self.channels, self._mean, self._variance, _at(self._numbers), gamma, beta, self.scale, self.shift,
            _at(self.mean), _at(self.variance),
        )  # fmt: skip

    def moves(self, running: Any) -> bool:
        """Whether `move` can do what running.take does."""
        if type(running) is not RunningStatistics:
            return False
        arrays = (running.mean, running.variance)
        return all(
            a.dtype == np.float32 and a.shape == (self.channels,) and a.flags.c_contiguous and a.flags.writeable
            for a in arrays
        )

    def move(self, running: RunningStatistics) -> None:
        """The running statistics take the batch."""
        divisors = {"N": self.count, "N-1": max(self.count - 1, 1)}
        self._numbers[-2:] = running.momentum, divisors[self.rule.forward.divisor] / divisors[running.divisor]
        plan_norm.move(
            self.channels, _at(running.mean), _at(running.variance), _at(self.mean), _at(self.variance),
            _at(self._numbers),
        )  # fmt: skip

    def set_hat_from_input(self) -> None:
        """v is the input of the batch norm."""
        plan_norm.hat_of_input(self.channels, self._mean, self._variance, _at(self._numbers), self.k1, self.k0)

    def set_hat_from_output(self, gamma: int, beta: int) -> None:
        """v is gamma * x_hat + beta."""
        plan_norm.hat_of_output(self.channels, gamma, beta, self._variance, self.k1, self.k0)

    def set_gradient(self, gamma: int, sums: int) -> None:
        """c1, c2, c3, ggamma and gbeta from the sums of g and of g * x_hat (see the reference kernel)."""
        plan_norm.gradient(
            sums, SLOTS, self.channels, gamma, self._variance, _at(self._numbers), self.k1, self.k0,
            self.c1, self.c2, self.c3, _at(self.ggamma), _at(self.gbeta),
        )  # fmt: skip


def _at(array: Array) -> int:
    return int(array.ctypes.data)
