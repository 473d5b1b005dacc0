"""General matrix multiplication with Darknet's argument list (gemm.c)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from undertow.errors import ShapeError

Array = np.ndarray[Any, Any]


def gemm(
    ta: bool | int,
    tb: bool | int,
    m: int,
    n: int,
    k: int,
    alpha: float,
    a: Array,
    lda: int,
    b: Array,
    ldb: int,
    beta: float,
    c: Array,
    ldc: int,
) -> None:
    """C = alpha * op(A) op(B) + beta * C, in place; op transposes where ta, tb are true.

    op(A) is (m, k), op(B) is (k, n), C is (m, n). Element (row, column) of a stored matrix is flat element
    row*ld + column: A is stored with m rows (k when transposed), B with k (n when transposed), and a leading
    dimension larger than a row skips what lies between. Arrays are flat or of any shape, C-contiguous.
    beta = 0 overwrites C without reading it, as BLAS does (gemm.c multiplies, so a NaN in C would stay).
    ShapeError: a leading dimension shorter than a row, an array too short, a non-contiguous array.
    """
    rows_a, columns_a = (k, m) if ta else (m, k)
    rows_b, columns_b = (n, k) if tb else (k, n)
    left = as_matrix(a, rows_a, columns_a, lda, "A")
    right = as_matrix(b, rows_b, columns_b, ldb, "B")
    result = as_matrix(c, m, n, ldc, "C")
    left = left.T if ta else left
    right = right.T if tb else right
    if beta == 0 and alpha == 1:
        np.matmul(left, right, out=result, casting="same_kind")
        return
    product = left @ right
    if alpha != 1:
        product *= alpha
    if beta == 0:
        result[...] = product
        return
    if beta != 1:
        result *= beta
    result += product


def as_matrix(array: Array, rows: int, columns: int, leading: int, name: str) -> Array:
    """The (rows, columns) matrix with this leading dimension at the start of a contiguous array; a view."""
    if leading < max(columns, 1):
        raise ShapeError(f"gemm: the leading dimension {leading} of {name} is shorter than a row of {columns}")
    if not array.flags.c_contiguous:
        raise ShapeError(f"gemm: {name} is not C-contiguous", remedy="pass np.ascontiguousarray of it")
    needed = (rows - 1) * leading + columns if rows and columns else 0
    if array.size < needed:
        raise ShapeError(
            f"gemm: {name} has {array.size} elements, a {rows}x{columns} matrix with leading dimension "
            f"{leading} needs {needed}"
        )
    flat = array.reshape(-1)
    if leading == columns:
        return flat[: rows * columns].reshape(rows, columns)
    return as_strided(flat, (rows, columns), (leading * flat.itemsize, flat.itemsize))
