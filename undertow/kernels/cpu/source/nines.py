"""The nine taps of 3x3 windows, between [9][LANES] and the users' [LANES][9], generated as LLVM code."""
# mypy: ignore-errors

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from undertow.kernels.cpu.source.simd import I32, I64, LANES, VBYTES, ZERO, fma_value, pointer, vector

TAPS = 9


def _picked(builder, vectors, places):
    """A vector whose lane k is lane places[k][1] of vectors[places[k][0]]."""
    found, kind = vectors[0], ir.VectorType(I32, LANES)
    for number in range(1, TAPS):
        order = [LANES + lane if n == number else k if n < number else 0 for k, (n, lane) in enumerate(places)]
        if number == 1:
            order = [lane if n == 0 else o for o, (n, lane) in zip(order, places, strict=True)]
        found = builder.shuffle_vector(found, vectors[number], ir.Constant(kind, order))
    return found


def _vectors(builder, base, step):
    """Pointers to nine vectors, step bytes (a constant or a value) apart."""
    return [pointer(builder, builder.add(base, builder.mul(step, ir.Constant(I64, k)))) for k in range(TAPS)]


def _deliver(name, subtract):
    @intrinsic
    def deliver(typingctx, source, step, to):
        """Nine vectors at source, step bytes apart, to rows of nine floats: they become, or are lessened by, them.

        Returns 0 times what is written, summed up: NaN where that is not finite.
        """

        def codegen(context, builder, sig, args):
            v, bad = [builder.load(p, align=4) for p in _vectors(builder, args[0], args[1])], ZERO
            for n, p in enumerate(_vectors(builder, args[2], ir.Constant(I64, VBYTES))):
                row = _picked(builder, v, [(k % TAPS, k // TAPS) for k in range(n * LANES, (n + 1) * LANES)])
                if subtract:
                    row = builder.fsub(builder.load(p, align=4), row)
                builder.store(row, p, align=4)
                bad = fma_value(builder, row, ZERO, bad)
            return bad

        return vector(types.int64, types.int64, types.int64), codegen

    deliver.__name__ = name
    return deliver


to_rows = _deliver("to_rows", subtract=False)
take_from_rows = _deliver("take_from_rows", subtract=True)
