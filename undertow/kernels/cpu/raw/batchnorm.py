"""Batch normalisation, all threads. Sums go to float64 [SLOTS][2][C], one slot per part of the pixels."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from undertow.kernels.cpu.library import Kernels
from undertow.kernels.cpu.raw.parts import SLOTS
from undertow.kernels.cpu.raw.tensor import Scratch, Tensor
from undertow.kernels.cpu.threads import team

_batchnorm = Kernels("batchnorm")
_TMP = 256


class Slope(NamedTuple):
    """The leaky behind a batch norm, as its backward pass sees it.

    slope: for negative values; 1 for none. scale, shift: addresses of C floats, the batch norm as
    y = x * scale + shift (used where from_z is False and slope is not 1). from_z: the saved tensor is the
    leaky's output, from which y is recovered; slope must not be 0.
    """

    slope: float = 1.0
    scale: int = 0
    shift: int = 0
    from_z: bool = False


NO_SLOPE = Slope()


def _slots(pixels: int) -> int:
    return min(SLOTS, max(1, pixels // 64))


def _over_slots(pixels: int, call: Callable[[int, int, int, int], None]) -> None:
    """call(thread, slot, first pixel, last pixel)."""
    slots = _slots(pixels)

    def task(thread: int, low: int, high: int) -> None:
        for s in range(low, high):
            call(thread, s, pixels * s // slots, pixels * (s + 1) // slots)

    team().run(slots, task)


def pivot(x: Tensor, centre: int, when: int = 0) -> None:
    """centre[c] = a value near the mean of channel c. when: address of an int64 that is 0 where this is not needed."""
    _batchnorm.pivot(x.address, x.stride, x.c, x.pixels, centre, when)


def statistics(x: Tensor, centre: int, sums: int, memory: Scratch, when: int = 0) -> None:
    """Adds the sums of x - centre and of its square to zeroed float64 [SLOTS][2][C]; when: as for `pivot`."""
    with memory.frame():
        tmp, step = memory.take_each(_TMP, team().size)
        _over_slots(
            x.pixels,
            lambda t, s, p0, p1: _batchnorm.statistics(
                x.address, x.stride, x.c, p0, p1, centre, sums + s * 16 * x.c, 8 * x.c, tmp + t * step, when
            ),
        )


def normalize(x: Tensor, hat: Tensor, y: Tensor, mean: int, inverse: int, gamma: int, beta: int) -> None:
    """hat = (x - mean) * inverse, y = hat * gamma + beta."""
    team().run(
        x.pixels,
        lambda t, p0, p1: _batchnorm.normalize(
            x.address, x.stride, hat.address, hat.stride, y.address, y.stride, mean, inverse, gamma, beta, x.c, p0, p1
        ),
    )


def affine(x: Tensor, y: Tensor, scale: int, shift: int, slope: float = 1.0, residual: Tensor | None = None) -> None:
    """y = leaky(x * scale + shift) + residual; y may be x."""
    extra, extra_stride = (residual.address, residual.stride) if residual else (0, 0)
    team().run(
        x.pixels,
        lambda t, p0, p1: _batchnorm.affine(
            x.address, x.stride, y.address, y.stride, scale, shift, slope, extra, extra_stride, x.c, p0, p1
        ),
    )


def backward_sums(
    gy: Tensor, saved: Tensor, k1: int, k0: int, sums: int, memory: Scratch, slope: Slope = NO_SLOPE
) -> None:
    """Adds the sums of g and g * x_hat to zeroed float64 [SLOTS][2][C]; see source/batchnorm.py."""
    scale, shift = slope.scale or k1, slope.shift or k1
    with memory.frame():
        tmp, step = memory.take_each(_TMP, team().size)
        _over_slots(
            gy.pixels,
            lambda t, s, p0, p1: _batchnorm.backward_sums(
                gy.address, gy.stride, saved.address, saved.stride, scale, shift, k1, k0, slope.slope,
                slope.from_z, gy.c, p0, p1, sums + s * 16 * gy.c, 8 * gy.c, tmp + t * step,
            ),
        )  # fmt: skip


def backward_rows(
    gy: Tensor, saved: Tensor, c1: int, c2: int, c3: int, slope: Slope, first: int, last: int, to: int
) -> None:
    """Rows first..last of all images of `backward` to an address, pixels without gaps; by the calling thread."""
    scale, shift = slope.scale or c1, slope.shift or c1
    _batchnorm.backward(
        gy.address, gy.stride, saved.address, saved.stride, to - 4 * first * gy.w * gy.c, 4 * gy.c, scale, shift,
        c1, c2, c3, slope.slope, slope.from_z, gy.c, first * gy.w, last * gy.w,
    )  # fmt: skip


def backward(gy: Tensor, saved: Tensor, gx: Tensor, c1: int, c2: int, c3: int, slope: Slope = NO_SLOPE) -> None:
    """gx = c1 * g + c2 * v + c3 per channel; gx may be gy; see source/batchnorm.py."""
    scale, shift = slope.scale or c1, slope.shift or c1
    team().run(
        gy.pixels,
        lambda t, p0, p1: _batchnorm.backward(
            gy.address, gy.stride, saved.address, saved.stride, gx.address, gx.stride, scale, shift, c1, c2, c3,
            slope.slope, slope.from_z, gy.c, p0, p1,
        ),
    )  # fmt: skip
