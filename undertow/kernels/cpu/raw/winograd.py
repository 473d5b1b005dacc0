"""3x3 convolutions with stride 1 by Winograd's method, all threads. m: 4 ("fast") or 2 ("precise")."""

from __future__ import annotations

from undertow.kernels.cpu.library import Kernels
from undertow.kernels.cpu.raw import packing
from undertow.kernels.cpu.raw.parts import PLAIN, Epilogue, ceil_div, over_blocks, over_panels, over_slices
from undertow.kernels.cpu.raw.tensor import Scratch, Tensor, align
from undertow.kernels.cpu.threads import team

_winograd = Kernels("winograd")

FEW = 256  # up to so many tiles, weights are transformed panel by panel and never stored as a whole
_PAD = 320  # bytes between slabs, as in source/winograd.py
_TMP = 36 * 64  # scratch of one tile's transforms
_BLOCK = 18 * 1024  # scratch for transposing weights


def tiles_of(y: Tensor, m: int) -> int:
    """Number of m x m tiles of an output."""
    return y.n * ceil_div(y.h, m) * ceil_div(y.w, m)


def _row(channels: int) -> int:
    """Bytes between the tiles of V and M, as in source/winograd.py."""
    row = ceil_div(channels, 16) * 64
    return row + 64 if row >= 512 else row


def _block(tiles: int, x: int, y: int) -> int:
    """Tiles per block: what keeps both transformed sides in the second-level cache."""
    return 96 if tiles >= 768 and x + y <= 128 else 48


def _vectors(channels: int) -> int:
    return ceil_div(channels, 16) * 16


def forward(
    x: Tensor,
    w: int,
    y: Tensor,
    top: int,
    left: int,
    m: int,
    memory: Scratch,
    then: Epilogue = PLAIN,
    *,
    transposed: bool = False,
) -> None:
    """y = conv(x, packed w), padding (top, left). With transposed, flipped weights: the gradient of the input.

    transposed: w is packed for the opposite direction, y.c -> x.c; it is transposed and flipped on the way.
    """
    if tiles_of(y, m) <= FEW:
        _few_forward(x, w, y, top, left, m, memory, then, transposed)
    else:
        _many_forward(x, w, y, top, left, m, memory, then, transposed)


def _many_forward(
    x: Tensor, w: int, y: Tensor, top: int, left: int, m: int, memory: Scratch, then: Epilogue, transposed: bool
) -> None:
    nn, tiles, panels = (m + 2) ** 2, tiles_of(y, m), ceil_div(y.c, 16)
    T = _block(tiles, x.c, y.c)
    us = panels * x.c * 64 + _PAD
    sums = 8 * _vectors(y.c)
    step = align(
        _TMP + max(_BLOCK, sums + nn * 4 * (max(x.c, y.c) + 16) + nn * (T * (_row(x.c) + _row(y.c)) + 2 * _PAD))
    )
    with memory.frame():
        u = memory.take(nn * us)
        tmp = memory.take(step * team().size)

        def weights(t: int, a: int, b: int) -> None:
            target = u + a * x.c * 64
            if transposed:
                _winograd.weights_forward_transposed(m, w, target, us, y.c, x.c, a, b, tmp + t * step)
            else:
                _winograd.weights_forward(m, w, target, us, x.c, a, b, tmp + t * step)

        def call(t: int, b0: int, b1: int, sums: int) -> None:
            _winograd.forward(
                m, x.address, x.stride, x.h, x.w, top, left, u, us, y.address, y.stride, y.h, y.w, x.c, y.c,
                tiles, T, b0, b1, tmp + t * step, then.accumulate, then.bias, then.slope, sums, 8 * y.c,
            )  # fmt: skip

        team().run(panels, weights)
        over_blocks(ceil_div(tiles, T), then.sums, y.c, call)


