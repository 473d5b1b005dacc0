"""Both gradients of a depthwise convolution in one pass over the images.

Where a batch norm and a leaky stand in front of the convolution, its input is worked out on the way, and the sums that
the batch norm's gradient needs are taken from the gradient that is written.
"""
# mypy: ignore-errors

from __future__ import annotations

import numpy as np

from undertow.kernels.cpu.source.batchnorm import flush
from undertow.kernels.cpu.source.compiler import inline, kernel
from undertow.kernels.cpu.source.depthwise import BLOCK, ask, in_threes, line
from undertow.kernels.cpu.source.simd import (
    LANES,
    VBYTES,
    fma,
    load,
    load_int,
    load_part,
    splat,
    store,
    store_int,
    store_part,
    where_greater,
    zero,
)

_ONE = np.float32(1.0)
# Bytes of a tap in a list: addresses of the output's gradient for pixel 0, of the weights and of their gradient, first
# and last pixel + 1.
ENTRY = 40


@inline
def _take_sums(u, a, front, b1, b2):
    """b1 + g, b2 + g * x_hat, where a is the gradient behind the leaky and g that in front of it."""
    s, h, sl, k1, k0 = front
    g = a * where_greater(fma(u, s, h), zero(), splat(_ONE), sl)
    return b1 + g, fma(g, fma(u, k1, k0), b2)


@inline
def _start(p, left, acc):
    a = zero()
    if acc:
        a = load_part(p, left)
    return a


@inline
def _add(p, a):
    store(p, load(p) + a)


@inline
def _tap(entry, totals, r, gs, c, v0, v1, v2, v3, a0, a1, a2, a3):
    """One tap of four pixels, r bytes from pixel 0; the gradient of its weights goes to totals."""
    p, w = load_int(entry) + r, load(load_int(entry + 8) + c)
    g0, g1, g2, g3 = load(p), load(p + gs), load(p + 2 * gs), load(p + 3 * gs)
    _add(totals, fma(v0, g0, v1 * g1) + fma(v2, g2, v3 * g3))
    return fma(g0, w, a0), fma(g1, w, a1), fma(g2, w, a2), fma(g3, w, a3)


@inline
def _three_taps(entry, totals, r, gs, c, v0, v1, v2, v3, a0, a1, a2, a3):
    """Three taps, see depthwise.in_threes, of four pixels: six gradients serve them all."""
    p = load_int(entry) + r
    w0, w1 = load(load_int(entry + 8) + c), load(load_int(entry + ENTRY + 8) + c)
    w2 = load(load_int(entry + 2 * ENTRY + 8) + c)
    g0, g1, g2, g3 = load(p), load(p + gs), load(p + 2 * gs), load(p + 3 * gs)
    g4, g5 = load(p + 4 * gs), load(p + 5 * gs)
    _add(totals, fma(v0, g0, v1 * g1) + fma(v2, g2, v3 * g3))
    _add(totals + BLOCK, fma(v0, g1, v1 * g2) + fma(v2, g3, v3 * g4))
    _add(totals + 2 * BLOCK, fma(v0, g2, v1 * g3) + fma(v2, g4, v3 * g5))
    a0, a1 = fma(g2, w2, fma(g1, w1, fma(g0, w0, a0))), fma(g3, w2, fma(g2, w1, fma(g1, w0, a1)))
    return a0, a1, fma(g4, w2, fma(g3, w1, fma(g2, w0, a2))), fma(g5, w2, fma(g4, w1, fma(g3, w0, a3)))


@inline
def _four_pixels(taps, n, threes, o, p, xs, q, qs, gs, c, front, acc, totals, sums):
    """Input pixels o .. o + 4 at p, whose gradients go to q: a whole vector, all taps reach them."""
    s, h, sl, _, _ = front
    u0, u1, u2, u3 = load(p), load(p + xs), load(p + 2 * xs), load(p + 3 * xs)
    v0, v1, v2, v3 = line(u0, s, h, sl), line(u1, s, h, sl), line(u2, s, h, sl), line(u3, s, h, sl)
    a0, a1 = _start(q, LANES, acc), _start(q + qs, LANES, acc)
    a2, a3 = _start(q + 2 * qs, LANES, acc), _start(q + 3 * qs, LANES, acc)
    r = o * gs + c
    if threes:
        for t in range(0, n, 3):
            a0, a1, a2, a3 = _three_taps(
                taps + ENTRY * t, totals + t * BLOCK, r, gs, c, v0, v1, v2, v3, a0, a1, a2, a3
            )
    else:
        for t in range(n):
            a0, a1, a2, a3 = _tap(
                taps + ENTRY * t, totals + t * BLOCK, r, gs, c, v0, v1, v2, v3, a0, a1, a2, a3
            )
    store(q, a0)
    store(q + qs, a1)
    store(q + 2 * qs, a2)
    store(q + 3 * qs, a3)
    b1, b2 = _take_sums(u0, a0, front, load(sums), load(sums + BLOCK))
    b1, b2 = _take_sums(u1, a1, front, b1, b2)
    b1, b2 = _take_sums(u2, a2, front, b1, b2)
    b1, b2 = _take_sums(u3, a3, front, b1, b2)
    store(sums, b1)
    store(sums + BLOCK, b2)


