"""Softmax and log-softmax against plain sums of exponentials and central differences."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.kernels.reference.numeric import numeric_gradient
from undertow.kernels.reference.softmax import (
    log_softmax,
    log_softmax_backward,
    softmax,
    softmax_backward,
)

CASES = pytest.mark.parametrize(("shape", "axis"), [((3, 5), 1), ((2, 3, 4), 1), ((2, 3, 4), -1), ((4,), 0)])


@CASES
def test_values(shape, axis, rng):
    x = rng.standard_normal(shape) * 3
    y, logarithm = softmax(x, axis), log_softmax(x, axis)
    lines = zip(*(np.moveaxis(a, axis, -1).reshape(-1, shape[axis]) for a in (x, y, logarithm)), strict=True)
    for line, result, log_result in lines:
        total = math.fsum(math.exp(v) for v in line)
        np.testing.assert_allclose(result, [math.exp(v) / total for v in line], rtol=1e-13)
        np.testing.assert_allclose(log_result, [v - math.log(total) for v in line], rtol=1e-12, atol=1e-13)


@CASES
def test_backward_is_the_derivative(shape, axis, rng):
    x, gy = rng.standard_normal((2, *shape))
    for forward, backward in ((softmax, softmax_backward), (log_softmax, log_softmax_backward)):
        actual = backward(gy, forward(x, axis), axis)
        expected = numeric_gradient(lambda x, forward=forward: forward(x, axis), x, gy)
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-9)


def test_large_values_do_not_overflow():
    x = np.array([[1e4, 0.0, -1e4]], np.float32)
    with np.errstate(all="raise", under="ignore"):
        np.testing.assert_array_equal(softmax(x), [[1, 0, 0]])
        np.testing.assert_array_equal(log_softmax(x), [[0, -1e4, -2e4]])
    assert softmax(x).dtype == log_softmax(x).dtype == np.float32
