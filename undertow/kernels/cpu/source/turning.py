"""Transposition of LANES x LANES floats in registers."""
# mypy: ignore-errors

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from undertow.kernels.cpu.source.simd import I32, I64, LANES, ZERO, fma_value, pointer, vector


def _in_lanes(builder, a, b, order):
    """The same choice of 4 of 8 floats in every 128 bits of two vectors."""
    chosen = [(k % 4 + k // 4 * LANES) + lane for lane in range(0, LANES, 4) for k in order]
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(I32, LANES), chosen))


def _of_lanes(builder, a, b, order):
    """A choice of LANES / 4 of the 128-bit parts of two vectors."""
    chosen = [4 * lane + k for lane in order for k in range(4)]
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(I32, LANES), chosen))


def _by_lanes(builder, rows):
    """Transposes a square of 128-bit parts, one vector a row."""
    if len(rows) == 1:
        return rows
    if len(rows) == 2:
        return [_of_lanes(builder, *rows, order) for order in ((0, 2), (1, 3))]
    low, high = (
        [_of_lanes(builder, rows[k], rows[k + 1], order) for k in (0, 2)] for order in ((0, 1, 4, 5), (2, 3, 6, 7))
    )
    return [_of_lanes(builder, *pair, order) for pair in (low, high) for order in ((0, 2, 4, 6), (1, 3, 5, 7))]


def turned_values(builder, rows):
    """The columns of LANES vectors."""
    columns = [[] for _ in range(4)]  # every fourth one, of 4 rows
    for r in range(0, LANES, 4):
        low = [_in_lanes(builder, rows[k], rows[k + 1], (0, 4, 1, 5)) for k in (r, r + 2)]
        high = [_in_lanes(builder, rows[k], rows[k + 1], (2, 6, 3, 7)) for k in (r, r + 2)]
        for k, (pair, order) in enumerate((p, o) for p in (low, high) for o in ((0, 1, 4, 5), (2, 3, 6, 7))):
            columns[k].append(_in_lanes(builder, *pair, order))
    parts = [_by_lanes(builder, each) for each in columns]
    return [parts[k % 4][k // 4] for k in range(LANES)]


def _turn(finish):
    @intrinsic
    def turn(typingctx, source, source_step, target_, target_step):
        def codegen(context, builder, sig, args):
            def rows(p, step):
                at = [builder.add(p, builder.mul(step, ir.Constant(I64, r))) for r in range(LANES)]
                return [pointer(builder, address) for address in at]

            values, bad = [builder.load(row, align=4) for row in rows(*args[:2])], ZERO
            for value, row in zip(turned_values(builder, values), rows(*args[2:]), strict=True):
                written = finish(builder, row, value)
                builder.store(written, row, align=4)
                bad = fma_value(builder, written, ZERO, bad)
            return bad

        return vector(*[types.int64] * 4), codegen

    return turn


# (source, source_step, target, target_step): LANES rows to columns, and columns subtracted from what is there.
# Both return 0 times what is written, summed up: NaN where that is not finite.
turn = _turn(lambda builder, row, value: value)
turn_subtract = _turn(lambda builder, row, value: builder.fsub(builder.load(row, align=4), value))
