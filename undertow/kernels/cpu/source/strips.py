"""Gradients of the weights of windows with several taps and many channels, in the users' layout at once.

dW[o][i][tap] = sum over pixels of dy[pixel][o] x[pixel under the tap][i]. A piece is some output channels times a
strip of 32 input channels: its weights of all taps are summed up in the second cache, then laid out as OIHW. For that
the strip of x is copied, the rows under every row of dy by themselves, so that each tap reads dense runs of pixels; and
dy stands in panels as wide as a tile is high.
"""
# mypy: ignore-errors

from __future__ import annotations

import numpy as np

from undertow.kernels.cpu.source.compiler import inline, kernel
from undertow.kernels.cpu.source.micro import ROWS, tr
from undertow.kernels.cpu.source.nines import TAPS, take_from_rows, to_rows
from undertow.kernels.cpu.source.simd import (
    LANES,
    VBYTES,
    load_float,
    load_part,
    splat,
    store_float,
    store_part,
    tell_nan,
    zero,
)

STRIP = 32
PIXEL = 4 * STRIP  # bytes of one pixel of a strip

@kernel
def turn(dy, ds, Co, P, out, p0, p1):
    """Pixels p0..p1 of dy as panels [ceil(Co/ROWS)][P][ROWS], zeros behind Co."""
    for p in range(p0, p1):
        for o in range(0, Co, ROWS):
            to = out + (o * P + p * ROWS) * 4
            for c in range(0, ROWS, LANES):
                store_part(to + 4 * c, load_part(dy + p * ds + 4 * (o + c), min(ROWS - c, Co - o - c)), ROWS - c)


@inline
def _zeros(out, n):
    for k in range(0, n, VBYTES):
        store_part(out + k, zero(), LANES)


@inline
def _copy_row(x, xs, W, cols, sx, left, width, out):
    """A row of pixels from column -left on as [sx][width][32], pixel k * sx + f at [f][k]; zeros outside the image."""
    for f in range(sx):
        low = min(width, max(0, (left - f + sx - 1) // sx))
        high = min(width, max(low, (W - 1 + left - f) // sx + 1))
        _zeros(out, low * PIXEL)
        s = x + (low * sx + f - left) * xs
        for k in range(low, high):
            for c in range(0, STRIP, LANES):
                store_part(out + k * PIXEL + 4 * c, load_part(s + 4 * c, cols - c), LANES)
            s += sx * xs
        _zeros(out + high * PIXEL, (width - high) * PIXEL)
        out += width * PIXEL


@inline
def _copy(x, xs, H, W, cols, Ho, kh, sy, sx, dly, top, left, width, q0, q1, out):
    """What the windows of rows q0..q1 of N * Ho see: [row][kh][sx][width][32]."""
    for q in range(q0, q1):
        img = q // Ho
        for k in range(kh):
            y = (q - img * Ho) * sy - top + k * dly
            if y >= 0 and y < H:
                _copy_row(x + (img * H + y) * W * xs, xs, W, cols, sx, left, width, out)
            else:
                _zeros(out, sx * width * PIXEL)
            out += sx * width * PIXEL


@kernel
def backward_weights(
    x, xs, H, W, panels, Ho, Wo, kh, kw, sy, sx, dly, dlx, top, left, Ci, Co, P, rows, R, o0, o1, c, c_next, w,
    subtract, ruined, tmp, sums,
):  # fmt: skip
    """Weights of output channels o0..o1 and the input channels of a strip, from c on: OIHW, overwritten or lessened.

    panels: of P pixels of dy in R rows, from `turn`; o0 is a multiple of ROWS. rows: of dy at a time. c_next: the strip
    that is read next. tmp: rows * kh * sx * (Wo + (kw - 1) * dlx // sx) * 128 bytes. sums: taps * 128 bytes for every
    channel from o0 to o1, rounded up to whole tiles. ruined: 0, or an int64 that becomes 1 where a weight written is
    not finite.
    """
    taps = kh * kw
    width = Wo + (kw - 1) * dlx // sx
    row = sx * width * PIXEL
    n_o = o1 - o0
    C = (n_o + ROWS - 1) // ROWS * ROWS * 64  # bytes of a panel of sums
    cols = min(STRIP, Ci - c)
    ws, target = Ci * taps * 4, w + (o0 * Ci + c) * taps * 4
    for b in range((R + rows - 1) // rows):
        q = b * rows
        n = min(rows, R - q)
        _copy(x + 4 * c, xs, H, W, cols, Ho, kh, sy, sx, dly, top, left, width, q, q + n, tmp)
        ahead, end = _wanted(x, xs, H, W, Ho, sy, c, c_next, q + n, R, rows)
        for t in range(taps):
            kr = t // kw
            kc = (t - kr * kw) * dlx
            B = tmp + kr * row + (kc % sx * width + kc // sx) * PIXEL
            for o in range(0, n_o, ROWS):
                A, to = panels + ((o0 + o) * P + q * Wo * ROWS) * 4, sums + t * 2 * C + o * 64
                step, within = (xs, PIXEL // Wo) if ahead < end else (0, 0)
                m = min(ROWS, n_o - o)
                tr(m, A, 4 * ROWS, n, Wo, B, kh * row, PIXEL, to, C, STRIP, q > 0, ahead, step, within)
                ahead += n * step
    bad = zero()
    for o in range(n_o):
        for p in range(0, cols, 16):
            to, s = target + o * ws + p * taps * 4, sums + p // 16 * C + o * 64
            if taps == TAPS and p + 16 <= cols:
                bad = bad + _deliver_nine(s, 2 * C, to, subtract)
            else:
                bad = bad + splat(_deliver(s, 2 * C, taps, min(16, cols - p), to, subtract))
    tell_nan(bad, ruined)


@inline
def _wanted(x, xs, H, W, Ho, sy, c, c_next, q, R, rows):
    """What is copied after the rows before q: the first pixel of x, and where the last one ends."""
    if q >= R:
        q, c = 0, c_next
    last = min(R, q + rows)
    low = (q // Ho * H + q % Ho * sy) * W
    high = (last // Ho * H + min(H, last % Ho * sy)) * W
    return x + 4 * c + low * xs, x + 4 * c + high * xs


@inline
def _deliver_nine(s, step, w, subtract):
    """16 x 9 weights of one output channel; returns 0 times what is written, summed up."""
    bad = zero()
    for c in range(0, 64, VBYTES):
        to = w + TAPS * c
        bad = bad + (take_from_rows(s + c, step, to) if subtract else to_rows(s + c, step, to))
    return bad


@inline
def _deliver(s, step, taps, n, w, subtract):
    """n x taps weights of one output channel; returns 0 times what is written, summed up."""
    nothing = bad = np.float32(0)
    for i in range(n):
        for t in range(taps):
            at = w + (i * taps + t) * 4
            v = load_float(s + t * step + 4 * i)
            if subtract:
                v = load_float(at) - v
            store_float(at, v)
            bad += v * nothing
    return bad
