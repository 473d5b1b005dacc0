"""Pooling: the three rules for window and output size, and both kinds against a loop nest and PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.kernels.reference import direct
from undertow.errors import ShapeError
from undertow.kernels.geometry import PoolGeometry, caffe_pooling, darknet_pooling, floor_pooling
from undertow.kernels.reference import pooling

pairs = st.tuples(st.integers(1, 4), st.integers(1, 4))


@st.composite
def problems(draw):
    """(x, geometry) with any geometry, also such as no rule gives; values repeat, so that ties are common."""
    geometry = PoolGeometry(
        size=draw(pairs),
        stride=draw(pairs),
        pad=draw(st.tuples(st.integers(0, 4), st.integers(0, 4))),
        out=draw(pairs),
        end_pad=draw(st.tuples(st.integers(0, 4), st.integers(0, 4))),
        count_include_pad=draw(st.booleans()),
    )
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = (draw(st.integers(1, 2)), draw(st.integers(1, 2)), *draw(pairs))
    return rng.integers(-3, 3, shape).astype(float), geometry


@settings(max_examples=100, deadline=None)
@given(problems())
def test_max_pooling_equals_the_loop_nest(problem):
    x, geometry = problem
    y, indexes = pooling.max_pool2d(x, geometry)
    expected, expected_indexes = direct.max_pool(x, geometry)
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(indexes, expected_indexes)


@settings(max_examples=100, deadline=None)
@given(problems(), st.sampled_from([np.nan, -np.inf, np.inf]), st.integers(0, 2**32 - 1))
def test_max_pooling_with_values_that_are_not_numbers(problem, value, seed):
    x, geometry = problem
    x[np.random.default_rng(seed).random(x.shape) < 0.5] = value
    y, indexes = pooling.max_pool2d(x, geometry)
    expected, expected_indexes = direct.max_pool(x, geometry)
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(indexes, expected_indexes)


@settings(max_examples=100, deadline=None)
@given(problems(), st.integers(0, 2**32 - 1))
def test_max_pooling_backward_adds_at_the_winners(problem, seed):
    x, geometry = problem
    y, indexes = pooling.max_pool2d(x, geometry)
    gy = np.random.default_rng(seed).standard_normal(y.shape)
    expected = np.zeros((*x.shape[:2], x.shape[2] * x.shape[3]))
    for b, c, p, q in np.ndindex(y.shape):
        if indexes[b, c, p, q] >= 0:
            expected[b, c, indexes[b, c, p, q]] += gy[b, c, p, q]
    gx = pooling.pool2d_backward("max", gy, indexes, x.shape, geometry)
    np.testing.assert_allclose(gx, expected.reshape(x.shape), rtol=1e-13, atol=1e-13)
    z = np.random.default_rng(seed + 1).standard_normal(x.shape)
    gathered = pooling.max_pool2d_gather(z, indexes)
    assert abs(np.sum(gathered * gy) - np.sum(z * gx)) < 1e-12 * (1 + np.abs(z * gx).sum())
    seen = indexes >= 0
    np.testing.assert_array_equal(pooling.max_pool2d_gather(x, indexes)[seen], y[seen])


@settings(max_examples=100, deadline=None)
@given(problems(), st.integers(0, 2**32 - 1))
def test_average_pooling_equals_the_loop_nest_and_its_backward_is_its_adjoint(problem, seed):
    x, geometry = problem
    y = pooling.average_pool2d(x, geometry)
    np.testing.assert_allclose(y, direct.average_pool(x, geometry), rtol=1e-13, atol=1e-13)
    gy = np.random.default_rng(seed).standard_normal(y.shape)
    gx = pooling.average_pool2d_backward(gy, x.shape, geometry)
    assert gx.shape == x.shape
    assert abs(np.sum(y * gy) - np.sum(x * gx)) < 1e-12 * (1 + np.abs(y * gy).sum())


@settings(max_examples=60, deadline=None)
@given(pairs, pairs, st.booleans(), st.booleans(), st.data())
def test_both_kinds_equal_pytorch(size, stride, ceil, count_include_pad, data):
    torch = pytest.importorskip("torch")
    pad = tuple(data.draw(st.integers(0, k // 2)) for k in size)
    height, width = (data.draw(st.integers(k, 9)) for k in size)
    x = torch.randn(2, 3, height, width, dtype=torch.float64, requires_grad=True)
    most = torch.nn.functional.max_pool2d(x, size, stride, pad, ceil_mode=ceil, return_indices=True)
    mean = torch.nn.functional.avg_pool2d(x, size, stride, pad, ceil_mode=ceil, count_include_pad=count_include_pad)
    geometry = PoolGeometry(size, stride, pad, tuple(mean.shape[2:]), pad, count_include_pad)
    if not ceil:
        pads = (pad[0], pad[0], pad[1], pad[1])
        assert floor_pooling(height, width, size, stride, pads, count_include_pad) == geometry
    array = x.detach().numpy()
    y, indexes = pooling.pool2d("max", array, geometry)
    np.testing.assert_array_equal(y, most[0].detach().numpy())
    np.testing.assert_array_equal(indexes, most[1].numpy())
    average, none = pooling.pool2d("average", array, geometry)
    assert none is None
    np.testing.assert_allclose(average, mean.detach().numpy(), rtol=1e-13, atol=1e-14)
    gy = torch.randn_like(mean)
    for kind, output in (("max", most[0]), ("average", mean)):
        x.grad = None
        output.backward(gy, retain_graph=True)
        gx = pooling.pool2d_backward(kind, gy.numpy(), indexes, array.shape, geometry)
        np.testing.assert_allclose(gx, x.grad.numpy(), rtol=1e-12, atol=1e-13)


def test_caffes_rule_rounds_up_and_drops_a_last_window_that_starts_outside():
    assert caffe_pooling(8, 8, (3, 3), (2, 2)).out == (4, 4)
    assert caffe_pooling(8, 8, (3, 3), (2, 2), (1, 1)).out == (5, 5)
    assert caffe_pooling(8, 8, (3, 3), (2, 2), round_up=False).out == (3, 3)
    assert caffe_pooling(7, 7, (2, 2), (2, 2), (1, 1)).out == (4, 4)  # ceil(7/2)+1 = 5 starts at 8 = 7+1
    assert caffe_pooling(4, 4, (2, 2), (4, 4), (0, 1)).out == (1, 2)  # padding in one direction drops in both
    assert caffe_pooling(2, 2, (3, 3), (2, 2)).out == (1, 1)  # the window is larger than the image


def test_caffes_average_divides_by_the_window_clipped_at_the_padding():
    geometry = caffe_pooling(8, 8, (3, 3), (2, 2), (1, 1))
    y = pooling.average_pool2d(np.ones((1, 1, 8, 8)), geometry)[0, 0]
    along = np.array([2 / 3, 1, 1, 1, 1 / 2])  # the last window covers 7, 8 (padding) and nothing more
    np.testing.assert_allclose(y, np.outer(along, along), rtol=1e-15)


def test_a_caffe_window_that_sees_nothing_is_defined():
    geometry = caffe_pooling(4, 4, (2, 2), (4, 4))
    assert geometry.out == (2, 2)
    x = np.ones((1, 1, 4, 4), np.float32)
    y, indexes = pooling.max_pool2d(x, geometry)
    lowest = np.finfo(np.float32).min
    np.testing.assert_array_equal(y[0, 0], [[1, lowest], [lowest, lowest]])
    np.testing.assert_array_equal(indexes[0, 0], [[0, -1], [-1, -1]])
    np.testing.assert_array_equal(pooling.average_pool2d(x, geometry)[0, 0], [[1, 0], [0, 0]])
    gx = pooling.max_pool2d_backward(np.ones_like(y), indexes, x.shape)
    assert gx.sum() == 1
    assert gx[0, 0, 0, 0] == 1


def test_darknets_rule_with_its_default_padding():
    assert darknet_pooling(3, 3, 2, 1) == PoolGeometry((2, 2), (1, 1), (0, 0), (3, 3), (1, 1))
    assert darknet_pooling(13, 13, 5, 1) == PoolGeometry((5, 5), (1, 1), (2, 2), (13, 13), (2, 2))
    assert darknet_pooling(7, 9, 2, 2).out == (4, 5)
    assert darknet_pooling(7, 9, 2, 2, padding=0).out == (3, 4)
    assert darknet_pooling(4, 4, 1, 1) == PoolGeometry((1, 1), (1, 1), (0, 0), (4, 4))
    assert darknet_pooling(1, 1, 3, 4, padding=0).out == (1, 1)  # C divides towards zero


def test_darknets_padding_is_minus_infinity():
    x = -np.arange(1.0, 10.0).reshape(1, 1, 3, 3)
    y, _ = pooling.max_pool2d(x, darknet_pooling(3, 3, 2, 1))
    np.testing.assert_array_equal(y, x)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 12), st.integers(1, 5), st.integers(1, 4), st.integers(0, 3))
def test_caffes_rule_counts_windows_as_described(length, size, stride, pad):
    """The windows that the rule keeps, found by walking along instead of by dividing."""
    assume(pad < size)
    assume(length + 2 * pad >= size)
    starts = [-pad]
    while starts[-1] + size < length + pad:
        starts.append(starts[-1] + stride)
    if pad:
        starts = [s for s in starts if s < length]
    assert caffe_pooling(length, length, (size, size), (stride, stride), (pad, pad)).out[0] == len(starts)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_type_stays(rng, dtype):
    x = rng.standard_normal((2, 3, 5, 4)).astype(dtype)
    geometry = floor_pooling(5, 4, (3, 2), (2, 1), (1, 0, 0, 1))
    for kind in ("max", "average"):
        y, indexes = pooling.pool2d(kind, x, geometry)
        gx = pooling.pool2d_backward(kind, y, indexes, x.shape, geometry)
        assert y.dtype == gx.dtype == dtype
        assert y.flags.c_contiguous
        assert gx.flags.c_contiguous
    assert pooling.max_pool2d(x, geometry)[1].dtype == np.int32


def test_what_does_not_fit_is_refused():
    with pytest.raises(ShapeError, match="does not fit"):
        floor_pooling(2, 2, (3, 3), (1, 1))
    with pytest.raises(ShapeError, match="does not fit"):
        caffe_pooling(1, 1, (4, 4), (2, 2))
    with pytest.raises(ShapeError, match="smaller than its window"):
        caffe_pooling(8, 8, (2, 2), (2, 2), (2, 2))
    with pytest.raises(ShapeError, match="does not fit"):
        darknet_pooling(1, 1, 3, 1, padding=0)
    with pytest.raises(ShapeError, match="at least 0"):
        darknet_pooling(4, 4, 2, 2, padding=-1)
    geometry = floor_pooling(4, 4, (2, 2), (2, 2))
    with pytest.raises(ShapeError, match="batch, channels"):
        pooling.max_pool2d(np.ones((4, 4)), geometry)
    with pytest.raises(ShapeError, match="1x1x2x2"):
        pooling.average_pool2d_backward(np.ones((1, 1, 3, 2)), (1, 1, 4, 4), geometry)
    with pytest.raises(ShapeError, match="indexes"):
        pooling.pool2d_backward("max", np.ones((1, 1, 2, 2)), None, (1, 1, 4, 4), geometry)
