"""The transforms of one Winograd tile, all channels, and of weights, for every form F(m, r).

Every kernel works on vectors of LANES channels: rows first, then columns. Between them tiles lie in a small scratch,
weights stay in registers.
"""
# mypy: ignore-errors

from __future__ import annotations

from undertow.kernels.cpu.source import winograd_lines as lines
from undertow.kernels.cpu.source.compiler import inline, kernel
from undertow.kernels.cpu.source.simd import VBYTES, choose, load_row, store_row

V = VBYTES


def _tiles(f):
    """The five kernels of form f = 10 m + r, n = m + r - 1."""
    m, r = f // 10, f % 10
    n = m + r - 1
    return _of_images(f, n, n, m) + _of_weights(f, m, r, n, n)


def _of_images(f, p, n, m):
    """p x p pixels to n * n slabs, and those to m x m pixels."""
    bt, at = (getattr(lines, f"{name}{f}") for name in ("bt", "at"))
    load_p, load_n, store_n, store_m = load_row(p), load_row(n), store_row(n), store_row(m)

    def inputs(source, rs, cs, C, target, ss, tmp):
        """B^T d B of p x p pixels, row and column strides rs and cs, to n * n slabs ss bytes apart."""
        for c in range(0, 4 * C, V):
            for i in range(p):
                store_n(tmp + i * n * V, V, bt(*load_p(source + i * rs + c, cs)))
            for j in range(n):
                store_n(target + j * ss + c, n * ss, bt(*load_p(tmp + j * V, n * V)))

    def outputs(source, ss, C, target, rs, cs, tmp):
        """A^T m A of n * n slabs to m x m pixels."""
        for c in range(0, 4 * C, V):
            for i in range(n):
                store_m(tmp + i * m * V, V, at(*load_n(source + n * i * ss + c, ss)))
            for j in range(m):
                store_m(target + j * cs + c, rs, at(*load_n(tmp + j * V, m * V)))

    return _named(f, inputs, outputs)


def _of_weights(f, m, r, n, q):
    """m x m gradients of results to n * n slabs; r x r weights to q * q slabs, and back."""
    a, g, gt = (getattr(lines, f"{name}{f}") for name in ("a", "g", "gt"))
    load_m, store_n = load_row(m), store_row(n)

    def gradients(source, rs, cs, C, target, ss, ps, tmp):
        """A dy A^T of m x m pixels to n * n slabs of panels ps bytes apart."""
        for c in range(0, 4 * C, V):
            for i in range(m):
                store_n(tmp + i * n * V, V, a(*load_m(source + i * rs + c, cs)))
            d = target + (c >> 6) * ps + (c & 63)
            for j in range(n):
                store_n(d + j * ss, n * ss, a(*load_m(tmp + j * V, n * V)))

    rows, columns, rows_back, columns_back = _rows(g, r), _columns(g, r, q), _rows(gt, q), _columns(gt, q, r)
    load_taps, load_slabs = load_row(r * r), load_row(q * q)

    def weights(w, step, tap, u, us, count):
        """G w G^T of `count` rows of 16 weights, `step` bytes apart, taps `tap` bytes apart."""
        for c in range(0, 64, V):
            for k in range(count):
                columns(rows(load_taps(w + k * step + c, tap)), u + 64 * k + c, us)

    def weights_back(u, us, w, step, tap, count):
        """G^T u G of `count` rows of 16 weights."""
        for c in range(0, 64, V):
            for k in range(count):
                columns_back(rows_back(load_slabs(u + 64 * k + c, us)), w + k * step + c, tap)

    return _named(f, gradients, weights, weights_back)


def _rows(line, n, k=0):
    """An inline function: n * n vectors to what `line` makes of the rows from k on, as one tuple."""
    row = choose(range(n * k, n * k + n))
    if k == n - 1:
        return inline(lambda vectors: line(*row(vectors)))
    others = _rows(line, n, k + 1)
    return inline(lambda vectors: line(*row(vectors)) + others(vectors))


def _columns(line, n, m, k=0):
    """An inline function: n * m vectors; what `line` makes of the columns from k on, to p, p + step, ... by rows."""
    column, store_m = choose(range(k, n * m, m)), store_row(m)
    others = _columns(line, n, m, k + 1) if k < m - 1 else _nothing

    @inline
    def columns(vectors, p, step):
        store_m(p + k * step, m * step, line(*column(vectors)))
        others(vectors, p, step)

    return columns


@inline
def _nothing(vectors, p, step):
    pass


def _named(f, *functions):
    made = []
    for function in functions:
        function.__name__ += str(f)
        made.append(kernel(function))
    return made


inputs23, outputs23, gradients23, weights23, weights_back23 = _tiles(23)
inputs43, outputs43, gradients43, weights43, weights_back43 = _tiles(43)
inputs53, outputs53, gradients53, weights53, weights_back53 = _tiles(53)
inputs45, outputs45, gradients45, weights45, weights_back45 = _tiles(45)
# Stride 2. Weights have 6 x 6 slabs: those of the plain products in either dimension are equal.
inputs432, outputs432 = _of_images(432, 9, 9, 4)
inputs832, outputs832 = _of_images(832, 5, 9, 8)
gradients432, weights432, weights_back432 = _of_weights(432, 4, 3, 9, 6)
