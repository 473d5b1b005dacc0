"""3x3 and 5x5 convolutions by Winograd's method, all threads.

f: 10 m + window, for tiles of m x m results: 43 and 53 ("fast"), 23 ("precise"), 45 (5x5 windows, "fast"); STRIDED (3x3
windows with stride 2, "fast") and STRIDED_BACK (the gradient of its input).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from undertow.kernels.cpu.jobs import here
from undertow.kernels.cpu.library import Kernels
from undertow.kernels.cpu.raw import packing
from undertow.kernels.cpu.raw.parts import PLAIN, Epilogue, ceil_div, over_blocks, over_panels, over_slices
from undertow.kernels.cpu.raw.tensor import Scratch, Tensor, align
from undertow.kernels.cpu.threads import team
from undertow.kernels.geometry import Pair

_winograd, _weights = Kernels("winograd"), Kernels("winograd_weights")

PACKED, PACKED_OPPOSITE, OIHW, OIHW_OPPOSITE, OIHW_MINUS = (
    0,
    1,
    2,
    3,
    4,
)  # forms of weights, see source/winograd_weights.py

STRIDED, STRIDED_BACK = 432, 832
FEW = 256  # up to so many tiles, large weights are transformed panel by panel and never stored as a whole
_PAD = 320  # bytes between slabs, as in source/winograd.py
_KU = 256  # channels of large weights per transform, as there
_TMP = 96 * 64  # scratch of one tile's transforms
_BLOCK = 50 * 1024  # scratch for transposing weights


class Grid(NamedTuple):
    """How many tiles cover all images of an output, and the address of the kernels' numbers about them."""

    tiles: int
    address: int


_APART = 1 << 40  # a period no image reaches


def tile_of(f: int) -> int:
    """n: a tile takes n * n products."""
    return 9 if f >= STRIDED else f // 10 + f % 10 - 1


def _weights_of(f: int) -> int:
    """Number of slabs of transformed weights."""
    return 36 if f >= STRIDED else tile_of(f) ** 2


