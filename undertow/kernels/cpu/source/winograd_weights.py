"""Winograd's transforms of whole weights, from and to every form in which weights are kept.

    PACKED            panels of output channels, [panels][taps][Ci][16]
    PACKED_OPPOSITE   the same, for a convolution in the opposite direction: transposed and flipped on the way
    OIHW              as users keep them
    OIHW_OPPOSITE     the same, for a convolution in the opposite direction
    OIHW_MINUS        OIHW numbers from which a gradient is subtracted

A form that is not the one wanted is rearranged in blocks of 16 channels in the first-level cache, which costs
less than writing and reading rearranged weights. f: as in winograd.py.
U, dU: [slabs, us bytes apart][panel][Ci][16].
"""
# mypy: ignore-errors

from __future__ import annotations

import numpy as np

from undertow.kernels.cpu.source.compiler import inline, kernel
from undertow.kernels.cpu.source.simd import (
    LANES,
    VBYTES,
    load_float,
    prefetch,
    splat,
    store_float,
    tell_nan,
    transpose8,
    zero,
)
from undertow.kernels.cpu.source.turning import turn, turn_subtract
from undertow.kernels.cpu.source.winograd_tiles import (
    weights23,
    weights43,
    weights45,
    weights53,
    weights432,
    weights_back23,
    weights_back43,
    weights_back45,
    weights_back53,
    weights_back432,
)

PACKED, PACKED_OPPOSITE, OIHW, OIHW_OPPOSITE, OIHW_MINUS = 0, 1, 2, 3, 4
STRIDED = 432  # form of a 3 x 3 window with stride 2; 832 is that of the gradient of its input
TMP = 96 * VBYTES  # bytes of the transforms' scratch: more than a tile of 9 x 9 vectors
AHEAD = 4  # output channels fetched before their use
BLOCK = 50 * 1024  # bytes of a 16 x 32 block of weights, all taps


@inline
def _taps(f):
    return 9 if f >= STRIDED else (f % 10) * (f % 10)


@inline
def _transform(f, w, step, tap, U, us, count):
    """`count` input channels of 16 output channels, `step` bytes apart."""
    if f == 43:
        weights43(w, step, tap, U, us, count)
    elif f == 53:
        weights53(w, step, tap, U, us, count)
    elif f >= STRIDED:
        weights432(w, step, tap, U, us, count)
    elif f == 45:
        weights45(w, step, tap, U, us, count)
    else:
        weights23(w, step, tap, U, us, count)


@inline
def _transpose(source, source_step, rows, columns, target, target_step):
    """rows x columns floats to columns x 16, zeros behind the rows that are there (at most 16)."""
    whole = columns // 8 * 8 if rows == 16 else 0
    for q in range(0, whole, 8):
        transpose8(source + 4 * q, source_step, target + q * target_step, target_step)
        transpose8(source + 8 * source_step + 4 * q, source_step, target + q * target_step + 32, target_step)
    for q in range(whole, columns):
        for r in range(16):
            value = np.float32(0)
            if r < rows:
                value = load_float(source + r * source_step + 4 * q)
            store_float(target + q * target_step + 4 * r, value)


@kernel
def from_packed(f, w, U, us, Ci, p0, p1, k0, k1):
    """U of the panels p0..p1 and input channels k0..k1; U begins with them."""
    taps = _taps(f)
    for p in range(p0, p1):
        u = U + (p - p0) * (k1 - k0) * 64
        _transform(f, w + (p * taps * Ci + k0) * 64, 64, Ci * 64, u, us, k1 - k0)