@inline
def _pixel(taps, n, o, p, q, gs, c, left, front, acc, totals, sums):
    """The same for pixel o and part of a vector."""
    s, h, sl, _, _ = front
    u, a = load_part(p, left), _start(q, left, acc)
    v = line(u, s, h, sl)
    for t in range(n):
        entry = taps + ENTRY * t
        if o >= load_int(entry + 24) and o < load_int(entry + 32):
            g = load_part(load_int(entry) + o * gs + c, left)
            a = fma(g, load_part(load_int(entry + 8) + c, left), a)
            _add(totals + t * BLOCK, v * g)
    store_part(q, a, left)
    b1, b2 = _take_sums(u, a, front, load(sums), load(sums + BLOCK))
    store(sums, b1)
    store(sums + BLOCK, b2)


@kernel(floats=("slope",))
def pixels(
    taps, n, gs, x, xs, count, gx, qs, C, acc, scale, shift, k1, k0, slope, sums, sq, tmp, below, gx_below, soon,
):  # fmt: skip
    """Input pixels o < count of one row: gx[o], and their share of the gradient of n taps' weights.

    The gradient of the output that a tap meets lies gs * o bytes behind that for pixel 0. below, gx_below: bytes to the
    next row of x and gx. soon: the row of the output's gradient that the next call reads first, or 0. What these are
    about is asked for on the way. All else as in `backward`.
    """
    sl = splat(slope)
    own, totals = tmp + 2 * VBYTES, tmp + 2 * VBYTES + 2 * BLOCK
    low, high = 0, count
    for t in range(n):
        low = max(low, load_int(taps + ENTRY * t + 24))
        high = min(high, load_int(taps + ENTRY * t + 32))
    threes = in_threes(taps, n, ENTRY, gs)
    for first in range(0, 4 * C, BLOCK):
        end = min(first + BLOCK, 4 * C)
        for k in range(0, (2 + n) * BLOCK, VBYTES):
            store(own + k, zero())
        o = 0
        while o < count:
            four = o >= low and o + 4 <= high
            for c in range(first, end, VBYTES):
                left, d, p, q = C - c // 4, c - first, x + o * xs + c, gx + o * qs + c
                s, h, k, m = splat(_ONE), zero(), zero(), zero()
                if scale:
                    s, h = load_part(scale + c, left), load_part(shift + c, left)
                    k, m = load_part(k1 + c, left), load_part(k0 + c, left)
                front = (s, h, sl, k, m)
                if four:
                    ask(p + below, 4, xs)
                    ask(q + gx_below, 4, qs)
                    if soon:
                        ask(soon + o * gs + c, 4, gs)
                if four and left >= LANES:
                    _four_pixels(taps, n, threes, o, p, xs, q, qs, gs, c, front, acc, totals + d, own + d)
                else:
                    for i in range(4 if four else 1):
                        _pixel(taps, n, o + i, p + i * xs, q + i * qs, gs, c, left, front, acc, totals + d, own + d)
            o += 4 if four else 1
        for c in range(first, end, VBYTES):
            left, d = C - c // 4, c - first
            for t in range(n):
                p = load_int(taps + ENTRY * t + 16) + c
                store_part(p, load_part(p, left) + load(totals + t * BLOCK + d), left)
            if scale:
                flush(load(own + d), load(own + BLOCK + d), c // 4, left, sums, sq, tmp)


@inline
def _list(entry, gradient, weights, dw, first, last):
    store_int(entry, gradient)
    store_int(entry + 8, weights)
    store_int(entry + 16, dw)
    store_int(entry + 24, first)
    store_int(entry + 32, last)


@kernel(floats=("slope",))
def backward(
    dy, ds, Ho, Wo, x, xs, H, W, scale, shift, k1, k0, slope, w, gx, qs, dw, kh, kw, sy, sx, dly, dlx, pt, pl, C,
    r0, r1, acc, tmp, sums, sq,
):  # fmt: skip
    """gx of input rows r0..r1 of N * H, and their share of dw[taps][C], which is overwritten.

    scale: or 0; the convolution's input then is leaky(x * scale + shift), and sums[c] += sum of g, and of
    g * (x * k1 + k0) sq bytes behind, where g is what the leaky lets through of gx.
    tmp: ENTRY bytes per tap, rounded up to 64, two vectors, and 2 + kh * kw times BLOCK.
    """
    own = tmp + (ENTRY * kh * kw + 63) // 64 * 64
    for k in range(0, kh * kw * C, LANES):
        store_part(dw + 4 * k, zero(), kh * kw * C - k)
    for r in range(r0, r1):
        img = r // H
        top = r - img * H + pt
        soon = 0
        if (top + 1) // sy > top // sy and (top + 1) // sy < Ho:
            soon = dy + (img * Ho + (top + 1) // sy) * Wo * ds
        for cx in range(min(sx, W)):
            n = 0
            for i in range(kh):
                oy = (top - i * dly) // sy
                if oy * sy == top - i * dly and oy >= 0 and oy < Ho:
                    for j in range(kw - 1, -1, -1):  # from left to right, see in_threes
                        ox = (cx + pl - j * dlx) // sx
                        if ox * sx == cx + pl - j * dlx:
                            gradient, tap = dy + ((img * Ho + oy) * Wo + ox) * ds, (i * kw + j) * 4 * C
                            _list(tmp + ENTRY * n, gradient, w + tap, dw + tap, max(0, -ox), Wo - ox)
                            n += 1
            p, q, count = x + (r * W + cx) * xs, gx + (r * W + cx) * qs, (W - cx + sx - 1) // sx
            pixels(
                tmp, n, ds, p, sx * xs, count, q, sx * qs, C, acc, scale, shift, k1, k0, slope, sums, sq, own,
                W * xs, W * qs, soon if cx == 0 else 0,
            )  # fmt: skip
