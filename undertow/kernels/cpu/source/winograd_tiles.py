"""The transforms of one Winograd tile, all channels, and of one row of weights.

Every function works on vectors of LANES channels: rows first, through a small scratch, then columns.
"""
# mypy: ignore-errors

from __future__ import annotations

import math

import numpy as np

from undertow.kernels.cpu.source.compiler import inline, kernel
from undertow.kernels.cpu.source.simd import VBYTES, fma, load, splat, store

# Points +-_A and +-_B with their squares and cubes; _S = a^2 + b^2, a^2 b^2 = 1.
_A, _B = np.float32(math.sqrt(0.5)), np.float32(math.sqrt(2.0))
_A2, _B2 = np.float32(0.5), np.float32(2.0)
_A3, _B3 = np.float32(math.sqrt(0.125)), np.float32(math.sqrt(8.0))
_S = np.float32(2.5)
# Row i of G is (1, p, p^2) / f_i with f_i the product of the differences to the other points.
_G0 = np.float32(1.0 / (0.5 * 2.0))
_GA = np.float32(1.0 / (2 * 0.5 * (0.5 - 2.0)))
_GB = np.float32(1.0 / (2 * 2.0 * (2.0 - 0.5)))
_GAA, _GBB = np.float32(float(_GA) * math.sqrt(0.5)), np.float32(float(_GB) * math.sqrt(2.0))
_HALF = np.float32(0.5)
# Tiles of 8 x 8: points +-1/2, +-1, +-2; the product of all x - p is x (x^6 - 5.25 x^4 + 5.25 x^2 - 1).
_S8 = np.float32(5.25)
_TWO, _FOUR, _EIGHT, _SIXTEEN = np.float32(2), np.float32(4), np.float32(8), np.float32(16)
_4TH, _8TH, _16TH = np.float32(1 / 4), np.float32(1 / 8), np.float32(1 / 16)
_S_HALF, _S_ONE, _S_TWO = np.float32(5), np.float32(4.25), np.float32(1.25)  # the other two points' squares, summed
_G_HALF, _G_ONE, _G_TWO = np.float32(32 / 45), np.float32(-2 / 9), np.float32(1 / 90)
_GO_HALF, _GO_TWO = np.float32(16 / 45), np.float32(1 / 45)  # times the point

V = VBYTES


# ---- one dimension ----------------------------------------------------------------------------------
@inline
def _bt6(d0, d1, d2, d3, d4, d5):
    s, a, b, a2, b2 = splat(_S), splat(_A), splat(_B), splat(_A2), splat(_B2)
    e1 = d4 - b2 * d2
    o1 = a * (d3 - b2 * d1)
    e2 = d4 - a2 * d2
    o2 = b * (d3 - a2 * d1)
    return d0 + d4 - s * d2, e1 + o1, e1 - o1, e2 + o2, e2 - o2, d1 + d5 - s * d3


@inline
def _at6(m0, m1, m2, m3, m4, m5):
    a, b, a2, b2, a3, b3 = splat(_A), splat(_B), splat(_A2), splat(_B2), splat(_A3), splat(_B3)
    s1, d1, s2, d2 = m1 + m2, m1 - m2, m3 + m4, m3 - m4
    return m0 + s1 + s2, a * d1 + b * d2, a2 * s1 + b2 * s2, a3 * d1 + b3 * d2 + m5


@inline
def _a6(y0, y1, y2, y3):
    a, b, a2, b2 = splat(_A), splat(_B), splat(_A2), splat(_B2)
    e1 = y0 + a2 * y2
    o1 = a * (y1 + a2 * y3)
    e2 = y0 + b2 * y2
    o2 = b * (y1 + b2 * y3)
    return y0, e1 + o1, e1 - o1, e2 + o2, e2 - o2, y3


@inline
def _g6(w0, w1, w2):
    ea = splat(_GA) * (w0 + splat(_A2) * w2)
    oa = splat(_GAA) * w1
    eb = splat(_GB) * (w0 + splat(_B2) * w2)
    ob = splat(_GBB) * w1
    return splat(_G0) * w0, ea + oa, ea - oa, eb + ob, eb - ob, w2


