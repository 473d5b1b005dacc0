"""Units that do the work of several operations at once, where nothing else can see what lies between."""

from __future__ import annotations

import numpy as np
import pytest

import undertow as ut
import undertow.functions as F
from tests.plan.test_lowering import (
    Block,
    Blocks,
    Trial,
    darknet_like,
    depthwise,
    few_channels_pooled,
    pooled,
)
from undertow.functions import conv2d, max_pool2d, relu
from undertow.kernels.cpu.raw import sparse
from undertow.plans import plan
from undertow.plans.unit_conv import ConvUnit
from undertow.plans.unit_conv_pool import ConvPoolUnit
from undertow.plans.unit_images import MaxPoolUnit


def test_a_pooling_is_fused_where_it_alone_reads_what_can_be_undone() -> None:
    trial = Trial(pooled)
    for _ in range(4):
        trial.both(trial.data())
    assert trial.planned.last is not None
    fused = [unit for unit in trial.planned.last.units if isinstance(unit, MaxPoolUnit) and unit.fused]
    makers = [unit for unit in trial.planned.last.units if isinstance(unit, ConvUnit) and unit.pool is not None]
    assert [unit.pool for unit in makers] == fused
    assert len(fused) == 3  # behind a, c and d


def test_a_depthwise_convolution_normalises_what_it_alone_reads() -> None:
    trial = Trial(depthwise)
    for _ in range(4):
        trial.both(trial.data())
    assert trial.planned.last is not None
    units = [unit for unit in trial.planned.last.units if isinstance(unit, ConvUnit)]
    assert sum(unit.sweeps for unit in units) == 5
    assert [unit.reader for unit in units if unit.reader is not None] == [u for u in units if u.ahead is not None]
    names = {unit.program.values[unit.w].variable.name for unit in units if unit.reader is not None}
    assert names == {"a.w", "c.w", "h.w"}


@pytest.mark.parametrize("seen", ["value", "gradient", "root"])
def test_what_a_depthwise_convolution_normalises_is_there_for_others(seen: str) -> None:
    blocks = Blocks()

    def step(x: np.ndarray) -> tuple[ut.Variable | np.ndarray, ...]:
        a = blocks.leaky("a", ut.Variable(x, requires_grad=False), 16)
        a.name = "middle"
        a.retain_grad()
        y = blocks.leaky("b", a, 16, groups=16)
        (y * y).sum().backward()
        if seen == "root":
            a.grad = np.ones(a.shape, np.float32)
            a.backward()
        gradients.append(a.grad)
        return (a if seen == "value" else y), blocks.parameters["a.w"].grad

    gradients: list[np.ndarray] = []
    planned = plan(step, ("middle",) if seen == "gradient" else ())
    x = np.random.default_rng(2).standard_normal((2, 3, 12, 8)).astype(np.float32)
    for _ in range(4):
        for parameter in blocks.parameters.values():
            parameter.clear_grad()
        found = planned(x)
    assert planned.is_replaying == (seen != "root")  # a gradient from Python code cannot be planned
    for parameter in blocks.parameters.values():
        parameter.clear_grad()
    for one, other in zip(found, step(x), strict=True):
        np.testing.assert_allclose(getattr(one, "data", one), getattr(other, "data", other), rtol=1e-3, atol=1e-4)
    if seen == "gradient":
        np.testing.assert_allclose(planned.kept["middle"].grad, gradients[-1], rtol=1e-3, atol=1e-4)


def test_a_pooling_is_done_with_a_first_layer_that_it_alone_reads() -> None:
    trial = Trial(few_channels_pooled)
    for _ in range(4):
        trial.both(trial.data())
    expected = {("Conv", "MaxPool2d"), ("Conv", "MaxPool2d", "DarknetActivation"), ("Conv", "Relu", "MaxPool2d")}
    assert set(trial.calls(ConvPoolUnit)) == expected
    assert len(trial.calls(ConvPoolUnit)) == 3


def two_poolings(b: Blocks, x: ut.Variable) -> ut.Variable:
    x = max_pool2d(b.conv("a", x, 20, 5, bias=True), 2)
    w, bias = b.parameter("b.w", (50, 20, 5, 5), 0.05), b.parameter("b.b", (50,), 0.3)
    x = max_pool2d(relu(conv2d(x, w, bias)), 2)
    return b.conv("c", x, 4, 1)


