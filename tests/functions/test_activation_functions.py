"""Activations far from 0, against PyTorch where it is installed, and Darknet's with both gradients."""

from __future__ import annotations

import math

import numpy as np
import pytest

import undertow as ut
from undertow import Variable
from undertow.kernels.reference.activations import ACTIVATIONS, kinks_between

EXTREMES = np.array([-1e4, -800.0, -100.0, -40.0, 0.0, 40.0, 100.0, 800.0, 1e4])
SMOOTH = [ut.sigmoid, ut.softplus, ut.gelu, lambda x: ut.gelu(x, approximate=True), ut.swish, ut.mish, ut.elu, ut.selu]


@pytest.mark.parametrize("function", [*SMOOTH, ut.erf, ut.tanh, ut.hard_swish])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nothing_overflows(function, dtype):
    x = Variable(EXTREMES.astype(dtype))
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        y = function(x)
        y.backward()
    assert np.isfinite(y.data).all()
    assert np.isfinite(x.grad).all()


def test_sigmoid_keeps_the_smallest_values():
    y = ut.sigmoid(np.array([-700.0, -50.0, 50.0]))
    np.testing.assert_allclose(y.data, [math.exp(-700), math.exp(-50), 1.0], rtol=1e-14)


def test_softplus_keeps_the_smallest_values():
    y = ut.softplus(np.array([-700.0, -50.0, 700.0]))
    np.testing.assert_allclose(y.data, [math.exp(-700), math.exp(-50), 700.0], rtol=1e-14)


def test_erf_is_right_to_the_last_bits():
    x = np.concatenate([np.linspace(-7, 7, 20_001), [0.46875, -0.46875, 1e-300, -1e-20, np.inf, -np.inf]])
    expected = np.array([math.erf(v) for v in x])
    np.testing.assert_allclose(ut.erf(x).data, expected, rtol=1e-15, atol=0)
    assert np.isnan(ut.erf(np.array([np.nan])).data).all()


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (ut.sigmoid, "sigmoid"),
        (ut.tanh, "tanh"),
        (ut.softplus, "nn.functional.softplus"),
        (ut.relu, "relu"),
        (ut.leaky_relu, "nn.functional.leaky_relu"),
        (ut.elu, "nn.functional.elu"),
        (ut.selu, "nn.functional.selu"),
        (ut.gelu, "nn.functional.gelu"),
        (ut.silu, "nn.functional.silu"),
        (ut.swish, "nn.functional.silu"),
        (ut.mish, "nn.functional.mish"),
        (ut.relu6, "nn.functional.relu6"),
        (ut.hard_sigmoid, "nn.functional.hardsigmoid"),
        (ut.hard_swish, "nn.functional.hardswish"),
        (ut.erf, "erf"),
        (ut.log_softmax, "nn.functional.log_softmax"),
    ],
)
def test_values_and_gradients_of_pytorch(ours, theirs, rng):
    torch = pytest.importorskip("torch")
    function = torch
    for part in theirs.split("."):
        function = getattr(function, part)
    data, seed = rng.uniform(-8, 8, (5, 7)), rng.standard_normal((5, 7))
    x, t = Variable(data), torch.tensor(data, requires_grad=True)
    y = ours(x)
    y.grad = seed
    y.backward()
    expected = function(t) if theirs != "nn.functional.log_softmax" else function(t, dim=1)
    expected.backward(torch.tensor(seed))
    # PyTorch keeps the 1/6 of the hard ones in float32.
    rtol = 1e-7 if "hard" in theirs else 1e-9
    np.testing.assert_allclose(y.data, expected.detach().numpy(), rtol=rtol, atol=1e-12)
    np.testing.assert_allclose(x.grad, t.grad.numpy(), rtol=rtol, atol=1e-12)


