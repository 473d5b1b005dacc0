"""gemm against sums written out element by element, with Darknet's index formulas."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from undertow.errors import ShapeError
from undertow.kernels.reference.gemm import gemm


def written_out(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc):
    """C[i*ldc + j] = beta * C[i*ldc + j] + alpha * sum over p; a copy."""
    c = c.copy()
    for i, j in itertools.product(range(m), range(n)):
        total = 0.0
        for p in range(k):
            left = a[p * lda + i] if ta else a[i * lda + p]
            right = b[j * ldb + p] if tb else b[p * ldb + j]
            total += left * right
        c[i * ldc + j] = beta * c[i * ldc + j] + alpha * total
    return c


@settings(max_examples=60, deadline=None)
@given(
    st.booleans(),
    st.booleans(),
    st.tuples(*[st.integers(1, 6)] * 3),
    st.tuples(*[st.integers(0, 3)] * 3),
    st.sampled_from([1.0, -0.5, 2.25]),
    st.sampled_from([0.0, 1.0, -1.5]),
    st.integers(0, 2**32 - 1),
)
def test_gemm_equals_its_sum(ta, tb, size, extra, alpha, beta, seed):
    m, n, k = size
    lda, ldb, ldc = (m if ta else k) + extra[0], (k if tb else n) + extra[1], n + extra[2]
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((k if ta else m) * lda)
    b = rng.standard_normal((n if tb else k) * ldb)
    c = rng.standard_normal(m * ldc)
    expected = written_out(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
    gemm(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
    np.testing.assert_allclose(c, expected, rtol=1e-12, atol=1e-13)


def test_gemm_takes_two_dimensional_arrays_and_keeps_float32(rng):
    a, b = rng.standard_normal((2, 3)).astype("f"), rng.standard_normal((3, 4)).astype("f")
    c = np.ones((2, 4), "f")
    gemm(0, 0, 2, 4, 3, 1, a, 3, b, 4, 1, c, 4)
    assert c.dtype == np.float32
    np.testing.assert_allclose(c, 1 + a.astype(float) @ b.astype(float), rtol=1e-5)


def test_the_last_row_may_end_before_its_leading_dimension():
    a = np.arange(5.0)  # two rows of two, three apart
    c = np.zeros(4)
    gemm(0, 0, 2, 2, 2, 1, a, 3, np.eye(2), 2, 0, c, 2)
    np.testing.assert_array_equal(c, [0, 1, 3, 4])


def test_beta_zero_does_not_read_c():
    c = np.full(1, np.nan)
    gemm(0, 0, 1, 1, 1, 2, np.ones(1), 1, np.ones(1), 1, 0, c, 1)
    assert c[0] == 2


def test_nothing_to_sum_leaves_beta_c():
    c = np.ones(4)
    gemm(0, 0, 2, 2, 0, 1, np.empty(0), 1, np.empty(0), 2, 3, c, 2)
    np.testing.assert_array_equal(c, [3, 3, 3, 3])


@pytest.mark.parametrize(
    ("a", "lda", "message"),
    [
        (np.ones(6), 2, "leading dimension 2 of A"),
        (np.ones(5), 3, "A has 5 elements"),
        (np.ones((3, 2)).T, 3, "A is not C-contiguous"),
    ],
)
def test_what_does_not_fit_is_refused(a, lda, message):
    with pytest.raises(ShapeError, match=message):
        gemm(0, 0, 2, 2, 3, 1, a, lda, np.ones(6), 2, 0, np.zeros(4), 2)
