"""Convolutions of few input channels together with the 2x2 max pooling behind them, all threads.

See source/rows_pool.py. winners: address of bytes [N][Hp][Wp][`winner_bytes`(channels)].
"""

from __future__ import annotations

from undertow.kernels.cpu.library import Kernels
from undertow.kernels.cpu.raw import packing
from undertow.kernels.cpu.raw.direct import Window, slices_for
from undertow.kernels.cpu.raw.parts import Epilogue, ceil_div
from undertow.kernels.cpu.raw.tensor import Scratch, Tensor, align
from undertow.kernels.cpu.threads import team

_rows = Kernels("rows_pool")
_VECTOR = 64  # the most bytes of a vector
_ROWS_AT_ONCE = 6  # as in source/rows_pool.py


def fits(window: Window) -> bool:
    """Whether there are kernels for a convolution of kind "rows" with such a window."""
    return window[2:6] == (1, 1, 1, 1)


def winner_bytes(channels: int) -> int:
    """Bytes of one pixel's winners."""
    return 16 * ceil_div(channels, 16)


def forward(
    x: Tensor, w: int, z: Tensor, winners: int, win: Window, memory: Scratch, then: Epilogue, full: Tensor | None = None
) -> None:
    """z = what the convolution with packed weights, bias and leaky makes, pooled; full: that before the pooling."""
    row = 4 * (2 * z.w + win.kw - 1) * x.c
    step = align((2 * z.h + win.kh - 1) * row) + 4 * z.w * 64 * ceil_div(z.c, 16)
    at, stride = (0, 0) if full is None else (full.address, full.stride)
    with memory.frame():
        tmp, step = memory.take_each(step, team().size)
        team().run(
            z.n * z.h,
            lambda t, a, b: _rows.forward(
                x.address, x.stride, x.h, x.w, w, z.address, z.stride, winners, at, stride, z.h, z.w, win.kh, win.kw,
                win.top, win.left, x.c, z.c, a, b, tmp + t * step, then.bias, then.slope,
            ),
        )  # fmt: skip


def backward_weights(
    x: Tensor, gy: Tensor, z: Tensor, winners: int, slope: float, gw: int, win: Window, memory: Scratch
) -> tuple[int, int, int]:
    """gw = the packed weights' gradient, from gy, that of z; and the bias's as partial sums.

    Of these the address of the first, float64 [C], the bytes between them and their number; valid until the caller's
    frame ends.
    """
    size, rows = packing.packed_size(x.c, gy.c, win.taps), gy.n * gy.h
    slices = slices_for(rows, size)
    width = 2 * gy.w + win.kw - 1
    height = 2 * _ROWS_AT_ONCE + win.kh - 1
    step = _VECTOR + align(height * (4 * width * x.c + _VECTOR)) + 2 * _ROWS_AT_ONCE * gy.w * _VECTOR
    step = align(step + 16 * ((height - 1) * (width * x.c + 16) + 16))
    part = align(8 * gy.c)
    sums = memory.take(part * slices)
    with memory.frame():
        tmp, step = memory.take_each(step, team().size)
        others = memory.take(size * (slices - 1))

        def call(t: int, low: int, high: int) -> None:
            for s in range(low, high):
                _rows.backward_weights(
                    x.address, x.stride, x.h, x.w, gy.address, gy.stride, z.address, z.stride, winners, slope,
                    gy.h, gy.w, others + (s - 1) * size if s else gw, sums + s * part, win.kh, win.kw, win.top,
                    win.left, x.c, gy.c, rows * s // slices, rows * (s + 1) // slices, tmp + t * step,
                )  # fmt: skip

        team().run(slices, call)
        packing.add_parts(gw, others, size, slices - 1, size // 4)
    return sums, part, slices


def spread(gy: Tensor, z: Tensor, winners: int, slope: float, gx: Tensor) -> None:
    """gx = the convolution's gradient from gy, that of z."""
    team().run(
        gy.n * gy.h,
        lambda t, a, b: _rows.spread(
            gy.address, gy.stride, z.address, z.stride, winners, slope, gx.address, gx.stride, gy.w, gy.c, a, b
        ),
    )
