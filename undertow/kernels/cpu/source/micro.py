"""Register-tiled matrix products on packed panels, generated as LLVM code.

B is packed in panels of 16 columns, [K][16], and streams through the cache; A is read where it lies, by
scalar broadcasts, so NHWC activations need no packing. Up to 32 columns (two panels, `pb` bytes apart) are
done at a time; where the processor has 32 registers both panels share each broadcast.

    nn(n, A, lda, taps, ta, K, B, pb, C, ldc, cols, acc)
        C[n, cols] (+)= sum over t < taps of A_t[n, K] B_t[K, cols], A_t = A + t * ta, B_t = B + t * K * 64
    nv(n, A, lda, K, B, pb, C, ldc, cols, acc, then)
        C[n, cols] (+)= A[n, K] B[K, cols] for an A beyond the second cache: while one tile is computed, the rows of
        the next, in the end those at `then`, are asked for. The processor does not foresee their short runs.
    nr(n, A, lda, K, B, ldb, pb, C, ldc, cols, acc, ahead, at)
        C[n, cols] (+)= A[n, K] B[K, cols] for one tile, n <= ROWS, the rows of B's panels being ldb bytes apart.
        Meanwhile step k asks for the cache line at ahead + k * at.
    ind(n, table, group, t0, taps, K, B, pb, column, cols, acc, ahead, slow)
        the same with rows at arbitrary addresses, see below. Meanwhile row k of B_t asks for the cache line at
        ahead + (t * K + k) * 64 >> slow.
    tn(n, A, columns, lda, T, B, ldb, pb, C, pc, cols, acc)
        C[n, 16] (+)= A[T, n]^T B[T, 16] for one panel, or two when cols > 16 (C panels pc bytes apart). Column k
        of A lies at A + columns[k] (an int64 table), or at A + 4 * k where columns is 0.
    tr(n, A, lda, R, T, B, ldr, ldb, C, pc, cols, acc, ahead, ar, at)
        the same for one tile, n <= ROWS, of dense columns, the sum being over R runs of T rows: of A lda bytes apart,
        of B ldr bytes from run to run and ldb within; B's two panels lie side by side. Meanwhile row t of run r asks
        for the cache line at ahead + r * ar + t * at.

The table of `ind` has one record of `group` bytes for every ROWS rows: ROWS addresses of C, then ROWS
addresses of A for each tap, int64 each. The taps t0 .. t0 + taps are used, `column` is added to C's addresses.

A group with fewer rows than a tile repeats its last row: the same value is stored twice to the same place.
Memory: C gets exactly n rows of cols floats; B is read up to the full panels, A not beyond row n or column K.
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
    I64,
    LANES,
    VBYTES,
    VECTOR,
    ZERO,
    fma_value,
    lanes_below,
    masked_load,
    masked_store,
    pointer,
    prefetch_value,
    splat_value,
)

# Tile heights. 12 rows x 2 vectors or 6 rows x 2 vectors fill the 32 or 16 vector registers.
ROWS, ROWS2, ROWS3 = (12, 8, 4) if LANES == 16 else (6, 4, 2)
MOST = 14 if LANES == 16 else ROWS  # with a broadcast number and two vectors of B all registers are full
HALF = ROWS // 2  # of 18 rows, as few tiles of Winograd's are, a third are not computed in vain
PER_PANEL = 16 // LANES  # vectors in one row of a panel
PAIRED = LANES == 16  # two panels in one tile


def _int(value):
    return ir.Constant(I64, value)


class _Tile:
    """The accumulators of rows x (16 or 32) results, and how they are filled, added to and stored."""

    def __init__(self, builder, rows, panels, c_rows, c_panel, cols, acc):
        self.builder, self.rows, self.vectors, self.cols = builder, rows, panels * PER_PANEL, cols
        self.c_rows, self.c_panel = c_rows, c_panel
        self.acc = [[cgutils.alloca_once(builder, VECTOR) for _ in range(self.vectors)] for _ in range(rows)]
        for row in self.acc:
            for a in row:
                builder.store(ZERO, a)
        with builder.if_then(builder.icmp_signed("!=", acc, _int(0))):
            self._each(
                lambda p, a: builder.store(builder.load(pointer(builder, p), align=4), a),
                lambda p, a, mask: builder.store(masked_load(builder, p, mask), a),
            )

    def offset(self, v, panel_step):
        """Byte offset of vector v of a row whose panels are panel_step bytes apart."""
        within = _int(v % PER_PANEL * VBYTES)
        return within if v < PER_PANEL else self.builder.add(panel_step, within)

    def _each(self, whole, part):
        builder = self.builder
        full = builder.icmp_signed(">=", self.cols, _int(self.vectors * LANES))
        with builder.if_else(full) as (yes, no):
            with yes:
                for r, base in enumerate(self.c_rows):
                    for v in range(self.vectors):
                        whole(builder.add(base, self.offset(v, self.c_panel)), self.acc[r][v])
            with no:
                masks = [lanes_below(builder, builder.sub(self.cols, _int(v * LANES))) for v in range(self.vectors)]
                for r, base in enumerate(self.c_rows):
                    for v in range(self.vectors):
                        part(builder.add(base, self.offset(v, self.c_panel)), self.acc[r][v], masks[v])

    def step(self, a_row, b, b_panel):
        """acc[r] += A_r * B[0:16 or 32]; a_row(r) is the address of the scalar A_r."""
        builder = self.builder
        bs = [
            builder.load(pointer(builder, builder.add(b, self.offset(v, b_panel))), align=4)
            for v in range(self.vectors)
        ]
        for r in range(self.rows):
            a = splat_value(builder, builder.load(pointer(builder, a_row(r), FLOAT), align=4))
            for v in range(self.vectors):
                builder.store(fma_value(builder, a, bs[v], builder.load(self.acc[r][v])), self.acc[r][v])

    def finish(self):
        builder = self.builder
        self._each(
            lambda p, a: builder.store(builder.load(a), pointer(builder, p), align=4),
            lambda p, a, mask: masked_store(builder, p, builder.load(a), mask),
        )


def _clamped(builder, rows, n):
    """The row numbers 0, 1, ... n - 1, n - 1, ..."""
    last = builder.sub(n, _int(1))
    return [
        _int(0) if r == 0 else builder.select(builder.icmp_signed("<", _int(r), last), _int(r), last)
        for r in range(rows)
    ]


_P = types.int64


def _make_nn(rows, panels):
    @intrinsic
    def tile_nn(typingctx, n, A, lda, taps, ta, K, B, pb, C, ldc, cols, acc):
        def codegen(context, b, sig, args):
            n, A, lda, taps, ta, K, B, pb, C, ldc, cols, acc = args
            index = _clamped(b, rows, n)
            tile = _Tile(b, rows, panels, [b.add(C, b.mul(ldc, r)) for r in index], _int(64), cols, acc)
            starts = [b.add(A, b.mul(lda, r)) for r in index]
            with cgutils.for_range(b, taps) as outer:
                shift = b.mul(outer.index, ta)
                row = [b.add(s, shift) for s in starts]
                bt = b.add(B, b.mul(b.mul(outer.index, K), _int(64)))
                with cgutils.for_range(b, K) as loop:
                    k = b.mul(loop.index, _int(4))
                    tile.step(lambda r: b.add(row[r], k), b.add(bt, b.mul(k, _int(16))), pb)
            tile.finish()
            return context.get_dummy_value()

        return types.void(*[_P] * 12), codegen

    return tile_nn


def _make_nv(rows):
    @intrinsic
    def tile_nv(typingctx, n, A, lda, K, B, pb, C, ldc, cols, acc, then):
        def codegen(context, b, sig, args):
            n, A, lda, K, B, pb, C, ldc, cols, acc, then = args
            index = _clamped(b, rows, n)
            tile = _Tile(b, rows, 2, [b.add(C, b.mul(ldc, r)) for r in index], _int(64), cols, acc)
            row = [b.add(A, b.mul(lda, r)) for r in index]
            coming = [b.add(then, b.mul(lda, _int(r))) for r in range(rows)]
            line = _int(16)

            def steps(first, count):
                with cgutils.for_range(b, count) as loop:
                    k = b.mul(b.add(first, loop.index), _int(4))
                    tile.step(lambda r: b.add(row[r], k), b.add(B, b.mul(k, _int(16))), pb)

            lines = b.sdiv(K, line)
            with cgutils.for_range(b, lines) as loop:
                for c in coming:
                    prefetch_value(b, b.add(c, b.mul(loop.index, _int(64))), 3)
                steps(b.mul(loop.index, line), line)
            steps(b.mul(lines, line), b.srem(K, line))
            tile.finish()
            return context.get_dummy_value()

        return types.void(*[_P] * 11), codegen

    return tile_nv


def _make_nr(rows, panels):
    @intrinsic
    def tile_nr(typingctx, n, A, lda, K, B, ldb, pb, C, ldc, cols, acc, ahead, at):
        def codegen(context, b, sig, args):
            n, A, lda, K, B, ldb, pb, C, ldc, cols, acc, ahead, at = args
            index = _clamped(b, rows, n)
            tile = _Tile(b, rows, panels, [b.add(C, b.mul(ldc, r)) for r in index], _int(64), cols, acc)
            row = [b.add(A, b.mul(lda, r)) for r in index]
            with cgutils.for_range(b, K) as loop:
                prefetch_value(b, b.add(ahead, b.mul(loop.index, at)), 2)
                k = b.mul(loop.index, _int(4))
                tile.step(lambda r: b.add(row[r], k), b.add(B, b.mul(loop.index, ldb)), pb)
            tile.finish()
            return context.get_dummy_value()

        return types.void(*[_P] * 13), codegen

    return tile_nr


def _make_ind(rows, panels):
    @intrinsic
    def tile_ind(typingctx, n, table, t0, taps, K, B, pb, column, cols, acc, ahead, slow):
        def codegen(context, b, sig, args):
            n, table, t0, taps, K, B, pb, column, cols, acc, ahead, slow = args
            entries = [b.mul(r, _int(8)) for r in _clamped(b, rows, n)]

            def addresses(base):
                return [b.load(pointer(b, b.add(base, e), I64), align=8) for e in entries]

            tile = _Tile(b, rows, panels, [b.add(c, column) for c in addresses(table)], _int(64), cols, acc)
            first = b.add(table, b.mul(b.add(t0, _int(1)), _int(8 * ROWS)))
            with cgutils.for_range(b, taps) as outer:
                row = addresses(b.add(first, b.mul(outer.index, _int(8 * ROWS))))
                before = b.mul(b.mul(outer.index, K), _int(64))
                with cgutils.for_range(b, K) as loop:
                    k = b.mul(loop.index, _int(4))
                    at = b.add(before, b.mul(k, _int(16)))
                    prefetch_value(b, b.add(ahead, b.lshr(at, slow)), 2)
                    tile.step(lambda r: b.add(row[r], k), b.add(B, at), pb)
            tile.finish()
            return context.get_dummy_value()

        return types.void(*[_P] * 12), codegen

    return tile_ind


def _make_tn(rows, panels):
    @intrinsic
    def tile_tn(typingctx, n, A, columns, lda, T, B, ldb, pb, C, pc, acc):
        def codegen(context, b, sig, args):
            n, A, columns, lda, T, B, ldb, pb, C, pc, acc = args
            index = _clamped(b, rows, n)
            tile = _Tile(b, rows, panels, [b.add(C, b.mul(_int(64), r)) for r in index], pc, _int(16 * panels), acc)
            steps = [cgutils.alloca_once(b, I64) for _ in index]
            with b.if_else(b.icmp_signed("==", columns, _int(0))) as (dense, listed):
                with dense:
                    for r, step in zip(index, steps, strict=True):
                        b.store(b.mul(_int(4), r), step)
                with listed:
                    for r, step in zip(index, steps, strict=True):
                        b.store(b.load(pointer(b, b.add(columns, b.mul(_int(8), r)), I64), align=8), step)
            column = [b.load(step) for step in steps]
            with cgutils.for_range(b, T) as loop:
                row = b.add(A, b.mul(loop.index, lda))
                tile.step(lambda r: b.add(row, column[r]), b.add(B, b.mul(loop.index, ldb)), pb)
            tile.finish()
            return context.get_dummy_value()

        return types.void(*[_P] * 11), codegen

    return tile_tn


def _make_tr(rows, panels):
    @intrinsic
    def tile_tr(typingctx, n, A, lda, R, T, B, ldr, ldb, C, pc, acc, ahead, ar, at):
        def codegen(context, b, sig, args):
            n, A, lda, R, T, B, ldr, ldb, C, pc, acc, ahead, ar, at = args
            index = _clamped(b, rows, n)
            tile = _Tile(b, rows, panels, [b.add(C, b.mul(_int(64), r)) for r in index], pc, _int(16 * panels), acc)
            columns = [b.mul(_int(4), r) for r in index]
            with cgutils.for_range(b, R) as outer:
                a_run = b.add(A, b.mul(b.mul(outer.index, T), lda))
                b_run = b.add(B, b.mul(outer.index, ldr))
                ahead_run = b.add(ahead, b.mul(outer.index, ar))
                with cgutils.for_range(b, T) as loop:
                    prefetch_value(b, b.add(ahead_run, b.mul(loop.index, at)), 2)
                    row = b.add(a_run, b.mul(loop.index, lda))
                    tile.step(lambda r: b.add(row, columns[r]), b.add(b_run, b.mul(loop.index, ldb)), _int(64))
            tile.finish()
            return context.get_dummy_value()

        return types.void(*[_P] * 14), codegen

    return tile_tr


_nn_a1, _nn_b1, _nn_h1, _nn_c1 = (_make_nn(rows, 1) for rows in (ROWS, ROWS2, HALF, ROWS3))
_ind_a1, _ind_b1, _ind_c1 = (_make_ind(rows, 1) for rows in (ROWS, ROWS2, ROWS3))
_tn_a1, _tn_b1, _tn_c1 = (_make_tn(rows, 1) for rows in (ROWS, ROWS2, ROWS3))
_nr_a1, _nr_b1, _nr_h1, _nr_c1 = (_make_nr(rows, 1) for rows in (ROWS, ROWS2, HALF, ROWS3))
_tr_a1, _tr_b1, _tr_c1 = (_make_tr(rows, 1) for rows in (ROWS, ROWS2, ROWS3))


@kernel
def nn1(n, A, lda, taps, ta, K, B, pb, C, ldc, cols, acc):
    """`nn` for one panel."""
    while n > 0:
        m = min(n, ROWS)
        if m > ROWS2:
            _nn_a1(m, A, lda, taps, ta, K, B, pb, C, ldc, cols, acc)
        elif m > HALF:
            _nn_b1(m, A, lda, taps, ta, K, B, pb, C, ldc, cols, acc)
        elif m > ROWS3:
            _nn_h1(m, A, lda, taps, ta, K, B, pb, C, ldc, cols, acc)
        else:
            _nn_c1(m, A, lda, taps, ta, K, B, pb, C, ldc, cols, acc)
        A += m * lda
        C += m * ldc
        n -= m


@kernel
def ind1(n, table, group, t0, taps, K, B, pb, column, cols, acc, ahead, slow):
    """`ind` for one panel."""
    while n > 0:
        m = min(n, ROWS)
        if m > ROWS2:
            _ind_a1(m, table, t0, taps, K, B, pb, column, cols, acc, ahead, slow)
        elif m > ROWS3:
            _ind_b1(m, table, t0, taps, K, B, pb, column, cols, acc, ahead, slow)
        else:
            _ind_c1(m, table, t0, taps, K, B, pb, column, cols, acc, ahead, slow)
        table += group
        n -= m


@kernel
def tn1(n, A, columns, lda, T, B, ldb, pb, C, pc, acc):
    """`tn` for one panel."""
    while n > 0:
        m = min(n, ROWS)
        if m > ROWS2:
            _tn_a1(m, A, columns, lda, T, B, ldb, pb, C, pc, acc)
        elif m > ROWS3:
            _tn_b1(m, A, columns, lda, T, B, ldb, pb, C, pc, acc)
        else:
            _tn_c1(m, A, columns, lda, T, B, ldb, pb, C, pc, acc)
        if columns:
            columns += 8 * m
        else:
            A += 4 * m
        C += 64 * m
        n -= m


@kernel
def nr1(n, A, lda, K, B, ldb, pb, C, ldc, cols, acc, ahead, at):
    """`nr` for one panel."""
    if n > ROWS2:
        _nr_a1(n, A, lda, K, B, ldb, pb, C, ldc, cols, acc, ahead, at)
    elif n > HALF:
        _nr_b1(n, A, lda, K, B, ldb, pb, C, ldc, cols, acc, ahead, at)
    elif n > ROWS3:
        _nr_h1(n, A, lda, K, B, ldb, pb, C, ldc, cols, acc, ahead, at)
    else:
        _nr_c1(n, A, lda, K, B, ldb, pb, C, ldc, cols, acc, ahead, at)


@kernel
def tr1(n, A, lda, R, T, B, ldr, ldb, C, pc, acc, ahead, ar, at):
    """`tr` for one panel."""
    if n > ROWS2:
        _tr_a1(n, A, lda, R, T, B, ldr, ldb, C, pc, acc, ahead, ar, at)
    elif n > ROWS3:
        _tr_b1(n, A, lda, R, T, B, ldr, ldb, C, pc, acc, ahead, ar, at)
    else:
        _tr_c1(n, A, lda, R, T, B, ldr, ldb, C, pc, acc, ahead, ar, at)


if PAIRED:
    _nn_a2, _nn_b2, _nn_h2, _nn_c2 = (_make_nn(rows, 2) for rows in (ROWS, ROWS2, HALF, ROWS3))
    _ind_a2, _ind_b2, _ind_c2 = (_make_ind(rows, 2) for rows in (ROWS, ROWS2, ROWS3))
    _tn_a2, _tn_b2, _tn_c2 = (_make_tn(rows, 2) for rows in (ROWS, ROWS2, ROWS3))
    _nr_a2, _nr_b2, _nr_h2, _nr_c2 = (_make_nr(rows, 2) for rows in (ROWS, ROWS2, HALF, ROWS3))
    _tr_a2, _tr_b2, _tr_c2 = (_make_tr(rows, 2) for rows in (ROWS, ROWS2, ROWS3))

    @kernel
    def nn(n, A, lda, taps, ta, K, B, pb, C, ldc, cols, acc):
        if cols <= 16:
            nn1(n, A, lda, taps, ta, K, B, pb, C, ldc, cols, acc)
            return
        while n > 0:
            m = min(n, ROWS)
            if m > ROWS2:
                _nn_a2(m, A, lda, taps, ta, K, B, pb, C, ldc, cols, acc)
            elif m > HALF:
                _nn_b2(m, A, lda, taps, ta, K, B, pb, C, ldc, cols, acc)
            elif m > ROWS3:
                _nn_h2(m, A, lda, taps, ta, K, B, pb, C, ldc, cols, acc)
            else:
                _nn_c2(m, A, lda, taps, ta, K, B, pb, C, ldc, cols, acc)
            A += m * lda
            C += m * ldc
            n -= m

    _nv_m, _nv_a, _nv_b, _nv_h, _nv_c = (_make_nv(rows) for rows in (MOST, ROWS, ROWS2, HALF, ROWS3))

    @kernel
    def nv(n, A, lda, K, B, pb, C, ldc, cols, acc, then):
        if cols <= 16:
            nn1(n, A, lda, 1, 0, K, B, pb, C, ldc, cols, acc)
            return
        while n > 0:
            m = n if n <= MOST else ROWS if n % MOST else MOST
            coming = A + m * lda if n > m else then
            if m > ROWS:
                _nv_m(m, A, lda, K, B, pb, C, ldc, cols, acc, coming)
            elif m > ROWS2:
                _nv_a(m, A, lda, K, B, pb, C, ldc, cols, acc, coming)
            elif m > HALF:
                _nv_b(m, A, lda, K, B, pb, C, ldc, cols, acc, coming)
            elif m > ROWS3:
                _nv_h(m, A, lda, K, B, pb, C, ldc, cols, acc, coming)
            else:
                _nv_c(m, A, lda, K, B, pb, C, ldc, cols, acc, coming)
            A += m * lda
            C += m * ldc
            n -= m

    @kernel
    def ind(n, table, group, t0, taps, K, B, pb, column, cols, acc, ahead, slow):
        if cols <= 16:
            ind1(n, table, group, t0, taps, K, B, pb, column, cols, acc, ahead, slow)
            return
        while n > 0:
            m = min(n, ROWS)
            if m > ROWS2:
                _ind_a2(m, table, t0, taps, K, B, pb, column, cols, acc, ahead, slow)
            elif m > ROWS3:
                _ind_b2(m, table, t0, taps, K, B, pb, column, cols, acc, ahead, slow)
            else:
                _ind_c2(m, table, t0, taps, K, B, pb, column, cols, acc, ahead, slow)
            table += group
            n -= m

    @kernel
    def tn(n, A, columns, lda, T, B, ldb, pb, C, pc, cols, acc):
        if cols <= 16:
            tn1(n, A, columns, lda, T, B, ldb, pb, C, pc, acc)
            return
        while n > 0:
            m = min(n, ROWS)
            if m > ROWS2:
                _tn_a2(m, A, columns, lda, T, B, ldb, pb, C, pc, acc)
            elif m > ROWS3:
                _tn_b2(m, A, columns, lda, T, B, ldb, pb, C, pc, acc)
            else:
                _tn_c2(m, A, columns, lda, T, B, ldb, pb, C, pc, acc)
            if columns:
                columns += 8 * m
            else:
                A += 4 * m
            C += 64 * m
            n -= m

    @kernel
    def nr(n, A, lda, K, B, ldb, pb, C, ldc, cols, acc, ahead, at):
        if cols <= 16:
            nr1(n, A, lda, K, B, ldb, pb, C, ldc, cols, acc, ahead, at)
        elif n > ROWS2:
            _nr_a2(n, A, lda, K, B, ldb, pb, C, ldc, cols, acc, ahead, at)
        elif n > HALF:
            _nr_b2(n, A, lda, K, B, ldb, pb, C, ldc, cols, acc, ahead, at)
        elif n > ROWS3:
            _nr_h2(n, A, lda, K, B, ldb, pb, C, ldc, cols, acc, ahead, at)
        else:
            _nr_c2(n, A, lda, K, B, ldb, pb, C, ldc, cols, acc, ahead, at)

    @kernel
    def tr(n, A, lda, R, T, B, ldr, ldb, C, pc, cols, acc, ahead, ar, at):
        if cols <= 16:
            tr1(n, A, lda, R, T, B, ldr, ldb, C, pc, acc, ahead, ar, at)
        elif n > ROWS2:
            _tr_a2(n, A, lda, R, T, B, ldr, ldb, C, pc, acc, ahead, ar, at)
        elif n > ROWS3:
            _tr_b2(n, A, lda, R, T, B, ldr, ldb, C, pc, acc, ahead, ar, at)
        else:
            _tr_c2(n, A, lda, R, T, B, ldr, ldb, C, pc, acc, ahead, ar, at)

else:

    @kernel
    def nv(n, A, lda, K, B, pb, C, ldc, cols, acc, then):
        nn(n, A, lda, 1, 0, K, B, pb, C, ldc, cols, acc)

    @kernel
    def nn(n, A, lda, taps, ta, K, B, pb, C, ldc, cols, acc):
        nn1(n, A, lda, taps, ta, K, B, pb, C, ldc, min(cols, 16), acc)
        if cols > 16:
            nn1(n, A, lda, taps, ta, K, B + pb, pb, C + 64, ldc, cols - 16, acc)

    @kernel
    def ind(n, table, group, t0, taps, K, B, pb, column, cols, acc, ahead, slow):
        ind1(n, table, group, t0, taps, K, B, pb, column, min(cols, 16), acc, ahead, slow)
        if cols > 16:
            ind1(n, table, group, t0, taps, K, B + pb, pb, column + 64, cols - 16, acc, ahead, slow)

    @kernel
    def tn(n, A, columns, lda, T, B, ldb, pb, C, pc, cols, acc):
        tn1(n, A, columns, lda, T, B, ldb, pb, C, pc, acc)
        if cols > 16:
            tn1(n, A, columns, lda, T, B + pb, ldb, pb, C + pc, pc, acc)

    @kernel
    def nr(n, A, lda, K, B, ldb, pb, C, ldc, cols, acc, ahead, at):
        nr1(n, A, lda, K, B, ldb, pb, C, ldc, min(cols, 16), acc, ahead, at)
        if cols > 16:
            nr1(n, A, lda, K, B + pb, ldb, pb, C + 64, ldc, cols - 16, acc, ahead, at)

    @kernel
    def tr(n, A, lda, R, T, B, ldr, ldb, C, pc, cols, acc, ahead, ar, at):
        tr1(n, A, lda, R, T, B, ldr, ldb, C, pc, acc, ahead, ar, at)
        if cols > 16:
            tr1(n, A, lda, R, T, B + 64, ldr, ldb, C + pc, pc, acc, ahead, ar, at)
