"""Sums over the winners of 2x2 windows, generated as LLVM code.

A quad is 2x2 neighbouring pixels of one channel as four floats: upper left, upper right, lower left, lower right.
Where a pooling picks one pixel of a window for each output channel, what a tap of the convolution before it read there
lies in one quad for all channels: a vector of winners picks from it for LANES channels at once.
"""
# mypy: ignore-errors

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from undertow.kernels.cpu.source.compiler import kernel
from undertow.kernels.cpu.source.simd import (
    FLOAT,
    I32,
    I64,
    LANES,
    VBYTES,
    VECTOR,
    ZERO,
    fma_value,
    pointer,
    vector,
)
from undertow.kernels.cpu.target import target

_QUAD = ir.VectorType(FLOAT, 4)
_INTS = ir.VectorType(I32, LANES)
_BYTES = ir.VectorType(ir.IntType(8), LANES)
_PERMUTES = {8: ("+avx2", "llvm.x86.avx2.permps"), 16: ("+avx512f", "llvm.x86.avx512.permvar.sf.512")}


def _shuffle(builder, a, b, order):
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(I32, len(order)), order))


def _picked(builder, address, which):
    """Lane k: element which[k], 0 to 3, of the quad at an address."""
    quad = builder.load(pointer(builder, address, _QUAD), align=16)
    feature, name = _PERMUTES[LANES]
    if feature in target().features.split(","):
        kind = ir.FunctionType(VECTOR, [VECTOR, _INTS])
        function = cgutils.get_or_insert_function(builder.module, kind, name)
        nothing = ir.Constant(_QUAD, [0.0] * 4)
        wide = _shuffle(builder, quad, nothing, [0, 1, 2, 3] + [4] * (LANES - 4))
        return builder.call(function, [wide, which])
    found = ZERO
    for k in range(LANES):
        lane = ir.Constant(I32, k)
        found = builder.insert_element(found, builder.extract_element(quad, builder.extract_element(which, lane)), lane)
    return found


@intrinsic
def store_bytes(typingctx, p, v):
    """The integers in the lanes, 0 to 255, as LANES bytes."""

    def codegen(context, builder, sig, args):
        value = builder.trunc(builder.bitcast(args[1], _INTS), _BYTES)
        builder.store(value, pointer(builder, args[0], _BYTES), align=1)
        return context.get_dummy_value()

    return types.void(p, vector), codegen


@intrinsic
def load_bytes(typingctx, p):
    """LANES bytes as integers in the lanes."""

    def codegen(context, builder, sig, args):
        value = builder.load(pointer(builder, args[0], _BYTES), align=1)
        return builder.bitcast(builder.zext(value, _INTS), VECTOR)

    return vector(p), codegen


@intrinsic
def store_quads(typingctx, p, a, b, c, d):
    """a[0] b[0] c[0] d[0] a[1] ...: LANES quads to a multiple of 16."""

    def codegen(context, builder, sig, args):
        p, a, b, c, d = args
        mixed = [k // 2 + k % 2 * LANES for k in range(2 * LANES)]
        upper, lower = _shuffle(builder, a, b, mixed), _shuffle(builder, c, d, mixed)
        for first in range(0, 2 * LANES, LANES // 2):
            order = [first + k // 4 * 2 + k % 2 + k % 4 // 2 * 2 * LANES for k in range(LANES)]
            at = builder.add(p, ir.Constant(I64, first // (LANES // 2) * VBYTES))
            builder.store(_shuffle(builder, upper, lower, order), pointer(builder, at), align=16)
        return context.get_dummy_value()

    return types.void(types.int64, vector, vector, vector, vector), codegen


def _make_won(rows, width):
    """A sum for rows x width taps: those of up to `rows` rows of a window that lie side by side."""

    @intrinsic
    def tile_won(typingctx, n, wide, Q, qb, step, g, which, K, cols, C, cb, acc):
        def codegen(context, b, sig, args):
            n, wide, Q, qb, step, g, which, K, cols, C, cb, acc = args
            sums = [[cgutils.alloca_once(b, VECTOR) for _ in range(width)] for _ in range(rows)]

            def each(do):
                """With every tap that there is."""
                for r in range(rows):
                    with b.if_then(b.icmp_signed("<", ir.Constant(I64, r), K)):
                        for k in range(width):
                            with b.if_then(b.icmp_signed("<", ir.Constant(I64, k), cols)):
                                at = b.add(b.add(C, b.mul(cb, ir.Constant(I64, r))), ir.Constant(I64, 64 * k))
                                do(pointer(b, at), sums[r][k])

            for row in sums:
                for a in row:
                    b.store(ZERO, a)
            with b.if_then(b.icmp_signed("!=", acc, ir.Constant(I64, 0))):
                each(lambda at, a: b.store(b.load(at, align=4), a))
            last = b.sub(K, ir.Constant(I64, 1))
            numbers = [ir.Constant(I64, r) for r in range(rows)]
            starts = [b.mul(qb, b.select(b.icmp_signed("<", r, last), r, last)) for r in numbers]
            with cgutils.for_range(b, n) as outer:
                top = b.add(Q, b.mul(outer.index, b.add(qb, qb)))
                with cgutils.for_range(b, wide) as inner:
                    pixel = b.mul(b.add(b.mul(outer.index, wide), inner.index), ir.Constant(I64, VBYTES))
                    gradient = b.load(pointer(b, b.add(g, pixel)), align=4)
                    winners = b.bitcast(b.load(pointer(b, b.add(which, pixel)), align=4), _INTS)
                    left = b.add(top, b.mul(inner.index, step))
                    for start, row in zip(starts, sums, strict=True):
                        at = b.add(left, start)
                        for k, a in enumerate(row):
                            read = _picked(b, b.add(at, ir.Constant(I64, 16 * k)), winners)
                            b.store(fma_value(b, gradient, read, b.load(a)), a)
            each(lambda at, a: b.store(b.load(a), at, align=4))
            return context.get_dummy_value()

        return types.void(*[types.int64] * 12), codegen

    return tile_won


_won_square, _won_wide, _won_line = _make_won(5, 5), _make_won(3, 9), _make_won(1, 16)


@kernel
def won(n, wide, Q, qb, step, g, which, kh, K, C, acc):
    """C[kh][K] rows of 16 floats (+)= sum over n x wide windows of g * what each tap read at the winner.

    Q: quads of the first window's taps, kh rows of K, qb bytes apart; the next window to the right lies `step` bytes
    on, that below two rows. g, which: a vector of gradients and one of winners for every window. Of C's rows LANES
    floats are changed.
    """
    cb = 64 * K
    if K <= 5:
        for k in range(0, kh, 5):
            _won_square(n, wide, Q + k * qb, qb, step, g, which, min(5, kh - k), K, C + k * cb, cb, acc)
    elif K <= 9:
        for k in range(0, kh, 3):
            _won_wide(n, wide, Q + k * qb, qb, step, g, which, min(3, kh - k), K, C + k * cb, cb, acc)
    else:
        for k in range(kh):
            for j in range(0, K, 16):
                _won_line(
                    n, wide, Q + k * qb + 16 * j, qb, step, g, which, 1, K - j, C + k * cb + 64 * j, cb, acc
                )  # fmt: skip
