"""Batch norm: forward against its formula, the exact backward of every scaling against central differences,
Darknet's against the chain of its array kernels, and PyTorch where installed."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from tests.kernels.reference.numeric import numeric_gradient
from undertow.errors import ShapeError
from undertow.kernels.reference import darknet_blas as blas
from undertow.kernels.reference.batchnorm import (
    DARKNET_CPU,
    EXACT,
    BatchNormRule,
    Scaling,
    batch_norm,
    batch_norm_backward,
    batch_norm_inference,
    batch_norm_inference_backward,
)

SCALINGS = [Scaling(0.1, *choice) for choice in itertools.product(["inside", "outside"], ["N", "N-1"])]
SHAPES = [(4, 3), (2, 3, 4), (3, 2, 2, 3)]
scalings = pytest.mark.parametrize("scaling", SCALINGS, ids=lambda s: f"{s.placement} {s.divisor}")
shapes = pytest.mark.parametrize("shape", SHAPES, ids=str)


@pytest.fixture
def problem(shape, rng):
    """(x, gy, gamma, beta), channels with means away from 0."""
    x = rng.standard_normal(shape) + np.arange(shape[1]).reshape(-1, *(1,) * (len(shape) - 2))
    return x, rng.standard_normal(shape), rng.standard_normal(shape[1]), rng.standard_normal(shape[1])


@shapes
@scalings
def test_forward_is_its_formula(problem, scaling):
    x, _, gamma, beta = problem
    y, x_hat, mean, variance = batch_norm(x, gamma, beta, BatchNormRule(scaling))
    for c in range(x.shape[1]):
        values = x[:, c].reshape(-1).tolist()
        count = len(values) - (scaling.divisor == "N-1")
        m = math.fsum(values) / len(values)
        v = math.fsum((a - m) ** 2 for a in values) / count
        s = math.sqrt(v + 0.1) if scaling.placement == "inside" else math.sqrt(v) + 0.1
        assert mean[c] == pytest.approx(m, rel=1e-12)
        assert variance[c] == pytest.approx(v, rel=1e-12)
        np.testing.assert_allclose(x_hat[:, c], (x[:, c] - m) / s, rtol=1e-11, atol=1e-13)
        np.testing.assert_allclose(y[:, c], gamma[c] * (x[:, c] - m) / s + beta[c], rtol=1e-11, atol=1e-13)


@shapes
@scalings
def test_the_exact_backward_is_the_derivative_of_the_forward(problem, scaling):
    x, gy, gamma, beta = problem
    rule = BatchNormRule(scaling)
    saved = batch_norm(x, gamma, beta, rule)
    gx, ggamma, gbeta = batch_norm_backward(gy, saved.x_hat, gamma, saved.variance, rule)
    expected = numeric_gradient(lambda x: batch_norm(x, gamma, beta, rule).y, x, gy)
    np.testing.assert_allclose(gx, expected, rtol=0, atol=2e-8)
    expected = numeric_gradient(lambda gamma: batch_norm(x, gamma, beta, rule).y, gamma, gy)
    np.testing.assert_allclose(ggamma, expected, rtol=0, atol=2e-8)
    expected = numeric_gradient(lambda beta: batch_norm(x, gamma, beta, rule).y, beta, gy)
    np.testing.assert_allclose(gbeta, expected, rtol=0, atol=2e-8)


@shapes
@scalings
def test_inference_and_its_backward(problem, scaling, rng):
    x, gy, gamma, beta = problem
    mean, variance = rng.standard_normal(x.shape[1]), rng.uniform(0.5, 2, x.shape[1])
    rule = BatchNormRule(scaling)
    y = batch_norm_inference(x, gamma, beta, mean, variance, rule)
    for c in range(x.shape[1]):
        v = variance[c]
        s = math.sqrt(v + 0.1) if scaling.placement == "inside" else math.sqrt(v) + 0.1
        np.testing.assert_allclose(y[:, c], gamma[c] * (x[:, c] - mean[c]) / s + beta[c], rtol=1e-12)
    gradients = batch_norm_inference_backward(gy, x, gamma, mean, variance, rule)
    arguments = {"gx": x, "ggamma": gamma, "gbeta": beta}
    for place, (name, argument) in enumerate(arguments.items()):

        def forward(value, place=place):
            first = [x, gamma, beta]
            first[place] = value
            return batch_norm_inference(*first, mean, variance, rule)

        expected = numeric_gradient(forward, argument, gy)
        np.testing.assert_allclose(getattr(gradients, name), expected, rtol=0, atol=2e-8)


@shapes
def test_darknets_rule_is_the_chain_of_its_array_kernels(problem):
    x, delta, scales, biases = problem
    y, x_norm, mean, variance = batch_norm(x, scales, biases, DARKNET_CPU)
    output = x.copy()
    blas.normalize(output, blas.mean(x), blas.variance(x, blas.mean(x)))
    np.testing.assert_allclose(x_norm, output, rtol=1e-12, atol=1e-14)
    blas.scale_bias(output, scales)
    blas.add_bias(output, biases)
    np.testing.assert_allclose(y, output, rtol=1e-12, atol=1e-14)

    bias_updates, scale_updates = np.zeros((2, x.shape[1]))
    blas.backward_bias(bias_updates, delta)
    blas.backward_scale(x_norm, delta, scale_updates)
    gx, ggamma, gbeta = batch_norm_backward(delta, x_norm, scales, variance, DARKNET_CPU)
    np.testing.assert_allclose(ggamma, scale_updates, rtol=1e-12)
    np.testing.assert_allclose(gbeta, bias_updates, rtol=1e-12)
    blas.scale_bias(delta, scales)
    mean_delta = blas.mean_delta(delta, variance)
    variance_delta = blas.variance_delta(x, delta, mean, variance)
    blas.normalize_delta(x, mean, variance, mean_delta, variance_delta, delta)
    np.testing.assert_allclose(gx, delta, rtol=1e-10, atol=1e-13)


@shapes
def test_pytorch_agrees(problem):
    torch = pytest.importorskip("torch")
    arrays = problem[0], problem[2], problem[3]
    x, gamma, beta = (torch.tensor(a, requires_grad=True) for a in arrays)
    y = torch.nn.functional.batch_norm(x, None, None, gamma, beta, training=True, eps=1e-5)
    y.backward(torch.tensor(problem[1]))
    saved = batch_norm(*arrays, EXACT)
    np.testing.assert_allclose(saved.y, y.detach().numpy(), rtol=1e-11, atol=1e-13)
    gradients = batch_norm_backward(problem[1], saved.x_hat, arrays[1], saved.variance, EXACT)
    for actual, expected in zip(gradients, (x, gamma, beta), strict=True):
        np.testing.assert_allclose(actual, expected.grad.numpy(), rtol=1e-10, atol=1e-12)


@scalings
def test_a_constant_channel_stays_finite(scaling):
    x = np.full((2, 1, 3), 7.0)
    rule = BatchNormRule(scaling)
    saved = batch_norm(x, np.ones(1), np.full(1, 5.0), rule)
    np.testing.assert_array_equal(saved.y, np.full(x.shape, 5.0))
    gy = np.arange(6.0).reshape(x.shape)
    gx = batch_norm_backward(gy, saved.x_hat, np.ones(1), saved.variance, rule).gx
    s = math.sqrt(0.1) if scaling.placement == "inside" else 0.1
    np.testing.assert_allclose(gx, (gy - gy.mean()) / s, rtol=1e-12)


def test_float32_stays_float32_and_is_accurate(rng):
    x = (rng.standard_normal((4, 3, 50, 50)) * 2 + 30).astype(np.float32)
    gamma, beta = rng.standard_normal((2, 3)).astype(np.float32)
    gy = rng.standard_normal(x.shape).astype(np.float32)
    saved = batch_norm(x, gamma, beta)
    gradients = batch_norm_backward(gy, saved.x_hat, gamma, saved.variance)
    exact = batch_norm(x.astype(float), gamma.astype(float), beta.astype(float))
    exact_gradients = batch_norm_backward(gy.astype(float), exact.x_hat, gamma.astype(float), exact.variance)
    for actual, expected in zip((*saved, *gradients), (*exact, *exact_gradients), strict=True):
        assert actual.dtype == np.float32
        np.testing.assert_allclose(actual, expected, rtol=0, atol=4e-6 * np.abs(expected).max())


def test_what_does_not_fit_is_refused():
    with pytest.raises(ShapeError, match="one value per channel"):
        batch_norm(np.ones((2, 3, 4)), np.ones(3), np.ones(4))
    with pytest.raises(ShapeError, match="one value per filter is undefined"):
        batch_norm(np.ones((1, 3)), np.ones(3), np.ones(3), DARKNET_CPU)
