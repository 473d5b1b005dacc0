"""Batch norm, leaky and pooling in one pass, against the three one after the other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.cpu.guards import GuardedScratch, GuardedTensor
from undertow.kernels.cpu.raw import batchnorm, plan_pool, pooling
from undertow.kernels.cpu.raw.batchnorm import Slope
from undertow.kernels.cpu.raw.parts import SLOTS


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(1, 3),
    c=st.integers(1, 40),
    h=st.integers(1, 6),
    w=st.integers(1, 7),
    slope=st.sampled_from([0.1, 0.01, 1.0, 0.0]),
    seed=st.integers(0, 99),
)
def test_one_pass_equals_three(n: int, c: int, h: int, w: int, slope: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, z, y = GuardedTensor(n, c, 2 * h, 2 * w), GuardedTensor(n, c, 2 * h, 2 * w), GuardedTensor(n, c, h, w)
    apart, before = GuardedTensor(n, c, h, w), (rng.integers(-3, 4, (n, c, 2 * h, 2 * w)) * 0.5).astype(np.float32)
    x.array[:] = before  # coarse, so that windows hold equal values
    per_channel = [rng.uniform(0.5, 2, (2, c)).astype(np.float32), rng.standard_normal((5, c)).astype(np.float32)]
    scale, c1, shift, k1, k0, c2, c3 = (row.ctypes.data for rows in per_channel for row in rows)

    plan_pool.affine(x.tensor, y.tensor, scale, shift, slope)
    batchnorm.affine(x.tensor, z.tensor, scale, shift, slope)
    pooling.max_forward(z.tensor, apart.tensor, 0, pooling.Pool(2, 2, 2, 2, 0, 0))
    assert np.array_equal(y.array, apart.array)

    gy, memory = GuardedTensor(n, c, h, w), GuardedScratch()
    gy.array[:] = rng.standard_normal((n, c, h, w))
    gz, gx, other = (GuardedTensor(n, c, 2 * h, 2 * w) for _ in range(3))
    pooling.max_backward_from(gy.tensor, z.tensor, gz.tensor)
    leaky = Slope(slope, scale, shift)
    sums, expected = np.zeros((2, SLOTS, 2, c))
    plan_pool.backward_sums(gy.tensor, x.tensor, scale, shift, k1, k0, sums.ctypes.data, memory, slope)
    batchnorm.backward_sums(gz.tensor, x.tensor, k1, k0, expected.ctypes.data, memory, leaky)
    np.testing.assert_allclose(sums.sum(0), expected.sum(0), rtol=1e-5, atol=1e-4)
    plan_pool.backward(gy.tensor, x.tensor, gx.tensor, scale, shift, c1, c2, c3, slope)
    batchnorm.backward(gz.tensor, x.tensor, other.tensor, c1, c2, c3, leaky)
    np.testing.assert_allclose(gx.array, other.array, rtol=1e-6, atol=1e-6)
    assert np.array_equal(x.array, before)
    plan_pool.backward(gy.tensor, x.tensor, x.tensor, scale, shift, c1, c2, c3, slope)  # in place
    assert np.array_equal(x.array, gx.array)
    for watched in (x, z, y, apart, gy, gz, gx, other, memory):
        watched.check()


@pytest.mark.parametrize("place", range(4))
def test_the_winner_is_the_first_of_equal_ones(place: int) -> None:
    x, gy, gx = GuardedTensor(1, 1, 2, 2), GuardedTensor(1, 1, 1, 1), GuardedTensor(1, 1, 2, 2)
    one, zero = np.ones(1, np.float32), np.zeros(1, np.float32)
    gy.array[:] = 3
    x.array[:] = 1
    x.array[0, 0, 1, 1] = 2
    x.array[0, 0, place // 2, place % 2] = 2
    plan_pool.backward(gy.tensor, x.tensor, gx.tensor, *(a.ctypes.data for a in (one, zero, one, zero, zero)), 1.0)
    assert gx.array.reshape(-1).tolist() == [3 if k == place else 0 for k in range(4)]
