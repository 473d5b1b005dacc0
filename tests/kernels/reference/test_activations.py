"""Darknet's activations against the C formulas in plain Python floats, and against central differences."""

from __future__ import annotations

import math

import numpy as np
import pytest

from undertow.errors import UndertowError
from undertow.kernels.reference.activations import (
    ACTIVATIONS,
    activate,
    gradient,
    kinks_between,
    true_gradient,
)


def stair(x):
    n = math.floor(x)
    return math.floor(x / 2) if n % 2 == 0 else (x - n) + math.floor(x / 2)


def plse(x):
    if x < -4:
        return 0.01 * (x + 4)
    return 0.01 * (x - 4) + 1 if x > 4 else 0.125 * x + 0.5


def lhtan(x):
    if x < 0:
        return 0.001 * x
    return 0.001 * (x - 1) + 1 if x > 1 else x


# name -> (value at x, gradient from y), as activations.h has them
FORMULAS = {
    "logistic": (lambda x: 1 / (1 + math.exp(-x)), lambda y: (1 - y) * y),
    "loggy": (lambda x: 2 / (1 + math.exp(-x)) - 1, lambda y: 2 * (1 - (y + 1) / 2) * (y + 1) / 2),
    "relu": (lambda x: x * (x > 0), lambda y: float(y > 0)),
    "elu": (lambda x: (x >= 0) * x + (x < 0) * (math.exp(x) - 1), lambda y: (y >= 0) + (y < 0) * (y + 1)),
    "selu": (
        lambda x: (x >= 0) * 1.0507 * x + (x < 0) * 1.0507 * 1.6732 * (math.exp(x) - 1),
        lambda y: (y >= 0) * 1.0507 + (y < 0) * (y + 1.0507 * 1.6732),
    ),
    "relie": (lambda x: x if x > 0 else 0.01 * x, lambda y: 1 if y > 0 else 0.01),
    "ramp": (lambda x: x * (x > 0) + 0.1 * x, lambda y: (y > 0) + 0.1),
    "linear": (lambda x: x, lambda y: 1),
    "tanh": (lambda x: (math.exp(2 * x) - 1) / (math.exp(2 * x) + 1), lambda y: 1 - y * y),
    "plse": (plse, lambda y: 0.01 if y < 0 or y > 1 else 0.125),
    "leaky": (lambda x: x if x > 0 else 0.1 * x, lambda y: 1 if y > 0 else 0.1),
    "stair": (stair, lambda y: 0 if math.floor(y) == y else 1),
    "hardtan": (lambda x: max(-1, min(1, x)), lambda y: 1 if -1 < y < 1 else 0),
    "lhtan": (lhtan, lambda y: 1 if 0 < y < 1 else 0.001),
}
POINTS = np.concatenate([np.linspace(-9, 9, 721), [-1e-3, 1e-3]])
names = pytest.mark.parametrize("name", sorted(FORMULAS))


def away_from_kinks(name, x, margin):
    """The points of x at which no kink lies within the margin."""
    kinks = np.array(kinks_between(name, x.min() - 1, x.max() + 1))
    return x if not kinks.size else x[np.abs(x[:, None] - kinks).min(axis=1) > margin]


def test_every_activation_of_darknet_is_here():
    assert set(ACTIVATIONS) == set(FORMULAS)


@names
def test_value_and_gradient_equal_the_c_formulas(name):
    forward, from_output = FORMULAS[name]
    y = activate(POINTS, name)
    np.testing.assert_allclose(y, [forward(v) for v in POINTS.tolist()], rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(gradient(y, name), [from_output(v) for v in y.tolist()], rtol=1e-12, atol=1e-15)


@names
def test_the_true_gradient_is_the_central_difference(name):
    step = 1e-6
    x = away_from_kinks(name, POINTS, 2 * step)
    difference = (activate(x + step, name) - activate(x - step, name)) / (2 * step)
    # elu's derivative has a corner at 0, where the central difference is off by step / 4.
    np.testing.assert_allclose(true_gradient(x, name), difference, rtol=0, atol=3e-7)


@names
def test_the_true_gradient_jumps_at_every_kink_and_nowhere_else(name):
    tiny = 1e-9
    jumps = np.abs(true_gradient(POINTS + tiny, name) - true_gradient(POINTS - tiny, name)) > 1e-3
    found = sorted(POINTS[jumps])
    np.testing.assert_allclose(found, kinks_between(name, -9, 9), atol=1e-12)


@names
def test_both_gradients_agree_away_from_kinks(name):
    x = away_from_kinks(name, POINTS, 1e-6)
    np.testing.assert_allclose(gradient(activate(x, name), name), true_gradient(x, name), rtol=0, atol=1e-12)


@names
def test_both_gradients_take_the_same_side_of_a_kink(name):
    x = np.array(kinks_between(name, -9, 9))
    np.testing.assert_allclose(gradient(activate(x, name), name), true_gradient(x, name), rtol=1e-12)


@names
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_type_and_shape_stay_and_far_values_are_finite(name, dtype):
    x = np.array([[-1e4, -90, -1, 0], [0.5, 1, 90, 1e4]], dtype)
    with np.errstate(all="raise", under="ignore"):
        y = activate(x, name)
        gradients = [gradient(y, name), true_gradient(x, name)]
    for result in (y, *gradients):
        assert result.dtype == dtype
        assert result.shape == x.shape
        assert np.isfinite(result).all()
    assert activate(np.array(0.5, dtype), name).dtype == dtype


@names
def test_the_result_is_a_new_array(name):
    x = np.linspace(-2, 2, 9)
    before = x.copy()
    activate(x, name)[...] = 7
    gradient(x, name)[...] = 7
    np.testing.assert_array_equal(x, before)


@names
def test_not_a_number_stays_visible(name):
    with np.errstate(invalid="ignore"):
        assert np.isnan(activate(np.array([np.nan]), name)[0])


def test_unknown_names_and_integers_are_refused():
    with pytest.raises(UndertowError, match=r"no activation 'mash'.*logistic"):
        activate(np.zeros(1), "mash")
    with pytest.raises(TypeError, match="floats, got int"):
        activate(np.zeros(1, int), "relu")
