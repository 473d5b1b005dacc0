"""Convolutions without a transform, all threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from undertow.kernels.cpu.library import Kernels
from undertow.kernels.cpu.raw import packing
from undertow.kernels.cpu.raw.parts import PLAIN, Epilogue, ceil_div, over_blocks, over_panels, over_slices
from undertow.kernels.cpu.raw.tensor import Scratch, Tensor, align
from undertow.kernels.cpu.threads import team

_direct = Kernels("direct")

BLOCK = 96  # pixels per block: a multiple of every tile height
_WIDE, _NARROW = 48, 128  # weights are summed row by row from so many pixels per row and up to so many channels
_MADE = 128 << 10  # bytes of rows that are made and used while in the second-level cache
_TMP = 256  # bytes of vector scratch in front of tables and rows


Make = Callable[[int, int, int], None]


class Window(NamedTuple):
    """The window of a convolution: kernel, stride, dilation (vertical, horizontal), padding (top, left)."""

    kh: int
    kw: int
    sy: int
    sx: int
    dy: int
    dx: int
    top: int
    left: int

    @property
    def taps(self) -> int:
        return self.kh * self.kw


class Walk(NamedTuple):
    """Pixels and taps of one `convolve`, see source/direct.py.

    ny, nx: pixels per image; target = (y0 + j*oy, x0 + i*ox); tap t reads (offsets[t] + (j*my, i*mx)).
    first: number of the first tap in the packed weights. offsets: address of int64 [taps][2].
    """

    ny: int
    nx: int
    my: int
    mx: int
    y0: int
    x0: int
    oy: int
    ox: int
    taps: int
    first: int
    offsets: int


def _spread(pixels: int, channels: int, then: Epilogue, call) -> None:  # type: ignore[no-untyped-def]
    """Cut pixels into blocks, or, where they are few, channels into panels."""
    panels = ceil_div(channels, 16)
    blocks = ceil_div(pixels, BLOCK)
    if blocks < 8 and panels >= 4:
        over_panels(panels, lambda t, a, b: call(t, BLOCK, 0, blocks, a, b, then.channels(16 * a).sums))
        return
    block = BLOCK if blocks >= 8 else 24
    over_blocks(
        ceil_div(pixels, block), then.sums, channels, lambda t, a, b, sums: call(t, block, a, b, 0, panels, sums)
    )


def convolve(
    x: Tensor, w: int, taps: int, y: Tensor, walk: Walk, zeros: int, memory: Scratch, then: Epilogue = PLAIN
) -> None:
    """y = sum over the taps of the walk. w: packed weights with `taps` taps. zeros: address of x.c zeros."""
    pixels, sq, C = y.n * walk.ny * walk.nx, 8 * y.c, y.c
    if pixels == 0:
        return
    panel = taps * x.c * 64
    step = align(_TMP + (BLOCK + 12) * (walk.taps + 1) * 8)
    with memory.frame():
        tmp, step = memory.take_each(step, team().size)

        def call(t: int, block: int, b0: int, b1: int, p0: int, p1: int, sums: int) -> None:
            part = then.channels(16 * p0)
            _direct.convolve(
                x.address, x.stride, x.h, x.w, w + p0 * panel + walk.first * x.c * 64, panel,
                y.address + 64 * p0, y.stride, y.h, y.w, *walk[:8], walk.taps, walk.offsets,
                x.c, min(C, 16 * p1) - 16 * p0, pixels, block, b0, b1, tmp + t * step, zeros, then.accumulate,
                part.bias, then.slope, sums, sq,
            )  # fmt: skip

        _spread(pixels, C, then, call)


def rows_forward(x: Tensor, w: int, y: Tensor, win: Window, memory: Scratch, then: Epilogue = PLAIN) -> None:
    """Few input channels, horizontal dilation 1."""
    step = align(_TMP + win.kh * ((y.w - 1) * win.sx + win.kw) * x.c * 4)
    with memory.frame():
        tmp, step = memory.take_each(step, team().size)

        def call(t: int, r0: int, r1: int, sums: int) -> None:
            _direct.rows_forward(
                x.address, x.stride, x.h, x.w, w, y.address, y.stride, y.h, y.w, win.kh, win.kw, win.sy, win.sx,
                win.dy, win.top, win.left, x.c, y.c, r0, r1, tmp + t * step, then.accumulate, then.bias, then.slope,
                sums, 8 * y.c,
            )  # fmt: skip

        over_blocks(y.n * y.h, then.sums, y.c, call)


def rows_backward_weights(
    x: Tensor, gy: Tensor, gw: int, win: Window, memory: Scratch, make: Make | None = None
) -> None:
    """Gradient of the packed weights of `rows_forward`.

    make: where gy does not stand in memory; make(first, last, address) calls kernels that write its rows there, pixels
    without gaps. Rows of all images are counted on; first is even, and so is last unless it is their number.
    """
    size = packing.packed_size(x.c, gy.c, win.taps)
    rows, panels = gy.n * gy.h, ceil_div(gy.c, 16)
    pairs, row = ceil_div(rows, 2), 4 * gy.w * gy.c
    slices, some = slices_for(pairs, size), max(2, _MADE // row // 2 * 2)
    step = align(8 * win.taps * x.c) + align(win.kh * ((gy.w - 1) * win.sx + win.kw) * x.c * 4) + panels * gy.w * 64
    made = align(step)
    step = step if make is None else align(made + some * row)
    with memory.frame():
        tmp, step = memory.take_each(step, team().size)
        others = memory.take(size * (slices - 1))

        def sum_up(s: int, address: int, stride: int, first: int, last: int, add: bool, tmp: int) -> None:
            _direct.rows_backward_weights(
                x.address, x.stride, x.h, x.w, address, stride, gy.h, gy.w, others + (s - 1) * size if s else gw,
                win.kh, win.kw, win.sy, win.sx, win.dy, win.top, win.left, x.c, gy.c, first, last, add, tmp,
            )  # fmt: skip

        def call(t: int, low: int, high: int) -> None:
            for s in range(low, high):
                begin, end = 2 * (pairs * s // slices), min(rows, 2 * (pairs * (s + 1) // slices))
                if make is None:
                    sum_up(s, gy.address, gy.stride, begin, end, False, tmp + t * step)
                    continue
                for first in range(begin, end, some):
                    last, at = min(end, first + some), tmp + t * step + made
                    make(first, last, at)
                    sum_up(s, at - first * row, 4 * gy.c, first, last, first > begin, tmp + t * step)

        team().run(slices, call)
        packing.add_parts(gw, others, size, slices - 1, size // 4)


def backward_weights(x: Tensor, gy: Tensor, gw: int, win: Window, memory: Scratch) -> None:
    """Gradient of packed weights, any window."""
    if gy.w >= _WIDE and x.c <= _NARROW:
        _wide_backward_weights(x, gy, gw, win, memory)
    else:
        _block_backward_weights(x, gy, gw, win, memory)


def _wide_backward_weights(x: Tensor, gy: Tensor, gw: int, win: Window, memory: Scratch) -> None:
    """Row by row; with many channels the rows of x would fight for the cache."""
    size = packing.packed_size(x.c, gy.c, win.taps)
    rows, panels = gy.n * gy.h, ceil_div(gy.c, 16)
    slices = slices_for(rows, size)
    step = panels * gy.w * 64
    with memory.frame():
        tmp, step = memory.take_each(step, team().size)
        others = memory.take(size * (slices - 1))

        def call(t: int, s: int, r0: int, r1: int, p0: int, p1: int) -> None:
            _direct.wide_backward_weights(
                x.address, x.stride, x.h, x.w, gy.address, gy.stride, gy.h, gy.w,
                others + (s - 1) * size if s else gw, *win, x.c, gy.c, r0, r1, p0, p1, tmp + t * step,
            )  # fmt: skip

        over_slices(slices, rows, panels, call)
        packing.add_parts(gw, others, size, slices - 1, size // 4)


def _block_backward_weights(x: Tensor, gy: Tensor, gw: int, win: Window, memory: Scratch) -> None:
    """Blocks of pixels, whose input under each tap is gathered."""
    size = packing.packed_size(x.c, gy.c, win.taps)
    pixels, panels = gy.pixels, ceil_div(gy.c, 16)
    block = BLOCK if pixels >= 8 * BLOCK else 24
    blocks = ceil_div(pixels, block)
    slices = 1 if panels >= 8 else slices_for(blocks, size)
    step = align(block * (4 * x.c + 64) + panels * block * 64)
    with memory.frame():
        tmp, step = memory.take_each(step, team().size)
        others = memory.take(size * (slices - 1))

        def call(t: int, s: int, b0: int, b1: int, p0: int, p1: int) -> None:
            _direct.backward_weights(
                x.address, x.stride, x.h, x.w, gy.address, gy.stride, gy.h, gy.w,
                others + (s - 1) * size if s else gw, *win, x.c, gy.c, pixels, block, b0, b1, p0, p1,
                tmp + t * step,
            )  # fmt: skip

        over_slices(slices, blocks, panels, call)
        packing.add_parts(gw, others, size, slices - 1, size // 4)


def slices_for(blocks: int, size: int) -> int:
    """Into how many parts a sum over blocks is cut, when every part has a result of `size` bytes."""
    return min(blocks, 8 if size <= 1 << 19 else 4 if size <= 1 << 21 else 2)


def bias_gradient(gy: Tensor, memory: Scratch) -> tuple[int, int, int]:
    """Partial sums of gy over the pixels, float64 [C] each: address of the first, bytes between them, their number.

    Valid until the caller's frame ends.
    """
    slots = min(16, ceil_div(gy.pixels, 256))
    size = align(8 * gy.c)
    sums = memory.take(size * slots)
    tmp, step = memory.take_each(_TMP, team().size)

    def task(t: int, low: int, high: int) -> None:
        for s in range(low, high):
            first, last = gy.pixels * s // slots, gy.pixels * (s + 1) // slots
            _direct.bias_gradient(gy.address, gy.stride, gy.c, first, last, sums + s * size, tmp + t * step)

    team().run(slots, task)
    return sums, size, slots
