"""1x1 windows on OIHW weights, all threads."""

from __future__ import annotations

from typing import NamedTuple

from undertow.kernels.cpu.library import Kernels
from undertow.kernels.cpu.raw import packing
from undertow.kernels.cpu.raw.direct import BLOCK, Window
from undertow.kernels.cpu.raw.parts import PLAIN, Epilogue, ceil_div, over_blocks, over_panels, over_slices
from undertow.kernels.cpu.raw.tensor import Scratch, Tensor, align
from undertow.kernels.cpu.threads import team

_pointwise = Kernels("pointwise")

_SIDE = 256  # channels: what a thread sums up at a time, of either side, stays in its second cache
_ITEMS = 4  # at least so many parts, where the pixels suffice and there are not just two pieces
_HALVED = 128  # output channels: from so many on, the gradient of few pixels of input is summed up in two parts
_STRIP = 32  # as in source/pointwise.py


_TMP = 256  # bytes of vector scratch


def forward(x: Tensor, w: int, y: Tensor, memory: Scratch, then: Epilogue = PLAIN) -> None:
    """y = x w for OIHW weights w, stride 1, no padding."""
    panels = ceil_div(y.c, 16)
    if not _few(y.pixels, y.c):
        with memory.frame():
            packed = memory.take(packing.packed_size(x.c, y.c, 1))
            packing.pack(w, x.c, y.c, 1, packed, memory)
            product(x, packed, 64, x.c * 64, y, memory, then)
        return
    step = align(_TMP + 128 * x.c)
    with memory.frame():
        tmp, step = memory.take_each(step, team().size)

        def call(t: int, p0: int, p1: int) -> None:
            _pointwise.few_forward(
                x.address, x.stride, w, y.address, y.stride, y.pixels, x.c, y.c, p0, p1, tmp + t * step,
                then.accumulate, then.bias, then.slope, then.sums, 8 * y.c,
            )  # fmt: skip

        over_panels(panels, call)


def backward_data(gy: Tensor, w: int, gx: Tensor, memory: Scratch, *, accumulate: bool = False) -> None:
    """gx = gradient of the input, or gx += it, for OIHW weights w, which are read where they lie."""
    if _few(gx.pixels, gx.c) and gy.c >= _HALVED:
        _backward_data_in_halves(gy, w, gx, memory, accumulate=accumulate)
        return
    product(gy, w, 4 * gx.c, 64, gx, memory, Epilogue(accumulate=accumulate))


def _backward_data_in_halves(gy: Tensor, w: int, gx: Tensor, memory: Scratch, *, accumulate: bool) -> None:
    """The sum over the output channels in two parts, which of two threads one takes each.

    A thread then reads the rows of the weights that it also reads in `forward` and writes in an update; else every
    weight would have to pass from one processor's cache to the other's and back in each step.
    """
    half = gy.c // 2 // 16 * 16
    step = align(_TMP + 128 * (gy.c - half))
    with memory.frame():
        second = Tensor(memory.take(4 * gx.pixels * gx.c), 4 * gx.c, gx.n, gx.h, gx.w, gx.c)
        tmp, step = memory.take_each(step, team().size)

        def call(t: int, part: int, _b0: int, _b1: int, p0: int, p1: int) -> None:
            first, count, to = (half, gy.c - half, second) if part else (0, half, gx)
            _pointwise.product(
                gy.address + 4 * first, gy.stride, w + 4 * gx.c * first + 64 * p0, 4 * gx.c, 64, to.address + 64 * p0,
                to.stride, gx.pixels, count, min(gx.c, 16 * p1) - 16 * p0, gx.pixels, 0, 1, tmp + t * step,
                accumulate and not part, 0, 1.0, 0, 0, 0, 0,
            )  # fmt: skip

        over_slices(2, 2, ceil_div(gx.c, 16), call)
        packing.copy(second, gx, accumulate=True)


def _few(pixels: int, channels: int) -> bool:
    """Whether threads share the channels rather than the pixels."""
    return pixels <= 8 * BLOCK - BLOCK and channels > 48


def product(x: Tensor, b: int, row: int, panel: int, y: Tensor, memory: Scratch, then: Epilogue = PLAIN) -> None:
    """y = x B, B [x.c, y.c]: panels of 16 columns `panel` bytes apart, their rows `row` bytes apart."""
    pixels, sq, C = y.pixels, 8 * y.c, y.c
    step = align(_TMP + 128 * x.c)
    with memory.frame():
        tmp, step = memory.take_each(step, team().size)

        def call(t: int, block: int, b0: int, b1: int, p0: int, p1: int, sums: int) -> None:
            part = then.channels(16 * p0)
            _pointwise.product(
                x.address, x.stride, b + p0 * panel, row, panel, y.address + 64 * p0, y.stride, pixels, x.c,
                min(C, 16 * p1) - 16 * p0, block, b0, b1, tmp + t * step, then.accumulate, part.bias, then.slope,
                sums, sq, 0, 0,
            )  # fmt: skip

        if _few(pixels, C):
            over_panels(ceil_div(C, 16), lambda t, a, b: call(t, pixels, 0, 1, a, b, then.channels(16 * a).sums))
            return
        block = _block(pixels)
        over_blocks(
            ceil_div(pixels, block), then.sums, C, lambda t, a, b, s: call(t, block, a, b, 0, ceil_div(C, 16), s)
        )


