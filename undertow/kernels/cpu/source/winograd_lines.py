"""Winograd's transforms in one dimension.

For F(m, r), n = m + r - 1: btF is B^T (n inputs to n), atF is A^T (n products to m results), aF is A (m gradients
of results to n), gF is G (r weights to n), gtF is G^T (n products to r gradients of weights); F = 10 m + r. F = 432 and
832: see there.
"""
# mypy: ignore-errors

from __future__ import annotations

import math

import numpy as np

from undertow.kernels.cpu.source.compiler import inline
from undertow.kernels.cpu.source.simd import fma, splat

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


@inline
def _both(e, p, o):
    """e + p o, e - p o."""
    return fma(p, o, e), e - p * o


# ---- F(4, 3) ----------------------------------------------------------------------------------------
@inline
def bt43(d0, d1, d2, d3, d4, d5):
    s, a, b, a2, b2 = splat(_S), splat(_A), splat(_B), splat(_A2), splat(_B2)
    e1 = d4 - b2 * d2
    o1 = a * (d3 - b2 * d1)
    e2 = d4 - a2 * d2
    o2 = b * (d3 - a2 * d1)
    return d0 + d4 - s * d2, e1 + o1, e1 - o1, e2 + o2, e2 - o2, d1 + d5 - s * d3


@inline
def at43(m0, m1, m2, m3, m4, m5):
    a, b, a2, b2, a3, b3 = splat(_A), splat(_B), splat(_A2), splat(_B2), splat(_A3), splat(_B3)
    s1, d1, s2, d2 = m1 + m2, m1 - m2, m3 + m4, m3 - m4
    return m0 + s1 + s2, a * d1 + b * d2, a2 * s1 + b2 * s2, a3 * d1 + b3 * d2 + m5


@inline
def a43(y0, y1, y2, y3):
    a, b, a2, b2 = splat(_A), splat(_B), splat(_A2), splat(_B2)
    e1 = y0 + a2 * y2
    o1 = a * (y1 + a2 * y3)
    e2 = y0 + b2 * y2
    o2 = b * (y1 + b2 * y3)
    return y0, e1 + o1, e1 - o1, e2 + o2, e2 - o2, y3


@inline
def g43(w0, w1, w2):
    ea = splat(_GA) * (w0 + splat(_A2) * w2)
    oa = splat(_GAA) * w1
    eb = splat(_GB) * (w0 + splat(_B2) * w2)
    ob = splat(_GBB) * w1
    return splat(_G0) * w0, ea + oa, ea - oa, eb + ob, eb - ob, w2


@inline
def gt43(u0, u1, u2, u3, u4, u5):
    sa, da = splat(_GA) * (u1 + u2), splat(_GAA) * (u1 - u2)
    sb, db = splat(_GB) * (u3 + u4), splat(_GBB) * (u3 - u4)
    return splat(_G0) * u0 + sa + sb, da + db, splat(_A2) * sa + splat(_B2) * sb + u5


# ---- F(5, 3) ----------------------------------------------------------------------------------------
# Points +-1/4, +-7/8, +-7/4, infinity. For each of the three: p, p^2, p^3, p^4; sum and product of the others' squares;
# 1 / f, p / f, p^2 / f. _N: the coefficients of the product of all x^2 - p^2.
def _of_three(p, q, r):
    f = 2 * p * (p**2 - q**2) * (p**2 - r**2)
    return tuple(np.float32(v) for v in (p, p**2, p**3, p**4, q**2 + r**2, (q * r) ** 2, 1 / f, p / f, p**2 / f))


_P, _P2, _P3, _P4, _PS, _PP, _PF, _PF1, _PF2 = _of_three(0.25, 0.875, 1.75)
_Q, _Q2, _Q3, _Q4, _QS, _QP, _QF, _QF1, _QF2 = _of_three(0.875, 0.25, 1.75)
_R, _R2, _R3, _R4, _RS, _RP, _RF, _RF1, _RF2 = _of_three(1.75, 0.25, 0.875)
_N4, _N2, _N0 = _P2 + _PS, _PP + _P2 * _PS, _P2 * _PP


@inline
def bt53(d0, d1, d2, d3, d4, d5, d6):
    p, ps, pp = splat(_P), splat(_PS), splat(_PP)
    q, qs, qp = splat(_Q), splat(_QS), splat(_QP)
    r, rs, rp = splat(_R), splat(_RS), splat(_RP)
    u0, u1 = _both(d5 - ps * d3 + pp * d1, p, d4 - ps * d2 + pp * d0)
    u2, u3 = _both(d5 - qs * d3 + qp * d1, q, d4 - qs * d2 + qp * d0)
    u4, u5 = _both(d5 - rs * d3 + rp * d1, r, d4 - rs * d2 + rp * d0)
    return u0, u1, u2, u3, u4, u5, d6 - splat(_N4) * d4 + splat(_N2) * d2 - splat(_N0) * d0


