"""Pooling and resampling, NHWC. Backward passes gather, so threads own what they write."""
# mypy: ignore-errors

from __future__ import annotations

import numpy as np

from undertow.kernels.cpu.source.compiler import inline, kernel
from undertow.kernels.cpu.source.simd import (
    LANES,
    load_float,
    load_part,
    splat,
    splat_int,
    store_part,
    where_same_bits,
    where_wins,
    zero,
)

_LOWEST = np.float32(np.finfo(np.float32).min)


@kernel
def max_forward(x, xs, H, W, y, ys, index, Ho, Wo, kh, kw, sy, sx, pt, pl, C, r0, r1):
    """Output rows r0..r1 of N * Ho. index: int32 NHWC dense (row * W + column of the winner), or 0."""
    for r in range(r0, r1):
        img = r // Ho
        top = (r - img * Ho) * sy - pt
        base = x + img * H * W * xs
        i0, i1 = max(top, 0), min(top + kh, H)
        for o in range(Wo):
            left = o * sx - pl
            j0, j1 = max(left, 0), min(left + kw, W)
            seen = i0 < i1 and j0 < j1
            for c in range(0, C, LANES):
                n = C - c
                best, winner = splat(_LOWEST), splat_int(-1)
                if seen:
                    best, winner = load_part(base + (i0 * W + j0) * xs + 4 * c, n), splat_int(i0 * W + j0)
                for i in range(i0, i1):
                    for j in range(j0, j1):
                        v = load_part(base + (i * W + j) * xs + 4 * c, n)
                        winner = where_wins(v, best, splat_int(i * W + j), winner)
                        best = where_wins(v, best, v, best)
                store_part(y + (r * Wo + o) * ys + 4 * c, best, n)
                if index:
                    store_part(index + ((r * Wo + o) * C + c) * 4, winner, n)


@kernel
def max_forward_2x2(x, xs, H, W, y, ys, index, Ho, Wo, C, r0, r1):
    """`max_forward` for 2x2 windows with stride 2 that lie inside the image."""
    for r in range(r0, r1):
        img = r // Ho
        i = 2 * (r - img * Ho)
        row = x + (img * H + i) * W * xs
        for o in range(Wo):
            k = i * W + 2 * o
            p = row + 2 * o * xs
            i0, i1, i2, i3 = splat_int(k), splat_int(k + 1), splat_int(k + W), splat_int(k + W + 1)
            for c in range(0, C, LANES):
                n = C - c
                a, b = load_part(p + 4 * c, n), load_part(p + xs + 4 * c, n)
                d, e = load_part(p + W * xs + 4 * c, n), load_part(p + W * xs + xs + 4 * c, n)
                ia, ib = where_wins(b, a, i1, i0), where_wins(e, d, i3, i2)
                a, b = where_wins(b, a, b, a), where_wins(e, d, e, d)
                store_part(y + (r * Wo + o) * ys + 4 * c, where_wins(b, a, b, a), n)
                if index:
                    store_part(index + ((r * Wo + o) * C + c) * 4, where_wins(b, a, ib, ia), n)


@kernel
def max_backward_2x2(gy, gs, index, Ho, Wo, gx, xs, H, W, C, r0, r1, acc):
    """`max_backward` for 2x2 windows with stride 2: window rows r0..r1 of N * Ho, two input rows each."""
    for r in range(r0, r1):
        img = r // Ho
        i = 2 * (r - img * Ho)
        row = gx + (img * H + i) * W * xs
        for o in range(Wo):
            k = i * W + 2 * o
            p = row + 2 * o * xs
            i0, i1, i2, i3 = splat_int(k), splat_int(k + 1), splat_int(k + W), splat_int(k + W + 1)
            for c in range(0, C, LANES):
                n = C - c
                g = load_part(gy + (r * Wo + o) * gs + 4 * c, n)
                won = load_part(index + ((r * Wo + o) * C + c) * 4, n)
                _give(p + 4 * c, won, i0, g, n, acc)
                _give(p + xs + 4 * c, won, i1, g, n, acc)
                _give(p + W * xs + 4 * c, won, i2, g, n, acc)
                _give(p + W * xs + xs + 4 * c, won, i3, g, n, acc)


@kernel
def max_backward_from_2x2(gy, gs, x, xs, Ho, Wo, gx, xgs, H, W, C, r0, r1, acc):
    """`max_backward_2x2` that finds the winners in x instead of reading indexes."""
    i0, i1, i2, i3 = splat_int(0), splat_int(1), splat_int(2), splat_int(3)
    for r in range(r0, r1):
        img = r // Ho
        first = (img * H + 2 * (r - img * Ho)) * W
        for o in range(Wo):
            p, q = x + (first + 2 * o) * xs, gx + (first + 2 * o) * xgs
            for c in range(0, C, LANES):
                n = C - c
                a, b = load_part(p + 4 * c, n), load_part(p + xs + 4 * c, n)
                d, e = load_part(p + W * xs + 4 * c, n), load_part(p + W * xs + xs + 4 * c, n)
                ia, ib = where_wins(b, a, i1, i0), where_wins(e, d, i3, i2)
                a, b = where_wins(b, a, b, a), where_wins(e, d, e, d)
                won = where_wins(b, a, ib, ia)
                g = load_part(gy + (r * Wo + o) * gs + 4 * c, n)
                _give(q + 4 * c, won, i0, g, n, acc)
                _give(q + xgs + 4 * c, won, i1, g, n, acc)
                _give(q + W * xgs + 4 * c, won, i2, g, n, acc)
                _give(q + W * xgs + xgs + 4 * c, won, i3, g, n, acc)


