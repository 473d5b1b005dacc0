"""Upsampling and shrinking against Darknet's index formula, and that each is the adjoint of the other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from undertow.errors import ShapeError
from undertow.kernels.reference.upsample import (
    downsample2d,
    downsample2d_backward,
    upsample2d,
    upsample2d_backward,
)

small = st.integers(1, 3)


@settings(max_examples=50, deadline=None)
@given(st.tuples(small, small, small, small), st.tuples(small, small), st.floats(-2, 2), st.integers(0, 2**32 - 1))
def test_all_four_follow_the_index_formula(shape, factor, scale, seed):
    rng = np.random.default_rng(seed)
    big = (*shape[:2], shape[2] * factor[0], shape[3] * factor[1])
    x, z = rng.standard_normal(shape), rng.standard_normal(big)
    up, down = np.zeros(big), np.zeros(shape)
    for b, c, p, q in np.ndindex(big):
        source = b, c, p // factor[0], q // factor[1]
        up[b, c, p, q] = scale * x[source]
        down[source] += scale * z[b, c, p, q]
    for actual in (upsample2d(x, factor, scale), downsample2d_backward(x, factor, scale)):
        np.testing.assert_allclose(actual, up, rtol=1e-13, atol=0)
    for actual in (downsample2d(z, factor, scale), upsample2d_backward(z, factor, scale)):
        np.testing.assert_allclose(actual, down, rtol=1e-12, atol=1e-13)


def test_the_result_is_a_new_array_of_the_same_type():
    x = np.ones((1, 1, 2, 2), np.float32)
    for result in (upsample2d(x, (1, 1)), downsample2d(x, (1, 1))):
        result[...] = 5
        assert result.dtype == np.float32
    assert x.max() == 1
    assert upsample2d(x, (2, 3), 0.5).dtype == downsample2d(x, (2, 2), 0.5).dtype == np.float32


def test_what_does_not_fit_is_refused():
    with pytest.raises(ShapeError, match="it divides, got 3x4"):
        downsample2d(np.ones((1, 1, 3, 4)), (2, 2))
    with pytest.raises(ShapeError, match="at least 1"):
        upsample2d(np.ones((1, 1, 3, 4)), (0, 2))
    with pytest.raises(ShapeError, match="batch, channels"):
        upsample2d(np.ones((3, 4)), (2, 2))
