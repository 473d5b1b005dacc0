"""Activations against float64."""

from __future__ import annotations

import numpy as np
import pytest

from undertow.errors import ShapeError, UndertowError
from undertow.kernels import cpu
from undertow.kernels.reference import activations as reference

X = np.concatenate([np.linspace(-100, 100, 4001), np.linspace(-3, 3, 4001), [0.0, 1e-30, -1e-5, 1e-5, 87.5, -87.5]])
DARKNET = ["relu", "leaky", "relie", "ramp", "logistic", "tanh", "elu"]


def _softplus(x):
    return np.logaddexp(0, x)


def _sigmoid(x):
    return np.exp(-_softplus(-x))


def _mish_slope(x):
    t = np.tanh(_softplus(x))
    return t + x * (1 - t * t) * _sigmoid(x)


OTHERS = {
    "mish": (lambda x: x * np.tanh(_softplus(x)), _mish_slope),
    "swish": (lambda x: x * _sigmoid(x), lambda x: _sigmoid(x) * (1 + x * (1 - _sigmoid(x)))),
}


@pytest.mark.parametrize("name", [*DARKNET, *OTHERS])
def test_values_and_slopes(name):
    x = X.astype(np.float32)
    wide = x.astype(np.float64)
    if name in OTHERS:
        value, slope = (f(wide) for f in OTHERS[name])
    else:
        value, slope = reference.activate(wide, name), reference.true_gradient(wide, name)
    np.testing.assert_allclose(cpu.activate(x, name), value, rtol=1e-6, atol=1e-35)
    gy = np.linspace(-1, 1, x.size).astype(np.float32)
    atol = 3e-7 if name in ("mish", "swish", "tanh") else 1e-7  # slopes near 0 are differences
    np.testing.assert_allclose(cpu.activate_backward(gy, x, name), gy * slope, rtol=1e-5, atol=atol)


@pytest.mark.parametrize("name", DARKNET)
def test_slopes_from_the_output(name):
    y = reference.activate(X, name).astype(np.float32)
    gy = np.linspace(-1, 1, y.size).astype(np.float32)
    expected = gy * reference.gradient(y.astype(np.float64), name)
    np.testing.assert_allclose(cpu.activate_backward(gy, y, name, from_output=True), expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", [*DARKNET, *OTHERS])
def test_nan_stays_and_infinity_passes(name):
    y = cpu.activate(np.array([np.nan, np.inf], np.float32), name)
    assert np.isnan(y[0])
    assert y[1] == (1.0 if name in ("logistic", "tanh") else np.inf)


def test_relu_of_minus_infinity_is_zero():
    assert cpu.activate(np.array([-np.inf], np.float32), "relu")[0] == 0


def test_leaky_of_any_slope(rng):
    x, gy = rng.standard_normal((2, 1001)).astype(np.float32)
    np.testing.assert_array_equal(cpu.broken_line(x, 1.0, 0.25), np.where(x > 0, x, x * np.float32(0.25)))
    expected = gy * np.where(x > 0, np.float32(1), np.float32(0.25))
    np.testing.assert_array_equal(cpu.broken_line_backward(gy, x, 1.0, 0.25), expected)


def test_memory_order_is_kept(rng):
    x = rng.standard_normal((2, 5, 6, 7)).astype(np.float32)
    image = np.ascontiguousarray(x).transpose(0, 3, 1, 2)
    gappy = np.repeat(x, 2, axis=3)[..., ::2]
    for case in (x, image, gappy, x[0, 0, 0], x.transpose(3, 1, 0, 2)):
        y = cpu.activate(case, "leaky")
        np.testing.assert_array_equal(y, np.where(case > 0, case, np.float32(0.1) * case))
        if case is not gappy:
            assert y.strides == case.strides
        gy = np.ascontiguousarray(case) + 1
        gx = cpu.activate_backward(gy, case, "leaky")
        np.testing.assert_array_equal(gx, gy * np.where(case > 0, np.float32(1), np.float32(0.1)))


def test_what_it_knows():
    x = np.zeros(4096, np.float32)
    assert cpu.supports("activate", x, "mish")
    assert not cpu.supports("activate", x, "stair")
    assert not cpu.supports("activate", x[:99], "mish")
    assert not cpu.supports("activate_backward", x, x, "mish", True)
    assert cpu.supports("activate_backward", x, x, "tanh", True)
    with pytest.raises(UndertowError, match="stair"):
        cpu.activate(x, "stair")
    with pytest.raises(ShapeError):
        cpu.activate_backward(x, x[:2], "relu")
