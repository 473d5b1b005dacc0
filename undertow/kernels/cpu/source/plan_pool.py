"""Batch norm and leaky with the 2x2 max pooling behind them in one pass over the pixels, forward and backward, NHWC.

Neither the leaky's output nor its gradient is ever written: both passes work them out from x, the batch norm's input,
and of every window only the winner has a gradient. r0..r1 are rows of windows, N * Ho of them, two pixel rows each.
"""
# mypy: ignore-errors

from __future__ import annotations

import numpy as np

from undertow.kernels.cpu.source.batchnorm import flush
from undertow.kernels.cpu.source.compiler import inline, kernel
from undertow.kernels.cpu.source.simd import (
    LANES,
    fma,
    load_part,
    splat,
    splat_int,
    store_part,
    where_greater,
    where_same_bits,
    where_wins,
    zero,
)

_ONE = np.float32(1.0)


@inline
def _line(v, scale, shift, sl):
    v = fma(v, scale, shift)
    return where_greater(v, zero(), v, v * sl)


@inline
def _load4(p, xs, W, n):
    """A window: upper left, upper right, lower left, lower right."""
    q = p + W * xs
    return load_part(p, n), load_part(p + xs, n), load_part(q, n), load_part(q + xs, n)


@inline
def _lines(v, s, h, sl):
    return _line(v[0], s, h, sl), _line(v[1], s, h, sl), _line(v[2], s, h, sl), _line(v[3], s, h, sl)


@inline
def _winner(z, of):
    """What belongs to the largest of a window's four, the first of equal ones, and that one."""
    a, b, e, f = z
    upper, lower = where_wins(b, a, b, a), where_wins(f, e, f, e)
    of_upper, of_lower = where_wins(b, a, of[1], of[0]), where_wins(f, e, of[3], of[2])
    return where_wins(lower, upper, of_lower, of_upper), where_wins(lower, upper, lower, upper)


@kernel(floats=("slope",))
def affine(x, xs, y, ys, scale, shift, slope, W, Wo, C, r0, r1):
    """y = the largest of every window of leaky(x * scale + shift), which itself is not kept. W = 2 Wo."""
    sl = splat(slope)
    for r in range(r0, r1):
        for o in range(Wo):
            p = x + 2 * (r * W + o) * xs
            for c in range(0, C, LANES):
                n, d = C - c, 4 * c
                z = _lines(_load4(p + d, xs, W, n), load_part(scale + d, n), load_part(shift + d, n), sl)
                _, best = _winner(z, z)
                store_part(y + (r * Wo + o) * ys + d, best, n)


@kernel(floats=("slope",))
def backward_sums(gy, gs, x, xs, scale, shift, k1, k0, slope, W, Wo, C, r0, r1, sums, sq, tmp):
    """sums[c] += sum of g, and of g * x_hat sq bytes behind; g = gy * leaky' at the winner, x_hat = x * k1 + k0."""
    sl, one = splat(slope), splat(_ONE)
    for r in range(r0, r1):
        for c in range(0, C, LANES):
            n, d = C - c, 4 * c
            a1, a2 = zero(), zero()
            s, h = load_part(scale + d, n), load_part(shift + d, n)
            m, k = load_part(k1 + d, n), load_part(k0 + d, n)
            for o in range(Wo):
                v = _load4(x + 2 * (r * W + o) * xs + d, xs, W, n)
                best, u = _winner(_lines(v, s, h, sl), v)
                g = load_part(gy + (r * Wo + o) * gs + d, n) * where_greater(u, zero(), one, sl)
                a1 = a1 + g
                a2 = fma(g, fma(best, m, k), a2)
            flush(a1, a2, c, n, sums, sq, tmp)


@inline
def _pixel(v, mine, won, g, target, c1, c2, c3, n):
    """gx of one pixel of a window, whose gradient is g if it won, else 0."""
    store_part(target, fma(c1, where_same_bits(won, mine, g, zero()), fma(c2, v, c3)), n)


@kernel(floats=("slope",))
def backward(gy, gs, x, xs, gx, zs, scale, shift, c1, c2, c3, slope, W, Wo, C, r0, r1):
    """gx = c1 * g + c2 * x + c3, with g as in `backward_sums`; gx may be x."""
    sl, one = splat(slope), splat(_ONE)
    corners = splat_int(0), splat_int(1), splat_int(2), splat_int(3)
    for r in range(r0, r1):
        for o in range(Wo):
            p, q = x + 2 * (r * W + o) * xs, gx + 2 * (r * W + o) * zs
            for c in range(0, C, LANES):
                n, d = C - c, 4 * c
                k1, k2, k3 = load_part(c1 + d, n), load_part(c2 + d, n), load_part(c3 + d, n)
                v = _load4(p + d, xs, W, n)
                won, u = _winner(_lines(v, load_part(scale + d, n), load_part(shift + d, n), sl), corners)
                g = load_part(gy + (r * Wo + o) * gs + d, n) * where_greater(u, zero(), one, sl)
                _pixel(v[0], corners[0], won, g, q + d, k1, k2, k3, n)
                _pixel(v[1], corners[1], won, g, q + zs + d, k1, k2, k3, n)
                _pixel(v[2], corners[2], won, g, q + W * zs + d, k1, k2, k3, n)
                _pixel(v[3], corners[3], won, g, q + W * zs + zs + d, k1, k2, k3, n)
