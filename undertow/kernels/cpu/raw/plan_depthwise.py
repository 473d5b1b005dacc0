"""Both gradients of a depthwise convolution at once, all threads; see source/plan_depthwise.py."""

from __future__ import annotations

from typing import NamedTuple

from undertow.kernels.cpu.library import Kernels
from undertow.kernels.cpu.raw import packing
from undertow.kernels.cpu.raw.direct import Window
from undertow.kernels.cpu.raw.parts import SLOTS, Front
from undertow.kernels.cpu.raw.tensor import LINE, Scratch, Tensor, align
from undertow.kernels.cpu.threads import team

_plan = Kernels("plan_depthwise")
_depthwise = Kernels("depthwise")
_ENTRY, _BLOCK = 40, 512  # bytes per tap in a tap list, and of a block of channels, see source/plan_depthwise.py


class Ahead(NamedTuple):
    """The batch norm and leaky in front: x_hat = v * k1 + k0, and zeroed float64 [SLOTS][2][C] for its sums."""

    front: Front
    k1: int
    k0: int
    sums: int


def backward(
    gy: Tensor, x: Tensor, ahead: Ahead | None, w: int, gx: Tensor, gw: int, win: Window, memory: Scratch,
    *, accumulate: bool = False,
) -> None:  # fmt: skip
    """gx = gradient of the convolution's input, or gx += it; gw = gradient of the OIHW weights at w.

    x: the input, or, with a batch norm in front, the input of that.
    """
    if ahead is None:
        before = (0, 0, 0, 0, 1.0)
    else:
        before = (ahead.front.scale, ahead.front.shift, ahead.k1, ahead.k0, ahead.front.slope)
    sums = 0 if ahead is None else ahead.sums
    lines, slots = x.n * x.h, min(SLOTS, x.n * x.h)
    size = align(4 * win.taps * x.c)
    with memory.frame():
        taps, parts = memory.take(size), memory.take(size * slots)
        step = align(_ENTRY * win.taps) + 2 * LINE + (2 + win.taps) * _BLOCK
        tmp, step = memory.take_each(step, team().size)
        _depthwise.to_taps(w, x.c, win.taps, taps)

        def task(t: int, low: int, high: int) -> None:
            for s in range(low, high):
                _plan.backward(
                    gy.address, gy.stride, gy.h, gy.w, x.address, x.stride, x.h, x.w, *before, taps, gx.address,
                    gx.stride, parts + s * size, *win, x.c, lines * s // slots, lines * (s + 1) // slots, accumulate,
                    tmp + t * step, sums and sums + s * 16 * x.c, 8 * x.c,
                )  # fmt: skip

        team().run(slots, task)
        packing.add_parts(parts, parts + size, size, slots - 1, win.taps * x.c)
        _depthwise.from_taps(parts, x.c, win.taps, gw)