def _few_forward(
    x: Tensor, w: int, y: Tensor, top: int, left: int, m: int, memory: Scratch, then: Epilogue, transposed: bool
) -> None:
    nn, tiles, panels = (m + 2) ** 2, tiles_of(y, m), ceil_div(y.c, 16)
    own = _TMP + _BLOCK + 256 + nn * 128 + nn * (tiles * 192 + _PAD) + nn * (2 * x.c * 64 + _PAD)
    step = align(max(own, _TMP + nn * 4 * (x.c + 16)))
    with memory.frame():
        v = memory.take(nn * (tiles * _row(x.c) + _PAD))
        tmp = memory.take(step * team().size)
        _few_input(x, y, top, left, m, v, tmp, step)

        def call(t: int, p0: int, p1: int) -> None:
            _winograd.few_forward(
                m, v, w, transposed, y.address, y.stride, y.h, y.w, x.c, y.c, tiles, p0, p1, tmp + t * step,
                then.accumulate, then.bias, then.slope, then.sums, 8 * y.c,
            )  # fmt: skip

        over_panels(panels, call)


def _few_input(x: Tensor, y: Tensor, top: int, left: int, m: int, v: int, tmp: int, step: int) -> None:
    tiles = tiles_of(y, m)
    team().run(
        tiles,
        lambda t, a, b: _winograd.few_input(
            m, x.address, x.stride, x.h, x.w, top, left, y.h, y.w, x.c, tiles, a, b, v, tmp + t * step
        ),
    )


def backward_weights(x: Tensor, gy: Tensor, gw: int, top: int, left: int, m: int, memory: Scratch) -> None:
    """Gradient of the packed weights."""
    if tiles_of(gy, m) <= FEW:
        _few_backward_weights(x, gy, gw, top, left, m, memory)
    else:
        _many_backward_weights(x, gy, gw, top, left, m, memory)


def _few_backward_weights(x: Tensor, gy: Tensor, gw: int, top: int, left: int, m: int, memory: Scratch) -> None:
    nn, tiles, panels = (m + 2) ** 2, tiles_of(gy, m), ceil_div(gy.c, 16)
    own = _TMP + nn * (2 * x.c * 64 + _PAD)
    step = align(max(own, _TMP + nn * 4 * (max(x.c, gy.c) + 32)))
    with memory.frame():
        v = memory.take(nn * (tiles * _row(x.c) + _PAD))
        d = memory.take(nn * (panels * tiles * 64 + _PAD))
        tmp = memory.take(step * team().size)
        _few_input(x, gy, top, left, m, v, tmp, step)
        team().run(
            tiles,
            lambda t, a, b: _winograd.few_gradient(
                m, gy.address, gy.stride, gy.h, gy.w, gy.c, tiles, a, b, d, tmp + t * step
            ),
        )
        over_panels(
            panels,
            lambda t, a, b: _winograd.few_backward_weights(m, v, d, gw, x.c, gy.c, tiles, a, b, tmp + t * step),
        )


def _many_backward_weights(x: Tensor, gy: Tensor, gw: int, top: int, left: int, m: int, memory: Scratch) -> None:
    nn, tiles, panels = (m + 2) ** 2, tiles_of(gy, m), ceil_div(gy.c, 16)
    T = _block(tiles, x.c, gy.c)
    blocks = ceil_div(tiles, T)
    us = panels * x.c * 64 + _PAD
    size = nn * us
    slices = min(blocks, 4 if size <= 1 << 21 else 2 if size <= 1 << 23 else 1)
    step = align(_TMP + nn * 4 * (max(x.c, gy.c) + 32) + nn * (T * (_row(x.c) + panels * 64) + 2 * _PAD))
    with memory.frame():
        u = memory.take(size * slices)
        tmp = memory.take(step * team().size)

        def call(t: int, s: int, b0: int, b1: int, p0: int, p1: int) -> None:
            _winograd.backward_weights(
                m, x.address, x.stride, x.h, x.w, top, left, gy.address, gy.stride, gy.h, gy.w, u + s * size, us,
                x.c, gy.c, tiles, T, b0, b1, p0, p1, tmp + t * step,
            )  # fmt: skip

        over_slices(slices, blocks, panels, call)
        packing.add_parts(u, u + size, size, slices - 1, size // 4)
        team().run(
            panels,
            lambda t, a, b: _winograd.weights_backward(m, u + a * x.c * 64, us, gw, x.c, a, b, tmp + t * step),
        )