def _block(pixels: int) -> int:
    """Pixels per block of a product: of few blocks two threads should get equally many pixels."""
    if pixels <= 7 * BLOCK:
        return 24
    if pixels > 16 * BLOCK:
        return BLOCK
    return min((BLOCK, BLOCK - 12, BLOCK - 24), key=lambda size: abs(pixels - 2 * (ceil_div(pixels, size) // 2) * size))


class _Runs(NamedTuple):
    """How the pixels of x lie that belong to those of gy, one after the other: `number` runs of `width` pixels.

    run, pixel: bytes from run to run and from pixel to pixel. width 1: all pixels are `run` bytes apart.
    """

    number: int
    width: int
    run: int
    pixel: int


def _runs(x: Tensor, gy: Tensor, win: Window) -> _Runs | None:
    """The pixels of x under those of gy, or None where no such runs exist."""
    if win.taps > 1 or win.top or win.left or (gy.h - 1) * win.sy >= x.h or (gy.w - 1) * win.sx >= x.w:
        return None
    if (x.h, x.w) == (gy.h, gy.w):
        return _Runs(gy.pixels, 1, x.stride, 0)
    if x.h != gy.h * win.sy and x.n > 1:
        return None
    return _Runs(gy.n * gy.h, gy.w, win.sy * x.w * x.stride, win.sx * x.stride)


def takes(x: Tensor, gy: Tensor, win: Window) -> bool:
    """Whether `backward_weights` is for this window: 1x1, no padding, and a stride that divides the height."""
    return _runs(x, gy, win) is not None


class _Cut(NamedTuple):
    """The sum over blocks of `runs` runs, in `slices` slices, for o x i pieces of `rows` x `columns` weights each."""

    runs: int
    blocks: int
    slices: int
    rows: int
    columns: int
    o: int
    i: int


def _cut(runs: _Runs, inputs: int, outputs: int, threads: int) -> _Cut:
    """Blocks and slices follow from the shapes alone; into how many pieces the rows are cut does not matter."""
    columns = _STRIP * ceil_div(inputs, _STRIP * ceil_div(inputs, _SIDE))
    rows = _even(outputs, _SIDE)
    i, o = ceil_div(inputs, columns), ceil_div(outputs, rows)
    most = max(1, (96 + min(columns, inputs) * rows // _SIDE) // runs.width)
    slices = 1 if i * o == 2 else min(ceil_div(runs.number, most), ceil_div(_ITEMS, i * o))
    block = _even(ceil_div(runs.number, slices), most)
    blocks = ceil_div(runs.number, block)
    slices = min(slices, blocks)
    if slices * i * o < threads:
        rows = _even(outputs, max(48, outputs * slices * i // threads))
        o = ceil_div(outputs, rows)
    return _Cut(block, blocks, slices, rows, columns, o, i)


def _even(n: int, most: int) -> int:
    """The size of equal parts of n, at most so large."""
    return ceil_div(n, ceil_div(n, most))


def backward_weights(
    x: Tensor, gy: Tensor, gw: int, win: Window, memory: Scratch, *, subtract: bool, ruined: int = 0
) -> None:
    """OIHW numbers at gw = gradient of the weights, or -= it; the int64 at ruined (or 0) becomes 1 where they are then
    not finite.
    """
    runs = _runs(x, gy, win)
    assert runs is not None
    cut = _cut(runs, x.c, gy.c, team().size)
    pieces, size = cut.o * cut.i, cut.rows * ceil_div(cut.columns, 16) * 64
    step = 4 * _STRIP * cut.runs * runs.width

    def piece(number: int) -> tuple[int, int, int, int, int]:
        """Its first row and column, their numbers, and the address of its weights."""
        o, i = number // cut.i * cut.rows, number % cut.i * cut.columns
        return o, i, min(cut.rows, gy.c - o), min(cut.columns, x.c - i), gw + 4 * (o * x.c + i)

    with memory.frame():
        tmp, step = memory.take_each(step, team().size)
        if cut.slices > 1:
            parts, stride = memory.take(size * pieces * cut.slices), size
        else:
            parts, stride = memory.take_each(size, team().size)

        def call(t: int, low: int, high: int) -> None:
            for item in range(low, high):
                s = item // pieces
                o, i, outputs, inputs, w = piece(item % pieces)
                _pointwise.backward_weights(
                    x.address + 4 * i, runs.run, runs.pixel, gy.address + 4 * o, gy.stride, inputs, outputs,
                    runs.number, runs.width, cut.runs, cut.blocks * s // cut.slices, cut.blocks * (s + 1) // cut.slices,
                    parts + stride * (item if cut.slices > 1 else t), tmp + t * step, w if cut.slices == 1 else 0,
                    4 * x.c, subtract, ruined,
                )  # fmt: skip

        team().run(cut.slices * pieces, call)
        if cut.slices > 1:
            _add_up(parts, size, cut, [piece(number) for number in range(pieces)], 4 * x.c, subtract, ruined)


def _add_up(
    parts: int,
    size: int,
    cut: _Cut,
    pieces: list[tuple[int, int, int, int, int]],
    row: int,
    subtract: bool,
    ruined: int,
) -> None:
    """The slices' results to the weights, rows of `row` bytes."""

    def call(t: int, low: int, high: int) -> None:
        for number, (_, _, outputs, inputs, w) in enumerate(pieces):
            _pointwise.add_up(
                parts + number * size, size * len(pieces), cut.slices, inputs, outputs, w, row, subtract, ruined,
                low, min(high, outputs),
            )  # fmt: skip

    team().run(cut.rows, call)
