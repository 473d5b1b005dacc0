"""Convolutions of every kind, with what may stand below and behind them: planned gradients are the unplanned ones."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
import pytest

import undertow as ut
from tests.plan.test_lowering import Block, Blocks, Trial
from undertow.functions import conv2d, leaky_relu, max_pool2d, relu


class Kind(NamedTuple):
    """A convolution, and the size of the images that it is tried on."""

    inputs: int
    outputs: int
    kernel: int
    stride: int = 1
    pad: int = 0
    groups: int = 1
    size: tuple[int, int] = (9, 8)


KINDS = {
    "1x1": Kind(20, 17, 1),
    "1x1 of few channels": Kind(3, 5, 1),
    "1x1 of few channels, every second pixel": Kind(3, 5, 1, 2, size=(4, 13)),
    "1x1 of few channels, every third pixel": Kind(5, 4, 1, 3, size=(15, 16)),
    "1x1 of many channels, every second pixel": Kind(18, 20, 1, 2, size=(8, 10)),
    "1x1, padded": Kind(3, 6, 1, 2, 1),
    "3x3": Kind(16, 16, 3, 1, 1, size=(8, 12)),
    "3x3 of few channels": Kind(3, 16, 3, 1, 1, size=(8, 12)),
    "3x3, every second pixel": Kind(16, 16, 3, 2, 1, size=(16, 16)),
    "5x5": Kind(4, 7, 5, 2, 2, size=(11, 9)),
    "from one channel to one": Kind(1, 1, 3, 1, 1),
    "from one channel to many": Kind(1, 9, 5, 1, 0, size=(10, 10)),
    "groups": Kind(6, 9, 3, 1, 1, 3),
    "groups of one channel to two": Kind(4, 8, 3, 2, 1, 4),
    "depthwise 1x1": Kind(8, 8, 1, 1, 0, 8),
    "depthwise 3x3": Kind(17, 17, 3, 1, 1, 17, size=(8, 8)),
    "depthwise 3x3, every second pixel": Kind(8, 8, 3, 2, 1, 8),
    "depthwise 5x5": Kind(5, 5, 5, 3, 2, 5, size=(11, 13)),
}
# What stands below: the step's own data, a value that wants no gradient, one that does.
BELOW = ("data", "frozen", "trained")
ADDED = ("norm", "bias", "nothing")
ACTIVATIONS = ("linear", "leaky", "relu")
BEHIND = ("nothing", "shortcut", "pooling")


def net_of(kind: Kind, below: str, added: str, activation: str, behind: str) -> Block:
    def net(b: Blocks, x: ut.Variable) -> ut.Variable:
        if below != "data":
            x = x * (b.parameter("below", (1, *x.shape[1:]), 0.3, 1.0) if below == "trained" else 1.5)
        w = b.parameter("w", (kind.outputs, kind.inputs // kind.groups, kind.kernel, kind.kernel), 0.3)
        bias = b.parameter("b", (kind.outputs,), 0.3) if added == "bias" else None
        y = conv2d(x, w, bias, kind.stride, kind.pad, groups=kind.groups)
        y = b.norm("n", y) if added == "norm" else y
        y = {"linear": lambda: y, "leaky": lambda: leaky_relu(y, 0.1), "relu": lambda: relu(y)}[activation]()
        if behind == "shortcut":
            y = y + b.parameter("other", y.shape, 1.0)
        return max_pool2d(y, 2) if behind == "pooling" else y

    return net


def differs(trial: Trial, x: np.ndarray) -> bool:
    try:
        trial.both(x)
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_planned_gradients_are_the_unplanned_ones(kind: Kind) -> None:
    wrong = []
    for case in itertools.product(BELOW, ADDED, ACTIVATIONS, BEHIND):
        trial = Trial(net_of(kind, *case))
        shape = (3, kind.inputs, *kind.size)
        for _ in range(3):
            trial.planned(trial.data(shape))
        assert trial.planned.is_replaying
        # One value that lies so near 0 that rounding lets it through or not is no fault; it does not happen twice.
        if differs(trial, trial.data(shape)) and differs(trial, trial.data(shape)):
            wrong.append(case)
    assert not wrong
