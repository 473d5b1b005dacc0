"""The transforms of one Winograd tile, all channels, and of one row of weights.

Every function works on vectors of LANES channels: rows first, through a small scratch, then columns.
"""
# mypy: ignore-errors

from __future__ import annotations

import math

import numpy as np

from undertow.kernels.cpu.source.compiler import inline, kernel
from undertow.kernels.cpu.source.simd import VBYTES, load, splat, store

# Points +-_A and +-_B with their squares and cubes; _S = a^2 + b^2, a^2 b^2 = 1.
_A, _B = np.float32(math.sqrt(0.5)), np.float32(math.sqrt(2.0))
_A2, _B2 = np.float32(0.5), np.float32(2.0)
_A3, _B3 = np.float32(math.sqrt(0.125)), np.float32(math.sqrt(8.0))
_S = np.float32(2.5)
_A4, _B4 = np.float32(0.25), np.float32(4.0)
# Row i of G is (1, p, p^2) / f_i with f_i the product of the differences to the other points.
_G0 = np.float32(1.0 / (0.5 * 2.0))
_GA = np.float32(1.0 / (2 * 0.5 * (0.5 - 2.0)))
_GB = np.float32(1.0 / (2 * 2.0 * (2.0 - 0.5)))
_GAA, _GBB = np.float32(float(_GA) * math.sqrt(0.5)), np.float32(float(_GB) * math.sqrt(2.0))
_HALF = np.float32(0.5)

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


# F(2x2, 5x5) has the same points: B^T is that of F(4x4, 3x3), the others have more rows or fewer.
@inline
def _at6_two(m0, m1, m2, m3, m4, m5):
    return m0 + (m1 + m2) + (m3 + m4), splat(_A) * (m1 - m2) + splat(_B) * (m3 - m4) + m5


@inline
def _a6_two(y0, y1):
    oa, ob = splat(_A) * y1, splat(_B) * y1
    return y0, y0 + oa, y0 - oa, y0 + ob, y0 - ob, y1


@inline
def _g6_five(w0, w1, w2, w3, w4):
    ea = splat(_GA) * (w0 + splat(_A2) * w2 + splat(_A4) * w4)
    oa = splat(_GAA) * (w1 + splat(_A2) * w3)
    eb = splat(_GB) * (w0 + splat(_B2) * w2 + splat(_B4) * w4)
    ob = splat(_GBB) * (w1 + splat(_B2) * w3)
    return splat(_G0) * w0, ea + oa, ea - oa, eb + ob, eb - ob, w4


@inline
def _gt6_five(u0, u1, u2, u3, u4, u5):
    sa, da = splat(_GA) * (u1 + u2), splat(_GAA) * (u1 - u2)
    sb, db = splat(_GB) * (u3 + u4), splat(_GBB) * (u3 - u4)
    w2, w3 = splat(_A2) * sa + splat(_B2) * sb, splat(_A2) * da + splat(_B2) * db
    return splat(_G0) * u0 + sa + sb, da + db, w2, w3, splat(_A4) * sa + splat(_B4) * sb + u5


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


# ---- two dimensions, m = 2, windows of 5 x 5 -----------------------------------------------------------
@kernel
def output25(source, ss, C, target, rs, cs, tmp):
    for c in range(0, 4 * C, V):
        for i in range(6):
            a, b = _at6_two(*_load6(source + 6 * i * ss + c, ss))
            store(tmp + i * 2 * V, a)
            store(tmp + i * 2 * V + V, b)
        for j in range(2):
            a, b = _at6_two(*_load6(tmp + j * V, 2 * V))
            store(target + j * cs + c, a)
            store(target + j * cs + rs + c, b)


@kernel
def grad25(source, rs, cs, C, target, ss, ps, tmp):
    for c in range(0, 4 * C, V):
        for i in range(2):
            p = source + i * rs + c
            _store6(tmp + i * 6 * V, V, _a6_two(load(p), load(p + cs)))
        d = target + (c >> 6) * ps + (c & 63)
        for j in range(6):
            p = tmp + j * V
            _store6(d + j * ss, 6 * ss, _a6_two(load(p), load(p + 6 * V)))


@kernel
def weights25(w, tap, u, us, tmp):
    for i in range(5):
        _store6(tmp + i * 6 * V, V, _g6_five(*_load5(w + i * 5 * tap, tap)))
    for j in range(6):
        _store6(u + j * us, 6 * us, _g6_five(*_load5(tmp + j * V, 6 * V)))


@kernel
def weights_back25(u, us, w, tap, tmp):
    for i in range(6):
        _store5(tmp + i * 5 * V, V, _gt6_five(*_load6(u + i * 6 * us, us)))
    for j in range(5):
        _store5(w + j * tap, 5 * tap, _gt6_five(*_load6(tmp + j * V, 5 * V)))
