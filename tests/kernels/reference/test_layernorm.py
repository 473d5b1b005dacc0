"""Layer norm against its formula, central differences and, where installed, PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.reference.numeric import numeric_gradient
from undertow.errors import ShapeError
from undertow.kernels.reference.layernorm import layer_norm, layer_norm_backward

CASES = pytest.mark.parametrize(("shape", "dims"), [((3, 4), 1), ((2, 3, 4), 2), ((5,), 1), ((2, 3, 2, 2), 3)])


@pytest.fixture
def problem(shape, dims, rng):
    gamma, beta = rng.standard_normal((2, *shape[-dims:]))
    return rng.standard_normal(shape) + 3, rng.standard_normal(shape), gamma, beta


@CASES
def test_forward_is_its_formula(problem):
    x, _, gamma, beta = problem
    y = layer_norm(x, gamma, beta, 0.01).y
    rows = x.reshape(-1, gamma.size)
    for row, result in zip(rows, y.reshape(rows.shape), strict=True):
        expected = (row - row.sum() / len(row)) / np.sqrt(row.var() + 0.01) * gamma.reshape(-1) + beta.reshape(-1)
        np.testing.assert_allclose(result, expected, rtol=1e-12, atol=1e-14)


@CASES
def test_backward_is_the_derivative(problem):
    x, gy, gamma, beta = problem
    _, x_hat, deviation = layer_norm(x, gamma, beta)
    gradients = layer_norm_backward(gy, x_hat, deviation, gamma)
    arguments = [x, gamma, beta]
    for place, actual in enumerate(gradients):

        def forward(value, place=place):
            changed = list(arguments)
            changed[place] = value
            return layer_norm(*changed).y

        expected = numeric_gradient(forward, arguments[place], gy)
        assert actual.shape == expected.shape
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-7)


@CASES
def test_pytorch_agrees(problem):
    torch = pytest.importorskip("torch")
    x, gamma, beta = (torch.tensor(problem[i], requires_grad=True) for i in (0, 2, 3))
    y = torch.nn.functional.layer_norm(x, gamma.shape, gamma, beta, 1e-5)
    y.backward(torch.tensor(problem[1]))
    result, x_hat, deviation = layer_norm(problem[0], problem[2], problem[3])
    np.testing.assert_allclose(result, y.detach().numpy(), rtol=1e-12, atol=1e-13)
    for actual, expected in zip(
        layer_norm_backward(problem[1], x_hat, deviation, problem[2]), (x, gamma, beta), strict=True
    ):
        np.testing.assert_allclose(actual, expected.grad.numpy(), rtol=1e-10, atol=1e-12)


def test_float32_stays_float32(rng):
    x = rng.standard_normal((2, 3)).astype(np.float32)
    saved = layer_norm(x, np.ones(3, np.float32), np.zeros(3, np.float32))
    gradients = layer_norm_backward(x, saved.x_hat, saved.deviation, np.ones(3, np.float32))
    assert {a.dtype for a in (*saved, *gradients)} == {np.dtype(np.float32)}


def test_what_does_not_fit_is_refused():
    with pytest.raises(ShapeError, match="trailing dimensions"):
        layer_norm(np.ones((2, 3)), np.ones(2), np.ones(2))
    with pytest.raises(ShapeError, match="trailing dimensions"):
        layer_norm(np.ones((2, 3)), np.ones(3), np.ones(2))
