"""Gradient of a convolution's input from one that is zero nearly everywhere, as behind a max pooling; NHWC, stride 1.

Each pixel's values other than 0 are listed once; then a row of the window after another, every pixel adds the listed
channels' weights of that row, times their values, to the gradients under it.
"""
# mypy: ignore-errors

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from undertow.kernels.cpu.source.compiler import inline, kernel
from undertow.kernels.cpu.source.simd import (
    FLOAT,
    I32,
    I64,
    LANES,
    VBYTES,
    VECTOR,
    ZERO,
    fma_value,
    load_float,
    load_int,
    load_part,
    pointer,
    splat_value,
    store,
    store_float,
    store_int,
    store_part,
    zero,
)

STRIP = 8  # vectors of a row that are added up at once


@kernel
def pack(w, Ci, taps, kw, Co, rb, packed, r0, r1):
    """OIHW weights to rows r0..r1 of [kh][Co], rb bytes each: kw * Ci floats, zeros behind them."""
    for r in range(r0, r1):
        ky = r // Co
        source = w + ((r - ky * Co) * Ci * taps + ky * kw) * 4
        row = packed + r * rb
        for k in range(kw):
            for c in range(Ci):
                store_float(row + (k * Ci + c) * 4, load_float(source + (c * taps + k) * 4))
        for k in range(kw * Ci * 4, rb, 4):
            store_float(row + k, 0.0)


@intrinsic
def _append(typingctx, p, v, offset):
    """Write a float and an int32 at p; the address behind them, or p again where the float is 0."""

    def codegen(context, b, sig, args):
        p, v, offset = args
        b.store(v, pointer(b, p, FLOAT), align=4)
        b.store(b.trunc(offset, I32), pointer(b, b.add(p, ir.Constant(I64, 4)), I32), align=4)
        some = b.fcmp_unordered("!=", v, ir.Constant(FLOAT, 0.0))
        return b.add(p, b.select(some, ir.Constant(I64, 8), ir.Constant(I64, 0)))

    return types.int64(types.int64, types.float32, types.int64), codegen


def _make_strip(count):
    """`count` vectors of G += sum over the list from p to `end` of value * W[offset]."""

    @intrinsic
    def strip(typingctx, p, end, W, G):
        def codegen(context, b, sig, args):
            p, end, W, G = args
            sums = [cgutils.alloca_once(b, VECTOR) for _ in range(count)]
            for a in sums:
                b.store(ZERO, a)
            with cgutils.for_range(b, b.ashr(b.sub(end, p), ir.Constant(I64, 3))) as loop:
                at = b.add(p, b.shl(loop.index, ir.Constant(I64, 3)))
                value = splat_value(b, b.load(pointer(b, at, FLOAT), align=4))
                offset = b.load(pointer(b, b.add(at, ir.Constant(I64, 4)), I32), align=4)
                row = b.add(W, b.sext(offset, I64))
                for k, a in enumerate(sums):
                    weights = b.load(pointer(b, b.add(row, ir.Constant(I64, k * VBYTES))), align=4)
                    b.store(fma_value(b, value, weights, b.load(a)), a)
            for k, a in enumerate(sums):
                target = pointer(b, b.add(G, ir.Constant(I64, k * VBYTES)))
                b.store(b.fadd(b.load(a), b.load(target, align=4)), target, align=4)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 4), codegen

    return strip


_s1, _s2, _s3, _s4, _s5, _s6, _s7, _s8 = (_make_strip(k) for k in range(1, STRIP + 1))


@inline
def _strip(count, p, end, W, G):
    if count == 8:
        _s8(p, end, W, G)
    elif count == 7:
        _s7(p, end, W, G)
    elif count == 6:
        _s6(p, end, W, G)
    elif count == 5:
        _s5(p, end, W, G)
    elif count == 4:
        _s4(p, end, W, G)
    elif count == 3:
        _s3(p, end, W, G)
    elif count == 2:
        _s2(p, end, W, G)
    else:
        _s1(p, end, W, G)


@inline
def _listed(gy, gs, pixels, Co, rb, starts, entries):
    """The values of each pixel that are not 0, with the offset of their channel's weights."""
    p = entries
    for i in range(pixels):
        store_int(starts + 8 * i, p)
        for c in range(Co):
            p = _append(p, load_float(gy + i * gs + 4 * c), c * rb)
    store_int(starts + 8 * pixels, p)


@inline
def _added(starts, Ho, Wo, weights, count, G, Wp, Ci):
    """A strip of `count` vectors of one row of the window, for all pixels."""
    for y in range(Ho):
        for x in range(Wo):
            at = starts + 8 * (y * Wo + x)
            p, end = load_int(at), load_int(at + 8)
            if p < end:
                _strip(count, p, end, weights, G + (y * Wp + x) * Ci * 4)


@inline
def _cropped(G, Ci, Wp, pt, pl, gx, xs, H, W, acc):
    """The gradient of one image from that with its padding."""
    for y in range(H):
        source = G + ((y + pt) * Wp + pl) * Ci * 4
        target = gx + y * W * xs
        pixels, floats = W, Ci
        if xs == 4 * Ci:
            pixels, floats = 1, W * Ci
        for i in range(pixels):
            for c in range(0, floats, LANES):
                v = load_part(source + (i * Ci + c) * 4, floats - c)
                if acc:
                    v = v + load_part(target + i * xs + 4 * c, floats - c)
                store_part(target + i * xs + 4 * c, v, floats - c)


@kernel
def backward_data(gy, gs, Ho, Wo, Wt, rb, gx, xs, H, W, kh, kw, pt, pl, Ci, Co, n0, n1, tmp, acc):
    """gx = or += the gradient of images n0..n1. Wt: from `pack`.

    tmp: Ho * Wo + 1 int64; from multiples of 64 bytes, Ho * Wo * Co + 1 of them, and floats:
    (Ho + kh - 1) * (Wo + kw - 1) * Ci and two strips.
    """
    pixels = Ho * Wo
    Wp = Wo + kw - 1
    entries = tmp + (pixels * 8 + 8 + 63) // 64 * 64
    G = entries + (pixels * Co * 8 + 8 + 63) // 64 * 64
    size = (Ho + kh - 1) * Wp * Ci * 4
    vectors = rb // VBYTES
    for n in range(n0, n1):
        for k in range(0, size, VBYTES):
            store(G + k, zero())
        _listed(gy + n * pixels * gs, gs, pixels, Co, rb, tmp, entries)
        for ky in range(kh):
            for j in range(0, vectors, STRIP):
                weights = Wt + ky * Co * rb + j * VBYTES
                _added(tmp, Ho, Wo, weights, min(STRIP, vectors - j), G + ky * Wp * Ci * 4 + j * VBYTES, Wp, Ci)
        _cropped(G, Ci, Wp, pt, pl, gx + n * H * W * xs, xs, H, W, acc)