@inline
def _gt6(u0, u1, u2, u3, u4, u5):
    sa, da = splat(_GA) * (u1 + u2), splat(_GAA) * (u1 - u2)
    sb, db = splat(_GB) * (u3 + u4), splat(_GBB) * (u3 - u4)
    return splat(_G0) * u0 + sa + sb, da + db, splat(_A2) * sa + splat(_B2) * sb + u5


# F(4x4, 5x5).
@inline
def _both(e, p, o):
    """e + p o, e - p o."""
    return fma(p, o, e), e - p * o


@inline
def _bt8(d0, d1, d2, d3, d4, d5, d6, d7):
    s, h, four, q, two = splat(_S8), splat(_S_HALF), splat(_FOUR), splat(_4TH), splat(_TWO)
    one, t = splat(_S_ONE), splat(_S_TWO)
    a, b = _both(d6 - h * d4 + four * d2, splat(_HALF), d5 - h * d3 + four * d1)
    e, o = d6 + d2 - one * d4, d5 + d1 - one * d3
    c, d = _both(d6 - t * d4 + q * d2, two, d5 - t * d3 + q * d1)
    return d0 - d6 + s * (d4 - d2), a, b, e + o, e - o, c, d, d7 - d1 + s * (d3 - d5)


@inline
def _at8(m0, m1, m2, m3, m4, m5, m6, m7):
    s1, d1, s2, d2, s3, d3 = m1 + m2, m1 - m2, m3 + m4, m3 - m4, m5 + m6, m5 - m6
    y1 = d2 + splat(_HALF) * d1 + splat(_TWO) * d3
    y2 = s2 + splat(_4TH) * s1 + splat(_FOUR) * s3
    return m0 + s1 + s2 + s3, y1, y2, d2 + splat(_8TH) * d1 + splat(_EIGHT) * d3 + m7


@inline
def _a8(y0, y1, y2, y3):
    q, four = splat(_4TH), splat(_FOUR)
    a, b = _both(y0 + q * y2, splat(_HALF), y1 + q * y3)
    e, o = y0 + y2, y1 + y3
    c, d = _both(y0 + four * y2, splat(_TWO), y1 + four * y3)
    return y0, a, b, e + o, e - o, c, d, y3


@inline
def _g8(w0, w1, w2, w3, w4):
    q, four, one = splat(_4TH), splat(_FOUR), splat(_G_ONE)
    a, b = _both(splat(_G_HALF) * (w0 + q * w2 + splat(_16TH) * w4), splat(_GO_HALF), w1 + q * w3)
    e, o = one * (w0 + w2 + w4), one * (w1 + w3)
    c, d = _both(splat(_G_TWO) * (w0 + four * w2 + splat(_SIXTEEN) * w4), splat(_GO_TWO), w1 + four * w3)
    return w0, a, b, e + o, e - o, c, d, w4


@inline
def _gt8(u0, u1, u2, u3, u4, u5, u6, u7):
    q, four = splat(_4TH), splat(_FOUR)
    s1, d1 = splat(_G_HALF) * (u1 + u2), splat(_GO_HALF) * (u1 - u2)
    s2, d2 = splat(_G_ONE) * (u3 + u4), splat(_G_ONE) * (u3 - u4)
    s3, d3 = splat(_G_TWO) * (u5 + u6), splat(_GO_TWO) * (u5 - u6)
    w2, w3 = s2 + q * s1 + four * s3, d2 + q * d1 + four * d3
    return u0 + s1 + s2 + s3, d1 + d2 + d3, w2, w3, s2 + splat(_16TH) * s1 + splat(_SIXTEEN) * s3 + u7


@inline
def _bt4(d0, d1, d2, d3):
    return d0 - d2, d1 + d2, d2 - d1, d3 - d1


@inline
def _at4(m0, m1, m2, m3):
    return m0 + m1 + m2, m1 - m2 + m3


@inline
def _a4(y0, y1):
    return y0, y0 + y1, y0 - y1, y1


@inline
def _g4(w0, w1, w2):
    e, o = splat(_HALF) * (w0 + w2), splat(_HALF) * w1
    return w0, e + o, e - o, w2


@inline
def _gt4(u0, u1, u2, u3):
    s, d = splat(_HALF) * (u1 + u2), splat(_HALF) * (u1 - u2)
    return u0 + s, d, s + u3


