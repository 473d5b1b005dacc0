"""Tiles of products that ask for memory meanwhile, a cache line every few steps. Operands are those of micro.py.

    na(n, A, lda, K, B, pb, C, ldc, cols, acc, ahead, every)
        C[n, cols] (+)= A[n, K] B[K, cols] for one tile, n <= ROWS. Meanwhile every `every` steps ask for
        one of the cache lines from `ahead` on; none if every > K.
    ta(n, A, lda, T, B, pb, C, pc, cols, acc, ahead, every)
        C[n, 16 or 32] (+)= A[T, n]^T B[T, 16 or 32] for one tile of dense columns, n <= ROWS, likewise.
"""
# mypy: ignore-errors

from __future__ import annotations

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from undertow.kernels.cpu.source.compiler import kernel
from undertow.kernels.cpu.source.micro import _P, HALF, PAIRED, ROWS, ROWS2, ROWS3, _clamped, _int, _Tile
from undertow.kernels.cpu.source.simd import prefetch_value


def _in_runs(b, steps, every, ahead, step):
    """step(0), ..., step(steps - 1); every `every` steps the next of the cache lines from `ahead` on is asked for."""
    runs = b.sdiv(steps, every)
    with cgutils.for_range(b, runs) as outer:
        prefetch_value(b, b.add(ahead, b.mul(outer.index, _int(64))), 2)
        first = b.mul(outer.index, every)
        with cgutils.for_range(b, every) as loop:
            step(b.add(first, loop.index))
    done = b.mul(runs, every)
    with cgutils.for_range(b, b.sub(steps, done)) as loop:
        step(b.add(done, loop.index))


def _make_na(rows, panels):
    @intrinsic
    def tile_na(typingctx, n, A, lda, K, B, pb, C, ldc, cols, acc, ahead, every):
        def codegen(context, b, sig, args):
            n, A, lda, K, B, pb, C, ldc, cols, acc, ahead, every = args
            index = _clamped(b, rows, n)
            tile = _Tile(b, rows, panels, [b.add(C, b.mul(ldc, r)) for r in index], _int(64), cols, acc)
            row = [b.add(A, b.mul(lda, r)) for r in index]

            def step(k):
                tile.step(lambda r: b.add(row[r], b.mul(k, _int(4))), b.add(B, b.mul(k, _int(64))), pb)

            _in_runs(b, K, every, ahead, step)
            tile.finish()
            return context.get_dummy_value()

        return types.void(*[_P] * 12), codegen

    return tile_na


def _make_ta(rows, panels):
    @intrinsic
    def tile_ta(typingctx, n, A, lda, T, B, pb, C, pc, acc, ahead, every):
        def codegen(context, b, sig, args):
            n, A, lda, T, B, pb, C, pc, acc, ahead, every = args
            index = _clamped(b, rows, n)
            tile = _Tile(b, rows, panels, [b.add(C, b.mul(_int(64), r)) for r in index], pc, _int(16 * panels), acc)
            columns = [b.mul(_int(4), r) for r in index]

            def step(t):
                row = b.add(A, b.mul(t, lda))
                tile.step(lambda r: b.add(row, columns[r]), b.add(B, b.mul(t, _int(64))), pb)

            _in_runs(b, T, every, ahead, step)
            tile.finish()
            return context.get_dummy_value()

        return types.void(*[_P] * 11), codegen

    return tile_ta


_na_a1, _na_b1, _na_h1, _na_c1 = (_make_na(rows, 1) for rows in (ROWS, ROWS2, HALF, ROWS3))
_ta_a1, _ta_b1, _ta_c1 = (_make_ta(rows, 1) for rows in (ROWS, ROWS2, ROWS3))


@kernel
def na1(n, A, lda, K, B, pb, C, ldc, cols, acc, ahead, every):
    """`na` for one panel."""
    if n > ROWS2:
        _na_a1(n, A, lda, K, B, pb, C, ldc, cols, acc, ahead, every)
    elif n > HALF:
        _na_b1(n, A, lda, K, B, pb, C, ldc, cols, acc, ahead, every)
    elif n > ROWS3:
        _na_h1(n, A, lda, K, B, pb, C, ldc, cols, acc, ahead, every)
    else:
        _na_c1(n, A, lda, K, B, pb, C, ldc, cols, acc, ahead, every)


@kernel
def ta1(n, A, lda, T, B, pb, C, pc, acc, ahead, every):
    """`ta` for one panel."""
    if n > ROWS2:
        _ta_a1(n, A, lda, T, B, pb, C, pc, acc, ahead, every)
    elif n > ROWS3:
        _ta_b1(n, A, lda, T, B, pb, C, pc, acc, ahead, every)
    else:
        _ta_c1(n, A, lda, T, B, pb, C, pc, acc, ahead, every)


if PAIRED:
    _na_a2, _na_b2, _na_h2, _na_c2 = (_make_na(rows, 2) for rows in (ROWS, ROWS2, HALF, ROWS3))
    _ta_a2, _ta_b2, _ta_c2 = (_make_ta(rows, 2) for rows in (ROWS, ROWS2, ROWS3))

    @kernel
    def na(n, A, lda, K, B, pb, C, ldc, cols, acc, ahead, every):
        if cols <= 16:
            na1(n, A, lda, K, B, pb, C, ldc, cols, acc, ahead, every)
        elif n > ROWS2:
            _na_a2(n, A, lda, K, B, pb, C, ldc, cols, acc, ahead, every)
        elif n > HALF:
            _na_b2(n, A, lda, K, B, pb, C, ldc, cols, acc, ahead, every)
        elif n > ROWS3:
            _na_h2(n, A, lda, K, B, pb, C, ldc, cols, acc, ahead, every)
        else:
            _na_c2(n, A, lda, K, B, pb, C, ldc, cols, acc, ahead, every)

    @kernel
    def ta(n, A, lda, T, B, pb, C, pc, cols, acc, ahead, every):
        if cols <= 16:
            ta1(n, A, lda, T, B, pb, C, pc, acc, ahead, every)
        elif n > ROWS2:
            _ta_a2(n, A, lda, T, B, pb, C, pc, acc, ahead, every)
        elif n > ROWS3:
            _ta_b2(n, A, lda, T, B, pb, C, pc, acc, ahead, every)
        else:
            _ta_c2(n, A, lda, T, B, pb, C, pc, acc, ahead, every)

else:

    @kernel
    def na(n, A, lda, K, B, pb, C, ldc, cols, acc, ahead, every):
        na1(n, A, lda, K, B, pb, C, ldc, min(cols, 16), acc, ahead, every)
        if cols > 16:
            na1(n, A, lda, K, B + pb, pb, C + 64, ldc, cols - 16, acc, ahead, K + 1)

    @kernel
    def ta(n, A, lda, T, B, pb, C, pc, cols, acc, ahead, every):
        ta1(n, A, lda, T, B, pb, C, pc, acc, ahead, every)
        if cols > 16:
            ta1(n, A, lda, T, B + pb, pb, C + pc, pc, acc, ahead, T + 1)
