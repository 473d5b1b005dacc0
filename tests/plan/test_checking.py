"""UNDERTOW_CHECK_PLAN on nets with kinks: what rounding explains passes, what is wrong does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow import layers as L
from undertow.errors import GraphError
from undertow.plans import plan
from undertow.plans.check import _moved
from undertow.plans.program import Program


def convolutional(*parts: L.Module) -> L.Sequential:
    return L.Sequential(*parts, L.GlobalAvgPool2d(), L.Flatten(), L.Linear(4, rng=9))


def depthwise_net() -> L.Sequential:
    first, second = L.Conv2d(8, 3, stride=2, pad=1, rng=1, bias=False), L.Conv2d(8, 3, pad=1, groups=8, rng=2)
    return convolutional(first, L.BatchNorm(), L.ReLU(), second, L.BatchNorm(), L.ReLU(), L.MaxPool2d(2))


def pictures(k: int) -> np.ndarray:
    return np.random.default_rng(k).standard_normal((8, 3, 16, 16)).astype(np.float32)


@pytest.mark.parametrize(
    "make",
    [lambda: convolutional(L.Conv2d(8, 3, pad=1, rng=1), L.BatchNorm(), L.ReLU()), depthwise_net],
    ids=["biases before batch norm", "depthwise, kinks and winners"],
)
@pytest.mark.parametrize("dropout", [False, True])
def test_checking_passes_what_only_rounding_tells_apart(
    make: Callable[[], L.Sequential], dropout: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gradients that are 0 in truth, activations that flip, and dropout from a generator of its own each time."""
    monkeypatch.setenv("UNDERTOW_CHECK_PLAN", "1")
    net = make()

    def step(x: np.ndarray) -> ut.Variable:
        y = net(x)
        loss = ut.softmax_cross_entropy(ut.dropout(y, 0.5) if dropout else y, np.arange(8) % 4)
        loss.backward()
        return loss

    planned = plan(step)
    for k in range(6):
        net.clear_grads()
        planned(pictures(k))
        for p in net.parameters():
            p.data -= 0.1 * p.grad
    assert planned.is_replaying


def test_checking_passes_a_gradient_that_is_zero_whatever_the_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only rounding of the data is in it, and that of the two ways is another."""
    monkeypatch.setenv("UNDERTOW_CHECK_PLAN", "1")
    layer = L.Linear(4, rng=3)
    differed = []

    def step(x: np.ndarray, t: np.ndarray) -> ut.Variable:
        h = ut.Variable(x, requires_grad=False)
        h = ut.mean(h - ut.mean(h, axis=(2, 3), keepdims=True), axis=(2, 3))
        loss = ut.softmax_cross_entropy(layer(h), t)
        loss.backward()
        return loss

    real = Program.run

    def rounded(program: Program, *arguments: Any, **options: Any) -> Any:
        result = real(program, *arguments, **options)
        differed.append(1)
        layer.weight.grad[...] *= 1 + np.random.default_rng(len(differed)).choice([-1.0, 1.0], layer.weight.shape)
        return result

    monkeypatch.setattr(Program, "run", rounded)
    planned = plan(step)
    layer(np.zeros((1, 3), np.float32))
    for k in range(6):
        for p in layer.parameters():
            p.clear_grad()
        planned(pictures(k) + 0.3, np.arange(8) % 4)
    assert planned.is_replaying
    assert differed


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_moved_arguments_stay_what_they_mean(dtype: type) -> None:
    shares, classes = np.linspace(0, 1, 50).astype(dtype), np.arange(50).astype(dtype)
    labels = np.arange(5)
    moved = _moved((shares, classes, labels, "text", 1.5), np.random.default_rng(1))
    assert moved[2:] == (labels, "text", 1.5)
    np.testing.assert_array_equal(moved[1], classes)
    assert moved[0].dtype == dtype
    assert (moved[0] <= shares).all()
    assert (moved[0] >= 0).all()
    assert (moved[0] != shares).sum() > 40
    assert _moved((shares, shares), np.random.default_rng(1))[1] is shares


def wrong_number(y: ut.Variable, k: int) -> ut.Variable:
    return y * (1.0 if k < 4 else 1.25)


def wrong_branch(y: ut.Variable, k: int) -> ut.Variable:
    return ut.tanh(y) if k < 4 else y


def wrong_constant(y: ut.Variable, k: int) -> ut.Variable:
    return y - np.eye(4, dtype=np.float32)[np.arange(8) % 4 if k < 4 else np.arange(8) % 3]


@pytest.mark.parametrize("wrong", [wrong_number, wrong_branch, wrong_constant])
def test_checking_finds_a_deep_net_gone_wrong(
    wrong: Callable[[ut.Variable, int], ut.Variable], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNDERTOW_CHECK_PLAN", "1")
    net, now = depthwise_net(), [0]

    def step(x: np.ndarray) -> ut.Variable:
        loss = ut.square(wrong(net(x), now[0])).sum()
        loss.backward()
        return loss

    planned = plan(step)
    for now[0] in range(4):
        net.clear_grads()
        planned(pictures(now[0]))
    now[0] = 4
    net.clear_grads()
    with pytest.raises(GraphError, match=r"checked plan: .*To mend it"):
        planned(pictures(4))


@pytest.mark.parametrize("what", ["gradient", "statistic"])
def test_checking_finds_what_a_replay_loses(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNDERTOW_CHECK_PLAN", "1")
    net = depthwise_net()

    def step(x: np.ndarray) -> ut.Variable:
        loss = ut.square(net(x)).sum()
        loss.backward()
        return loss

    planned = plan(step)
    for k in range(4):
        net.clear_grads()
        planned(pictures(k))
    real = Program.run

    def losing(program: Program, *arguments: Any, **options: Any) -> Any:
        statistics = net[1].running_mean.copy()
        result = real(program, *arguments, **options)
        if what == "gradient":
            net[0].weight.grad[...] = 0
        else:
            net[1].running_mean[...] = statistics
        return result

    monkeypatch.setattr(Program, "run", losing)
    net.clear_grads()
    with pytest.raises(GraphError, match=f"checked plan: .*{what}"):
        planned(pictures(4))
