"""Memory layouts: weights OIHW <-> panels, activations NCHW <-> NHWC.

Packed weights: [ceil(Co/16)][taps][Ci][16], the channels beyond Co are zeros.
Transposed (for the gradient of the input): [ceil(Ci/16)][taps][Co][16].
"""
# mypy: ignore-errors

from __future__ import annotations

import numpy as np

from undertow.kernels.cpu.source.compiler import kernel
from undertow.kernels.cpu.source.simd import (
    LANES,
    copy8,
    load_float,
    load_int,
    load_part,
    prefetch,
    store_float,
    store_part,
    transpose8,
    weave3,
)

AHEAD = 128  # floats of every row that are asked for before they are read


@kernel
def pack(w, Ci, taps, Co, packed, p0, p1, tmp):
    """OIHW weights to panels p0..p1. tmp: 128 floats, of which none are used where taps is 1."""
    columns = Ci * taps
    for p in range(p0, p1):
        rows = min(16, Co - 16 * p)
        source = w + 16 * p * columns * 4
        base = packed + p * columns * 64
        q = ci = t = 0
        while rows == 16 and q + 8 <= columns:
            if q % 16 == 0:
                for o in range(16):
                    prefetch(source + (o * columns + q + AHEAD) * 4)
            if taps == 1:
                transpose8(source + q * 4, 4 * columns, base + 64 * q, 64)
                transpose8(source + (8 * columns + q) * 4, 4 * columns, base + 64 * q + 32, 64)
            else:
                transpose8(source + q * 4, 4 * columns, tmp, 64)
                transpose8(source + (8 * columns + q) * 4, 4 * columns, tmp + 32, 64)
                for j in range(8):
                    d = base + (t * Ci + ci) * 64
                    copy8(tmp + 64 * j, d)
                    copy8(tmp + 64 * j + 32, d + 32)
                    t += 1
                    if t == taps:
                        ci, t = ci + 1, 0
            q += 8
        while q < columns:
            ci = q // taps
            d = base + ((q - ci * taps) * Ci + ci) * 64
            for o in range(16):
                store_float(d + 4 * o, load_float(source + (o * columns + q) * 4) if o < rows else np.float32(0))
            q += 1


@kernel
def unpack(packed, Ci, taps, Co, w, p0, p1, tmp):
    """Panels p0..p1 back to OIHW."""
    columns = Ci * taps
    for p in range(p0, p1):
        rows = min(16, Co - 16 * p)
        target = w + 16 * p * columns * 4
        base = packed + p * columns * 64
        q = 0
        if rows == 16:
            while q + 8 <= columns:
                for half in range(2):
                    for j in range(8):
                        ci = (q + j) // taps
                        t = q + j - ci * taps
                        copy8(base + (t * Ci + ci) * 64 + 32 * half, tmp + 32 * j)
                    transpose8(tmp, 32, target + (8 * half * columns + q) * 4, 4 * columns)
                q += 8
        while q < columns:
            ci = q // taps
            s = base + ((q - ci * taps) * Ci + ci) * 64
            for o in range(rows):
                store_float(target + (o * columns + q) * 4, load_float(s + 4 * o))
            q += 1


@kernel
def pack_transposed(w, Ci, taps, Co, place, packed, q0, q1, tmp):
    """OIHW weights to transposed panels q0..q1; tap t becomes tap place[t] (an int64 table). tmp: 64 floats."""
    for q in range(q0, q1):
        rows = min(16, Ci - 16 * q)
        for o in range(Co):
            source = w + (o * Ci + 16 * q) * taps * 4
            base = packed + (q * taps * Co + o) * 64
            t = 0
            if rows == 16:
                while t + 8 <= taps:
                    for half in range(2):
                        transpose8(source + (8 * half * taps + t) * 4, 4 * taps, tmp, 32)
                        for j in range(8):
                            d = base + load_int(place + 8 * (t + j)) * Co * 64
                            copy8(tmp + 32 * j, d + 32 * half)
                    t += 8
                if taps == 1:
                    copy8(source, base)
                    copy8(source + 32, base + 32)
                    t = 1
            while t < taps:
                d = base + load_int(place + 8 * t) * Co * 64
                for i in range(16):
                    store_float(d + 4 * i, load_float(source + (i * taps + t) * 4) if i < rows else np.float32(0))
                t += 1


@kernel
def transpose_packed(packed, Ci, taps, Co, place, transposed, q0, q1):
    """Packed weights to transposed panels q0..q1."""
    for q in range(q0, q1):
        for t in range(taps):
            target = transposed + ((q * taps + load_int(place + 8 * t)) * Co) * 64
            for o in range(0, Co, 8):
                source = packed + (((o // 16) * taps + t) * Ci + 16 * q) * 64 + (o % 16) * 4
                for half in range(2):
                    rows = min(8, Ci - 16 * q - 8 * half)
                    if rows == 8 and o + 8 <= Co:
                        transpose8(source + half * 512, 64, target + o * 64 + 32 * half, 64)
                    else:
                        for j in range(min(8, Co - o)):
                            for i in range(8):
                                value = np.float32(0)
                                if i < rows:
                                    value = load_float(source + half * 512 + 64 * i + 4 * j)
                                store_float(target + (o + j) * 64 + 32 * half + 4 * i, value)


@kernel
def to_nhwc(x, C, pixels, plane, y, ys, image_bytes, i0, i1):
    """Images i0..i1 of NCHW with `plane` floats per channel to NHWC with pixel stride ys."""
    for image in range(i0, i1):
        source = x + image * C * plane * 4
        target = y + image * image_bytes
        for p in range(0, pixels, 8):
            whole = p + 8 <= pixels
            c = 0
            if whole and C == 3 and ys == 12:  # colours
                weave3(source + 4 * p, 4 * plane, target + p * ys)
                c = 3
            while whole and c + 8 <= C:
                transpose8(source + (c * plane + p) * 4, 4 * plane, target + p * ys + 4 * c, ys)
                c += 8
            for k in range(c, C):
                for i in range(p, min(p + 8, pixels)):
                    store_float(target + i * ys + 4 * k, load_float(source + (k * plane + i) * 4))


@kernel
def to_nchw(x, xs, image_bytes, C, pixels, y, i0, i1):
    """The other way."""
    for image in range(i0, i1):
        source = x + image * image_bytes
        target = y + image * C * pixels * 4
        for p in range(0, pixels, 8):
            whole = p + 8 <= pixels
            c = 0
            while whole and c + 8 <= C:
                transpose8(source + p * xs + 4 * c, xs, target + (c * pixels + p) * 4, 4 * pixels)
                c += 8
            for k in range(c, C):
                for i in range(p, min(p + 8, pixels)):
                    store_float(target + (k * pixels + i) * 4, load_float(source + i * xs + 4 * k))


@kernel
def add_parts(total, parts, step, count, i0, i1):
    """total[i] += parts[0][i], then parts[1][i], ...: floats i0..i1."""
    for i in range(i0, i1, LANES):
        n = i1 - i
        v = load_part(total + 4 * i, n)
        for k in range(count):
            v = v + load_part(parts + k * step + 4 * i, n)
        store_part(total + 4 * i, v, n)


@kernel
def copy_rows(x, xs, y, ys, C, p0, p1, acc):
    """y[p, :C] = x[p, :C], or += when acc, for pixels p0..p1."""
    for p in range(p0, p1):
        for c in range(0, C, LANES):
            n = C - c
            v = load_part(x + p * xs + 4 * c, n)
            if acc:
                v = v + load_part(y + p * ys + 4 * c, n)
            store_part(y + p * ys + 4 * c, v, n)
