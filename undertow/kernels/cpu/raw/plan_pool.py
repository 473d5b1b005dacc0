"""Batch norm and leaky together with the 2x2 max pooling behind them, all threads; see source/plan_pool.py.

x, gx: the batch norm's input and its gradient. y, gy: behind the pooling, with half their rows and columns.
scale, shift: addresses of the batch norm as x * scale + shift, per channel.
"""

from __future__ import annotations

from undertow.kernels.cpu.library import Kernels
from undertow.kernels.cpu.raw.parts import SLOTS
from undertow.kernels.cpu.raw.tensor import Scratch, Tensor
from undertow.kernels.cpu.threads import team

_pool = Kernels("plan_pool")
_TMP = 256


def affine(x: Tensor, y: Tensor, scale: int, shift: int, slope: float) -> None:
    """y = leaky(x * scale + shift), pooled."""
    team().run(
        y.n * y.h,
        lambda t, a, b: _pool.affine(
            x.address, x.stride, y.address, y.stride, scale, shift, slope, x.w, y.w, x.c, a, b
        ),
    )


def backward_sums(
    gy: Tensor, x: Tensor, scale: int, shift: int, k1: int, k0: int, sums: int, memory: Scratch, slope: float
) -> None:
    """Adds the sums of g and g * x_hat to zeroed float64 [SLOTS][2][C]; g is what the pooling and the leaky pass on."""
    rows = gy.n * gy.h
    slots = min(SLOTS, rows)
    with memory.frame():
        tmp, step = memory.take_each(_TMP, team().size)

        def task(thread: int, low: int, high: int) -> None:
            for s in range(low, high):
                _pool.backward_sums(
                    gy.address, gy.stride, x.address, x.stride, scale, shift, k1, k0, slope, x.w, gy.w, gy.c,
                    rows * s // slots, rows * (s + 1) // slots, sums + s * 16 * gy.c, 8 * gy.c, tmp + thread * step,
                )  # fmt: skip

        team().run(slots, task)


def backward_rows(
    gy: Tensor, x: Tensor, scale: int, shift: int, c1: int, c2: int, c3: int, slope: float,
    first: int, last: int, to: int,
) -> None:  # fmt: skip
    """Rows first..last of `backward`, both even, to an address, pixels without gaps; by the calling thread."""
    at = to - 4 * first * x.w * x.c
    _pool.backward(
        gy.address, gy.stride, x.address, x.stride, at, 4 * x.c, scale, shift, c1, c2, c3, slope, x.w, gy.w, gy.c,
        first // 2, last // 2,
    )  # fmt: skip


def backward(
    gy: Tensor, x: Tensor, gx: Tensor, scale: int, shift: int, c1: int, c2: int, c3: int, slope: float
) -> None:
    """gx = c1 * g + c2 * x + c3 per channel; gx may be x."""
    team().run(
        gy.n * gy.h,
        lambda t, a, b: _pool.backward(
            gy.address, gy.stride, x.address, x.stride, gx.address, gx.stride, scale, shift, c1, c2, c3, slope,
            x.w, gy.w, gy.c, a, b,
        ),
    )  # fmt: skip