@lru_cache(maxsize=4096)
def _grid(n: int, size: Pair, out: Pair, before: Pair, f: int) -> tuple[Grid, np.ndarray]:
    """The grid with the fewest tiles. size, out: (height, width) of input and output; before: padding (top, left).

    Images whose size is no multiple of m waste tiles. Laid side by side, with as many zeros between them as the
    padding needs, they waste less: four of 13 x 13 take 49 tiles of 4 x 4 instead of 64.
    """
    m, rim = (f // 100, 2) if f >= STRIDED else (f // 10, f % 10 - 1)
    after = [o + rim - i - b for o, i, b in zip(out, size, before, strict=True)]
    periods = [max(i + max(a, b, 0), o) for i, o, a, b in zip(size, out, after, before, strict=True)]

    def numbers(my: int, mx: int) -> tuple[int, ...]:
        th, tw = (ceil_div((k - 1) * p + o, m) for k, p, o in zip((my, mx), periods, out, strict=True))
        return n, th, tw, my, mx, periods[0] if my > 1 else _APART, periods[1] if mx > 1 else _APART

    def tiles(grid: tuple[int, ...]) -> int:
        return ceil_div(n, grid[3] * grid[4]) * grid[1] * grid[2]

    best = numbers(1, 1)
    most = 1 if f >= STRIDED else min(n, 8)
    for my in range(1, most + 1):
        for mx in range(1, min(n // my, most) + 1):
            other = numbers(my, mx)
            if tiles(other) * 20 < tiles(best) * 19:  # tiles across two images cost a copy: not for a trifle
                best = other
    table = np.array(best, np.int64)
    return Grid(tiles(best), table.ctypes.data), table


def grid_of(x: Tensor, y: Tensor, top: int, left: int, f: int) -> Grid:
    """The grid for a convolution x -> y with padding (top, left)."""
    grid, numbers = _grid(y.n, (x.h, x.w), (y.h, y.w), (top, left), f)
    if here.script is not None:
        here.script.hold(numbers)  # the cache above may drop them
    return grid


def tiles_of(n: int, size: Pair, out: Pair, before: Pair, f: int) -> int:
    """Number of tiles for n images."""
    return _grid(n, size, out, before, f)[0].tiles


def products(n: int, size: Pair, out: Pair, before: Pair, f: int) -> int:
    """Number of products per pair of an input and an output channel."""
    return tiles_of(n, size, out, before, f) * tile_of(f) ** 2


def larger_tiles_pay(n: int, size: Pair, out: Pair, before: Pair, x: int, y: int) -> bool:
    """Whether 53 is faster than 43 for x -> y channels.

    Only where weights are transformed panel by panel: elsewhere the larger blocks leave the cache. The transforms of
    the weights take as long as the products of some 16 tiles.
    """
    small, large = (tiles_of(n, size, out, before, f) for f in (43, 53))
    return _few(large, x, y) and (large + 16) * tile_of(53) ** 2 * 33 < (small + 16) * tile_of(43) ** 2 * 32


def strided_pays(n: int, out: Pair, x: int, y: int) -> bool:
    """Whether STRIDED is faster than no transform for x -> y channels.

    Its many slabs leave the caches where the weights are large, and take long to make beside few products.
    """
    tiles = n * ceil_div(out[0], 4) * ceil_div(out[1], 4)
    return 2048 <= x * y <= 1 << 15 and tiles >= 256 and tiles * 81 * 8 <= 9 * n * out[0] * out[1] * 5


def _row(channels: int) -> int:
    """Bytes between the tiles of V and M, as in source/winograd.py."""
    row = ceil_div(channels, 16) * 64
    return row + 64 if row >= 512 else row


def _few(tiles: int, x: int, y: int) -> bool:
    """Whether weights of x times y channels are large beside the tiles of both sides."""
    return tiles <= FEW and tiles * (x + y) <= 2 * x * y


def _forward_block(f: int, tiles: int, x: int, y: int) -> int:
    """Tiles per block: what keeps both transformed sides in the second-level cache beside what is fetched for later."""
    if f < STRIDED and tiles < 96:
        return _block(tiles, 24)
    return _block(tiles, 36 if x + y <= 192 else 24 if x + y > 256 else 48)


def _backward_block(f: int, tiles: int, x: int, y: int) -> int:
    """The same for the gradient of the weights, which every block adds to as a whole."""
    if f >= STRIDED:
        return _block(tiles, 96 if x + y <= 128 else 48 if x + y <= 256 else 36)
    return _block(tiles, 24 if tiles < 96 else 96 if tiles >= 768 and x + y <= 128 else 72)


def _block(tiles: int, most: int) -> int:
    """At most `most` tiles per block, as few fewer as give two threads equal work: the last block is seldom whole."""

    def longer(block: int) -> int:
        first = ceil_div(tiles, block) // 2 * block
        return max(first, tiles - first)

    best = most
    for block in range(most - 4, most * 2 // 3, -4):
        if longer(block) * 20 < longer(best) * 19:
            best = block
    return best


def _vectors(channels: int) -> int:
    return ceil_div(channels, 16) * 16


def forward(
    x: Tensor,
    w: int,
    y: Tensor,
    top: int,
    left: int,
    f: int,
    memory: Scratch,
    then: Epilogue = PLAIN,
    form: int = PACKED,
) -> None:
    """y = conv(x, w), padding (top, left). form: how w lies in memory.

    The gradient of the input is the convolution with transposed and flipped weights: PACKED ones that are so
    already, or an opposite form.
    """
    grid = grid_of(x, y, top, left, f)
    run = _few_forward if f < STRIDED and _few(grid.tiles, x.c, y.c) else _many_forward
    run(x, w, y, top, left, f, grid, memory, then, form)


def _many_forward(
    x: Tensor,
    w: int,
    y: Tensor,
    top: int,
    left: int,
    f: int,
    grid: Grid,
    memory: Scratch,
    then: Epilogue,
    form: int,
) -> None:
    nn, tiles, panels = tile_of(f) ** 2, grid.tiles, ceil_div(y.c, 16)
    T = _forward_block(f, tiles, x.c, y.c)
    us = panels * x.c * 64 + _PAD
    sums = 8 * _vectors(y.c)
    step = align(
        _TMP + max(_BLOCK, sums + nn * 4 * (max(x.c, y.c) + 16) + nn * (T * (_row(x.c) + _row(y.c)) + 2 * _PAD))
    )
    with memory.frame():
        u = memory.take(_weights_of(f) * us)
        tmp, step = memory.take_each(step, team().size)

        def call(t: int, b0: int, b1: int, sums: int) -> None:
            _winograd.forward(
                f, x.address, x.stride, x.h, x.w, top, left, u, us, y.address, y.stride, y.h, y.w, x.c, y.c,
                grid.address, tiles, T, b0, b1, tmp + t * step, then.accumulate, then.bias, then.slope, sums, 8 * y.c,
            )  # fmt: skip

        team().run(
            panels,
            lambda t, a, b: _weights.forward(form, f, w, u + a * x.c * 64, us, x.c, y.c, a, b, 0, x.c, tmp + t * step),
        )
        over_blocks(ceil_div(tiles, T), then.sums, y.c, call)


def _few_forward(
    x: Tensor,
    w: int,
    y: Tensor,
    top: int,
    left: int,
    f: int,
    grid: Grid,
    memory: Scratch,
    then: Epilogue,
    form: int,
) -> None:
    nn, tiles, panels = tile_of(f) ** 2, grid.tiles, ceil_div(y.c, 16)
    own = _TMP + _BLOCK + 256 + nn * 128 + nn * (tiles * 192 + _PAD) + nn * (2 * min(x.c, _KU) * 64 + _PAD)
    step = align(max(own, _TMP + nn * 4 * (x.c + 16)))
    with memory.frame():
        v = memory.take(nn * (tiles * _row(x.c) + _PAD))
        tmp, step = memory.take_each(step, team().size)
        _few_input(x, top, left, f, grid, v, tmp, step)

        def call(t: int, p0: int, p1: int) -> None:
            _winograd.few_forward(
                form, f, v, w, y.address, y.stride, y.h, y.w, x.c, y.c, grid.address, tiles,
                p0, p1, tmp + t * step, then.accumulate, then.bias, then.slope, then.sums, 8 * y.c,
            )  # fmt: skip

        over_panels(panels, call)


def _few_input(x: Tensor, top: int, left: int, f: int, grid: Grid, v: int, tmp: int, step: int) -> None:
    team().run(
        grid.tiles,
        lambda t, a, b: _winograd.few_input(
            f, x.address, x.stride, x.h, x.w, top, left, x.c, grid.address, grid.tiles, a, b, v, tmp + t * step
        ),
    )


def backward_weights(
    x: Tensor,
    gy: Tensor,
    gw: int,
    top: int,
    left: int,
    f: int,
    memory: Scratch,
    form: int = PACKED,
    ruined: int = 0,
) -> None:
    """Gradient of the weights, as PACKED or OIHW; OIHW_MINUS: subtracted from what stands at gw.

    ruined: 0, or the address of an int64 that becomes 1 where the difference is not finite.
    """
    grid = grid_of(x, gy, top, left, f)
    run = _few_backward_weights if f < STRIDED and _few(grid.tiles, x.c, gy.c) else _many_backward_weights
    run(x, gy, gw, top, left, f, grid, memory, form, ruined)


def _few_backward_weights(
    x: Tensor,
    gy: Tensor,
    gw: int,
    top: int,
    left: int,
    f: int,
    grid: Grid,
    memory: Scratch,
    form: int,
    ruined: int,
) -> None:
    nn, tiles = tile_of(f) ** 2, grid.tiles
    own = _TMP + _BLOCK + nn * (128 + tiles * 128 + 2 * min(x.c, _KU) * 64 + 2 * _PAD)
    step = align(max(own, _TMP + nn * 4 * (x.c + 16)))
    with memory.frame():
        v = memory.take(nn * (tiles * _row(x.c) + _PAD))
        tmp, step = memory.take_each(step, team().size)
        _few_input(x, top, left, f, grid, v, tmp, step)

        def call(t: int, p0: int, p1: int) -> None:
            _winograd.few_backward_weights(
                form, f, v, gy.address, gy.stride, gy.h, gy.w, gw, x.c, gy.c, grid.address, tiles,
                p0, p1, tmp + t * step, ruined,
            )  # fmt: skip

        over_panels(ceil_div(gy.c, 16), call)


def _many_backward_weights(
    x: Tensor,
    gy: Tensor,
    gw: int,
    top: int,
    left: int,
    f: int,
    grid: Grid,
    memory: Scratch,
    form: int,
    ruined: int,
) -> None:
    nn, tiles, panels = tile_of(f) ** 2, grid.tiles, ceil_div(gy.c, 16)
    T = _backward_block(f, tiles, x.c, gy.c)
    blocks = ceil_div(tiles, T)
    us = panels * x.c * 64 + _PAD
    size = _weights_of(f) * us
    slices = min(blocks, 4 if size <= 1 << 21 else 2 if size <= 1 << 22 else 1)
    step = align(_TMP + _BLOCK + nn * 4 * (max(x.c, gy.c) + 32) + nn * (T * (_row(x.c) + panels * 64) + 2 * _PAD))
    with memory.frame():
        tmp, step = memory.take_each(step, team().size)

        def products(t: int, u: int, us: int, b0: int, b1: int, p0: int, p1: int) -> None:
            """u: where panel 0 would lie."""
            _winograd.backward_weights(
                f, x.address, x.stride, x.h, x.w, top, left, gy.address, gy.stride, gy.h, gy.w, u, us,
                x.c, gy.c, grid.address, tiles, T, b0, b1, p0, p1, tmp + t * step,
            )  # fmt: skip

        def to_weights(t: int, u: int, us: int, p0: int, p1: int) -> None:
            _weights.backward(form, f, u, us, gw, x.c, gy.c, p0, p1, 0, x.c, tmp + t * step, ruined)

        if slices == 1:  # each thread has its own channels from beginning to end, and their sums in its own memory
            most = 2 * ceil_div(ceil_div(panels, 2), min(team().size, ceil_div(panels, 2)))  # panels of a thread
            own_us = most * x.c * 64 + _PAD
            own, apart = memory.take_each(_weights_of(f) * own_us, team().size)

            def alone(t: int, p0: int, p1: int) -> None:
                u = own + t * apart
                products(t, u - p0 * x.c * 64, own_us, 0, blocks, p0, p1)
                to_weights(t, u, own_us, p0, p1)

            over_panels(panels, alone)
            return
        places = _places(slices, size, memory)
        over_slices(slices, blocks, panels, lambda t, s, *part: products(t, places[s], us, *part))
        _add_up(places, size)
        team().run(panels, lambda t, a, b: to_weights(t, places[0] + a * x.c * 64, us, a, b))


def _places(slices: int, size: int, memory: Scratch) -> list[int]:
    """Addresses of `size` bytes for each of the slices of `over_slices`, of the thread that writes there."""
    threads = team().size
    if threads > slices:  # several write to each
        first = memory.take(slices * size)
        return [first + s * size for s in range(slices)]
    first, step = memory.take_each(ceil_div(slices, threads) * size, threads)
    return [first + t * step + (s - low) * size for t, low, high in team().shares(slices) for s in range(low, high)]


def _add_up(places: list[int], size: int) -> None:
    """To the first of the places what stands at the others, one after the other."""
    at = 1
    while at < len(places):
        end = at + 1
        while end < len(places) and places[end] == places[end - 1] + size:
            end += 1
        packing.add_parts(places[0], places[at], size, end - at, size // 4)
        at = end
