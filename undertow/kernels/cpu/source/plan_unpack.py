"""Packed gradients of weights, taken from accumulators in the users' layout without being laid out first."""
# mypy: ignore-errors

from __future__ import annotations

from undertow.kernels.cpu.source.compiler import kernel
from undertow.kernels.cpu.source.simd import copy8, load_float, load_part, store_float, store_part, transpose8


@kernel
def subtract(packed, Ci, taps, Co, w, p0, p1, tmp):
    """w -= panels p0..p1 of packed [ceil(Co/16)][taps][Ci][16], w being OIHW. tmp: 128 floats."""
    columns = Ci * taps
    turned = tmp + 256
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
                    transpose8(tmp, 32, turned, 32)
                    for j in range(8):
                        at = target + (8 * half + j) * 4 * columns + 4 * q
                        store_part(at, load_part(at, 8) - load_part(turned + 32 * j, 8), 8)
                q += 8
        while q < columns:
            ci = q // taps
            s = base + ((q - ci * taps) * Ci + ci) * 64
            for o in range(rows):
                at = target + (o * columns + q) * 4
                store_float(at, load_float(at) - load_float(s + 4 * o))
            q += 1
