"""Batch norm of channels whose values are all the same: x - mean is 0, and no rounding is divided by epsilon."""

from __future__ import annotations

import numpy as np
import pytest

import undertow as ut
from tests.plan.test_lowering import Block, Blocks, Trial
from undertow.functions import leaky_relu, linear, max_pool2d, relu
from undertow.kernels.cpu import memory
from undertow.kernels.cpu.raw.tensor import scratch
from undertow.kernels.reference.batchnorm import DARKNET_CPU, EXACT, BatchNormRule, Scaling
from undertow.plans.norm import Norm


def not_in_place(b: Blocks, x: ut.Variable) -> ut.Variable:
    return b.conv("out", relu(b.norm("a", b.conv("a", x, 19, 1, bias=True))), 5, 1)


def in_place(b: Blocks, x: ut.Variable) -> ut.Variable:
    return b.conv("out", leaky_relu(b.norm("a", b.conv("a", x, 19, 1, bias=True)), 0.1), 5, 1)


def read_by_depthwise(b: Blocks, x: ut.Variable) -> ut.Variable:
    y = relu(b.norm("a", b.conv("a", x, 8, 1, bias=True)))
    return b.conv("out", relu(b.norm("c", b.conv("c", y, 8, 1, groups=8, bias=True))), 5, 1)


def of_rows(b: Blocks, x: ut.Variable) -> ut.Variable:
    rows = x.reshape((x.shape[0], -1))
    y = linear(rows, b.parameter("w", (9, rows.shape[1]), 0.3), b.parameter("b", (9,), 0.3))
    return linear(relu(b.norm("a", y)), b.parameter("out", (4, 9), 0.3))


def pooled(b: Blocks, x: ut.Variable) -> ut.Variable:
    return b.conv("out", max_pool2d(relu(b.norm("a", b.conv("a", x, 19, 1, bias=True))), 2), 5, 1)


def check(net: Block, data: np.ndarray, rule: BatchNormRule | None = None) -> None:
    trial = Trial(net, rule)
    for k in range(5):
        for name, parameter in trial.blocks.parameters.items():
            if name.endswith("beta"):
                parameter.data[...] = 0  # what rounding leaves then decides which rectifiers are open
        # What comes to the convolution is 0 in truth, its weights' gradient rounding in both ways.
        trial.both(data * np.float32(1 + 0.3 * k), only=("loss", "y", "a.beta", "out.w"))
    assert trial.planned.is_replaying
    trial._run(trial.planned, data)
    assert not any(p.grad.any() for name, p in trial.blocks.parameters.items() if name.endswith("gamma"))


@pytest.mark.parametrize("net", [not_in_place, in_place, read_by_depthwise, of_rows])
@pytest.mark.parametrize("epsilon", ["inside", "outside"])
def test_one_value_per_channel(net: Block, epsilon: str) -> None:
    data = np.random.default_rng(1).standard_normal((1, 3, 1, 1)).astype(np.float32)
    check(net, data, BatchNormRule(Scaling(1e-5, epsilon)))  # type: ignore[arg-type]


@pytest.mark.parametrize("net", [not_in_place, in_place, read_by_depthwise, pooled])
@pytest.mark.parametrize("rule", [None, DARKNET_CPU])
def test_many_values_that_are_the_same(net: Block, rule: BatchNormRule | None) -> None:
    one = np.random.default_rng(1).standard_normal((1, 3, 1, 1)).astype(np.float32)
    check(net, np.repeat(one, 7, axis=0) * np.ones((1, 1, 6, 4), np.float32), rule)


@pytest.mark.parametrize(("digits", "varies"), [(0, False), (1, True)])
@pytest.mark.parametrize("size", [1, 5, 60])
def test_a_value_that_differs_by_one_digit_counts(digits: int, varies: bool, size: int) -> None:
    y = np.full((2, 1, size, 7), 3, np.float32)
    y[1, 0, size // 2, 3] += np.float32(digits) * np.spacing(np.float32(3))
    held = memory.as_nhwc(y)
    norm = Norm(EXACT, 1, y.size)
    norm._far[0] = 1
    norm.take_statistics(memory.view(held), scratch())
    one, zero = np.ones(1, np.float32), np.zeros(1, np.float32)
    norm.set_affine(one.ctypes.data, zero.ctypes.data)
    assert (norm.variance[0] > 0) == varies
    assert norm.mean[0] == 3
