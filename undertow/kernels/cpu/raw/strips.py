"""Gradients of the weights of windows with several taps and many channels, all threads."""

from __future__ import annotations

from undertow.kernels.cpu.library import Kernels
from undertow.kernels.cpu.raw.direct import Window
from undertow.kernels.cpu.raw.parts import ceil_div
from undertow.kernels.cpu.raw.tensor import Scratch, Tensor, align
from undertow.kernels.cpu.threads import team

_strips = Kernels("strips")

_STRIP = 32  # as in source/strips.py
_TILE = 12  # a multiple of every tile height
_SUMS = 320 << 10  # bytes of sums in the second cache
_COPY = 288 << 10  # bytes of a copied strip there
_PIXELS = 384  # of dy at a time: a tap's strip of them nearly stays in the first cache
_ITEMS = 8  # at least so many pieces


def takes(x: Tensor, gy: Tensor, win: Window) -> bool:
    """Whether `backward_weights` is for this window: threads share the weights, none of which may be large."""
    return win.taps > 1 and min(x.c, gy.c) >= 64 and x.c * gy.c >= 128 * 128 and _row(gy, win) * 8 <= _COPY


def _row(gy: Tensor, win: Window) -> int:
    """Bytes of what the windows of one row of gy see of a strip."""
    return win.kh * win.sx * (gy.w + (win.kw - 1) * win.dx // win.sx) * 4 * _STRIP


def backward_weights(
    x: Tensor, gy: Tensor, gw: int, win: Window, memory: Scratch, *, subtract: bool, ruined: int = 0
) -> None:
    """OIHW numbers at gw = gradient of the weights, or -= it; the int64 at ruined (or 0) becomes 1 where they are then
    not finite.
    """
    tiles, strips, R = ceil_div(gy.c, _TILE), ceil_div(x.c, _STRIP), gy.n * gy.h
    most = max(1, _SUMS // (win.taps * _TILE * 4 * _STRIP))
    blocks = min(tiles, max(2 * ceil_div(tiles, 2 * most), ceil_div(_ITEMS, strips)))
    rows = max(1, min(R, _COPY // _row(gy, win), _PIXELS // gy.w))
    rows = ceil_div(R, ceil_div(R, rows))
    copy = align(rows * _row(gy, win))
    step = copy + win.taps * ceil_div(tiles, blocks) * _TILE * 4 * _STRIP
    with memory.frame():
        panels = memory.take(4 * tiles * _TILE * gy.pixels)
        team().run(gy.pixels, lambda t, a, b: _strips.turn(gy.address, gy.stride, gy.c, gy.pixels, panels, a, b))
        tmp, step = memory.take_each(step, team().size)

        def call(t: int, low: int, high: int) -> None:
            for item in range(low, high):
                b, s = divmod(item, strips)
                first, last = _TILE * (tiles * b // blocks), min(gy.c, _TILE * (tiles * (b + 1) // blocks))
                _strips.backward_weights(
                    x.address, x.stride, x.h, x.w, panels, gy.h, gy.w, *win, x.c, gy.c, gy.pixels, rows, R,
                    first, last, _STRIP * s, _STRIP * ((s + 1) % strips), gw, subtract, ruined,
                    tmp + t * step, tmp + t * step + copy,
                )  # fmt: skip

        team().run(blocks * strips, call)
