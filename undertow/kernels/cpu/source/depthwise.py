"""Convolution of every channel by itself, NHWC: lanes are channels. Weights: [taps][C]."""
# mypy: ignore-errors

from __future__ import annotations

from undertow.kernels.cpu.source.compiler import inline, kernel
from undertow.kernels.cpu.source.direct import epilogue
from undertow.kernels.cpu.source.simd import (
    LANES,
    fma,
    load,
    load_float,
    load_int,
    load_part,
    prefetch,
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


BLOCK = 512  # bytes of channels that are done for a whole row, while all that they need of it is in the first cache
ENTRY = 32  # bytes of a tap in a list: address of its source for pixel 0, of its weights, first and last pixel + 1


@inline
def line(v, scale, shift, slope):
    """leaky(v * scale + shift)."""
    v = fma(v, scale, shift)
    return where_greater(v, zero(), v, v * slope)


@inline
def _value(p, left, front, s, h, sl):
    v = load_part(p, left)
    if front:
        v = line(v, s, h, sl)
    return v


@inline
def _pixel(taps, n, o, step, c, left, front, s, h, sl, a):
    """a + the sum over the taps that reach pixel o, one vector of channels."""
    for t in range(n):
        entry = taps + ENTRY * t
        if o >= load_int(entry + 16) and o < load_int(entry + 24):
            v = _value(load_int(entry) + o * step + c, left, front, s, h, sl)
            a = fma(v, load_part(load_int(entry + 8) + c, left), a)
    return a


@inline
def _four_pixels(taps, n, o, step, c, front, s, h, sl, a0, a1, a2, a3):
    """The same for pixels o .. o + 4, which all taps reach, and a whole vector: every weight is loaded once."""
    for t in range(n):
        entry = taps + ENTRY * t
        p, w = load_int(entry) + o * step + c, load(load_int(entry + 8) + c)
        a0 = fma(_value(p, LANES, front, s, h, sl), w, a0)
        a1 = fma(_value(p + step, LANES, front, s, h, sl), w, a1)
        a2 = fma(_value(p + 2 * step, LANES, front, s, h, sl), w, a2)
        a3 = fma(_value(p + 3 * step, LANES, front, s, h, sl), w, a3)
    return a0, a1, a2, a3


@inline
def _four_pixels_by_threes(taps, n, o, step, c, front, s, h, sl, a0, a1, a2, a3):
    """The same where the taps are `in_threes`: every value is loaded once for three taps."""
    for t in range(0, n, 3):
        entry = taps + ENTRY * t
        p = load_int(entry) + o * step + c
        w0, w1 = load(load_int(entry + 8) + c), load(load_int(entry + ENTRY + 8) + c)
        w2 = load(load_int(entry + 2 * ENTRY + 8) + c)
        v0, v1 = _value(p, LANES, front, s, h, sl), _value(p + step, LANES, front, s, h, sl)
        v2, v3 = _value(p + 2 * step, LANES, front, s, h, sl), _value(p + 3 * step, LANES, front, s, h, sl)
        v4, v5 = _value(p + 4 * step, LANES, front, s, h, sl), _value(p + 5 * step, LANES, front, s, h, sl)
        a0, a1 = fma(v2, w2, fma(v1, w1, fma(v0, w0, a0))), fma(v3, w2, fma(v2, w1, fma(v1, w0, a1)))
        a2, a3 = fma(v4, w2, fma(v3, w1, fma(v2, w0, a2))), fma(v5, w2, fma(v4, w1, fma(v3, w0, a3)))
    return a0, a1, a2, a3


@inline
def in_threes(taps, n, entry, step):
    """Whether taps come in threes that read one pixel after the other; entry: bytes from tap to tap."""
    threes = n % 3 == 0
    for t in range(n):
        if t % 3 and load_int(taps + entry * t) - load_int(taps + entry * (t - 1)) != step:
            threes = False
    return threes


@inline
def ask(p, n, step):
    """Ask for the memory at p and n - 1 places behind it: strides like these the processor does not see coming."""
    for k in range(n):
        prefetch(p + k * step)


@inline
def _finish(target, a, left, act, sl, acc):
    if act:
        a = where_greater(a, zero(), a, a * sl)
    if acc:
        a = a + load_part(target, left)
    store_part(target, a, left)


@kernel(floats=("slope", "slope_in"))
def row(
    taps, n, count, step, y, ys, C, acc, bias, slope, scale, shift, slope_in, soon, xs, sx, rows, rb
):  # fmt: skip
    """y[o] = bias + sum over n taps of source[o * step] * weights, for pixels o < count, ys bytes apart.

    scale: or 0; sources then are passed through leaky(v * scale + shift), with `slope_in`, first.
    soon: or 0; what the next call will read first: so many rows, rb bytes apart, of sx pixels, xs bytes apart, for each
    pixel of y. It, and the next row of y, is asked for on the way.
    """
    sl, sl_in = splat(slope), splat(slope_in)
    act = slope != 1
    low, high = 0, count
    for t in range(n):
        low = max(low, load_int(taps + ENTRY * t + 16))
        high = min(high, load_int(taps + ENTRY * t + 24))
    threes = in_threes(taps, n, ENTRY, step)
    for first in range(0, 4 * C, BLOCK):
        o = 0
        while o < count:
            four = o >= low and o + 4 <= high
            for c in range(first, min(first + BLOCK, 4 * C), 4 * LANES):
                left, q = C - c // 4, y + o * ys + c
                b, s, h = zero(), zero(), zero()
                if bias:
                    b = load_part(bias + c, left)
                if scale:
                    s, h = load_part(scale + c, left), load_part(shift + c, left)
                if four and soon:
                    for k in range(rows):
                        ask(soon + k * rb + o * sx * xs + c, 4 * sx, xs)
                    ask(q + count * ys, 4, ys)
                if four and left >= LANES:
                    if threes:
                        a0, a1, a2, a3 = _four_pixels_by_threes(taps, n, o, step, c, scale, s, h, sl_in, b, b, b, b)
                    else:
                        a0, a1, a2, a3 = _four_pixels(taps, n, o, step, c, scale, s, h, sl_in, b, b, b, b)
                    _finish(q, a0, LANES, act, sl, acc)
                    _finish(q + ys, a1, LANES, act, sl, acc)
                    _finish(q + 2 * ys, a2, LANES, act, sl, acc)
                    _finish(q + 3 * ys, a3, LANES, act, sl, acc)
                else:
                    for k in range(4 if four else 1):
                        a = _pixel(taps, n, o + k, step, c, left, scale, s, h, sl_in, b)
                        _finish(q + k * ys, a, left, act, sl, acc)
            o += 4 if four else 1


@inline
def _list(taps, n, source, weights, first, last):
    entry = taps + ENTRY * n
    store_int(entry, source)
    store_int(entry + 8, weights)
    store_int(entry + 16, first)
    store_int(entry + 24, last)


FEW = 64  # pixels, and the rest of their last row, whose sums are kept in float32


@kernel(floats=("slope", "slope_in"))
def forward(
    x, xs, H, W, w, y, ys, Ho, Wo, kh, kw, sy, sx, dy, dx, pt, pl, C, r0, r1, tmp, acc, bias, slope, sums, sq,
    scale, shift, slope_in,
):  # fmt: skip
    """Output rows r0..r1 of N * Ho, with sums as in direct.epilogue. scale .. slope_in: see `row`.

    tmp: 2 * LANES floats, then ENTRY bytes per tap.
    """
    taps = tmp + 8 * LANES
    group = max(1, FEW // Wo)
    for r in range(r0, r1):
        img = r // Ho
        n = 0
        for i in range(kh):
            iy = (r - img * Ho) * sy - pt + i * dy
            if iy >= 0 and iy < H:
                for j in range(kw):
                    first = j * dx - pl
                    source = x + ((img * H + iy) * W + first) * xs
                    low, high = max(0, (sx - 1 - first) // sx), (W - 1 - first) // sx + 1
                    _list(taps, n, source, w + (i * kw + j) * 4 * C, low, high)
                    n += 1
        ahead = (r - img * Ho) * sy - pt + (kh - 1) * dy + 1
        soon = x + (img * H + ahead) * W * xs if ahead < H else 0
        row(
            taps, n, Wo, sx * xs, y + r * Wo * ys, ys, C, acc, bias, slope, scale, shift, slope_in, soon, xs, sx,
            min(sy, kh), W * xs,
        )  # fmt: skip
        behind = r + 1 - r0
        if sums and (behind % group == 0 or r + 1 == r1):
            count = group if behind % group == 0 else behind % group
            epilogue(y + (r + 1 - count) * Wo * ys, ys, C, count * Wo, 0, 1.0, sums, sq, tmp)


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
                    for j in range(kw - 1, -1, -1):  # from left to right, see in_threes
                        tx = cx + pl - j * dlx
                        ox = tx // sx
                        if ox * sx == tx:
                            source = dy + ((img * Ho + oy) * Wo + ox) * ds
                            _list(tmp, n, source, w + (i * kw + j) * 4 * C, max(0, -ox), Wo - ox)
                            n += 1
            target, count = gx + (r * W + cx) * xs, (W - cx + sx - 1) // sx
            row(tmp, n, count, ds, target, sx * xs, C, acc, 0, 1.0, 0, 0, 1.0, 0, 0, 1, 0, 0)


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
