"""Convolution of every channel by itself, NHWC: lanes are channels. Weights: [taps][C]."""
# mypy: ignore-errors

from __future__ import annotations

from undertow.kernels.cpu.source.compiler import inline, kernel
from undertow.kernels.cpu.source.simd import (
    LANES,
    fma,
    load_float,
    load_int,
    load_part,
    splat,
    store_float,
    store_int,
    store_part,
    where_greater,
    zero,
)


@kernel
def to_taps(w, C, taps, out):
    """[C][taps] to [taps][C]."""
    for t in range(taps):
        for c in range(C):
            store_float(out + (t * C + c) * 4, load_float(w + (c * taps + t) * 4))


@kernel
def from_taps(w, C, taps, out):
    """[taps][C] to [C][taps]."""
    for t in range(taps):
        for c in range(C):
            store_float(out + (c * taps + t) * 4, load_float(w + (t * C + c) * 4))


ENTRY = 32  # bytes of a tap in a list: address of its source for pixel 0, of its weights, first and last pixel + 1


@inline
def _pixel(taps, n, o, step, c, left, a):
    """a + the sum over the taps that reach pixel o, one vector of channels."""
    for t in range(n):
        entry = taps + ENTRY * t
        if o >= load_int(entry + 16) and o < load_int(entry + 24):
            v = load_part(load_int(entry) + o * step + c, left)
            a = fma(v, load_part(load_int(entry + 8) + c, left), a)
    return a


@inline
def _finish(target, a, left, act, sl, acc):
    if act:
        a = where_greater(a, zero(), a, a * sl)
    if acc:
        a = a + load_part(target, left)
    store_part(target, a, left)


@kernel(floats=("slope",))
def row(taps, n, count, step, y, ys, C, acc, bias, slope):
    """y[o] = bias + sum over n taps of source[o * step] * weights, for pixels o < count, ys bytes apart."""
    sl = splat(slope)
    act = slope != 1
    low, high = 0, count
    for t in range(n):
        low = max(low, load_int(taps + ENTRY * t + 16))
        high = min(high, load_int(taps + ENTRY * t + 24))
    o = 0
    while o < count:
        four = o >= low and o + 4 <= high
        q = y + o * ys
        for c in range(0, 4 * C, 4 * LANES):
            left = C - c // 4
            b = zero()
            if bias:
                b = load_part(bias + c, left)
            if four:  # every weight is loaded once for four pixels
                a0, a1, a2, a3 = b, b, b, b
                for t in range(n):
                    entry = taps + ENTRY * t
                    s = load_int(entry) + o * step + c
                    w = load_part(load_int(entry + 8) + c, left)
                    a0 = fma(load_part(s, left), w, a0)
                    a1 = fma(load_part(s + step, left), w, a1)
                    a2 = fma(load_part(s + 2 * step, left), w, a2)
                    a3 = fma(load_part(s + 3 * step, left), w, a3)
                _finish(q + c, a0, left, act, sl, acc)
                _finish(q + ys + c, a1, left, act, sl, acc)
                _finish(q + 2 * ys + c, a2, left, act, sl, acc)
                _finish(q + 3 * ys + c, a3, left, act, sl, acc)
            else:
                _finish(q + c, _pixel(taps, n, o, step, c, left, b), left, act, sl, acc)
        o += 4 if four else 1


@inline
def _list(taps, n, source, weights, first, last):
    entry = taps + ENTRY * n
    store_int(entry, source)
    store_int(entry + 8, weights)
    store_int(entry + 16, first)
    store_int(entry + 24, last)


@kernel(floats=("slope",))
def forward(x, xs, H, W, w, y, ys, Ho, Wo, kh, kw, sy, sx, dy, dx, pt, pl, C, r0, r1, tmp, acc, bias, slope):
    """Output rows r0..r1 of N * Ho. tmp: ENTRY bytes per tap."""
    for r in range(r0, r1):
        img = r // Ho
        n = 0
        for i in range(kh):
            iy = (r - img * Ho) * sy - pt + i * dy
            if iy >= 0 and iy < H:
                for j in range(kw):
                    shift = j * dx - pl
                    source = x + ((img * H + iy) * W + shift) * xs
                    first, last = max(0, (sx - 1 - shift) // sx), (W - 1 - shift) // sx + 1
                    _list(tmp, n, source, w + (i * kw + j) * 4 * C, first, last)
                    n += 1
        row(tmp, n, Wo, sx * xs, y + r * Wo * ys, ys, C, acc, bias, slope)


@kernel
def backward_data(dy, ds, Ho, Wo, w, gx, xs, H, W, kh, kw, sy, sx, dly, dlx, pt, pl, C, r0, r1, tmp, acc):
    """Input rows r0..r1 of N * H: the pixels of each residue modulo the stride gather from a tap list of their own."""
    for r in range(r0, r1):
        img = r // H
        iy = r - img * H
        for cx in range(min(sx, W)):
            n = 0
            for i in range(kh):
                ty = iy + pt - i * dly
                oy = ty // sy
                if oy * sy == ty and oy >= 0 and oy < Ho:
                    for j in range(kw):
                        tx = cx + pl - j * dlx
                        ox = tx // sx
                        if ox * sx == tx:
                            source = dy + ((img * Ho + oy) * Wo + ox) * ds
                            _list(tmp, n, source, w + (i * kw + j) * 4 * C, max(0, -ox), Wo - ox)
                            n += 1
            row(tmp, n, (W - cx + sx - 1) // sx, ds, gx + (r * W + cx) * xs, sx * xs, C, acc, 0, 1.0)


@kernel
def backward_weights(x, xs, H, W, dy, ds, Ho, Wo, dw, kh, kw, sy, sx, dly, dlx, pt, pl, C, r0, r1):
    """dw[taps][C] from output rows r0..r1 of N * Ho; overwrites dw."""
    for k in range(0, kh * kw * C, LANES):
        store_part(dw + 4 * k, zero(), kh * kw * C - k)
    step = sx * xs
    for r in range(r0, r1):
        img = r // Ho
        for i in range(kh):
            iy = (r - img * Ho) * sy - pt + i * dly
            if iy < 0 or iy >= H:
                continue
            for j in range(kw):
                shift = j * dlx - pl
                first, last = max(0, (sx - 1 - shift) // sx), min(Wo, (W - 1 - shift) // sx + 1)
                for c in range(0, 4 * C, 4 * LANES):
                    left = C - c // 4
                    s = x + ((img * H + iy) * W + first * sx + shift) * xs + c
                    g = dy + (r * Wo + first) * ds + c
                    d = dw + (i * kw + j) * 4 * C + c
                    store_part(d, load_part(d, left) + _dot(s, step, g, ds, last - first, left), left)


@inline
def _dot(s, step, g, ds, n, left):
    """Sum over n pixels of s * g: four sums side by side, so that no addition waits for the one before."""
    a0, a1, a2, a3 = zero(), zero(), zero(), zero()
    k = 0
    while k + 4 <= n:
        a0 = fma(load_part(s, left), load_part(g, left), a0)
        a1 = fma(load_part(s + step, left), load_part(g + ds, left), a1)
        a2 = fma(load_part(s + 2 * step, left), load_part(g + 2 * ds, left), a2)
        a3 = fma(load_part(s + 3 * step, left), load_part(g + 3 * ds, left), a3)
        s += 4 * step
        g += 4 * ds
        k += 4
    while k < n:
        a0 = fma(load_part(s, left), load_part(g, left), a0)
        s += step
        g += ds
        k += 1
    return (a0 + a1) + (a2 + a3)
