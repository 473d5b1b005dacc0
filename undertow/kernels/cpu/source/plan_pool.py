"""Batch norm and leaky with the 2x2 max pooling behind them in one pass over the pixels, forward and backward, NHWC.

On the way back the gradient before the pooling is never written: where a window has its winner is looked up in z, the
leaky's output, and only the winner has a gradient. r0..r1 are rows of windows, N * Ho of them, two pixel rows each.
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


@kernel(floats=("slope",))
def affine(x, xs, z, zs, y, ys, scale, shift, slope, W, Wo, C, r0, r1):
    """z = leaky(x * scale + shift), y = the largest of every window of z; z may be x. W = 2 Wo."""
    sl = splat(slope)
    for r in range(r0, r1):
        for o in range(Wo):
            k = 2 * (r * W + o)
            p, q = x + k * xs, z + k * zs
            for c in range(0, C, LANES):
                n, d = C - c, 4 * c
                s, h = load_part(scale + d, n), load_part(shift + d, n)
                a, b = _line(load_part(p + d, n), s, h, sl), _line(load_part(p + xs + d, n), s, h, sl)
                e = _line(load_part(p + W * xs + d, n), s, h, sl)
                f = _line(load_part(p + W * xs + xs + d, n), s, h, sl)
                store_part(q + d, a, n)
                store_part(q + zs + d, b, n)
                store_part(q + W * zs + d, e, n)
                store_part(q + W * zs + zs + d, f, n)
                a, e = where_wins(b, a, b, a), where_wins(f, e, f, e)
                store_part(y + (r * Wo + o) * ys + d, where_wins(e, a, e, a), n)


@kernel(floats=("slope",))
def backward_sums(gy, gs, z, zs, k1, k0, slope, W, Wo, C, r0, r1, sums, sq, tmp):
    """sums[c] += sum of g, and of g * x_hat sq bytes behind; g = gy * leaky', x_hat = v * k1 + k0, v from z."""
    sl, inv, one = splat(slope), splat(_ONE / slope), splat(_ONE)
    for r in range(r0, r1):
        for c in range(0, C, LANES):
            n, d = C - c, 4 * c
            a1, a2 = zero(), zero()
            s, h = load_part(k1 + d, n), load_part(k0 + d, n)
            for o in range(Wo):
                p = z + 2 * (r * W + o) * zs + d
                a, b = load_part(p, n), load_part(p + zs, n)
                e, f = load_part(p + W * zs, n), load_part(p + W * zs + zs, n)
                a, e = where_wins(b, a, b, a), where_wins(f, e, f, e)
                u = where_wins(e, a, e, a)
                g = load_part(gy + (r * Wo + o) * gs + d, n) * where_greater(u, zero(), one, sl)
                v = u * where_greater(u, zero(), one, inv)
                a1 = a1 + g
                a2 = fma(g, fma(v, s, h), a2)
            flush(a1, a2, c, n, sums, sq, tmp)


@inline
def _pixel(u, mine, won, g, target, c1, c2, c3, sl, inv, n):
    """gx of one pixel of a window, whose gradient is g if it won, else 0."""
    one = splat(_ONE)
    v = u * where_greater(u, zero(), one, inv)
    g = where_same_bits(won, mine, g, zero()) * where_greater(u, zero(), one, sl)
    store_part(target, fma(c1, g, fma(c2, v, c3)), n)


@kernel(floats=("slope",))
def backward(gy, gs, z, zs, gx, xs, c1, c2, c3, slope, W, Wo, C, r0, r1):
    """gx = c1 * g + c2 * v + c3, with g and v as in `backward_sums`."""
    sl, inv = splat(slope), splat(_ONE / slope)
    i0, i1, i2, i3 = splat_int(0), splat_int(1), splat_int(2), splat_int(3)
    for r in range(r0, r1):
        for o in range(Wo):
            k = 2 * (r * W + o)
            p, q = z + k * zs, gx + k * xs
            for c in range(0, C, LANES):
                n, d = C - c, 4 * c
                k1, k2, k3 = load_part(c1 + d, n), load_part(c2 + d, n), load_part(c3 + d, n)
                a, b = load_part(p + d, n), load_part(p + zs + d, n)
                e, f = load_part(p + W * zs + d, n), load_part(p + W * zs + zs + d, n)
                upper, lower = where_wins(b, a, b, a), where_wins(f, e, f, e)
                won = where_wins(lower, upper, where_wins(f, e, i3, i2), where_wins(b, a, i1, i0))
                g = load_part(gy + (r * Wo + o) * gs + d, n)
                _pixel(a, i0, won, g, q + d, k1, k2, k3, sl, inv, n)
                _pixel(b, i1, won, g, q + xs + d, k1, k2, k3, sl, inv, n)
                _pixel(e, i2, won, g, q + W * xs + d, k1, k2, k3, sl, inv, n)
                _pixel(f, i3, won, g, q + W * xs + xs + d, k1, k2, k3, sl, inv, n)
