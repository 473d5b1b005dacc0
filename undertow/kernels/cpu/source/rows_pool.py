"""Convolutions of few input channels with the bias, the leaky and the 2x2 max pooling behind them, NHWC.

The convolution's result is made two rows at a time and pooled in cache; kept are the pooled values and, in a byte each,
which of its window's pixels was the largest: [pixel][ceil(C / 16) * 16], 0 to 3 row by row. On the way back a window
has a gradient at its winner only, so that a tap costs one multiplication for four of the convolution's pixels.
Stride and dilation are 1. H, W: size of the images; Hp, Wp: of what is pooled. r0..r1: rows of N * Hp.
"""
# mypy: ignore-errors

from __future__ import annotations

import numpy as np

from undertow.kernels.cpu.source.compiler import inline, kernel
from undertow.kernels.cpu.source.direct import add_sums, pad_row
from undertow.kernels.cpu.source.micro import nn
from undertow.kernels.cpu.source.quads import load_bytes, store_bytes, store_quads, won
from undertow.kernels.cpu.source.simd import (
    LANES,
    VBYTES,
    load,
    load_part,
    splat,
    splat_int,
    store,
    store_double,
    store_part,
    where_greater,
    where_same_bits,
    where_wins,
    zero,
)

ROWS_AT_ONCE = 6  # rows of windows whose gradients are added up in registers
_ONE = np.float32(1.0)


@inline
def _pad_rows(x, xs, H, W, Ci, y, n, pl, width, A, rb):
    """n padded rows of the image at x, from its row y on."""
    for k in range(n):
        pad_row(x, xs, H, W, Ci, y + k, pl, width, A + k * rb)


@inline
def _line(p, b, act, sl):
    v = load(p) + b
    if act:
        v = where_greater(v, zero(), v, v * sl)
    return v


@inline
def _pooled(Y, yb, bias, act, sl, C, Wp, z, zs, which, full, fs):
    """One row of windows from two rows of the convolution's, yb bytes apart, a pixel's channels in whole panels."""
    panels = (C + 15) // 16
    step = 64 * panels
    i0, i1, i2, i3 = splat_int(0), splat_int(1), splat_int(2), splat_int(3)
    for c in range(0, C, LANES):
        n = C - c
        b = zero()
        if bias:
            b = load_part(bias + 4 * c, n)
        for o in range(Wp):
            p = Y + 2 * o * step + 4 * c
            u, v = _line(p, b, act, sl), _line(p + step, b, act, sl)
            d, e = _line(p + yb, b, act, sl), _line(p + yb + step, b, act, sl)
            if full:
                q = full + 2 * o * fs + 4 * c
                store_part(q, u, n)
                store_part(q + fs, v, n)
                store_part(q + 2 * Wp * fs, d, n)
                store_part(q + (2 * Wp + 1) * fs, e, n)
            upper, lower = where_wins(v, u, i1, i0), where_wins(e, d, i3, i2)
            u, d = where_wins(v, u, v, u), where_wins(e, d, e, d)
            store_part(z + o * zs + 4 * c, where_wins(d, u, d, u), n)
            store_bytes(which + o * 16 * panels + c, where_wins(d, u, lower, upper))


@kernel(floats=("slope",))
def forward(
    x, xs, H, W, Wt, z, zs, which, full, fs, Hp, Wp, kh, kw, pt, pl, Ci, Co, r0, r1, tmp, bias, slope
):  # fmt: skip
    """z = pooled leaky(conv(x) + bias), and the winners; leaky(...) itself to full unless that is 0.

    tmp: a padded image of 2 * Hp + kh - 1 rows of (2 * Wp + kw - 1) * Ci floats, then, from a multiple of 64 bytes, two
    rows of 2 * Wp pixels.
    """
    width = 2 * Wp + kw - 1
    rb = width * Ci * 4
    panels = (Co + 15) // 16
    Y = tmp + ((2 * Hp + kh - 1) * rb + 63) // 64 * 64
    yb = 2 * Wp * panels * 64
    pb = kh * kw * Ci * 64
    act = slope != 1
    sl = splat(slope)
    ready = 0
    for r in range(r0, r1):
        img = r // Hp
        y = 2 * (r - img * Hp)
        if y == 0 or r == r0:
            ready = y
        A = tmp + ready * rb
        _pad_rows(x + img * H * W * xs, xs, H, W, Ci, ready - pt, y + kh + 1 - ready, pl, width, A, rb)
        ready = y + kh + 1
        for k in range(2):
            for p in range(0, panels, 2):
                nn(
                    2 * Wp, tmp + (y + k) * rb, Ci * 4, kh, rb, kw * Ci, Wt + p * pb, pb, Y + k * yb + 64 * p,
                    64 * panels, min(32, 16 * (panels - p)), 0,
                )  # fmt: skip
        rows = full
        if full:
            rows = full + 4 * r * Wp * fs
        _pooled(Y, yb, bias, act, sl, Co, Wp, z + r * Wp * zs, zs, which + r * Wp * 16 * panels, rows, fs)


