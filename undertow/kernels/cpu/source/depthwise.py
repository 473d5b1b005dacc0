"""Convolution of every channel by itself, NHWC: lanes are channels. Weights: [taps][C]."""
# mypy: ignore-errors

from __future__ import annotations

from undertow.kernels.cpu.source.compiler import kernel
from undertow.kernels.cpu.source.simd import (
    LANES,
    fma,
    load_float,
    load_part,
    splat,
    store_float,
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


@kernel(floats=("slope",))
def forward(x, xs, H, W, w, y, ys, Ho, Wo, kh, kw, sy, sx, dy, dx, pt, pl, C, r0, r1, acc, bias, slope):
    """Output rows r0..r1 of N * Ho."""
    sl = splat(slope)
    act = slope != 1
    for r in range(r0, r1):
        img = r // Ho
        y0 = (r - img * Ho) * sy - pt
        base = x + img * H * W * xs
        for c in range(0, C, LANES):
            left = C - c
            b = zero()
            if bias:
                b = load_part(bias + 4 * c, left)
            for o in range(Wo):
                x0 = o * sx - pl
                a = b
                for i in range(kh):
                    iy = y0 + i * dy
                    if iy >= 0 and iy < H:
                        for j in range(kw):
                            ix = x0 + j * dx
                            if ix >= 0 and ix < W:
                                v = load_part(base + (iy * W + ix) * xs + 4 * c, left)
                                a = fma(v, load_part(w + ((i * kw + j) * C + c) * 4, left), a)
                q = y + (r * Wo + o) * ys + 4 * c
                if act:
                    a = where_greater(a, zero(), a, a * sl)
                if acc:
                    a = a + load_part(q, left)
                store_part(q, a, left)


@kernel
def backward_data(dy, ds, Ho, Wo, w, gx, xs, H, W, kh, kw, sy, sx, dly, dlx, pt, pl, C, r0, r1, acc):
    """Input rows r0..r1 of N * H: each pixel gathers from the outputs that read it."""
    for r in range(r0, r1):
        img = r // H
        iy = r - img * H
        base = dy + img * Ho * Wo * ds
        for ix in range(W):
            for c in range(0, C, LANES):
                left = C - c
                a = zero()
                for i in range(kh):
                    ty = iy + pt - i * dly
                    oy = ty // sy
                    if ty >= 0 and oy * sy == ty and oy < Ho:
                        for j in range(kw):
                            tx = ix + pl - j * dlx
                            ox = tx // sx
                            if tx >= 0 and ox * sx == tx and ox < Wo:
                                v = load_part(base + (oy * Wo + ox) * ds + 4 * c, left)
                                a = fma(v, load_part(w + ((i * kw + j) * C + c) * 4, left), a)
                q = gx + (r * W + ix) * xs + 4 * c
                if acc:
                    a = a + load_part(q, left)
                store_part(q, a, left)


@kernel
def backward_weights(x, xs, H, W, dy, ds, Ho, Wo, dw, kh, kw, sy, sx, dly, dlx, pt, pl, C, r0, r1):
    """dw[taps][C] from output rows r0..r1 of N * Ho; overwrites dw."""
    for c in range(0, C, LANES):
        left = C - c
        for i in range(kh):
            for j in range(kw):
                total = zero()
                low = max(0, (pl - j * dlx + sx - 1) // sx)
                high = min(Wo, (W - 1 + pl - j * dlx) // sx + 1)
                for r in range(r0, r1):
                    img = r // Ho
                    iy = (r - img * Ho) * sy - pt + i * dly
                    if iy >= 0 and iy < H:
                        s = x + ((img * H + iy) * W + j * dlx - pl) * xs + 4 * c
                        g = dy + r * Wo * ds + 4 * c
                        a = zero()
                        for o in range(low, high):
                            a = fma(load_part(s + o * sx * xs, left), load_part(g + o * ds, left), a)
                        total = total + a
                store_part(dw + ((i * kw + j) * C + c) * 4, total, left)