def test_the_gelu_approximation_of_pytorch(rng):
    torch = pytest.importorskip("torch")
    data = rng.uniform(-4, 4, 20)
    expected = torch.nn.functional.gelu(torch.tensor(data), approximate="tanh").numpy()
    np.testing.assert_allclose(ut.gelu(data, approximate=True).data, expected, rtol=1e-12)
    assert np.max(np.abs(expected - ut.gelu(data).data)) < 1e-3


def test_selu_keeps_mean_and_variance(rng):
    y = ut.selu(rng.standard_normal(400_000)).data
    assert abs(y.mean()) < 0.01
    assert abs(y.var() - 1) < 0.02


def test_prelu_slopes_that_do_not_fit():
    with pytest.raises(ut.UndertowError, match=r"slopes of shape \(4,\) do not fit the channels"):
        ut.prelu(np.ones((2, 3)), np.ones(4))


# --- Darknet's -----------------------------------------------------------------------------------------------------

NAMES = sorted(ACTIVATIONS)


def test_all_of_darknets_names_are_there():
    expected = "elu hardtan leaky lhtan linear loggy logistic plse ramp relie relu selu stair tanh"
    assert " ".join(NAMES) == expected


@pytest.mark.parametrize("name", [name for name in NAMES if kinks_between(name, -5.0, 5.0)])
def test_the_true_gradient_at_kinks_lies_between_the_two_slopes(name):
    kinks = kinks_between(name, -5.0, 5.0)
    # Stair jumps at some whole numbers, where no slope is right; it is checked beside them.
    points = np.array(kinks) if name != "stair" else np.array(kinks) + 0.01
    report = ut.check_gradients(lambda x: ut.darknet_activation(x, name), [points])
    assert report.kinks == (0 if name == "stair" else len(kinks))


@pytest.mark.parametrize("name", NAMES)
def test_kinks_are_all_listed(name):
    """Wherever the slope jumps on a fine grid, a kink is listed."""
    grid = np.arange(-6, 6, 0.01) + 0.005
    x = Variable(grid)
    ut.darknet_activation(x, name).backward()
    jumps = grid[:-1][np.abs(np.diff(x.grad)) > 0.05] + 0.005
    kinks = np.array(kinks_between(name, -6.0, 6.0))
    assert all(np.min(np.abs(kinks - jump)) < 0.006 for jump in jumps)


@pytest.mark.parametrize("name", NAMES)
def test_both_gradients_agree_away_from_kinks(name, rng):
    points = rng.uniform(-5, 5, 200)
    kinks = np.array([*kinks_between(name, -6.0, 6.0), 100.0])
    points = points[np.min(np.abs(points[:, None] - kinks), axis=1) > 1e-3]
    found = []
    for rule in ("true", "darknet"):
        x = Variable(points)
        ut.darknet_activation(x, name, rule).backward()
        found.append(x.grad)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9, atol=1e-12)


def test_the_darknet_gradient_comes_from_the_output():
    x = Variable(np.array([0.5]))
    y = ut.darknet_activation(x, "logistic", "darknet")
    y.data = np.array([0.25])
    y.backward()
    assert x.grad == 0.25 * 0.75


@pytest.mark.parametrize("name", ["logistic", "loggy", "relie", "ramp", "plse", "leaky", "stair", "hardtan", "lhtan"])
def test_short_names(name, rng):
    x = rng.uniform(-5, 5, 30)
    y = getattr(ut, name)(x)
    np.testing.assert_array_equal(y.data, ut.darknet_activation(x, name).data)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ut.UndertowError, match=r"there is no activation 'leeky'.*logistic, loggy"):
        ut.darknet_activation(np.ones(2), "leeky")
    with pytest.raises(ValueError, match="gradient must be 'true' or 'darknet', got 'exact'"):
        ut.darknet_activation(np.ones(2), "leaky", "exact")


def test_the_label_names_the_activation():
    assert ut.leaky(Variable(np.ones(2))).creator.label == "DarknetActivation(leaky)"