@inline
def _quad_rows(A, rb, Ci, n, width, Q, qb):
    """The quads between n + 1 padded rows, without the last of each row."""
    for y in range(n):
        for k in range(0, (width - 1) * Ci, LANES):
            p = A + y * rb + 4 * k
            store_quads(Q + y * qb + 16 * k, load(p), load(p + 4 * Ci), load(p + rb), load(p + rb + 4 * Ci))


@inline
def _move(source, target, n):
    """n bytes, a multiple of a vector's, to a lower address."""
    for k in range(0, n, VBYTES):
        store(target + k, load(source + k))


@inline
def _gradients(gy, gs, z, zs, which, n, C, c, act, sl, g, picks, db, tmp):
    """Vectors of n windows' gradients behind the leaky, and of their winners; db[c..] += the sum of the gradients."""
    panels = (C + 15) // 16
    left = C - c
    for p in range(0, n, 64):
        a = zero()
        for i in range(p, min(p + 64, n)):
            v = load_part(gy + i * gs + 4 * c, left)
            if act:
                v = v * where_greater(load_part(z + i * zs + 4 * c, left), zero(), splat(_ONE), sl)
            a = a + v
            store(g + i * VBYTES, v)
            store(picks + i * VBYTES, load_bytes(which + i * 16 * panels + c))
        store(tmp, a)
        add_sums(db + 8 * c, tmp, min(left, LANES))


@kernel(floats=("slope",))
def backward_weights(
    x, xs, H, W, gy, gs, z, zs, which, slope, Hp, Wp, dW, db, kh, kw, pt, pl, Ci, Co, r0, r1, tmp
):  # fmt: skip
    """dW (packed) and db (float64 [Co]) from the gradient of what was pooled; overwrites them.

    tmp: LANES floats; 2 * ROWS_AT_ONCE + kh - 1 rows of (2 * Wp + kw - 1) * Ci + LANES floats; from multiples of 64
    bytes, ROWS_AT_ONCE * Wp vectors of gradients, as many of winners, one row fewer of as many quads and 16 more quads.
    """
    width = 2 * Wp + kw - 1
    rb = width * Ci * 4 + VBYTES
    qb = (width * Ci + LANES) * 16
    K = kw * Ci
    A = tmp + VBYTES
    g = A + ((2 * ROWS_AT_ONCE + kh - 1) * rb + 63) // 64 * 64
    picks = g + ROWS_AT_ONCE * Wp * VBYTES
    Q = picks + ROWS_AT_ONCE * Wp * VBYTES
    panels = (Co + 15) // 16
    act = slope != 1
    sl = splat(slope)
    for c in range(Co):
        store_double(db + 8 * c, 0.0)
    r = r0
    n = 0
    while r < r1:
        img = r // Hp
        py = r - img * Hp
        kept = 0
        if py > 0 and r > r0:
            kept = max(0, kh - 2)
            _move(Q + 2 * n * qb, Q, kept * qb)
        n = min(min(ROWS_AT_ONCE, Hp - py), r1 - r)
        fresh = 2 * n + kh - 2 - kept
        _pad_rows(x + img * H * W * xs, xs, H, W, Ci, 2 * py + kept - pt, fresh + 1, pl, width, A, rb)
        _quad_rows(A, rb, Ci, fresh, width, Q + kept * qb, qb)
        p = r * Wp
        for c in range(0, Co, LANES):
            _gradients(
                gy + p * gs, gs, z + p * zs, zs, which + p * 16 * panels, n * Wp, Co, c, act, sl, g, picks, db, tmp
            )  # fmt: skip
            C = dW + (c // 16 * kh * K) * 64 + c % 16 * 4
            won(n, Wp, Q, qb, 32 * Ci, g, picks, kh, K, C, r > r0)
        r += n
    if LANES == 8 and Co % 16 and Co % 16 <= 8:
        for k in range(kh * K):
            store_part(dW + (Co // 16 * kh * K + k) * 64 + 32, zero(), LANES)


@kernel(floats=("slope",))
def spread(gy, gs, z, zs, which, slope, gx, xs, Wp, C, r0, r1):
    """The convolution's gradient from that of what was pooled: each window's winner has it, the others have 0."""
    panels = (C + 15) // 16
    act = slope != 1
    sl = splat(slope)
    for p in range(r0 * Wp, r1 * Wp):
        r = p // Wp
        q = gx + (4 * r * Wp + 2 * (p - r * Wp)) * xs
        for c in range(0, C, LANES):
            n = C - c
            g = load_part(gy + p * gs + 4 * c, n)
            if act:
                g = g * where_greater(load_part(z + p * zs + 4 * c, n), zero(), splat(_ONE), sl)
            winner = load_bytes(which + p * 16 * panels + c)
            for k in range(4):
                at = q + (k // 2 * 2 * Wp + k % 2) * xs + 4 * c
                store_part(at, where_same_bits(winner, splat_int(k), g, zero()), n)
