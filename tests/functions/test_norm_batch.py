"""Batch normalisation against its definition, against Darknet's formulas, and against PyTorch where installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from undertow.core import Variable, check_gradients
from undertow.errors import GraphError, ShapeError
from undertow.functions.norm_batch import (
    BatchNorm,
    BatchNormRule,
    RunningStatistics,
    Scaling,
    batch_norm,
    fixed_batch_norm,
)
from undertow.kernels.reference import darknet_blas

Array = np.ndarray[Any, Any]
SHAPES = [(2, 3, 4, 5), (4, 1, 2, 3), (7, 5), (2, 3, 2, 2, 2)]
DARKNET = BatchNormRule(Scaling(1e-6, "outside", "N-1"), backward=Scaling(1e-5, "inside", "N"))


def arrays(shape: tuple[int, ...], rng: np.random.Generator) -> tuple[Array, Array, Array]:
    return 3 * rng.standard_normal(shape) + 1, rng.uniform(0.5, 2, shape[1]), rng.standard_normal(shape[1])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("placement", ["inside", "outside"])
@pytest.mark.parametrize("divisor", ["N", "N-1"])
def test_forward_is_its_definition(shape: Any, placement: Any, divisor: Any, rng: np.random.Generator) -> None:
    x, gamma, beta = arrays(shape, rng)
    eps = 0.01
    y = batch_norm(x, gamma, beta, BatchNormRule(Scaling(eps, placement, divisor))).data
    for c in range(shape[1]):
        values = x[:, c]
        variance = np.var(values, ddof=1 if divisor == "N-1" else 0)
        deviation = np.sqrt(variance) + eps if placement == "outside" else np.sqrt(variance + eps)
        np.testing.assert_allclose(y[:, c], gamma[c] * (values - values.mean()) / deviation + beta[c], rtol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("placement", ["inside", "outside"])
@pytest.mark.parametrize("divisor", ["N", "N-1"])
def test_gradients_of_both_orders(shape: Any, placement: Any, divisor: Any, rng: np.random.Generator) -> None:
    rule = BatchNormRule(Scaling(0.01, placement, divisor))
    check_gradients(
        lambda x, gamma, beta: batch_norm(x, gamma, beta, rule), arrays(shape, rng), second_order=shape[0] == 4
    )


def test_darknet_backward_is_that_of_its_kernels(rng: np.random.Generator) -> None:
    x, gamma, beta = arrays((3, 4, 2, 5), rng)
    variables = [Variable(a) for a in (x, gamma, beta)]
    function = BatchNorm(DARKNET)
    y = function(*variables)
    y.grad = rng.standard_normal(y.shape)
    y.backward()

    mean = darknet_blas.mean(x)
    variance = darknet_blas.variance(x, mean)
    x_norm = x.copy()
    darknet_blas.normalize(x_norm, mean, variance)
    expected = x_norm.copy()
    darknet_blas.scale_bias(expected, gamma)
    darknet_blas.add_bias(expected, beta)
    np.testing.assert_allclose(y.data, expected, rtol=1e-12)

    bias_updates, scale_updates, delta = np.zeros(4), np.zeros(4), y.grad.copy()
    darknet_blas.backward_bias(bias_updates, delta)
    darknet_blas.backward_scale(x_norm, delta, scale_updates)
    darknet_blas.scale_bias(delta, gamma)
    mean_delta = darknet_blas.mean_delta(delta, variance)
    variance_delta = darknet_blas.variance_delta(x, delta, mean, variance)
    darknet_blas.normalize_delta(x, mean, variance, mean_delta, variance_delta, delta)
    np.testing.assert_allclose(variables[0].grad, delta, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(variables[1].grad, scale_updates, rtol=1e-10)
    np.testing.assert_allclose(variables[2].grad, bias_updates, rtol=1e-10)


def test_darknet_backward_outside_training_uses_the_given_statistics(rng: np.random.Generator) -> None:
    x, gamma, beta = arrays((3, 2, 2, 2), rng)
    mean, variance = rng.standard_normal(2), rng.uniform(0.5, 2, 2)
    variable = Variable(x)
    y = fixed_batch_norm(variable, gamma, beta, mean, variance, DARKNET)
    y.grad = rng.standard_normal(y.shape)
    y.backward()
    delta = y.grad.copy()
    darknet_blas.scale_bias(delta, gamma)
    mean_delta = darknet_blas.mean_delta(delta, variance)
    variance_delta = darknet_blas.variance_delta(x, delta, mean, variance)
    darknet_blas.normalize_delta(x, mean, variance, mean_delta, variance_delta, delta)
    np.testing.assert_allclose(variable.grad, delta, rtol=1e-10, atol=1e-12)


def test_darknet_backward_has_no_second_derivative(rng: np.random.Generator) -> None:
    x = Variable(rng.standard_normal((2, 2, 2, 2)))
    y = batch_norm(x, rule=DARKNET)
    with pytest.raises(GraphError, match="twice"):
        y.backward(create_graph=True)


def test_given_statistics(rng: np.random.Generator) -> None:
    x, gamma, beta = arrays((2, 3, 2, 2), rng)
    mean, variance = rng.standard_normal(3), rng.uniform(0.5, 2, 3)

    def run(x: Variable, gamma: Variable, beta: Variable) -> Variable:
        return fixed_batch_norm(x, gamma, beta, mean, variance)

    expected = [gamma[c] * (x[:, c] - mean[c]) / np.sqrt(variance[c] + 1e-5) + beta[c] for c in range(3)]
    np.testing.assert_allclose(run(*map(Variable, (x, gamma, beta))).data, np.stack(expected, axis=1), rtol=1e-12)
    check_gradients(run, (x, gamma, beta), second_order=True)


@pytest.mark.parametrize(("divisor", "ddof"), [("N", 0), ("N-1", 1)])
def test_running_statistics(divisor: Any, ddof: int, rng: np.random.Generator) -> None:
    x, gamma, beta = arrays((3, 2, 4, 4), rng)
    mean, variance = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    batch_norm(x, gamma, beta, running=RunningStatistics(mean, variance, 0.25, divisor))
    np.testing.assert_allclose(mean, 0.75 * np.array([1, 2]) + 0.25 * x.mean((0, 2, 3)))
    np.testing.assert_allclose(variance, 0.75 * np.array([3, 4]) + 0.25 * x.var((0, 2, 3), ddof=ddof))


def test_running_statistics_of_darknet(rng: np.random.Generator) -> None:
    x, gamma, beta = arrays((3, 2, 4, 4), rng)
    mean, variance = np.zeros(2), np.zeros(2)
    batch_norm(x, gamma, beta, DARKNET, RunningStatistics(mean, variance, momentum=0.01))
    np.testing.assert_allclose(variance, 0.01 * x.var((0, 2, 3), ddof=1))


def test_without_scale_and_shift_the_channels_are_standardised(rng: np.random.Generator) -> None:
    y = batch_norm(3 * rng.standard_normal((4, 3, 5, 5)) - 2).data
    np.testing.assert_allclose(y.mean((0, 2, 3)), 0, atol=1e-12)
    np.testing.assert_allclose(y.var((0, 2, 3)), 1, rtol=1e-4)


@pytest.mark.parametrize("placement", ["inside", "outside"])
def test_a_constant_channel_stays_finite(placement: Any) -> None:
    x = Variable(np.ones((2, 1, 2, 2)))
    y = batch_norm(x, rule=BatchNormRule(Scaling(1e-6, placement)))
    y.grad = np.arange(8.0).reshape(y.shape)
    y.backward()
    np.testing.assert_array_equal(y.data, 0)
    deviation = 1e-6 if placement == "outside" else 1e-3
    np.testing.assert_allclose(x.grad, (y.grad - 3.5) / deviation, rtol=1e-9)


def test_float32_is_accurate_far_from_zero(rng: np.random.Generator) -> None:
    """A mean a thousand times the deviation costs a one-pass variance all its digits."""
    x = (1000 + rng.standard_normal((4, 2, 16, 16))).astype(np.float32)
    y = batch_norm(x)
    assert y.dtype == np.float32
    exact = batch_norm(x.astype(np.float64)).data
    assert np.max(np.abs(y.data - exact)) < 2e-3


@pytest.mark.parametrize(
    "call",
    [
        lambda: batch_norm(np.zeros(3)),
        lambda: batch_norm(np.zeros((2, 3)), np.zeros(2)),
        lambda: batch_norm(np.zeros((2, 3)), np.zeros(3), np.zeros(4)),
        lambda: fixed_batch_norm(np.zeros((2, 3)), None, None, np.zeros(2), np.zeros(3)),
        lambda: batch_norm(np.zeros((1, 3, 1, 1)), rule=BatchNormRule(Scaling(divisor="N-1"))),
    ],
)
def test_what_does_not_fit_is_refused(call: Any) -> None:
    with pytest.raises(ShapeError):
        call()


@pytest.mark.parametrize("training", [True, False])
def test_against_pytorch(training: bool, rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    x, gamma, beta = arrays((3, 4, 5, 2), rng)
    mean, variance = rng.standard_normal(4), rng.uniform(0.5, 2, 4)
    running = torch.tensor(mean), torch.tensor(variance)
    ours = [Variable(a) for a in (x, gamma, beta)]
    theirs = [torch.tensor(a, requires_grad=True) for a in (x, gamma, beta)]
    moved = RunningStatistics(mean, variance, 0.1)
    function = BatchNorm(running=moved) if training else BatchNorm(mean=mean, variance=variance)
    y = function(*ours)
    expected = torch.nn.functional.batch_norm(theirs[0], *running, *theirs[1:], training=training)
    np.testing.assert_allclose(y.data, expected.detach().numpy(), rtol=1e-9, atol=1e-12)
    y.grad = rng.standard_normal(y.shape)
    y.backward()
    expected.backward(torch.tensor(y.grad))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.grad, b.grad.numpy(), rtol=1e-9, atol=1e-12)
    if training:
        np.testing.assert_allclose(mean, running[0].numpy())
        np.testing.assert_allclose(variance, running[1].numpy())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(0, 3, 4, 4), (2, 3, 0, 4), (0, 3)])
def test_an_empty_batch_has_no_statistics(dtype: Any, shape: tuple[int, ...]) -> None:
    one = np.ones(3, dtype)
    with pytest.raises(ShapeError, match=r"no value in an input of \(.*To mend it: leave out empty batches"):
        batch_norm(np.zeros(shape, dtype), one, one)