@inline
def at53(m0, m1, m2, m3, m4, m5, m6):
    s1, d1, s2, d2, s3, d3 = m0 + m1, m0 - m1, m2 + m3, m2 - m3, m4 + m5, m4 - m5
    y1 = splat(_P) * d1 + splat(_Q) * d2 + splat(_R) * d3
    y2 = splat(_P2) * s1 + splat(_Q2) * s2 + splat(_R2) * s3
    y3 = splat(_P3) * d1 + splat(_Q3) * d2 + splat(_R3) * d3
    return s1 + s2 + s3, y1, y2, y3, splat(_P4) * s1 + splat(_Q4) * s2 + splat(_R4) * s3 + m6


@inline
def a53(y0, y1, y2, y3, y4):
    p2, q2, r2 = splat(_P2), splat(_Q2), splat(_R2)
    u0, u1 = _both(y0 + p2 * y2 + splat(_P4) * y4, splat(_P), y1 + p2 * y3)
    u2, u3 = _both(y0 + q2 * y2 + splat(_Q4) * y4, splat(_Q), y1 + q2 * y3)
    u4, u5 = _both(y0 + r2 * y2 + splat(_R4) * y4, splat(_R), y1 + r2 * y3)
    return u0, u1, u2, u3, u4, u5, y4


@inline
def g53(w0, w1, w2):
    """The rows of -p are taken times -1, as those of B^T. fma: every kernel has to round the same way."""
    e1, o1 = fma(splat(_PF), w0, splat(_PF2) * w2), splat(_PF1) * w1
    e2, o2 = fma(splat(_QF), w0, splat(_QF2) * w2), splat(_QF1) * w1
    e3, o3 = fma(splat(_RF), w0, splat(_RF2) * w2), splat(_RF1) * w1
    return o1 + e1, o1 - e1, o2 + e2, o2 - e2, o3 + e3, o3 - e3, w2


@inline
def gt53(u0, u1, u2, u3, u4, u5, u6):
    s1, d1, s2, d2, s3, d3 = u0 + u1, u0 - u1, u2 + u3, u2 - u3, u4 + u5, u4 - u5
    w0 = splat(_PF) * d1 + splat(_QF) * d2 + splat(_RF) * d3
    w1 = splat(_PF1) * s1 + splat(_QF1) * s2 + splat(_RF1) * s3
    return w0, w1, splat(_PF2) * d1 + splat(_QF2) * d2 + splat(_RF2) * d3 + u6


# ---- F(4, 5) ----------------------------------------------------------------------------------------
@inline
def bt45(d0, d1, d2, d3, d4, d5, d6, d7):
    s, h, four, q, two = splat(_S8), splat(_S_HALF), splat(_FOUR), splat(_4TH), splat(_TWO)
    one, t = splat(_S_ONE), splat(_S_TWO)
    a, b = _both(d6 - h * d4 + four * d2, splat(_HALF), d5 - h * d3 + four * d1)
    e, o = d6 + d2 - one * d4, d5 + d1 - one * d3
    c, d = _both(d6 - t * d4 + q * d2, two, d5 - t * d3 + q * d1)
    return d0 - d6 + s * (d4 - d2), a, b, e + o, e - o, c, d, d7 - d1 + s * (d3 - d5)


@inline
def at45(m0, m1, m2, m3, m4, m5, m6, m7):
    s1, d1, s2, d2, s3, d3 = m1 + m2, m1 - m2, m3 + m4, m3 - m4, m5 + m6, m5 - m6
    y1 = d2 + splat(_HALF) * d1 + splat(_TWO) * d3
    y2 = s2 + splat(_4TH) * s1 + splat(_FOUR) * s3
    return m0 + s1 + s2 + s3, y1, y2, d2 + splat(_8TH) * d1 + splat(_EIGHT) * d3 + m7


@inline
def a45(y0, y1, y2, y3):
    q, four = splat(_4TH), splat(_FOUR)
    a, b = _both(y0 + q * y2, splat(_HALF), y1 + q * y3)
    e, o = y0 + y2, y1 + y3
    c, d = _both(y0 + four * y2, splat(_TWO), y1 + four * y3)
    return y0, a, b, e + o, e - o, c, d, y3


@inline
def g45(w0, w1, w2, w3, w4):
    q, four, one = splat(_4TH), splat(_FOUR), splat(_G_ONE)
    a, b = _both(splat(_G_HALF) * (w0 + q * w2 + splat(_16TH) * w4), splat(_GO_HALF), w1 + q * w3)
    e, o = one * (w0 + w2 + w4), one * (w1 + w3)
    c, d = _both(splat(_G_TWO) * (w0 + four * w2 + splat(_SIXTEEN) * w4), splat(_GO_TWO), w1 + four * w3)
    return w0, a, b, e + o, e - o, c, d, w4


