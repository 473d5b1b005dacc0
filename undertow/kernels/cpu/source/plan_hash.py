"""A fingerprint of memory, to notice that weights were edited."""
# mypy: ignore-errors

from __future__ import annotations

import numpy as np

from undertow.kernels.cpu.source.compiler import kernel
from undertow.kernels.cpu.source.simd import load_int, store_int

# An odd multiplier with bits in all places (Knuth's golden ratio, 64 bits).
_MULTIPLIER = np.int64(-7046029254386353131)


@kernel
def fingerprint(x, words, out):
    """Four running hashes h = (h ^ word) * multiplier over every fourth 8-byte word, written to int64 out[4]."""
    a, b, c, d = np.int64(1), np.int64(2), np.int64(3), np.int64(4)
    whole = words // 4
    for i in range(whole):
        a = (a ^ load_int(x + 32 * i)) * _MULTIPLIER
        b = (b ^ load_int(x + 32 * i + 8)) * _MULTIPLIER
        c = (c ^ load_int(x + 32 * i + 16)) * _MULTIPLIER
        d = (d ^ load_int(x + 32 * i + 24)) * _MULTIPLIER
    for i in range(4 * whole, words):
        a = (a ^ load_int(x + 8 * i)) * _MULTIPLIER
    store_int(out, a)
    store_int(out + 8, b)
    store_int(out + 16, c)
    store_int(out + 24, d)
