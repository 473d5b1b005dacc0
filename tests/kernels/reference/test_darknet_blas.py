"""Darknet's array kernels against their formulas written out with indexes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from undertow.errors import ShapeError
from undertow.kernels.reference import darknet_blas as blas

SHAPES = [(4, 3), (2, 3, 5), (3, 2, 4, 5)]


def places(shape):
    """All (b, i, j) of an image-like array, j counting its spatial positions."""
    return np.ndindex(shape[0], shape[1], math.prod(shape[2:]))


def flat(x):
    return x.reshape(x.shape[0], x.shape[1], -1)


@pytest.fixture(params=SHAPES, ids=str)
def x(request, rng):
    return rng.standard_normal(request.param)


def test_fill_writes_every_incx_th_element():
    x = np.zeros(7)
    blas.fill(3, 2.5, x, 3)
    np.testing.assert_array_equal(x, [2.5, 0, 0, 2.5, 0, 0, 2.5])


def test_copy_steps_in_both_arrays():
    y = np.zeros((2, 3))
    blas.copy(3, np.arange(1.0, 6.0), 2, y, 1)
    np.testing.assert_array_equal(y, [[1, 3, 5], [0, 0, 0]])


def test_axpy_adds_a_multiple():
    y = np.ones(5)
    blas.axpy(2, -2, np.array([1.0, 9.0, 3.0]), 2, y, 3)
    np.testing.assert_array_equal(y, [-1, 1, 1, -5, 1])


def test_scal_multiplies():
    x = np.arange(6.0)
    blas.scal(3, 10, x, 2)
    np.testing.assert_array_equal(x, [0, 1, 20, 3, 40, 5])


def test_nothing_is_done_for_no_elements():
    x = np.ones(2)
    blas.fill(0, 5, x)
    blas.axpy(0, 5, x, 1, x, 1)
    np.testing.assert_array_equal(x, [1, 1])


@pytest.mark.parametrize(
    ("n", "x", "increment", "message"),
    [
        (3, np.zeros(4), 2, "x has 4 elements; 3 with increment 2 need 5"),
        (1, np.zeros(4), 0, "at least 1"),
        (1, np.zeros((2, 3)).T, 1, "not C-contiguous"),
    ],
)
def test_what_the_c_code_would_write_outside_is_refused(n, x, increment, message):
    for call in (lambda: blas.fill(n, 1, x, increment), lambda: blas.scal(n, 1, x, increment)):
        with pytest.raises(ShapeError, match=message):
            call()


def test_add_bias_and_scale_bias(x):
    per_filter = np.arange(1.0, x.shape[1] + 1)
    added, scaled = x.copy(), x.copy()
    blas.add_bias(added, per_filter)
    blas.scale_bias(scaled, per_filter)
    for b, i, j in places(x.shape):
        assert flat(added)[b, i, j] == flat(x)[b, i, j] + per_filter[i]
        assert flat(scaled)[b, i, j] == flat(x)[b, i, j] * per_filter[i]


def test_backward_bias_and_backward_scale_add_up(x, rng):
    x_norm = rng.standard_normal(x.shape)
    bias_updates, scale_updates = rng.standard_normal((2, x.shape[1]))
    expected_bias, expected_scale = bias_updates.copy(), scale_updates.copy()
    for b, i, j in places(x.shape):
        expected_bias[i] += flat(x)[b, i, j]
        expected_scale[i] += flat(x)[b, i, j] * flat(x_norm)[b, i, j]
    blas.backward_bias(bias_updates, x)
    blas.backward_scale(x_norm, x, scale_updates)
    np.testing.assert_allclose(bias_updates, expected_bias, rtol=1e-12)
    np.testing.assert_allclose(scale_updates, expected_scale, rtol=1e-12)


@pytest.mark.parametrize(("divisor", "less"), [("N-1", 1), ("N", 0)])
def test_mean_and_variance(x, divisor, less):
    mean = blas.mean(x)
    variance = blas.variance(x, mean, divisor)
    for i in range(x.shape[1]):
        values = [flat(x)[b, f, j] for b, f, j in places(x.shape) if f == i]
        expected = math.fsum(values) / len(values)
        assert mean[i] == pytest.approx(expected, rel=1e-12)
        squares = math.fsum((v - expected) ** 2 for v in values)
        assert variance[i] == pytest.approx(squares / (len(values) - less), rel=1e-12)


@pytest.mark.parametrize(
    ("epsilon", "placement", "first"), [(1e-6, "outside", -1.069044396), (1e-5, "inside", -1.069043440)]
)
def test_the_two_places_of_epsilon_differ_where_published_numbers_do(epsilon, placement, first):
    x = np.array([1.0, 2, 3, 6]).reshape(1, 1, 2, 2)
    mean = blas.mean(x)
    variance = blas.variance(x, mean, "N")
    assert (mean[0], variance[0]) == (3, 3.5)
    blas.normalize(x, mean, variance, epsilon, placement)
    assert x[0, 0, 0, 0] == pytest.approx(first, abs=5e-10)


def test_variance_of_a_single_value_is_refused():
    x = np.ones((1, 2, 1, 1))
    with pytest.raises(ShapeError, match="one value per filter"):
        blas.variance(x, blas.mean(x))
    np.testing.assert_array_equal(blas.variance(x, blas.mean(x), "N"), [0, 0])


@pytest.mark.parametrize(
    ("options", "divisor"),
    [
        ({}, lambda v: math.sqrt(v) + 1e-6),
        ({"epsilon": 1e-2, "placement": "inside"}, lambda v: math.sqrt(v + 1e-2)),
    ],
)
def test_normalize(x, options, divisor):
    mean, variance = blas.mean(x), blas.variance(x, blas.mean(x))
    normalized = x.copy()
    blas.normalize(normalized, mean, variance, **options)
    for b, i, j in places(x.shape):
        expected = (flat(x)[b, i, j] - mean[i]) / divisor(variance[i])
        assert flat(normalized)[b, i, j] == pytest.approx(expected, rel=1e-12, abs=1e-14)


def test_the_three_deltas_of_batch_norm(x, rng):
    delta = rng.standard_normal(x.shape)
    mean, variance = blas.mean(x), blas.variance(x, blas.mean(x))
    count = x.shape[0] * math.prod(x.shape[2:])
    mean_delta = blas.mean_delta(delta, variance)
    variance_delta = blas.variance_delta(x, delta, mean, variance)
    result = delta.copy()
    blas.normalize_delta(x, mean, variance, mean_delta, variance_delta, result)
    expected_mean, expected_variance = np.zeros((2, x.shape[1]))
    for b, i, j in places(x.shape):
        expected_mean[i] += flat(delta)[b, i, j] * (-1 / math.sqrt(variance[i] + 1e-5))
        centred = flat(x)[b, i, j] - mean[i]
        expected_variance[i] += flat(delta)[b, i, j] * centred * -0.5 * (variance[i] + 1e-5) ** -1.5
    np.testing.assert_allclose(mean_delta, expected_mean, rtol=1e-11)
    np.testing.assert_allclose(variance_delta, expected_variance, rtol=1e-11)
    for b, i, j in places(x.shape):
        expected = (
            flat(delta)[b, i, j] / math.sqrt(variance[i] + 1e-5)
            + expected_variance[i] * 2 * (flat(x)[b, i, j] - mean[i]) / count
            + expected_mean[i] / count
        )
        assert flat(result)[b, i, j] == pytest.approx(expected, rel=1e-11, abs=1e-13)


def test_float32_sums_are_as_good_as_float32_can_be(rng):
    x = (rng.standard_normal((8, 2, 200, 200)) + 100).astype(np.float32)
    exact = x.astype(np.float64).mean(axis=(0, 2, 3))
    mean = blas.mean(x)
    assert mean.dtype == np.float32
    np.testing.assert_allclose(mean, exact, rtol=2e-7)
    variance = blas.variance(x, mean)
    np.testing.assert_allclose(variance, x.astype(np.float64).var(axis=(0, 2, 3), ddof=1), rtol=1e-6)


@settings(max_examples=80, deadline=None)
@given(
    st.integers(1, 2),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
    st.sampled_from([(1, 1), (0.7, -0.4)]),
    st.integers(0, 2**32 - 1),
)
def test_shortcut_follows_the_index_formula(batch, channels, heights, widths, scales, seed):
    (c1, c2), (h1, h2), (w1, w2), (s1, s2) = channels, heights, widths, scales
    rng = np.random.default_rng(seed)
    add, out = rng.standard_normal((batch, c1, h1, w1)), rng.standard_normal((batch, c2, h2, w2))
    stride, sample = w1 // w2, w2 // w1
    if stride != h1 // h2 or sample != h2 // h1:
        with pytest.raises(ShapeError, match="same integer ratio"):
            blas.shortcut(add, out, s1, s2)
        return
    stride, sample = max(stride, 1), max(sample, 1)
    expected, source = out.copy().reshape(-1), add.reshape(-1)
    for b, k, j, i in np.ndindex(batch, min(c1, c2), min(h1, h2), min(w1, w2)):
        out_index = i * sample + w2 * (j * sample + h2 * (k + c2 * b))
        add_index = i * stride + w1 * (j * stride + h1 * (k + c1 * b))
        expected[out_index] = s1 * expected[out_index] + s2 * source[add_index]
    blas.shortcut(add, out, s1, s2)
    np.testing.assert_allclose(out.reshape(-1), expected, rtol=1e-14, atol=1e-15)


def test_shortcut_examples():
    out = np.zeros((1, 1, 4, 4))
    blas.shortcut(np.ones((1, 2, 2, 2)), out)
    np.testing.assert_array_equal(out[0, 0], np.outer([1, 0, 1, 0], [1, 0, 1, 0]))
    with pytest.raises(ShapeError, match="ratio"):
        blas.shortcut(np.ones((1, 1, 4, 2)), np.ones((1, 1, 2, 4)))
    with pytest.raises(ShapeError, match="equal batches"):
        blas.shortcut(np.ones((2, 1, 2, 2)), np.ones((1, 1, 2, 2)))


def test_filters_that_do_not_fit_are_refused():
    with pytest.raises(ShapeError, match=r"no \(4,\) filters"):
        blas.add_bias(np.ones((2, 3, 4)), np.ones(4))


def test_float32_stays_float32(rng):
    x = rng.standard_normal((2, 3, 4)).astype(np.float32)
    mean = blas.mean(x)
    variance = blas.variance(x, mean)
    mean_delta = blas.mean_delta(x, variance)
    variance_delta = blas.variance_delta(x, x, mean, variance)
    assert {a.dtype for a in (mean, variance, mean_delta, variance_delta)} == {np.dtype(np.float32)}
