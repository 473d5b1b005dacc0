"""Batch normalisation, fused with leaky and a residual, NHWC. Per-channel arrays are float32, sums float64.

Every kernel works on pixels p0..p1. Sums are float32 within 256 pixels and float64 across them.
"""
# mypy: ignore-errors

from __future__ import annotations

import numpy as np

from undertow.kernels.cpu.source.compiler import inline, kernel
from undertow.kernels.cpu.source.direct import add_sums
from undertow.kernels.cpu.source.simd import (
    LANES,
    VBYTES,
    fma,
    load,
    load_int,
    load_part,
    splat,
    store_part,
    where_greater,
    zero,
)

_ONE = np.float32(1.0)
RUN = 256  # pixels whose sums are kept in float32
WIDE = 4 * LANES


@inline
def idle(when):
    """Whether a kernel has nothing to do: `when` is the address of an int64 that is 0. Address 0: it always has."""
    return when != 0 and load_int(when) == 0


@kernel
def pivot(x, xs, C, P, out, when):
    """The mean of up to 64 pixels spread over all P: near enough to the true mean to sum differences from it."""
    if idle(when):
        return
    count = min(P, 64)
    step = P // count
    scale = splat(np.float32(1.0) / np.float32(count))
    for c in range(0, C, LANES):
        a = zero()
        for i in range(count):
            a = a + load_part(x + i * step * xs + 4 * c, C - c)
        store_part(out + 4 * c, a * scale, C - c)


@inline
def flush(a1, a2, c, left, sums, sq, tmp):
    store_part(tmp, a1, LANES)
    store_part(tmp + VBYTES, a2, LANES)
    add_sums(sums + 8 * c, tmp, min(left, LANES))
    add_sums(sums + sq + 8 * c, tmp + VBYTES, min(left, LANES))


@inline
def _two_sums(v, a1, a2):
    return a1 + v, fma(v, v, a2)


@kernel
def statistics(x, xs, C, p0, p1, centre, sums, sq, tmp, when):
    """sums[c] += sum of (x - centre), and of its square sq bytes behind."""
    if idle(when):
        return
    for p in range(p0, p1, RUN):
        q = x + p * xs
        n = min(RUN, p1 - p)
        c = 0
        while c + WIDE <= C:  # four vectors side by side: memory is read in longer runs
            m = centre + 4 * c
            m0, m1, m2, m3 = load(m), load(m + VBYTES), load(m + 2 * VBYTES), load(m + 3 * VBYTES)
            a0, a1, a2, a3, b0, b1, b2, b3 = zero(), zero(), zero(), zero(), zero(), zero(), zero(), zero()
            for i in range(n):
                r = q + i * xs + 4 * c
                a0, b0 = _two_sums(load(r) - m0, a0, b0)
                a1, b1 = _two_sums(load(r + VBYTES) - m1, a1, b1)
                a2, b2 = _two_sums(load(r + 2 * VBYTES) - m2, a2, b2)
                a3, b3 = _two_sums(load(r + 3 * VBYTES) - m3, a3, b3)
            flush(a0, b0, c, LANES, sums, sq, tmp)
            flush(a1, b1, c + LANES, LANES, sums, sq, tmp)
            flush(a2, b2, c + 2 * LANES, LANES, sums, sq, tmp)
            flush(a3, b3, c + 3 * LANES, LANES, sums, sq, tmp)
            c += WIDE
        while c < C:
            left = C - c
            m0, a0, b0 = load_part(centre + 4 * c, left), zero(), zero()
            for i in range(n):
                a0, b0 = _two_sums(load_part(q + i * xs + 4 * c, left) - m0, a0, b0)
            flush(a0, b0, c, left, sums, sq, tmp)
            c += LANES


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


@inline
def _gradient_sums(gy, u, a, b, s, h, sl, inv, from_z, left, a1, a2):
    """a1 + g, a2 + g * x_hat for one vector."""
    m, v = _slope_at(load_part(u, left), s, h, sl, inv, from_z)
    g = load_part(gy, left) * m
    return a1 + g, fma(g, fma(v, a, b), a2)


@kernel(floats=("slope",))
def backward_sums(gy, gs, u, us, scale, shift, k1, k0, slope, from_z, C, p0, p1, sums, sq, tmp):
    """sums[c] += sum of g, and of g * x_hat sq bytes behind; g = gy * leaky', x_hat = v * k1 + k0.

    u is v, the input of the batch norm. With from_z it is the leaky's output, z: v is then not the input but
    y = gamma * x_hat + beta, recovered from z, and k1, k0 belong to y.
    """
    sl, inv = splat(slope), splat(_ONE / slope)
    V, L = VBYTES, LANES
    for p in range(p0, p1, RUN):
        n = min(RUN, p1 - p)
        c = 0
        while c + WIDE // 2 <= C:  # two vectors side by side: memory is read in longer runs
            d, e = 4 * c, 4 * c + V
            s0, s1, h0, h1 = load(scale + d), load(scale + e), load(shift + d), load(shift + e)
            k10, k11, k00, k01 = load(k1 + d), load(k1 + e), load(k0 + d), load(k0 + e)
            a0, a1, b0, b1 = zero(), zero(), zero(), zero()
            for i in range(p, p + n):
                q, r = gy + i * gs, u + i * us
                a0, b0 = _gradient_sums(q + d, r + d, k10, k00, s0, h0, sl, inv, from_z, L, a0, b0)
                a1, b1 = _gradient_sums(q + e, r + e, k11, k01, s1, h1, sl, inv, from_z, L, a1, b1)
            flush(a0, b0, c, L, sums, sq, tmp)
            flush(a1, b1, c + L, L, sums, sq, tmp)
            c += WIDE // 2
        while c < C:
            left, d = C - c, 4 * c
            k10, k00 = load_part(k1 + d, left), load_part(k0 + d, left)
            s0, h0 = load_part(scale + d, left), load_part(shift + d, left)
            a0, b0 = zero(), zero()
            for i in range(p, p + n):
                q, r = gy + i * gs + d, u + i * us + d
                a0, b0 = _gradient_sums(q, r, k10, k00, s0, h0, sl, inv, from_z, left, a0, b0)
            flush(a0, b0, c, left, sums, sq, tmp)
            c += L


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