@inline
def _give(target, won, mine, g, n, acc):
    """To one pixel of a window: its gradient if it won, else 0."""
    v = where_same_bits(won, mine, g, zero())
    if acc:
        v = v + load_part(target, n)
    store_part(target, v, n)


@kernel
def max_backward(gy, gs, index, Ho, Wo, gx, xs, H, W, kh, kw, sy, sx, pt, pl, C, r0, r1, acc):
    """Input rows r0..r1 of N * H: every pixel adds up the gradients of the windows that it won."""
    for r in range(r0, r1):
        img = r // H
        i = r - img * H
        o0, o1 = max(0, (i + pt - kh + sy) // sy), min(Ho, (i + pt) // sy + 1)
        for j in range(W):
            q0, q1 = max(0, (j + pl - kw + sx) // sx), min(Wo, (j + pl) // sx + 1)
            mine = splat_int(i * W + j)
            for c in range(0, C, LANES):
                n = C - c
                d = gx + (r * W + j) * xs + 4 * c
                a = zero()
                if acc:
                    a = load_part(d, n)
                for o in range(o0, o1):
                    for q in range(q0, q1):
                        p = (img * Ho + o) * Wo + q
                        won = load_part(index + (p * C + c) * 4, n)
                        a = a + where_same_bits(won, mine, load_part(gy + p * gs + 4 * c, n), zero())
                store_part(d, a, n)


@kernel
def average_forward(x, xs, H, W, y, ys, Ho, Wo, cells_y, cells_x, kh, kw, sy, sx, pt, pl, C, r0, r1):
    """Sum of the window divided by cells_y[row] * cells_x[column] (float32 tables)."""
    for r in range(r0, r1):
        img = r // Ho
        oy = r - img * Ho
        top = oy * sy - pt
        base = x + img * H * W * xs
        for o in range(Wo):
            left = o * sx - pl
            cells = splat(load_float(cells_y + 4 * oy) * load_float(cells_x + 4 * o))
            for c in range(0, C, LANES):
                n = C - c
                a = zero()
                for i in range(max(top, 0), min(top + kh, H)):
                    for j in range(max(left, 0), min(left + kw, W)):
                        a = a + load_part(base + (i * W + j) * xs + 4 * c, n)
                store_part(y + (r * Wo + o) * ys + 4 * c, a / cells, n)


@kernel
def average_backward(gy, gs, Ho, Wo, gx, xs, H, W, cells_y, cells_x, kh, kw, sy, sx, pt, pl, C, r0, r1, acc):
    """Input rows r0..r1 of N * H."""
    for r in range(r0, r1):
        img = r // H
        i = r - img * H
        o0, o1 = max(0, (i + pt - kh + sy) // sy), min(Ho, (i + pt) // sy + 1)
        for j in range(W):
            q0, q1 = max(0, (j + pl - kw + sx) // sx), min(Wo, (j + pl) // sx + 1)
            for c in range(0, C, LANES):
                n = C - c
                d = gx + (r * W + j) * xs + 4 * c
                a = zero()
                if acc:
                    a = load_part(d, n)
                for o in range(o0, o1):
                    for q in range(q0, q1):
                        cells = splat(load_float(cells_y + 4 * o) * load_float(cells_x + 4 * q))
                        a = a + load_part(gy + ((img * Ho + o) * Wo + q) * gs + 4 * c, n) / cells
                store_part(d, a, n)


@kernel(floats=("scale",))
def replicate(x, xs, H, W, y, ys, fy, fx, scale, C, r0, r1, acc):
    """y[fy*i + a, fx*j + b] = scale * x[i, j], or += it: rows r0..r1 of N * H input rows."""
    s = splat(scale)
    for r in range(r0, r1):
        for j in range(W):
            for c in range(0, C, LANES):
                n = C - c
                v = load_part(x + (r * W + j) * xs + 4 * c, n) * s
                for a in range(fy):
                    for b in range(fx):
                        d = y + ((r * fy + a) * W * fx + j * fx + b) * ys + 4 * c
                        store_part(d, load_part(d, n) + v if acc else v, n)


@kernel(floats=("scale",))
def block_sum(x, xs, H, W, y, ys, fy, fx, scale, C, r0, r1, acc):
    """y[i, j] = scale * (sum of the fy x fx block of x), or += it: rows r0..r1 of N * H rows of y, W wide."""
    s = splat(scale)
    for r in range(r0, r1):
        for j in range(W):
            for c in range(0, C, LANES):
                n = C - c
                total = zero()
                for a in range(fy):
                    for b in range(fx):
                        total = total + load_part(x + ((r * fy + a) * W * fx + j * fx + b) * xs + 4 * c, n)
                d = y + (r * W + j) * ys + 4 * c
                total = total * s
                store_part(d, load_part(d, n) + total if acc else total, n)
