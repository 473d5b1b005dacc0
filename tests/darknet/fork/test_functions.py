"""The fork's operations against loops and formulas written down here."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from undertow.core import Variable, check_gradients
from undertow.darknet.files.options_layers import FORK_ACTIVATIONS
from undertow.darknet.layers import functions_fork as functions
from undertow.functions.pooling import AvgPool2d, MaxPool2d

SHAPE = (2, 5, 4, 6)


def shares(values: list[float], numerators: list[float]) -> list[float]:
    return [value / (1e-4 + sum(numerators)) for value in values]


def softmax_shares(values: list[float], shift: float) -> list[float]:
    powers = [math.exp(value - shift) for value in values]
    return shares(powers, powers)


ONE_BY_ONE: dict[str, Callable[[float], float]] = {
    "mish": lambda x: x * math.tanh(math.log(1 + math.exp(x))),
    "hard_mish": lambda x: x if x > 0 else x * x / 2 + x if x > -2 else 0.0,
    "swish": lambda x: x / (1 + math.exp(-x)),
    "gelu": lambda x: 0.5 * x * (1 + math.tanh(0.797885 * x + 0.035677 * x**3)),
    "revleaky": lambda x: x if x > 0 else 0.1 * x,
    "relu6": lambda x: min(max(x, 0.0), 6.0),
}
OVER_CHANNELS: dict[str, Callable[[list[float]], list[float]]] = {
    "normalize_channels": lambda v: shares([max(x, 0.0) for x in v], [max(x, 0.0) for x in v]),
    "normalize_channels_softmax": lambda v: softmax_shares(v, 0.0),
    "normalize_channels_softmax_maxval": lambda v: softmax_shares(v, max(v)),
}


def test_every_activation_is_tried() -> None:
    assert set(FORK_ACTIVATIONS) == {*ONE_BY_ONE, *OVER_CHANNELS}


@pytest.mark.parametrize("name", ONE_BY_ONE)
def test_activations_of_single_values(name: str, rng: np.random.Generator) -> None:
    x = rng.uniform(-8, 8, SHAPE)
    y = functions.fork_activation(Variable(x), name)
    assert y is not None
    # The fork writes gelu's constants with six digits.
    tolerance = 3e-6 if name == "gelu" else 1e-12
    np.testing.assert_allclose(y.data, np.vectorize(ONE_BY_ONE[name])(x), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", OVER_CHANNELS)
def test_activations_over_channels(name: str, rng: np.random.Generator) -> None:
    x = rng.uniform(-3, 3, SHAPE)
    y = functions.fork_activation(Variable(x), name)
    assert y is not None
    expected = np.apply_along_axis(lambda values: OVER_CHANNELS[name](list(values)), 1, x)
    np.testing.assert_allclose(y.data, expected, rtol=1e-12)
    check_gradients(lambda v: functions.fork_activation(v, name), [x])


def test_activations_of_the_2018_program_are_left_to_it() -> None:
    assert functions.fork_activation(Variable(np.zeros((1, 1, 1, 1))), "leaky") is None


@pytest.mark.parametrize("kind", [1, 2])
@pytest.mark.parametrize("strides", [(1, 1), (2, 1), (2, 3)])
def test_blur(kind: int, strides: tuple[int, int], rng: np.random.Generator) -> None:
    x = rng.standard_normal(SHAPE)
    kernel = np.full((2, 2), 0.25) if kind == 2 else np.array([[1, 2, 1], [2, 4, 2], [1, 2, 1]]) / 16
    padded = x if kind == 2 else np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    size = len(kernel)
    rows = range(0, padded.shape[2] - size + 1, strides[0])
    columns = range(0, padded.shape[3] - size + 1, strides[1])
    expected = [[(padded[:, :, i : i + size, j : j + size] * kernel).sum((2, 3)) for j in columns] for i in rows]
    y = functions.blur(Variable(x), kind, strides)
    np.testing.assert_allclose(y.data, np.array(expected).transpose(2, 3, 0, 1), rtol=1e-12, atol=1e-15)
    check_gradients(lambda v: functions.blur(v, kind, strides), [x])


@pytest.mark.parametrize("out_channels", [1, 2, 3, 5])
def test_depth_max(out_channels: int, rng: np.random.Generator) -> None:
    x = rng.standard_normal(SHAPE)
    y = functions.depth_max(Variable(x), out_channels)
    for k in range(out_channels):
        np.testing.assert_array_equal(y.data[:, k], x[:, k::out_channels].max(axis=1))
    check_gradients(lambda v: functions.depth_max(v, out_channels), [x])


def test_space_to_depth(rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 3, 4, 6))
    y = functions.space_to_depth(Variable(x), 2)
    assert y.shape == (2, 12, 2, 3)
    for k, j, i in np.ndindex(12, 2, 3):
        np.testing.assert_array_equal(y.data[:, k, j, i], x[:, k % 3, j * 2 + k // 3 // 2, i * 2 + k // 3 % 2])
    check_gradients(lambda v: functions.space_to_depth(v, 2), [x])


@pytest.mark.parametrize("kind", ["relu", "avg_relu", "softmax", "none"])
@pytest.mark.parametrize("columns", [1, 5])
def test_weighted_sums_of_unlike_channels(kind: str, columns: int, rng: np.random.Generator) -> None:
    x, wide, narrow = (rng.standard_normal((2, c, 2, 3)) for c in (5, 7, 2))
    weights = rng.uniform(-0.5, 1.5, (3, columns))

    def run(x: Variable, wide: Variable, narrow: Variable, weights: Variable) -> Variable:
        return functions.weighted_sum(x, [wide, narrow], functions.normalized_weights(weights, kind))

    expected = np.zeros_like(x)
    for c in range(5):
        w = weights[:, c if columns > 1 else 0]
        if kind == "softmax":
            w = np.exp(w - w.max()) / (np.exp(w - w.max()).sum() + 1e-4)
        elif kind != "none":
            w = np.maximum(w, 0) / (np.maximum(w, 0).sum() + 1e-4)
        expected[:, c] = w[0] * x[:, c] + w[1] * wide[:, c] + (w[2] * narrow[:, c] if c < 2 else 0)
    np.testing.assert_allclose(run(*map(Variable, (x, wide, narrow, weights))).data, expected, rtol=1e-12)
    check_gradients(run, [x, wide, narrow, weights], rtol=1e-4)


def test_plain_sums_of_unlike_channels(rng: np.random.Generator) -> None:
    x, wide, narrow = (rng.standard_normal((2, c, 2, 3)) for c in (5, 7, 2))
    y = functions.weighted_sum(Variable(x), [Variable(wide), Variable(narrow)], None)
    expected = x + wide[:, :5]
    expected[:, :2] += narrow
    np.testing.assert_allclose(y.data, expected, rtol=1e-12)
    check_gradients(lambda *v: functions.weighted_sum(v[0], v[1:], None), [x, wide, narrow])


def test_pooling_with_a_stride_for_each_axis(rng: np.random.Generator) -> None:
    x = rng.standard_normal((1, 1, 5, 7))
    geometry = functions.fork_pooling(5, 7, 3, (2, 3), 2, (3, 3))
    largest, mean = (pool(geometry)(x).data[0, 0] for pool in (MaxPool2d, AvgPool2d))
    for i, j in np.ndindex(3, 3):
        window = x[0, 0, max(2 * i - 1, 0) : 2 * i + 2, max(3 * j - 1, 0) : 3 * j + 2]
        assert largest[i, j] == window.max()
        assert mean[i, j] == pytest.approx(window.mean(), rel=1e-12)