def test_a_gradient_that_comes_from_a_pooling_is_taken_as_mostly_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[float] = []
    run = sparse.backward_data
    monkeypatch.setattr(sparse, "backward_data", lambda *a, **options: (taken.append(1), run(*a, **options))[1])
    trial = Trial(two_poolings)
    for _ in range(4):
        trial.both(trial.data((8, 3, 24, 16)))
    assert taken
    assert trial.planned.last is not None
    shares = [unit.share for unit in trial.planned.last.units if isinstance(unit, ConvUnit)]
    assert shares == [0.25, 1.0]


def relu_pooled(b: Blocks, x: ut.Variable) -> ut.Variable:
    return b.conv("out", max_pool2d(relu(b.norm("a", b.conv("a", x, 20))), 2), 8, 1)


def first_norm(trial: Trial) -> ConvUnit:
    assert trial.planned.last is not None
    return next(u for u in trial.planned.last.units if isinstance(u, ConvUnit) and u.norm is not None)


@pytest.mark.parametrize("net", [darknet_like, relu_pooled], ids=["leaky", "relu"])
def test_a_pooling_behind_batch_norm_is_done_with_it(net: Block) -> None:
    trial = Trial(net)
    for _ in range(4):
        trial.both(trial.data())
    assert trial.planned.last is not None
    assert first_norm(trial).pool is not None
    gamma, beta = (trial.blocks.parameters[name].data for name in ("a.gamma", "a.beta"))
    gamma[:3], beta[:3] = (-0.7, -1e-2, 1e-2), (0.1, 0.5, -0.9)
    for _ in range(2):  # the first parameters that differ are held against the plan's constants
        trial.both(trial.data())
    assert first_norm(trial).from_pooled == (net is darknet_like)  # the winners, where the activation can be undone
    gamma[3], beta[3] = 0, 0
    trial.both(trial.data())
    assert not first_norm(trial).from_pooled


def test_the_gradient_behind_a_batch_norm_is_written_over_what_it_alone_reads() -> None:
    trial = Trial(darknet_like)
    for _ in range(4):
        trial.both(trial.data())
    assert trial.planned.last is not None
    units = [u for u in trial.planned.last.units if isinstance(u, ConvUnit) and u.norm is not None]
    over_y = [u for u in units if u.g_slot is u.y_slot]
    assert over_y == [u for u in units if u.chain.residual is not None or (u.pool is not None and not u.by_rows)]
    assert len(over_y) == 3


def first_of_kind(pool: bool, slope: float, size: int, stride: int, channels: int) -> Block:
    def net(b: Blocks, x: ut.Variable) -> ut.Variable:
        y = b.norm("a", b.conv("a", x, channels, size, stride=stride))
        y = F.leaky_relu(y, slope) if slope else relu(y)
        y = max_pool2d(y, 2) if pool else y
        return b.conv("out", y, 8, 1)

    return net


@pytest.mark.parametrize(("size", "stride"), [(3, 1), (3, 2), (7, 2), (1, 1)])
@pytest.mark.parametrize("pool", [True, False])
@pytest.mark.parametrize("slope", [0.1, 0.0])
def test_a_first_layers_gradient_never_stands_whole(pool: bool, slope: float, size: int, stride: int) -> None:
    for channels, shape in ((16, (3, 3, 24, 16)), (21, (2, 3, 20, 36)), (32, (1, 2, 28, 12))):
        trial = Trial(first_of_kind(pool, slope, size, stride, channels))
        for _ in range(4):
            trial.both(trial.data(shape))
        assert trial.planned.last is not None
        first = next(unit for unit in trial.planned.last.units if isinstance(unit, ConvUnit))
        assert first.by_rows == (size > 1)
        assert (first.pool is not None) == pool


def test_many_rows_are_made_in_several_pieces() -> None:
    trial = Trial(first_of_kind(True, 0.1, 3, 1, 32))
    for _ in range(4):
        trial.both(trial.data((2, 3, 44, 120)))