@kernel
def from_packed_opposite(f, w, U, us, Ci, Co, q0, q1, o0, o1, tmp):
    """U of the panels q0..q1 of input channels and output channels o0..o1, from weights packed for Ci -> Co.

    o0 is a multiple of 16.
    """
    taps = _taps(f)
    for p in range(q0, q1, 2):  # two panels: weights are read in runs of 2 KB
        last = min(p + 2, q1)
        for o in range(o0, o1, 16):
            for t in range(taps):
                source = w + (o // 16 * taps + taps - 1 - t) * Ci * 64
                for q in range(p, last):
                    _transpose(
                        source + q * 1024, 64, min(16, Ci - 16 * q), 16, tmp + ((q - p) * taps + t) * 1024, 64
                    )  # fmt: skip
            for q in range(p, last):
                u = U + ((q - q0) * (o1 - o0) + o - o0) * 64
                _transform(f, tmp + (q - p) * taps * 1024, 64, 1024, u, us, min(16, o1 - o))


@kernel
def from_oihw(f, w, U, us, Ci, Co, p0, p1, k0, k1, tmp):
    """U of the panels p0..p1 of output channels and input channels k0..k1."""
    taps = _taps(f)
    row = Ci * taps * 4
    for p in range(p0, p1):
        u = U + (p - p0) * (k1 - k0) * 64
        for c in range(k0, k1, 16):
            count = min(16, k1 - c)
            _transpose(w + 16 * p * row + 4 * taps * c, row, min(16, Co - 16 * p), taps * count, tmp, 64)
            _transform(f, tmp, 64 * taps, 64, u + (c - k0) * 64, us, count)


@kernel
def from_oihw_opposite(f, w, U, us, Ci, q0, q1, o0, o1, tmp):
    """U of the panels q0..q1 of input channels and output channels o0..o1, flipped."""
    taps = _taps(f)
    for o in range(o0, o1):
        ahead = w + ((o + AHEAD) * Ci + 16 * q0) * 4 * taps
        for line in range(0, (q1 - q0) * 64 * taps, 64):  # rows are pages apart: the processor does not foresee them
            prefetch(ahead + line)
        for q in range(q0, q1):
            source = w + (o * Ci + 16 * q) * 4 * taps
            _transpose(source, 4 * taps, min(16, Ci - 16 * q), taps, tmp + 64 * (taps - 1), -64)
            _transform(f, tmp, 0, 64, U + ((q - q0) * (o1 - o0) + o - o0) * 64, us, 1)


@kernel
def forward(form, f, w, U, us, K, C, p0, p1, k0, k1, tmp):
    """U of the panels p0..p1 and input channels k0..k1 of a convolution of K input and C output channels.

    k0 is a multiple of 16. tmp: BLOCK bytes.
    """
    if form == PACKED:
        from_packed(f, w, U, us, K, p0, p1, k0, k1)
    elif form == PACKED_OPPOSITE:
        from_packed_opposite(f, w, U, us, C, K, p0, p1, k0, k1, tmp)
    elif form == OIHW:
        from_oihw(f, w, U, us, K, C, p0, p1, k0, k1, tmp)
    else:
        from_oihw_opposite(f, w, U, us, C, p0, p1, k0, k1, tmp)


@inline
def _transform_back(f, dU, us, target, step, tap, count):
    if f == 43:
        weights_back43(dU, us, target, step, tap, count)
    elif f == 53:
        weights_back53(dU, us, target, step, tap, count)
    elif f >= STRIDED:
        weights_back432(dU, us, target, step, tap, count)
    elif f == 45:
        weights_back45(dU, us, target, step, tap, count)
    else:
        weights_back23(dU, us, target, step, tap, count)


@kernel
def backward(form, f, dU, us, dW, Ci, Co, p0, p1, k0, k1, tmp, ruined):
    """dW = G^T dU G for the panels p0..p1 of output channels and input channels k0..k1, with which dU begins.

    form: PACKED, OIHW or OIHW_MINUS. tmp: BLOCK bytes. ruined: 0, or an int64 that becomes 1 where what is written as
    OIHW is not finite.
    """
    bad = zero()
    taps = _taps(f)
    row = Ci * taps * 4
    for p in range(p0, p1):
        source = dU + (p - p0) * (k1 - k0) * 64
        if form == PACKED:
            _transform_back(f, source, us, dW + (p * taps * Ci + k0) * 64, 64, Ci * 64, k1 - k0)
        else:
            rows, target = min(16, Co - 16 * p), dW + 16 * p * row + 4 * taps * k0
            for c in range(0, k1 - k0, 16):
                count = min(16, k1 - k0 - c)
                _transform_back(f, source + 64 * c, us, tmp, 64 * taps, 64, count)
                bad = bad + _to_rows(tmp, taps * count, rows, target + 4 * taps * c, row, form == OIHW_MINUS)
    tell_nan(bad, ruined)


@inline
def _to_rows(block, columns, rows, target, row, minus):
    """[columns][16] to `rows` rows of `columns` floats, or subtracted from them.

    Returns 0 times what is written, summed up.
    """
    bad, rest, nothing = zero(), np.float32(0), np.float32(0)
    whole = columns // LANES * LANES if rows == 16 else 0
    for q in range(0, whole, LANES):
        for r in range(0, 16, LANES):
            s, at = block + q * 64 + 4 * r, target + r * row + 4 * q
            bad = bad + (turn_subtract(s, 64, at, row) if minus else turn(s, 64, at, row))
    for q in range(whole, columns):
        for r in range(rows):
            value, at = load_float(block + q * 64 + 4 * r), target + r * row + 4 * q
            if minus:
                value = load_float(at) - value
            store_float(at, value)
            rest += value * nothing
    return bad + splat(rest)
