"""The products of Winograd's slabs: where tiles are many one block of tiles at a time, of few one of weights.

Layouts are those of winograd.py. Meanwhile the processor fetches what is read or written next: memory answers while
products run, one line every few steps, because it takes only so many questions at a time.
"""
# mypy: ignore-errors

from __future__ import annotations

from undertow.kernels.cpu.source.compiler import inline, kernel
from undertow.kernels.cpu.source.micro import ROWS
from undertow.kernels.cpu.source.micro_ahead import na, ta
from undertow.kernels.cpu.source.winograd_weights import STRIDED

KC = 256  # rows of B per pass: two panels are 32 KB


@inline
def _slab(f, e):
    """The slab of weights for slab e, and whether one before e had it, too."""
    if f < STRIDED:
        return e, False
    i, j = e // 9, e % 9
    return min(i, 5) * 6 + min(j, 5), i > 5 or j > 5


@inline
def _times(n, m):
    return (n + m - 1) // m


@inline
def _every(steps, wanted, tiles):
    """How many of the `steps` steps of each of `tiles` tiles go with one line, for `wanted` bytes to be fetched."""
    return max(1, steps // max(1, _times(_times(wanted, 64), tiles)))


@inline
def _ahead(done, a0, a1, b0, b1):
    """What comes behind `done` bytes of the memory from a0 to a1, then b0 to b1."""
    return a0 + done if done < a1 - a0 else b0 + done - (a1 - a0)


@kernel
def images(f, slabs, tiles, V, lda, sv, U, us, Ci, Co, M, ldm, sm, y0, y1, x0, x1):
    """M = V U, while memory from y0 to y1 and then x0 to x1 is fetched."""
    wanted, done = y1 - y0 + x1 - x0, 0
    count = slabs * _times(Ci, KC) * _times(Co, 32) * _times(tiles, ROWS)
    columns = _times(Co, 16) * 16
    for e in range(slabs):
        for k in range(0, Ci, KC):
            K = min(KC, Ci - k)
            every = _every(K, wanted, count)
            for c in range(0, columns, 32):
                B = U + _slab(f, e)[0] * us + (c // 16 * Ci + k) * 64
                for t in range(0, tiles, ROWS):
                    A = V + e * sv + t * lda + 4 * k
                    C = M + e * sm + t * ldm + 4 * c
                    na(
                        min(ROWS, tiles - t), A, lda, K, B, Ci * 64, C, ldm, min(32, columns - c), k > 0,
                        _ahead(done, y0, y1, x0, x1), every if done < wanted else K + 1,
                    )  # fmt: skip
                    done += K // every * 64


@kernel
def weights(f, slabs, tiles, V, lda, sv, D, ps, sd, dU, us, Ci, panels, acc, x0, x1, y0, y1):
    """dU (+)= V^T D, while memory from x0 to x1 and then y0 to y1 is fetched."""
    wanted, done = x1 - x0 + y1 - y0, 0
    every = _every(tiles, wanted, slabs * _times(panels, 2) * _times(Ci, ROWS))
    for e in range(slabs):
        slab, again = _slab(f, e)
        for p in range(0, panels, 2):
            B = D + e * sd + p * ps
            for c in range(0, Ci, ROWS):
                A = V + e * sv + 4 * c
                C = dU + slab * us + (p * Ci + c) * 64
                ta(
                    min(ROWS, Ci - c), A, lda, tiles, B, ps, C, Ci * 64, 16 * (panels - p), acc or again,
                    _ahead(done, x0, x1, y0, y1), every if done < wanted else tiles + 1,
                )  # fmt: skip
                done += tiles // every * 64


@kernel
def few_weights(slabs, tiles, V, lda, sv, D, ps, sd, dU, us, Ci, cols, w, row, length):
    """dU = V^T D for at most 32 columns, while `length` bytes of each of the `cols` rows at w are fetched."""
    lines = _times(length, 64)
    wanted, done = lines * cols, 0
    every = _every(tiles, 64 * wanted, slabs * _times(Ci, ROWS))
    for e in range(slabs):
        for c in range(0, Ci, ROWS):
            A, C = V + e * sv + 4 * c, dU + e * us + 64 * c
            ahead = w + done // lines * row + done % lines * 64
            ta(
                min(ROWS, Ci - c), A, lda, tiles, D + e * sd, ps, C, Ci * 64, cols, 0,
                ahead, every if done < wanted else tiles + 1,
            )  # fmt: skip
            done += tiles // every
