"""Batch normalisation, fused with leaky and a residual, NHWC. Per-channel arrays are float32, sums float64.

Every kernel works on pixels p0..p1. Sums are float32 within 64 pixels and float64 across them.
"""
# mypy: ignore-errors

from __future__ import annotations

import numpy as np

from undertow.kernels.cpu.source.compiler import inline, kernel
from undertow.kernels.cpu.source.direct import add_sums
from undertow.kernels.cpu.source.simd import (
    LANES,
    fma,
    load_part,
    splat,
    store_part,
    where_greater,
    zero,
)

_ONE = np.float32(1.0)


@kernel
def pivot(x, xs, C, P, out):
    """The mean of up to 64 pixels spread over all P: near enough to the true mean to sum differences from it."""
    count = min(P, 64)
    step = P // count
    scale = splat(np.float32(1.0) / np.float32(count))
    for c in range(0, C, LANES):
        a = zero()
        for i in range(count):
            a = a + load_part(x + i * step * xs + 4 * c, C - c)
        store_part(out + 4 * c, a * scale, C - c)


@kernel
def statistics(x, xs, C, p0, p1, centre, sums, sq, tmp):
    """sums[c] += sum of (x - centre), and of its square sq bytes behind."""
    for p in range(p0, p1, 64):
        n = min(64, p1 - p)
        for c in range(0, C, LANES):
            left = C - c
            m = load_part(centre + 4 * c, left)
            a1, a2 = zero(), zero()
            for i in range(n):
                v = load_part(x + (p + i) * xs + 4 * c, left) - m
                a1 = a1 + v
                a2 = fma(v, v, a2)
            _flush(a1, a2, c, left, sums, sq, tmp)


@inline
def _flush(a1, a2, c, left, sums, sq, tmp):
    store_part(tmp, a1, LANES)
    store_part(tmp + 4 * LANES, a2, LANES)
    add_sums(sums + 8 * c, tmp, min(left, LANES))
    add_sums(sums + sq + 8 * c, tmp + 4 * LANES, min(left, LANES))


@kernel
def normalize(x, xs, hat, hs, y, ys, mean, inverse, gamma, beta, C, p0, p1):
    """hat = (x - mean) * inverse, y = hat * gamma + beta."""
    for p in range(p0, p1):
        for c in range(0, C, LANES):
            left = C - c
            v = load_part(x + p * xs + 4 * c, left) - load_part(mean + 4 * c, left)
            v = v * load_part(inverse + 4 * c, left)
            store_part(hat + p * hs + 4 * c, v, left)
            v = fma(v, load_part(gamma + 4 * c, left), load_part(beta + 4 * c, left))
            store_part(y + p * ys + 4 * c, v, left)


@kernel(floats=("slope",))
def affine(x, xs, y, ys, scale, shift, slope, residual, rs, C, p0, p1):
    """y = leaky(x * scale + shift) + residual; residual 0: none; slope 1: no leaky; y may be x."""
    sl = splat(slope)
    act = slope != 1
    for p in range(p0, p1):
        for c in range(0, C, LANES):
            left = C - c
            v = load_part(x + p * xs + 4 * c, left)
            v = fma(v, load_part(scale + 4 * c, left), load_part(shift + 4 * c, left))
            if act:
                v = where_greater(v, zero(), v, v * sl)
            if residual:
                v = v + load_part(residual + p * rs + 4 * c, left)
            store_part(y + p * ys + 4 * c, v, left)


@inline
def _slope_at(u, scale, shift, sl, inv, from_z):
    """The leaky's slope, and the convolution's output, from that output or (from_z) from the leaky's."""
    one = splat(_ONE)
    if from_z:
        return where_greater(u, zero(), one, sl), u * where_greater(u, zero(), one, inv)
    return where_greater(fma(u, scale, shift), zero(), one, sl), u


@kernel(floats=("slope",))
def backward_sums(gy, gs, u, us, scale, shift, k1, k0, slope, from_z, C, p0, p1, sums, sq, tmp):
    """sums[c] += sum of g, and of g * x_hat sq bytes behind; g = gy * leaky', x_hat = v * k1 + k0.

    u is v, the input of the batch norm. With from_z it is the leaky's output, z: v is then not the input but
    y = gamma * x_hat + beta, recovered from z, and k1, k0 belong to y.
    """
    sl, inv = splat(slope), splat(_ONE / slope)
    for p in range(p0, p1, 64):
        n = min(64, p1 - p)
        for c in range(0, C, LANES):
            left = C - c
            a, b = load_part(k1 + 4 * c, left), load_part(k0 + 4 * c, left)
            s, h = load_part(scale + 4 * c, left), load_part(shift + 4 * c, left)
            a1, a2 = zero(), zero()
            for i in range(n):
                v = load_part(u + (p + i) * us + 4 * c, left)
                m, v = _slope_at(v, s, h, sl, inv, from_z)
                g = load_part(gy + (p + i) * gs + 4 * c, left) * m
                a1 = a1 + g
                a2 = fma(g, fma(v, a, b), a2)
            _flush(a1, a2, c, left, sums, sq, tmp)


@kernel(floats=("slope",))
def backward(gy, gs, u, us, gx, xs, scale, shift, c1, c2, c3, slope, from_z, C, p0, p1):
    """gx = c1 * g + c2 * v + c3; gx may be gy."""
    sl, inv = splat(slope), splat(_ONE / slope)
    for p in range(p0, p1):
        for c in range(0, C, LANES):
            left = C - c
            v = load_part(u + p * us + 4 * c, left)
            m, v = _slope_at(v, load_part(scale + 4 * c, left), load_part(shift + 4 * c, left), sl, inv, from_z)
            g = load_part(gy + p * gs + 4 * c, left) * m
            v = fma(load_part(c2 + 4 * c, left), v, load_part(c3 + 4 * c, left))
            store_part(gx + p * xs + 4 * c, fma(load_part(c1 + 4 * c, left), g, v), left)