@inline
def _load8(p, s):
    return (
        load(p), load(p + s), load(p + 2 * s), load(p + 3 * s), load(p + 4 * s), load(p + 5 * s), load(p + 6 * s),
        load(p + 7 * s),
    )  # fmt: skip


@inline
def _store8(p, s, v):
    store(p, v[0])
    store(p + s, v[1])
    store(p + 2 * s, v[2])
    store(p + 3 * s, v[3])
    store(p + 4 * s, v[4])
    store(p + 5 * s, v[5])
    store(p + 6 * s, v[6])
    store(p + 7 * s, v[7])


@inline
def _load6(p, s):
    return load(p), load(p + s), load(p + 2 * s), load(p + 3 * s), load(p + 4 * s), load(p + 5 * s)


@inline
def _store6(p, s, v):
    store(p, v[0])
    store(p + s, v[1])
    store(p + 2 * s, v[2])
    store(p + 3 * s, v[3])
    store(p + 4 * s, v[4])
    store(p + 5 * s, v[5])


@inline
def _load5(p, s):
    return load(p), load(p + s), load(p + 2 * s), load(p + 3 * s), load(p + 4 * s)


@inline
def _store5(p, s, v):
    store(p, v[0])
    store(p + s, v[1])
    store(p + 2 * s, v[2])
    store(p + 3 * s, v[3])
    store(p + 4 * s, v[4])


@inline
def _load4(p, s):
    return load(p), load(p + s), load(p + 2 * s), load(p + 3 * s)


@inline
def _store4(p, s, v):
    store(p, v[0])
    store(p + s, v[1])
    store(p + 2 * s, v[2])
    store(p + 3 * s, v[3])


@inline
def _store3(p, s, v):
    store(p, v[0])
    store(p + s, v[1])
    store(p + 2 * s, v[2])


# ---- two dimensions, m = 4 --------------------------------------------------------------------------
@kernel
def input4(source, rs, cs, C, target, ss, tmp):
    """B^T d B of 6 x 6 pixels, row and column strides rs and cs, to 36 slabs ss bytes apart."""
    for c in range(0, 4 * C, V):
        for i in range(6):
            _store6(tmp + i * 6 * V, V, _bt6(*_load6(source + i * rs + c, cs)))
        for j in range(6):
            _store6(target + j * ss + c, 6 * ss, _bt6(*_load6(tmp + j * V, 6 * V)))


@kernel
def output4(source, ss, C, target, rs, cs, tmp):
    """A^T m A of 36 slabs to 4 x 4 pixels."""
    for c in range(0, 4 * C, V):
        for i in range(6):
            _store4(tmp + i * 4 * V, V, _at6(*_load6(source + 6 * i * ss + c, ss)))
        for j in range(4):
            _store4(target + j * cs + c, rs, _at6(*_load6(tmp + j * V, 4 * V)))


@kernel
def grad4(source, rs, cs, C, target, ss, ps, tmp):
    """A dy A^T of 4 x 4 pixels to 36 slabs of panels ps bytes apart."""
    for c in range(0, 4 * C, V):
        for i in range(4):
            _store6(tmp + i * 6 * V, V, _a6(*_load4(source + i * rs + c, cs)))
        d = target + (c >> 6) * ps + (c & 63)
        for j in range(6):
            _store6(d + j * ss, 6 * ss, _a6(*_load4(tmp + j * V, 6 * V)))


@kernel
def weights4(w, tap, u, us, tmp):
    """G w G^T of one vector of weights, taps `tap` bytes apart."""
    for i in range(3):
        q = w + i * 3 * tap
        _store6(tmp + i * 6 * V, V, _g6(load(q), load(q + tap), load(q + 2 * tap)))
    for j in range(6):
        q = tmp + j * V
        _store6(u + j * us, 6 * us, _g6(load(q), load(q + 6 * V), load(q + 12 * V)))


@kernel
def weights_back4(u, us, w, tap, tmp):
    """G^T u G of one vector."""
    for i in range(6):
        _store3(tmp + i * 3 * V, V, _gt6(*_load6(u + i * 6 * us, us)))
    for j in range(3):
        _store3(w + j * tap, 3 * tap, _gt6(*_load6(tmp + j * V, 3 * V)))


