"""Activations and their gradients on dense runs of floats.

The curved ones share one exponential: Cephes' expf (S. Moshier) on vectors, within 2 units in the last place.
"""
# mypy: ignore-errors

from __future__ import annotations

import numpy as np

from undertow.kernels.cpu.source.compiler import inline, kernel
from undertow.kernels.cpu.source.simd import (
    LANES,
    fma,
    load_part,
    power_of_two,
    splat,
    store_part,
    where_equal,
    where_greater,
    zero,
)

_ONE, _TWO, _HALF = np.float32(1.0), np.float32(2.0), np.float32(0.5)
_LOG2E = np.float32(1.44269504088896341)
_LN2_HIGH, _LN2_LOW = np.float32(-0.693359375), np.float32(2.12194440e-4)
_MAGIC = np.float32(12582912.0)
_LARGEST, _SMALLEST = np.float32(88.0), np.float32(-87.0)
_P0, _P1, _P2 = np.float32(1.9875691500e-4), np.float32(1.3981999507e-3), np.float32(8.3334519073e-3)
_P3, _P4 = np.float32(4.1665795894e-2), np.float32(1.6666665459e-1)


_T0, _T1, _T2 = np.float32(-5.70498872745e-3), np.float32(2.06390887954e-2), np.float32(-5.37397155531e-2)
_T3, _T4, _T_END = np.float32(1.33314422036e-1), np.float32(-3.33332819422e-1), np.float32(0.625)
_LINEAR = np.float32(20.0)  # from here on mish(x) = x in float32

LOGISTIC, TANH, ELU, MISH, SWISH = 0, 1, 2, 3, 4


@inline
def _exp_parts(x):
    """(q, s, n) with e^x = (q + 1) * s and s = 2^n, for x from -87 to 88, the ends beyond; NaN stays NaN."""
    x = where_greater(x, splat(_LARGEST), splat(_LARGEST), x)
    x = where_greater(splat(_SMALLEST), x, splat(_SMALLEST), x)
    t = fma(x, splat(_LOG2E), splat(_MAGIC))
    n = t - splat(_MAGIC)
    r = fma(n, splat(_LN2_LOW), fma(n, splat(_LN2_HIGH), x))
    p = fma(splat(_P0), r, splat(_P1))
    p = fma(p, r, splat(_P2))
    p = fma(p, r, splat(_P3))
    p = fma(p, r, splat(_P4))
    p = fma(p, r, splat(_HALF))
    return fma(p * r, r, r), power_of_two(t), n


@inline
def _exp(x):
    q, s, _ = _exp_parts(x)
    return fma(q, s, s)


@inline
def logistic(x):
    return splat(_ONE) / (splat(_ONE) + _exp(zero() - x))


@inline
def _tanh(x):
    """Cephes' tanhf: a polynomial near 0, where the exponential would lose digits."""
    z = x * x
    p = fma(splat(_T0), z, splat(_T1))
    p = fma(p, z, splat(_T2))
    p = fma(p, z, splat(_T3))
    p = fma(p, z, splat(_T4))
    small = fma(p * z, x, x)
    large = splat(_ONE) - splat(_TWO) / (_exp(x + x) + splat(_ONE))
    return where_greater(splat(_T_END) * splat(_T_END), z, small, large)


@inline
def _curve(kind, x):
    one = splat(_ONE)
    if kind == LOGISTIC:
        return logistic(x)
    if kind == TANH:
        return _tanh(x)
    if kind == ELU:
        q, s, n = _exp_parts(x)
        below = where_equal(n, zero(), q, fma(q, s, s) - one)
        return where_greater(zero(), x, below, x)
    if kind == MISH:
        e = _exp(where_greater(x, splat(_LINEAR), splat(_LINEAR), x))
        w = e * (e + splat(_TWO))
        return where_greater(x, splat(_LINEAR), x, x * (w / (w + splat(_TWO))))
    return x * logistic(x)


@inline
def _derivative(kind, x):
    one = splat(_ONE)
    if kind == LOGISTIC:
        y = logistic(x)
        return y * (one - y)
    if kind == TANH:
        y = _tanh(x)
        return one - y * y
    if kind == ELU:
        return where_greater(zero(), x, _exp(x), one)
    if kind == MISH:
        e = _exp(where_greater(x, splat(_LINEAR), splat(_LINEAR), x))
        w = e * (e + splat(_TWO))
        t = w / (w + splat(_TWO))
        return fma(x * (one - t * t), e / (e + one), t)
    s = logistic(x)
    return fma(x * s, one - s, s)


@inline
def _derivative_from_output(kind, y):
    one = splat(_ONE)
    if kind == LOGISTIC:
        return (one - y) * y
    if kind == TANH:
        return one - y * y
    return where_greater(zero(), y, y + one, one)


@kernel(floats=("above", "below"))
def broken_line(x, y, above, below, i0, i1):
    """y = above * x for x > 0, else below * x: floats i0..i1. below 0 gives 0, also for -inf."""
    a, b = splat(above), splat(below)
    for i in range(i0, i1, LANES):
        n = i1 - i
        v = load_part(x + 4 * i, n)
        v = where_greater(zero(), v, zero(), v * a) if below == 0 else where_greater(v, zero(), v * a, v * b)
        store_part(y + 4 * i, v, n)


@kernel(floats=("above", "below"))
def broken_line_backward(gy, x, gx, above, below, i0, i1):
    """gx = gy * above where x > 0, else gy * below; x may be the output."""
    a, b = splat(above), splat(below)
    for i in range(i0, i1, LANES):
        n = i1 - i
        slope = where_greater(load_part(x + 4 * i, n), zero(), a, b)
        store_part(gx + 4 * i, load_part(gy + 4 * i, n) * slope, n)


@kernel
def curve(kind, x, y, i0, i1):
    """y = f(x): floats i0..i1."""
    for i in range(i0, i1, LANES):
        n = i1 - i
        store_part(y + 4 * i, _curve(kind, load_part(x + 4 * i, n)), n)


@kernel
def curve_backward(kind, from_output, gy, x, gx, i0, i1):
    """gx = gy * f'(x), or with f' taken from the output x (logistic, tanh, elu)."""
    for i in range(i0, i1, LANES):
        n = i1 - i
        v = load_part(x + 4 * i, n)
        slope = _derivative_from_output(kind, v) if from_output else _derivative(kind, v)
        store_part(gx + 4 * i, load_part(gy + 4 * i, n) * slope, n)
