"""The per-channel arithmetic of batch norm, all threads; see source/plan_norm.py for the formulas.

All arguments but counts are addresses: of float64 mean, variance, numbers and sums, of float32 all else.
"""

from __future__ import annotations

from collections.abc import Callable

from undertow.kernels.cpu.library import Kernels
from undertow.kernels.cpu.raw.parts import ceil_div
from undertow.kernels.cpu.threads import team

_norm = Kernels("plan_norm")
_UNIT = 64  # channels; a thread gets whole units
_RUN = 2048  # doubles


def _over(count: int, unit: int, call: Callable[[int, int], None]) -> None:
    team().run(ceil_div(count, unit), lambda t, a, b: call(a * unit, min(count, b * unit)))


def clear(doubles: int, count: int) -> None:
    """`count` doubles become 0."""
    _over(count, _RUN, lambda a, b: _norm.clear(doubles, a, b))


def statistics(
    sums: int, groups: int, slots: int, channels: int, centre: int, numbers: int, mean: int, variance: int, far: int
) -> None:
    """Mean and variance of groups * channels channels; the int64 at far becomes 1 where the sums are too coarse."""
    _over(
        groups * channels,
        _UNIT,
        lambda a, b: _norm.statistics(sums, slots, channels, centre, numbers, mean, variance, far, a, b),
    )


def affine(
    channels: int, mean: int, variance: int, numbers: int, gamma: int, beta: int, scale: int, shift: int,
    mean32: int, variance32: int,
) -> None:  # fmt: skip
    """scale and shift of y * scale + shift."""
    _over(
        channels,
        _UNIT,
        lambda a, b: _norm.affine(mean, variance, numbers, gamma, beta, scale, shift, mean32, variance32, a, b),
    )


def move(channels: int, running_mean: int, running_variance: int, mean32: int, variance32: int, numbers: int) -> None:
    """Running statistics take a batch."""
    _over(channels, _UNIT, lambda a, b: _norm.move(running_mean, running_variance, mean32, variance32, numbers, a, b))


def hat_of_input(channels: int, mean: int, variance: int, numbers: int, k1: int, k0: int) -> None:
    """k1, k0 with x_hat = v * k1 + k0 for the input v."""
    _over(channels, _UNIT, lambda a, b: _norm.hat_of_input(mean, variance, numbers, k1, k0, a, b))


def hat_of_output(channels: int, gamma: int, beta: int, variance: int, k1: int, k0: int) -> None:
    """k1, k0 with x_hat = v * k1 + k0 for the output v."""
    _over(channels, _UNIT, lambda a, b: _norm.hat_of_output(gamma, beta, variance, k1, k0, a, b))


def gradient(
    sums: int, slots: int, channels: int, gamma: int, variance: int, numbers: int, k1: int, k0: int,
    c1: int, c2: int, c3: int, ggamma: int, gbeta: int,
) -> None:  # fmt: skip
    """c1, c2, c3 of gx = c1 g + c2 v + c3, and the gradients of gamma and beta."""
    _over(
        channels,
        _UNIT,
        lambda a, b: _norm.gradient(
            sums, slots, channels, gamma, variance, numbers, k1, k0, c1, c2, c3, ggamma, gbeta, a, b
        ),
    )


def total(parts: int, step: int, slots: int, channels: int, out: int) -> None:
    """The sums over slots of float64 parts, in float32."""
    _over(channels, _UNIT, lambda a, b: _norm.total(parts, step, slots, out, a, b))