# ---- two dimensions, m = 2 --------------------------------------------------------------------------
@kernel
def input2(source, rs, cs, C, target, ss, tmp):
    for c in range(0, 4 * C, V):
        for i in range(4):
            _store4(tmp + i * 4 * V, V, _bt4(*_load4(source + i * rs + c, cs)))
        for j in range(4):
            _store4(target + j * ss + c, 4 * ss, _bt4(*_load4(tmp + j * V, 4 * V)))


@kernel
def output2(source, ss, C, target, rs, cs, tmp):
    for c in range(0, 4 * C, V):
        for i in range(4):
            a, b = _at4(*_load4(source + 4 * i * ss + c, ss))
            store(tmp + i * 2 * V, a)
            store(tmp + i * 2 * V + V, b)
        for j in range(2):
            a, b = _at4(*_load4(tmp + j * V, 2 * V))
            store(target + j * cs + c, a)
            store(target + j * cs + rs + c, b)


@kernel
def grad2(source, rs, cs, C, target, ss, ps, tmp):
    for c in range(0, 4 * C, V):
        for i in range(2):
            p = source + i * rs + c
            _store4(tmp + i * 4 * V, V, _a4(load(p), load(p + cs)))
        d = target + (c >> 6) * ps + (c & 63)
        for j in range(4):
            p = tmp + j * V
            _store4(d + j * ss, 4 * ss, _a4(load(p), load(p + 4 * V)))


@kernel
def weights2(w, tap, u, us, tmp):
    for i in range(3):
        q = w + i * 3 * tap
        _store4(tmp + i * 4 * V, V, _g4(load(q), load(q + tap), load(q + 2 * tap)))
    for j in range(4):
        q = tmp + j * V
        _store4(u + j * us, 4 * us, _g4(load(q), load(q + 4 * V), load(q + 8 * V)))


@kernel
def weights_back2(u, us, w, tap, tmp):
    for i in range(4):
        _store3(tmp + i * 3 * V, V, _gt4(*_load4(u + i * 4 * us, us)))
    for j in range(3):
        _store3(w + j * tap, 3 * tap, _gt4(*_load4(tmp + j * V, 3 * V)))


# ---- two dimensions, m = 4, windows of 5 x 5 -----------------------------------------------------------
@kernel
def input45(source, rs, cs, C, target, ss, tmp):
    for c in range(0, 4 * C, V):
        for i in range(8):
            _store8(tmp + i * 8 * V, V, _bt8(*_load8(source + i * rs + c, cs)))
        for j in range(8):
            _store8(target + j * ss + c, 8 * ss, _bt8(*_load8(tmp + j * V, 8 * V)))


@kernel
def output45(source, ss, C, target, rs, cs, tmp):
    for c in range(0, 4 * C, V):
        for i in range(8):
            _store4(tmp + i * 4 * V, V, _at8(*_load8(source + 8 * i * ss + c, ss)))
        for j in range(4):
            _store4(target + j * cs + c, rs, _at8(*_load8(tmp + j * V, 4 * V)))


@kernel
def grad45(source, rs, cs, C, target, ss, ps, tmp):
    for c in range(0, 4 * C, V):
        for i in range(4):
            _store8(tmp + i * 8 * V, V, _a8(*_load4(source + i * rs + c, cs)))
        d = target + (c >> 6) * ps + (c & 63)
        for j in range(8):
            _store8(d + j * ss, 8 * ss, _a8(*_load4(tmp + j * V, 8 * V)))


@kernel
def weights45(w, tap, u, us, tmp):
    for i in range(5):
        _store8(tmp + i * 8 * V, V, _g8(*_load5(w + i * 5 * tap, tap)))
    for j in range(8):
        _store8(u + j * us, 8 * us, _g8(*_load5(tmp + j * V, 8 * V)))


@kernel
def weights_back45(u, us, w, tap, tmp):
    for i in range(8):
        _store5(tmp + i * 5 * V, V, _gt8(*_load8(u + i * 8 * us, us)))
    for j in range(5):
        _store5(w + j * tap, 5 * tap, _gt8(*_load8(tmp + j * V, 5 * V)))
