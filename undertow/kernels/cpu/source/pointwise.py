"""Gradients of 1x1 weights: dW[o][i] = sum over pixels of dy[pixel][o] x[pixel][i], both read where they lie.

Copies of x or dy, even into a cache that is near, take longer than what they save. The input channels are the
vectors' lanes, so the results' rows are those of OIHW weights.
"""
# mypy: ignore-errors

from __future__ import annotations

from undertow.kernels.cpu.source.compiler import inline, kernel
from undertow.kernels.cpu.source.micro import ROWS, tr
from undertow.kernels.cpu.source.simd import LANES, load_part, prefetch, store_part

STRIP = 32  # input channels at a time: the rows of x of a block stay in the first cache for all output channels


@kernel
def backward_weights(x, xr, xs, dy, ds, Ci, Co, R, W, T, b0, b1, dW, tmp, w, ws, subtract):
    """dW from blocks b0..b1 of T runs of W pixels out of R runs; overwrites it.

    xr, xs: bytes of x from run to run and from pixel to pixel within one; W is 1 where all pixels are xr apart.
    dW: panels of input channels, [ceil(Ci/16)][Co][16]. w: 0, or rows of Ci floats ws bytes apart that become (or
    from which is taken, if subtract) the result. tmp: T * W * 128 bytes.
    """
    for b in range(b0, b1):
        last = b + 1 == b1
        xb, yb = x + b * T * xr, dy + b * T * W * ds
        x_ahead, y_ahead = 0 if last else xb + T * xr, 0 if last else yb + T * W * ds
        n, width, step = min(T, R - b * T), W, xs
        if W == 1:
            n, width, step = 1, n, xr
        target = w if last else 0
        _block(
            xb, xr, step, yb, ds, Ci, Co, n, width, b > b0, x_ahead, y_ahead, dW, tmp, target, ws, subtract
        )  # fmt: skip


@kernel
def _block(x, xr, xs, dy, ds, Ci, Co, R, W, acc, x_ahead, y_ahead, dW, tmp, w, ws, subtract):
    """One block of R runs. x_ahead, y_ahead: where the next one lies, or 0.

    While a tile is computed, a column of cache lines is asked for that a later one needs: first of the next strip of
    x, then of dy, of the next block or, in the first strip of the first block, of the tile behind this one.
    """
    line = 0
    for c in range(0, Ci, STRIP):
        cols = min(STRIP, Ci - c)
        B, br, bs = x + 4 * c, xr, xs
        if cols % 16:
            _copy(B, xr, xs, cols, R, W, tmp)
            B, br, bs = tmp, 128 * W, 128
        strip_ahead = x_ahead if c + STRIP >= Ci else x + 4 * (c + STRIP)
        C = dW + c // 16 * Co * 64
        for o in range(0, Co, ROWS):
            ahead, ar, at = C, 0, 0
            if o < 2 * ROWS and strip_ahead:
                ahead, ar, at = strip_ahead + o // ROWS * 64, xr, xs
            elif y_ahead and line < Co // 16:
                ahead, ar, at = y_ahead + line * 64, W * ds, ds
                line += 1
            elif c == 0 and not acc:
                ahead, ar, at = dy + 4 * (o + 2 * ROWS) - 4, W * ds, ds
            m = min(ROWS, Co - o)
            target = w + o * ws + 4 * c
            if w:
                _ask(target, ws, m)
            tr(m, dy + 4 * o, ds, R, W, B, br, bs, C + 64 * o, Co * 64, cols, acc, ahead, ar, at)
            if w:
                _deliver(C + 64 * o, Co * 64, 0, 1, cols, target, ws, m, subtract)


@inline
def _copy(x, xr, xs, cols, R, W, out):
    """A strip that ends within a panel as [R][W][32], zeros behind it."""
    for r in range(R):
        for i in range(W):
            for c in range(0, STRIP, LANES):
                store_part(out + 4 * c, load_part(x + r * xr + i * xs + 4 * c, cols - c), LANES)
            out += 4 * STRIP


@inline
def _ask(w, ws, n):
    """Ask for n rows of a strip of weights."""
    for k in range(n):
        prefetch(w + k * ws)
        prefetch(w + k * ws + 64)


@inline
def _deliver(parts, panel, step, count, cols, w, ws, n, subtract):
    """n rows of `cols` columns at w become, or are lessened by, the sum of `count` panels, step bytes apart."""
    for k in range(n):
        for c in range(0, cols, LANES):
            at, left = w + k * ws + 4 * c, cols - c
            s = parts + c // 16 * panel + 64 * k + c % 16 * 4
            v = load_part(s, LANES)
            for p in range(1, count):
                v = v + load_part(s + p * step, LANES)
            if subtract:
                v = load_part(at, left) - v
            store_part(at, v, left)


@kernel
def add_up(parts, step, count, Ci, Co, w, ws, subtract, o0, o1):
    """Rows o0..o1 of w become, or are lessened by, the sum of `count` dW of `backward_weights`, step bytes apart."""
    _deliver(parts + 64 * o0, Co * 64, step, count, Ci, w + o0 * ws, ws, o1 - o0, subtract)
