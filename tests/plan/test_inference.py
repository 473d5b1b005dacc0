"""Plans for inference: folding, and that edits of what was folded take effect."""

from __future__ import annotations

import numpy as np
import pytest

import undertow as ut
from tests.plan.test_lowering import NETS, Block, Blocks, Trial
from undertow.functions import conv2d, fixed_batch_norm, relu
from undertow.kernels.reference.batchnorm import DARKNET_CPU, EXACT
from undertow.plans import Planned, plan
from undertow.plans.unit_folded import FoldedUnit


class FixedBlocks(Blocks):
    """Batch norm with given statistics."""

    def norm(self, name: str, x: ut.Variable) -> ut.Variable:
        if name not in self.running:
            super().norm(name, ut.Variable(self.rng.standard_normal((9, x.shape[1])).astype(np.float32)))
        running = self.running[name]
        gamma, beta = self.parameters[name + ".gamma"], self.parameters[name + ".beta"]
        return fixed_batch_norm(x, gamma, beta, running.mean, running.variance, self.rule)


class Predictor:
    def __init__(self, net: Block, darknet_rule: bool = False) -> None:
        self.blocks = FixedBlocks(DARKNET_CPU if darknet_rule else EXACT)
        self.net = net
        self.planned = plan(self.step)
        self.rng = np.random.default_rng(2)
        self.step(np.ones((1, 3, 24, 16), np.float32))  # makes the parameters

    def step(self, x: np.ndarray) -> ut.Variable:
        with ut.no_grad(), ut.test_mode():
            return self.net(self.blocks, ut.Variable(x))

    def check(self, batch: int = 1) -> None:
        x = self.rng.standard_normal((batch, 3, 24, 16)).astype(np.float32)
        found, expected = self.planned(x).data, self.step(x).data
        assert np.linalg.norm(found - expected) <= 2e-5 * np.linalg.norm(expected)

    def folded(self) -> list[FoldedUnit]:
        assert self.planned.last is not None
        return [unit for unit in self.planned.last.units if isinstance(unit, FoldedUnit)]


@pytest.mark.parametrize("net", NETS.values(), ids=NETS)
@pytest.mark.parametrize("darknet_rule", [False, True])
def test_planned_inference_equals_the_unplanned_one(net: Block, darknet_rule: bool) -> None:
    predictor = Predictor(net, darknet_rule)
    for _ in range(4):
        predictor.check()
    assert predictor.planned.is_replaying
    assert predictor.folded()
    for _ in range(3):
        predictor.check(batch=3)


def test_everything_of_a_block_becomes_one_unit() -> None:
    predictor = Predictor(NETS["darknet_like"])
    for _ in range(3):
        predictor.check()
    sizes = sorted(len(unit.calls) for unit in predictor.folded())
    assert sizes == [1, 3, 3, 3, 3, 3, 4, 4]


@pytest.mark.parametrize("what", ["a.w", "a.gamma", "a.beta", "mean", "variance", "out.b", "out.w"])
def test_edits_of_what_was_folded_take_effect(what: str) -> None:
    predictor = Predictor(NETS["darknet_like"])
    for _ in range(3):
        predictor.check()
    running = predictor.blocks.running["a"]
    if what in ("mean", "variance"):
        getattr(running, what)[2] += 0.5
    else:
        predictor.blocks.parameters[what].data.reshape(-1)[-1] += 0.5
    predictor.check()
    if what not in ("mean", "variance"):
        parameter = predictor.blocks.parameters[what]
        parameter.data = parameter.data + np.float32(0.25)
        predictor.check()
    assert predictor.planned.is_replaying


def test_a_residual_after_a_convolution_without_norm() -> None:
    rng = np.random.default_rng(3)
    w = ut.Parameter(rng.standard_normal((8, 8, 3, 3)).astype(np.float32))

    def step(x: np.ndarray) -> ut.Variable:
        with ut.no_grad():
            v = ut.Variable(x)
            return relu(conv2d(v, w, pad=1)) + v

    planned = Planned(step, dry=True)
    for _ in range(3):
        x = rng.standard_normal((2, 8, 6, 6)).astype(np.float32)
        np.testing.assert_allclose(planned(x).data, step(x).data, rtol=1e-4, atol=1e-4)
        assert planned.is_replaying


def test_statistics_of_the_batch_are_not_folded() -> None:
    trial = Trial(NETS["resnet_like"])

    def step(x: np.ndarray) -> ut.Variable:
        with ut.no_grad():
            return trial.net(trial.blocks, ut.Variable(x))

    planned = plan(step)
    for _ in range(4):
        x = trial.data()
        before = [(r.mean.copy(), r.variance.copy()) for r in trial.blocks.running.values()]
        found = planned(x).data
        moved = [r.mean.copy() for r in trial.blocks.running.values()]
        for r, (mean, variance) in zip(trial.blocks.running.values(), before, strict=False):
            r.mean[...], r.variance[...] = mean, variance
        expected = step(x).data
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
        if before:
            for r, mean in zip(trial.blocks.running.values(), moved, strict=True):
                np.testing.assert_allclose(r.mean, mean, rtol=1e-4, atol=1e-6)
    assert planned.is_replaying