@inline
def gt45(u0, u1, u2, u3, u4, u5, u6, u7):
    q, four = splat(_4TH), splat(_FOUR)
    s1, d1 = splat(_G_HALF) * (u1 + u2), splat(_GO_HALF) * (u1 - u2)
    s2, d2 = splat(_G_ONE) * (u3 + u4), splat(_G_ONE) * (u3 - u4)
    s3, d3 = splat(_G_TWO) * (u5 + u6), splat(_GO_TWO) * (u5 - u6)
    w2, w3 = s2 + q * s1 + four * s3, d2 + q * d1 + four * d3
    return u0 + s1 + s2 + s3, d1 + d2 + d3, w2, w3, s2 + splat(_16TH) * s1 + splat(_SIXTEEN) * s3 + u7


# ---- F(2, 3) ----------------------------------------------------------------------------------------
@inline
def bt23(d0, d1, d2, d3):
    return d0 - d2, d1 + d2, d2 - d1, d3 - d1


@inline
def at23(m0, m1, m2, m3):
    return m0 + m1 + m2, m1 - m2 + m3


@inline
def a23(y0, y1):
    return y0, y0 + y1, y0 - y1, y1


@inline
def g23(w0, w1, w2):
    e, o = splat(_HALF) * (w0 + w2), splat(_HALF) * w1
    return w0, e + o, e - o, w2


@inline
def gt23(u0, u1, u2, u3):
    s, d = splat(_HALF) * (u1 + u2), splat(_HALF) * (u1 - u2)
    return u0 + s, d, s + u3


# ---- 3 weights, stride 2 -----------------------------------------------------------------------------
# 4 results from 9 inputs. The five at even offsets meet the first and the third weight: F(4, 2) with the points +-3/8,
# +-5/4, infinity. The four at odd offsets meet the second weight in plain products, which stand behind the others.
_C, _D = np.float32(3 / 8), np.float32(5 / 4)
_C2, _D2, _C3, _D3 = _C**2, _D**2, _C**3, _D**3
_E2, _E0 = _C2 + _D2, _C2 * _D2
_CF, _CF1 = (np.float32(v / (2 * 3 / 8 * (9 / 64 - 25 / 16))) for v in (1, 3 / 8))
_DF, _DF1 = (np.float32(v / (2 * 5 / 4 * (25 / 16 - 9 / 64))) for v in (1, 5 / 4))


@inline
def _bt42(d0, d1, d2, d3, d4):
    p, q = splat(_C2), splat(_D2)
    u0, u1 = _both(d3 - q * d1, splat(_C), d2 - q * d0)
    u2, u3 = _both(d3 - p * d1, splat(_D), d2 - p * d0)
    return u0, u1, u2, u3, d4 - splat(_E2) * d2 + splat(_E0) * d0


@inline
def _at42(m0, m1, m2, m3, m4):
    s1, d1, s2, d2 = m0 + m1, m0 - m1, m2 + m3, m2 - m3
    y3 = splat(_C3) * d1 + splat(_D3) * d2 + m4
    return s1 + s2, splat(_C) * d1 + splat(_D) * d2, splat(_C2) * s1 + splat(_D2) * s2, y3


@inline
def bt432(d0, d1, d2, d3, d4, d5, d6, d7, d8):
    u0, u1, u2, u3, u4 = _bt42(d0, d2, d4, d6, d8)
    return u0, u1, u2, u3, u4, d1, d3, d5, d7


@inline
def at432(m0, m1, m2, m3, m4, m5, m6, m7, m8):
    y0, y1, y2, y3 = _at42(m0, m1, m2, m3, m4)
    return y0 + m5, y1 + m6, y2 + m7, y3 + m8


@inline
def a432(y0, y1, y2, y3):
    u0, u1 = _both(y0 + splat(_C2) * y2, splat(_C), y1 + splat(_C2) * y3)
    u2, u3 = _both(y0 + splat(_D2) * y2, splat(_D), y1 + splat(_D2) * y3)
    return u0, u1, u2, u3, y3, y0, y1, y2, y3


@inline
def g432(w0, w1, w2):
    e1, o1 = splat(_CF) * w0, splat(_CF1) * w2
    e2, o2 = splat(_DF) * w0, splat(_DF1) * w2
    return o1 + e1, o1 - e1, o2 + e2, o2 - e2, w2, w1


@inline
def gt432(u0, u1, u2, u3, u4, u5):
    w0 = splat(_CF) * (u0 - u1) + splat(_DF) * (u2 - u3)
    return w0, u5, splat(_CF1) * (u0 + u1) + splat(_DF1) * (u2 + u3) + u4


# The gradient of its input: 8 results from 5 inputs, the first of them at an odd place.
@inline
def bt832(y0, y1, y2, y3, y4):
    u0, u1, u2, u3, u4 = _bt42(y0, y1, y2, y3, y4)
    return u0, u1, u2, u3, u4, y0, y1, y2, y3


@inline
def at832(m0, m1, m2, m3, m4, m5, m6, m7, m8):
    e0, e1, e2, e3 = _at42(m0, m1, m2, m3, m4)
    return m5, e0, m6, e1, m7, e2, m8, e3
