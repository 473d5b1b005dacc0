"""Pooling and resampling kernels against the reference."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.cpu.guards import GuardedTensor
from undertow.errors import ShapeError
from undertow.functions.pooling import pooling_geometry
from undertow.kernels import cpu, reference
from undertow.kernels.cpu.raw import pooling as raw
from undertow.kernels.cpu.raw.pooling import Pool
from undertow.kernels.geometry import PoolGeometry, caffe_pooling, darknet_pooling, floor_pooling


@st.composite
def problems(draw):
    """An image with many ties and a pooling geometry, windows hanging over or outside included."""

    def pair(low, high):
        return draw(st.integers(low, high)), draw(st.integers(low, high))

    n, c = draw(st.integers(1, 3)), draw(st.integers(1, 35))
    h, w = pair(1, 11)
    geometry = PoolGeometry(pair(1, 5), pair(1, 3), pair(0, 3), pair(1, 8), pair(0, 3), draw(st.booleans()))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    x = np.round(rng.standard_normal((n, c, h, w)), 0).astype(np.float32)
    return x, rng.standard_normal((n, c, *geometry.out)).astype(np.float32), geometry


@settings(max_examples=80, deadline=None)
@given(problems())
def test_max_pooling_equals_the_reference(problem):
    x, gy, geometry = problem
    y, indexes = cpu.pool2d("max", x, geometry)
    expected, expected_indexes = reference.pool2d("max", x, geometry)
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(indexes, expected_indexes)
    assert indexes.dtype == np.int32
    gx = cpu.pool2d_backward("max", gy, indexes, x.shape, geometry)
    wide = reference.pool2d_backward("max", gy.astype(np.float64), indexes, x.shape, geometry)
    np.testing.assert_allclose(gx, wide, rtol=1e-6, atol=1e-5)
    c_ordered = np.ascontiguousarray(indexes)
    np.testing.assert_array_equal(cpu.pool2d_backward("max", gy, c_ordered, x.shape, geometry), gx)


@pytest.mark.parametrize("size", [(2, 2), (1, 4), (3, 2), (1, 1)], ids=str)
@pytest.mark.parametrize("left_over", [0, 1])
def test_average_pooling_by_windows_side_by_side(size, left_over):
    shape = (2, 17, 5 * size[0] + left_over, 3 * size[1])
    geometry = pooling_geometry(shape, size, size)
    gy = np.random.default_rng(0).standard_normal((2, 17, *geometry.out)).astype(np.float32)
    gx = cpu.pool2d_backward("average", gy, None, shape, geometry)
    assert np.array_equal(gx, reference.pool2d_backward("average", gy, None, shape, geometry))


@settings(max_examples=80, deadline=None)
@given(problems())
def test_average_pooling_equals_the_reference(problem):
    x, gy, geometry = problem
    y, indexes = cpu.pool2d("average", x, geometry)
    assert indexes is None
    np.testing.assert_allclose(y, reference.pool2d("average", x.astype(np.float64), geometry)[0], rtol=1e-5, atol=1e-6)
    gx = cpu.pool2d_backward("average", gy, None, x.shape, geometry)
    wide = reference.pool2d_backward("average", gy.astype(np.float64), None, x.shape, geometry)
    np.testing.assert_allclose(gx, wide, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "geometry",
    [
        darknet_pooling(13, 13, 2, 1),
        darknet_pooling(13, 13, 2, 2),
        darknet_pooling(13, 13, 13, 1),
        caffe_pooling(13, 13, (3, 3), (2, 2)),
        floor_pooling(13, 13, (3, 3), (2, 2), (1, 1, 1, 1)),
    ],
)
def test_the_rules_of_the_programs(geometry, rng):
    x = rng.standard_normal((2, 32, 13, 13)).astype(np.float32)
    y, indexes = cpu.pool2d("max", x, geometry)
    expected, expected_indexes = reference.pool2d("max", x, geometry)
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(indexes, expected_indexes)


def test_nan_and_infinities():
    """A NaN wins, the first one; minus infinity is still an element; a window without any is the lowest number."""
    x = np.full((1, 17, 4, 4), -np.inf, np.float32)
    x[:, :, 1, 1] = x[:, :, 0, 1] = np.nan
    geometry = PoolGeometry((2, 2), (2, 2), (0, 0), (3, 2))
    y, indexes = cpu.pool2d("max", x, geometry)
    expected, expected_indexes = reference.pool2d("max", x, geometry)
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(indexes, expected_indexes)
    assert np.isnan(y[0, 0, 0, 0])
    assert indexes[0, 0, 0, 0] == 1
    assert (indexes[:, :, 2] == -1).all()


@settings(max_examples=40, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 3), st.integers(1, 35), st.integers(1, 7), st.integers(1, 7)),
    factor=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    scale=st.sampled_from([1.0, -0.5]),
)
def test_resampling_equals_the_reference(shape, factor, scale):
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    y = cpu.upsample2d(x, factor, scale)
    np.testing.assert_array_equal(y, reference.upsample2d(x, factor, scale))
    wide = reference.downsample2d(y.astype(np.float64), factor, scale)
    np.testing.assert_allclose(cpu.downsample2d(y, factor, scale), wide, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(cpu.upsample2d_backward(y, factor, scale), cpu.downsample2d(y, factor, scale))
    np.testing.assert_array_equal(cpu.downsample2d_backward(x, factor, scale), y)


def test_nothing_is_written_outside_and_gradients_can_be_added(rng):
    n, c, h, w = 2, 19, 7, 9
    geometry = floor_pooling(h, w, (3, 2), (2, 1), (1, 1, 0, 1))
    pool = Pool(*geometry.size, *geometry.stride, *geometry.pad)
    x, gx, small = GuardedTensor(n, c, h, w), GuardedTensor(n, c, h, w), GuardedTensor(n, c, h, w)
    y, gy = GuardedTensor(n, c, *geometry.out), GuardedTensor(n, c, *geometry.out)
    large = GuardedTensor(n, c, 2 * h, 3 * w)
    for t in (x, gx, gy, large):
        t.array[:] = rng.standard_normal(t.array.shape)
    before, before_large = gx.array.copy(), large.array.copy()
    indexes = np.zeros((n, *geometry.out, c), np.int32)
    raw.max_forward(x.tensor, y.tensor, indexes.ctypes.data, pool)
    raw.max_backward(gy.tensor, indexes.ctypes.data, gx.tensor, pool, accumulate=True)
    wide = reference.pool2d_backward(
        "max", gy.array.astype(np.float64), indexes.transpose(0, 3, 1, 2), x.array.shape, geometry
    )
    np.testing.assert_allclose(gx.array, before + wide, rtol=1e-5, atol=1e-5)
    raw.max_forward(x.tensor, y.tensor, 0, pool)
    np.testing.assert_array_equal(y.array, reference.pool2d("max", x.array, geometry)[0])
    raw.block_sum(large.tensor, small.tensor, 2, 3, 1.0)
    raw.replicate(small.tensor, large.tensor, 2, 3, 0.5, accumulate=True)
    wide = before_large + reference.upsample2d(reference.downsample2d(before_large, (2, 3)), (2, 3), 0.5)
    np.testing.assert_allclose(large.array, wide, rtol=1e-5, atol=1e-5)
    for t in (x, gx, y, gy, small, large):
        t.check()


def test_shapes_that_do_not_fit_are_refused():
    x, geometry = np.zeros((1, 2, 4, 4), np.float32), PoolGeometry((2, 2), (2, 2), (0, 0), (2, 2))
    with pytest.raises(ShapeError, match="gradient"):
        cpu.pool2d_backward("average", x, None, x.shape, geometry)
    with pytest.raises(ShapeError, match="indexes"):
        cpu.pool2d_backward("max", x[:, :, :2, :2], None, x.shape, geometry)
    with pytest.raises(ShapeError, match="do not belong"):
        cpu.pool2d_backward("max", x[:, :, :2, :2], np.zeros((1, 2, 3, 2), np.int32), x.shape, geometry)
    with pytest.raises(ShapeError, match="divides"):
        cpu.downsample2d(x, (3, 2))


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("channels", [3, 16, 37])
def test_winners_found_again_are_those_of_the_forward_pass(channels, accumulate, rng):
    """Ties and NaN included: the same bits as with indexes."""
    geometry = floor_pooling(6, 8, (2, 2), (2, 2), (0, 0, 0, 0))
    pool = Pool(*geometry.size, *geometry.stride, *geometry.pad)
    assert raw.tiled((6, 8), geometry.out, pool)
    assert not raw.tiled((7, 8), geometry.out, pool)
    x, gy = GuardedTensor(3, channels, 6, 8), GuardedTensor(3, channels, *geometry.out)
    by_indexes, again = GuardedTensor(3, channels, 6, 8), GuardedTensor(3, channels, 6, 8)
    x.array[:] = np.round(rng.standard_normal(x.array.shape))
    x.array[0, 0, 2, 3] = np.nan
    gy.array[:] = rng.standard_normal(gy.array.shape)
    again.array[:] = by_indexes.array[:] = rng.standard_normal(x.array.shape)
    _, indexes = cpu.pool2d("max", x.array, geometry)
    rows = np.ascontiguousarray(indexes.transpose(0, 2, 3, 1))
    raw.max_backward(gy.tensor, rows.ctypes.data, by_indexes.tensor, pool, accumulate=accumulate)
    raw.max_backward_from(gy.tensor, x.tensor, again.tensor, accumulate=accumulate)
    np.testing.assert_array_equal(again.array, by_indexes.array)
    for t in (x, gy, again):
        t.check()
