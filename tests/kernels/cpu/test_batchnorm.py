"""Batch normalisation against the reference in float64."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.cpu.definitions import relative_error
from tests.kernels.cpu.guards import GuardedScratch, GuardedTensor
from undertow.errors import ShapeError
from undertow.kernels import cpu, reference
from undertow.kernels.cpu.raw import batchnorm as raw
from undertow.kernels.cpu.raw.batchnorm import Slope
from undertow.kernels.reference.batchnorm import DARKNET_CPU, EXACT, BatchNormRule, Scaling

RULES = [EXACT, DARKNET_CPU, BatchNormRule(Scaling(1e-3, "outside", "N"))]


def _problem(shape, seed=0, mean=0.0):
    rng = np.random.default_rng(seed)
    c = shape[1]
    x = (rng.standard_normal(shape) * 2 + mean).astype(np.float32)
    gamma, beta = rng.uniform(0.5, 2, c).astype(np.float32), rng.standard_normal(c).astype(np.float32)
    return x, gamma, beta, rng.standard_normal(shape).astype(np.float32)


def _wide(*arrays):
    return [a.astype(np.float64) for a in arrays]


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(2, 4),
    c=st.integers(1, 40),
    size=st.one_of(st.none(), st.tuples(st.integers(1, 9), st.integers(1, 9))),
    rule=st.sampled_from(RULES),
)
def test_forward_and_backward_equal_the_reference(n, c, size, rule):
    x, gamma, beta, gy = _problem((n, c, *(size or ())))
    made = cpu.batch_norm(x, gamma, beta, rule)
    wide = reference.batch_norm(*_wide(x, gamma, beta), rule)
    for a, b, atol in zip(made, wide, (2e-5, 1e-5, 1e-6, 1e-5), strict=True):
        assert a.shape == b.shape
        assert a.dtype == np.float32
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=atol)
    gradients = cpu.batch_norm_backward(gy, made.x_hat, gamma, made.variance, rule)
    expected = reference.batch_norm_backward(*_wide(gy, made.x_hat, gamma, made.variance), rule)
    # gx is a difference of three terms: measure against the largest of them, not against what is left.
    terms = [np.abs(gy * (gamma / np.sqrt(made.variance + 1e-6)).reshape(-1, *[1] * (x.ndim - 2))).max(), 1, 1]
    for a, b, term in zip(gradients, expected, terms, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5 * term)


@pytest.mark.parametrize("mean", [0.0, 1000.0])
def test_a_large_mean_costs_no_digits(mean):
    x, gamma, beta, _ = _problem((4, 33, 20, 20), mean=mean)
    made = cpu.batch_norm(x, gamma, beta)
    wide = reference.batch_norm(*_wide(x, gamma, beta))
    np.testing.assert_allclose(made.mean, wide.mean, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(made.variance, wide.variance, rtol=2e-6)


def test_a_constant_channel_has_no_variance():
    x = np.full((2, 5, 8, 8), 0.1, np.float32)
    made = cpu.batch_norm(x, np.ones(5, np.float32), np.zeros(5, np.float32))
    np.testing.assert_allclose(made.variance, 0, atol=1e-12)
    np.testing.assert_allclose(made.y, 0, atol=1e-5)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("shape", [(2, 17, 5, 6), (3, 4)])
def test_inference_equals_the_reference(rule, shape):
    x, gamma, beta, gy = _problem(shape)
    mean, variance = beta * 2, gamma * gamma
    y = cpu.batch_norm_inference(x, gamma, beta, mean, variance, rule)
    wide = reference.batch_norm_inference(*_wide(x, gamma, beta, mean, variance), rule)
    np.testing.assert_allclose(y, wide, rtol=1e-5, atol=1e-5)
    made = cpu.batch_norm_inference_backward(gy, x, gamma, mean, variance, rule)
    wide = reference.batch_norm_inference_backward(*_wide(gy, x, gamma, mean, variance), rule)
    for a, b in zip(made, wide, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("c", [5, 16, 35])
@pytest.mark.parametrize("from_z", [False, True])
def test_fused_passes_of_a_plan(c, from_z, rng):
    """y = BN(x), z = leaky(y) + residual; backward through leaky and batch norm, from x or in place from z."""
    n, h, w, slope = 2, 7, 9, np.float32(0.1)
    x, z, gx = (GuardedTensor(n, c, h, w) for _ in range(3))
    x.array[:] = rng.standard_normal(x.array.shape)
    residual = GuardedTensor(n, c, h, w)
    residual.array[:] = rng.standard_normal(x.array.shape)
    gz = GuardedTensor(n, c, h, w)
    gz.array[:] = rng.standard_normal(x.array.shape)
    gamma, beta = rng.uniform(0.5, 2, c), rng.standard_normal(c)
    wide = reference.batch_norm(x.array.astype(np.float64), gamma, beta)
    inverse = 1 / np.sqrt(wide.variance + 1e-5)
    per_channel = [gamma * inverse, beta - wide.mean * gamma * inverse]
    scale, shift = (a.astype(np.float32) for a in per_channel)
    at = [a.ctypes.data for a in (scale, shift)]
    raw.affine(x.tensor, z.tensor, *at, slope, residual.tensor)
    y = wide.y
    leaky = np.where(y > 0, y, 0.1 * y)
    assert relative_error(z.array, leaky + residual.array) < 1e-6
    raw.affine(x.tensor, z.tensor, *at, slope)

    g = gz.array * np.where(y > 0, 1, 0.1)
    expected = reference.batch_norm_backward(g, wide.x_hat, gamma, wide.variance)
    # x_hat = v * k1 + k0, with v the input x, or y recovered from z.
    k = [1 / gamma, -beta / gamma] if from_z else [inverse, -wide.mean * inverse]
    k1, k0 = (a.astype(np.float32) for a in k)
    leaky_slope = Slope(slope, *at, from_z)
    saved = z if from_z else x
    sums = np.zeros((16, 2, c))
    memory = GuardedScratch()
    raw.backward_sums(gz.tensor, saved.tensor, k1.ctypes.data, k0.ctypes.data, sums.ctypes.data, memory, leaky_slope)
    gbeta, ggamma = sums.sum(0)
    np.testing.assert_allclose(gbeta, expected.gbeta, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(ggamma, expected.ggamma, rtol=1e-4, atol=1e-4)
    a, count = gamma * inverse, n * h * w
    cs = [a, -a * ggamma / count * k1, -a * (gbeta / count + ggamma / count * k0)]
    c1, c2, c3 = (v.astype(np.float32) for v in cs)
    raw.backward(gz.tensor, saved.tensor, gx.tensor, c1.ctypes.data, c2.ctypes.data, c3.ctypes.data, leaky_slope)
    assert relative_error(gx.array, expected.gx) < 1e-5
    for t in (x, z, gx, gz, residual, memory):
        t.check()


def test_same_bits_whatever_the_number_of_threads():
    x, gamma, beta, gy = _problem((3, 21, 30, 31))
    results = []
    try:
        for threads in (1, 2, 3):
            cpu.set_threads(threads)
            made = cpu.batch_norm(x, gamma, beta)
            results.append((*made, *cpu.batch_norm_backward(gy, made.x_hat, gamma, made.variance)))
    finally:
        cpu.set_threads(None)
    for one, two in itertools.pairwise(results):
        for a, b in zip(one, two, strict=True):
            np.testing.assert_array_equal(a, b)


def test_shapes_that_do_not_fit_are_refused():
    x, one = np.zeros((2, 3, 4, 4), np.float32), np.ones(3, np.float32)
    with pytest.raises(ShapeError, match="one value per channel"):
        cpu.batch_norm(x, one[:2], one)
    with pytest.raises(ShapeError, match="differ in shape"):
        cpu.batch_norm_backward(x, x[:1], one, one)
    with pytest.raises(ShapeError, match="N - 1"):
        cpu.batch_norm(x[:1, :, :1, :1], one, one, DARKNET_CPU)
