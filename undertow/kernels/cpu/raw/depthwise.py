"""Depthwise convolutions, all threads. Weights here are OIHW as users keep them, (C, 1, kh, kw)."""

from __future__ import annotations

from collections.abc import Sequence

from undertow.kernels.cpu.library import Kernels
from undertow.kernels.cpu.raw import packing
from undertow.kernels.cpu.raw.direct import Window
from undertow.kernels.cpu.raw.parts import PLAIN, Epilogue, Front, over_blocks
from undertow.kernels.cpu.raw.tensor import Scratch, Tensor, align
from undertow.kernels.cpu.threads import team
from undertow.kernels.geometry import ConvGeometry

_depthwise = Kernels("depthwise")
_TMP = 256
_ENTRY = 32  # bytes per tap in a tap list, see source/depthwise.py


def fits(w_shape: Sequence[int], geometry: ConvGeometry) -> bool:
    """Whether every channel is convolved by itself: as many groups as input and as output channels."""
    return w_shape[1] == 1 and w_shape[0] == geometry.groups


def forward(
    x: Tensor, w: int, y: Tensor, win: Window, memory: Scratch, then: Epilogue = PLAIN, front: Front | None = None
) -> None:
    """y = conv(x, w), or, with a front, conv(front of x, w)."""
    given = (0, 0, 1.0) if front is None else front
    with memory.frame():
        taps = memory.take(4 * win.taps * y.c)
        step = align(_TMP + _ENTRY * win.taps)
        lists, step = memory.take_each(step, team().size)
        _depthwise.to_taps(w, y.c, win.taps, taps)

        def call(t: int, a: int, b: int, sums: int) -> None:
            _depthwise.forward(
                x.address, x.stride, x.h, x.w, taps, y.address, y.stride, y.h, y.w, *win, y.c, a, b, lists + t * step,
                then.accumulate, then.bias, then.slope, sums, 8 * y.c, *given,
            )  # fmt: skip

        over_blocks(y.n * y.h, then.sums, y.c, call)


def backward_data(gy: Tensor, w: int, gx: Tensor, win: Window, memory: Scratch, *, accumulate: bool = False) -> None:
    """gx = gradient of the input, or gx += it."""
    with memory.frame():
        taps = memory.take(4 * win.taps * gx.c)
        step = align(_ENTRY * win.taps)
        lists, step = memory.take_each(step, team().size)
        _depthwise.to_taps(w, gx.c, win.taps, taps)
        team().run(
            gx.n * gx.h,
            lambda t, a, b: _depthwise.backward_data(
                gy.address, gy.stride, gy.h, gy.w, taps, gx.address, gx.stride, gx.h, gx.w, *win, gx.c, a, b,
                lists + t * step, accumulate,
            ),
        )  # fmt: skip


def backward_weights(x: Tensor, gy: Tensor, gw: int, win: Window, memory: Scratch) -> None:
    """gw = gradient of the weights."""
    rows = gy.n * gy.h
    slices = min(16, rows)
    size = align(4 * win.taps * gy.c)
    with memory.frame():
        parts = memory.take(size * slices)

        def task(t: int, low: int, high: int) -> None:
            for s in range(low, high):
                _depthwise.backward_weights(
                    x.address, x.stride, x.h, x.w, gy.address, gy.stride, gy.h, gy.w, parts + s * size, *win, gy.c,
                    rows * s // slices, rows * (s + 1) // slices,
                )  # fmt: skip

        team().run(slices, task)
        packing.add_parts(parts, parts + size, size, slices - 1, win.taps * gy.c)
        _depthwise.from_taps(parts, gy.c, win.taps, gw)
