"""Planned steps against unplanned ones for nets whose operations are lowered to kernels and fused."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
import pytest

import undertow as ut
import undertow.functions as F
from undertow.functions import avg_pool2d, batch_norm, concat, conv2d, linear, max_pool2d, relu, upsample
from undertow.functions.darknet_activations import leaky
from undertow.functions.norm_batch import BatchNormRule, RunningStatistics
from undertow.kernels.reference.batchnorm import DARKNET_CPU
from undertow.plans import Planned, plan
from undertow.plans.ordinary import Ordinary
from undertow.plans.unit_conv import ConvUnit
from undertow.plans.unit_images import RowsUnit

Block = Callable[..., ut.Variable]


class Blocks:
    """Parameters and statistics by name, made at first use, so that a net is a plain function."""

    def __init__(self, rule: BatchNormRule | None = None) -> None:
        self.rng = np.random.default_rng(11)
        self.parameters: dict[str, ut.Parameter] = {}
        self.running: dict[str, RunningStatistics] = {}
        self.rule = rule or BatchNormRule()

    def parameter(self, name: str, shape: tuple[int, ...], scale: float = 0.0, at: float = 0.0) -> ut.Parameter:
        if name not in self.parameters:
            data = at + scale * self.rng.standard_normal(shape)
            self.parameters[name] = ut.Parameter(data.astype(np.float32), name=name)
        return self.parameters[name]

    def conv(self, name: str, x: ut.Variable, c: int, k: int = 3, bias: bool = False, **options: int) -> ut.Variable:
        groups = options.get("groups", 1)
        fan_in = x.shape[1] // groups * k * k
        w = self.parameter(name + ".w", (c, x.shape[1] // groups, k, k), (2 / fan_in) ** 0.5)
        b = self.parameter(name + ".b", (c,), 0.3) if bias else None
        return conv2d(x, w, b, pad=k // 2, **options)

    def norm(self, name: str, x: ut.Variable) -> ut.Variable:
        c = x.shape[1]
        gamma = self.parameter(name + ".gamma", (c,), 0.2, 1.0)
        beta = self.parameter(name + ".beta", (c,), 0.2)
        if name not in self.running:
            self.running[name] = RunningStatistics(np.zeros(c, np.float32), np.ones(c, np.float32), 0.1)
        return batch_norm(x, gamma, beta, self.rule, self.running[name])

    def leaky(self, name: str, x: ut.Variable, c: int, k: int = 3, **options: int) -> ut.Variable:
        return leaky(self.norm(name, self.conv(name, x, c, k, **options)))


def darknet_like(b: Blocks, x: ut.Variable) -> ut.Variable:
    a = b.leaky("a", x, 16)
    c = b.leaky("c", max_pool2d(a, 2), 24, stride=2)
    d = c + b.leaky("e", b.leaky("d", c, 16, 1), 24)
    d = d + b.leaky("g", b.leaky("f", d, 16, 1), 24)
    up = upsample(max_pool2d(b.leaky("h", d, 16, 1), 2), 2)
    return b.conv("out", concat([up, d], axis=1), 21, 1, bias=True)


def resnet_like(b: Blocks, x: ut.Variable) -> ut.Variable:
    x = relu(b.norm("stem", b.conv("stem", x, 16)))
    y = b.norm("b", b.conv("b", relu(b.norm("a", b.conv("a", x, 32, stride=2))), 32))
    x = relu(y + b.norm("s", b.conv("s", x, 32, 1, stride=2)))
    y = b.norm("d", b.conv("d", relu(b.norm("c", b.conv("c", x, 32))), 32))
    return relu(y + x)


def mobilenet_like(b: Blocks, x: ut.Variable) -> ut.Variable:
    x = relu(b.norm("a", b.conv("a", x, 16, stride=2)))
    x = relu(b.norm("dw", b.conv("dw", x, 16, groups=16)))
    x = relu(b.norm("pw", b.conv("pw", x, 40, 1)))
    return b.norm("g", b.conv("g", x, 20, groups=4))


def depthwise(b: Blocks, x: ut.Variable) -> ut.Variable:
    """Depthwise convolutions that normalise what they read, and others that may not: a wide window, an input that is
    read twice."""
    x = b.leaky("w", b.leaky("a", x, 17), 17, groups=17)
    x = relu(b.norm("c", b.conv("c", x, 40, 1)))
    x = relu(b.norm("d", b.conv("d", x, 40, stride=2, groups=40)))
    x = b.leaky("f", b.leaky("e", x, 40, 5, groups=40), 24, 1)
    x = b.norm("h", b.conv("h", x + b.leaky("g", x, 24, groups=24), 16, 1))
    return b.conv("j", leaky(b.conv("i", x, 16, bias=True, groups=16)), 5, 1)


def groups_with_norm(b: Blocks, x: ut.Variable) -> ut.Variable:
    """Groups whose sums for batch norm come from each of the convolution's kernels."""
    x = b.leaky("a", b.conv("first", x, 16), 32, 1, groups=2)
    x = b.leaky("b", x, 24, 3, groups=4)
    x = b.leaky("c", x, 64, 1, groups=8)
    x = b.leaky("d", x, 32, 3, groups=2, stride=2)
    return b.norm("e", b.conv("e", x, 64, 1, groups=32))


def without_norm(b: Blocks, x: ut.Variable) -> ut.Variable:
    x = relu(max_pool2d(b.conv("a", x, 20, 5, bias=True), 3, 2))
    return leaky(b.conv("b", leaky(b.conv("c", x, 17, bias=True)), 5, bias=True))


def branches_of_every_kind(b: Blocks, x: ut.Variable) -> ut.Variable:
    """Values read several times, joined twice, added to themselves, and read by operations without kernels."""
    x = b.leaky("a", x, 16)
    both = concat([x, b.leaky("b", x, 8), x], axis=1)
    again = concat([both, x], axis=1)
    doubled = x + x
    z = b.leaky("c", again, 16, 1) + ut.tanh(doubled) * x
    return b.conv("d", relu(z), 8, 1) + z.sum(axis=1, keepdims=True)


def pooled(b: Blocks, x: ut.Variable) -> ut.Variable:
    """Poolings done within the batch norm before them, and others that may not be: read twice, odd sizes, overlapping,
    no batch norm, a rectifier that cannot be undone."""
    x = max_pool2d(b.leaky("a", x, 7), 2)
    y = b.leaky("b", x, 17)
    x = concat([max_pool2d(y, 2), max_pool2d(b.leaky("c", x, 33), 2), y[:, :, ::2, ::2]], axis=1)
    x = max_pool2d(b.leaky("d", x, 16), 2)
    x = concat([x, max_pool2d(max_pool2d(b.norm("e", b.conv("e", x, 16)), 3, stride=1, pad=1), 1)], axis=1)
    z = max_pool2d(relu(b.norm("f", b.conv("f", x, 5))), (3, 2))
    return b.conv("g", z, 4, 1, bias=True)


def few_channels_pooled(b: Blocks, x: ut.Variable) -> ut.Variable:
    """First layers whose pooling is done with them, with and without an activation, and others where it may not be:
    read twice, windows that overlap, an input that wants its gradient."""
    y = max_pool2d(b.conv("a", x, 7, 5, bias=True), 2)
    z = max_pool2d(relu(b.conv("d", x, 16, bias=True)), 2)
    twice = b.conv("e", x, 6, bias=True)
    z = concat([y, leaky(max_pool2d(b.conv("c", x, 20), 2)), z], axis=1)
    z = concat([z, max_pool2d(twice, 2), twice[:, :, 1::2, ::2], max_pool2d(b.conv("f", x, 5), 4, 2, 1)], axis=1)
    return b.conv("h", max_pool2d(b.conv("g", y, 9), 2), 3) + b.conv("i", max_pool2d(z, 2), 3, bias=True)


def lenet_like(b: Blocks, x: ut.Variable) -> ut.Variable:
    x = max_pool2d(relu(b.conv("a", x, 6, 5, bias=True)), 2)
    x = avg_pool2d(b.conv("b", x, 10, bias=True), 2).reshape((x.shape[0], -1))
    x = relu(linear(x, b.parameter("c.w", (30, x.shape[1]), 0.1)))
    x = x + leaky(linear(x, b.parameter("d.w", (30, 30), 0.2), b.parameter("d.b", (30,), 0.1)))
    return linear(x, b.parameter("e.w", (7, 30), 0.2), b.parameter("e.b", (7,), 0.1))


def rows_of_every_kind(b: Blocks, x: ut.Variable) -> ut.Variable:
    """Images made rows that lie within longer ones, are read twice, or come from outside."""
    a, c = max_pool2d(b.leaky("a", x, 5), 4), max_pool2d(b.leaky("c", x, 3, stride=2), 2)
    n = x.shape[0]
    rows = concat([a.reshape((n, -1)), c.reshape((n, -1)), x.reshape((n, -1))], axis=1)
    more = linear(a.reshape((n, -1)), b.parameter("f.w", (4, a.size // n), 0.1))
    mixed = linear(rows, b.parameter("d.w", (9, rows.shape[1]), 0.05))
    return concat([mixed, more], axis=1) + b.conv("e", a, 13, 1).mean(axis=(2, 3))


def shared(b: Blocks, x: ut.Variable) -> ut.Variable:
    """Weights, biases, gammas and betas that are used twice, once within a fused pooling."""
    x = b.leaky("s", b.leaky("s", b.leaky("a", x, 16), 16), 16)
    x = max_pool2d(b.leaky("s", x, 16), 2)
    return b.conv("o", b.conv("o", x, 16, 1, bias=True), 16, 1, bias=True)


NETS = {
    f.__name__: f
    for f in (
        darknet_like,
        resnet_like,
        mobilenet_like,
        depthwise,
        groups_with_norm,
        without_norm,
        few_channels_pooled,
        lenet_like,
        rows_of_every_kind,
        branches_of_every_kind,
        pooled,
        shared,
    )
}


class Trial:
    """A net with a squared error, planned and not."""

    def __init__(self, net: Block, rule: BatchNormRule | None = None, persistent: tuple[str, ...] = ()) -> None:
        self.blocks = Blocks(rule)
        self.net = net
        self.planned = plan(self.step, persistent)
        self.rng = np.random.default_rng(5)

    def step(self, x: np.ndarray) -> tuple[ut.Variable, ut.Variable]:
        y = self.net(self.blocks, ut.Variable(x, requires_grad=False))
        loss = (y * y).sum() * 0.5 + ut.sin(y).sum()
        loss.backward()
        return loss, y

    def data(self, shape: tuple[int, ...] = (2, 3, 24, 16)) -> np.ndarray:
        return self.rng.standard_normal(shape).astype(np.float32)

    def both(self, x: np.ndarray, tolerance: float = 2e-4, only: tuple[str, ...] = ()) -> None:
        """Run planned and unplanned from the same state and hold everything equal, or only what is named."""
        first = not self.blocks.parameters
        statistics = {name: (r.mean.copy(), r.variance.copy()) for name, r in self.blocks.running.items()}
        found = self._run(self.planned, x)
        for name, (mean, variance) in statistics.items():
            self.blocks.running[name].mean[...], self.blocks.running[name].variance[...] = mean, variance
        expected = self._run(self.step, x)
        if first:
            return  # it made the parameters: the statistics moved twice
        for name, value in expected.items():
            if only and name not in only:
                continue
            distance = np.linalg.norm(found[name] - value)
            assert distance <= tolerance * np.linalg.norm(value) + 1e-5, (name, distance, np.linalg.norm(value))

    def _run(self, step: Callable[..., tuple[ut.Variable, ut.Variable]], x: np.ndarray) -> dict[str, np.ndarray]:
        for parameter in self.blocks.parameters.values():
            parameter.clear_grad()
        loss, y = step(x)
        result = {"loss": loss.data.copy(), "y": y.data.copy()}
        result |= {name: parameter.grad.copy() for name, parameter in self.blocks.parameters.items()}
        result |= {name + ".mean": r.mean.copy() for name, r in self.blocks.running.items()}
        return result | {name + ".variance": r.variance.copy() for name, r in self.blocks.running.items()}

    def calls(self, *kinds: type) -> list[tuple[str, ...]]:
        """The operations in each unit, of these kinds of units or all."""
        assert self.planned.last is not None
        units = [u for u in self.planned.last.units if not kinds or isinstance(u, kinds)]
        return [tuple(type(f).__name__ for f in u.functions) for u in units]


@pytest.mark.parametrize("net", NETS.values(), ids=NETS)
@pytest.mark.parametrize("precision", ["fast", "precise"])
def test_a_planned_step_equals_the_unplanned_one(net: Block, precision: str) -> None:
    trial = Trial(net)
    with ut.precision(precision):  # type: ignore[arg-type]
        for _ in range(5):
            trial.both(trial.data())
    assert trial.planned.is_replaying
    assert trial.calls(ConvUnit)


def images_that_are_parameters(b: Blocks, x: ut.Variable) -> ut.Variable:
    """Parameters that are joined, added and pooled like images, so that their gradients lie among those of images."""
    at = x.shape
    a = b.conv("a", x * b.parameter("below", at, 0.2, 1.0), 8)
    y = a + b.parameter("added", a.shape, 0.5)
    y = concat(
        [b.parameter("first", at, 0.5), y, max_pool2d(b.parameter("pooled", (*at[:2], 2 * at[2], 2 * at[3]), 0.5), 2)],
        axis=1,
    )
    y = b.conv("b", y, 9, 1, bias=True) + upsample(b.parameter("small", (at[0], 9, at[2] // 2, at[3] // 2), 0.5), 2)
    return b.conv("c", leaky(y), 4)


def test_gradients_of_parameters_that_are_images_last_to_the_end_of_the_walk() -> None:
    trial = Trial(images_that_are_parameters)
    for _ in range(4):
        trial.both(trial.data())
    assert trial.planned.is_replaying


@pytest.mark.parametrize("net", NETS.values(), ids=NETS)
def test_replays_are_deterministic(net: Block) -> None:
    trial = Trial(net)
    for _ in range(3):
        trial.planned(trial.data())
    x = trial.data()
    first, second = trial._run(trial.planned, x), trial._run(trial.planned, x)
    for name in trial.blocks.parameters:
        np.testing.assert_array_equal(first[name], second[name])


@pytest.mark.parametrize("net", [darknet_like, resnet_like], ids=["darknet", "resnet"])
def test_darknets_own_rule_of_batch_norm(net: Block) -> None:
    trial = Trial(net, DARKNET_CPU)
    for _ in range(4):
        trial.both(trial.data())
    assert trial.planned.is_replaying


def test_what_is_fused() -> None:
    trial = Trial(darknet_like)
    for _ in range(3):
        trial.both(trial.data())
    fused = trial.calls(ConvUnit)
    assert fused.count(("Conv", "BatchNorm", "DarknetActivation")) == 5
    assert fused.count(("Conv", "BatchNorm", "DarknetActivation", "Add")) == 2
    assert fused.count(("Conv",)) == 1
    assert {name for (name,) in trial.calls(Ordinary)} == {"Mul", "Sum", "Sin", "Add"}


def test_rows_need_no_copy_where_they_come_from_outside() -> None:
    trial = Trial(rows_of_every_kind)
    for _ in range(3):
        trial.both(trial.data())
    assert len(trial.calls(RowsUnit)) == 3
    assert ("Reshape",) in trial.calls(Ordinary)


def in_place(planned: Planned) -> int:
    assert planned.last is not None
    return sum(unit.from_z for unit in planned.last.units if isinstance(unit, ConvUnit))


def test_in_place_norm_is_left_where_gamma_comes_near_zero() -> None:
    trial = Trial(darknet_like)
    for _ in range(3):
        trial.both(trial.data())
    before = in_place(trial.planned)
    gamma = trial.blocks.parameters["d.gamma"]
    gamma.data[3] = 0
    for _ in range(2):  # recorded once more: constants may depend on a parameter that has been the same so far
        trial.both(trial.data())
    assert in_place(trial.planned) == before - 1
    gamma.data[3] = 1e-4
    trial.both(trial.data())


def test_in_place_norm_comes_back_where_gamma_is_large_again() -> None:
    """The present parameters decide alone, so a process that begins with them later computes the same digits."""
    trial = Trial(darknet_like)
    for _ in range(3):
        trial.both(trial.data())
    before = in_place(trial.planned)
    gamma = trial.blocks.parameters["d.gamma"]
    for value in (0, 1):
        gamma.data[3] = value
        trial.both(trial.data())
    assert in_place(trial.planned) == before


def test_relu_is_never_undone() -> None:
    trial = Trial(resnet_like)
    for _ in range(3):
        trial.both(trial.data())
    assert trial.planned.last is not None
    for unit in trial.planned.last.units:
        assert not (isinstance(unit, ConvUnit) and unit.chain.slope == 0 and unit.from_z)


def test_a_mean_far_from_zero_keeps_its_digits() -> None:
    trial = Trial(lambda b, x: b.leaky("a", x + 3000.0, 8, 1))
    for _ in range(4):
        # The gradient of the weights is a small difference of large sums there, in any arithmetic.
        trial.both(trial.data(), tolerance=2e-3, only=("y", "a.mean", "a.variance", "a.gamma"))
    assert trial.planned.is_replaying


def test_a_picture_that_is_learned_gets_its_gradient() -> None:
    blocks = Blocks()
    picture = ut.Variable(np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32), name="picture")

    def step(target: np.ndarray) -> ut.Variable:
        loss = ((blocks.leaky("a", picture, 8) - target) ** 2).sum()
        loss.backward()
        return loss

    planned = plan(step, persistent=["picture"])
    for k in range(5):
        target = np.random.default_rng(k).standard_normal((1, 8, 8, 8)).astype(np.float32)
        picture.clear_grad()
        planned(target)
        found = picture.grad.copy()
        picture.clear_grad()
        step(target)
        np.testing.assert_allclose(found, picture.grad, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(planned.kept["picture"].grad, picture.grad, rtol=1e-3, atol=1e-3)
    assert planned.is_replaying


def test_a_planned_step_inside_an_operation_of_another_leaves_its_memory_alone() -> None:
    trial = Trial(darknet_like)
    inner = plan(lambda x: relu(conv2d(ut.Variable(x), trial.blocks.parameters["a.w"], pad=1)) * 1.0)

    class Nested(ut.Function):
        def forward(self, x: np.ndarray) -> np.ndarray:
            with ut.no_grad():
                return x + inner(np.ones((1, 3, 16, 16), np.float32)).data.mean() * 0

        def backward(self, gy: np.ndarray) -> np.ndarray:
            return gy

    trial.step(trial.data())
    trial.net = lambda b, x: darknet_like(b, Nested()(x))
    with ut.no_grad():
        for k in range(4):
            inner(np.full((1, 3, 16, 16), k, np.float32))
    for _ in range(5):
        trial.both(trial.data())
    assert trial.planned.is_replaying


def test_a_gradient_may_be_put_where_the_plan_wants_it() -> None:
    places: list[np.ndarray | None] = []

    class Twice(ut.Function):
        def forward(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return 2 * x, 3 * x

        def backward(self, gy: np.ndarray, gz: np.ndarray) -> np.ndarray:
            return 2 * gy + 3 * gz

        def backward_planned(self, given: Sequence[np.ndarray | None], gys: Sequence[np.ndarray | None]) -> np.ndarray:
            places.extend(given)
            gy, gz = gys
            assert gz is None
            return np.multiply(gy, 2, out=given[0])

    trial = Trial(lambda b, x: darknet_like(b, Twice()(b.leaky("first", x, 3))[0]))
    for _ in range(5):
        trial.both(trial.data())
    assert trial.planned.is_replaying
    assert places
    assert all(place is not None for place in places)


def test_a_place_is_not_offered_where_a_gradient_has_arrived() -> None:
    class Same(ut.Function):
        places: ClassVar[list[bool]] = []

        def forward(self, x: np.ndarray) -> np.ndarray:
            return x.copy()

        def backward(self, gy: np.ndarray) -> np.ndarray:
            return gy

        def backward_planned(self, given: Sequence[np.ndarray | None], gys: Sequence[np.ndarray | None]) -> np.ndarray:
            self.places.append(given[0] is not None)
            gx = np.empty_like(gys[0]) if given[0] is None else given[0]
            gx[...] = gys[0]
            return gx

    def net(b: Blocks, x: ut.Variable) -> ut.Variable:
        y = b.leaky("first", x, 3)
        return darknet_like(b, Same()(y) + Same()(y))

    trial = Trial(net)
    for _ in range(5):
        trial.both(trial.data())
    assert trial.planned.is_replaying
    assert set(Same.places) == {True, False}


def test_batch_norm_of_rows_is_fused_with_the_linear_map_before() -> None:
    def net(b: Blocks, x: ut.Variable) -> ut.Variable:
        x = x.reshape((x.shape[0], -1))
        x = leaky(b.norm("a", linear(x, b.parameter("a.w", (24, x.shape[1]), 0.1))))
        return linear(x, b.parameter("b.w", (5, 24), 0.2))

    trial = Trial(net)
    for _ in range(4):
        trial.both(trial.data((32, 3, 4, 4)))
    assert trial.planned.is_replaying
    assert ("Linear", "BatchNorm", "DarknetActivation") in trial.calls(ConvUnit)


def test_batch_and_size_may_change_from_call_to_call() -> None:
    trial = Trial(darknet_like)
    for shape in [(2, 3, 24, 16)] * 3 + [(1, 3, 32, 24)] * 4 + [(2, 3, 24, 16)] * 2 + [(1, 3, 32, 24)]:
        trial.both(trial.data(shape))
    assert trial.planned.is_replaying


def test_kept_values_of_lowered_units_are_right() -> None:
    def net(b: Blocks, x: ut.Variable) -> ut.Variable:
        a = b.leaky("a", x, 16)
        a.name = "first"
        joined = concat([a, b.leaky("b", a, 8)], axis=1)
        joined.name = "joined"
        return b.conv("c", joined, 8) + b.conv("d", a, 8)

    trial = Trial(net, persistent=("first", "joined"))
    seen: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {"first": [], "joined": []}
    x, other = trial.data(), trial.data()
    for _ in range(4):
        trial._run(trial.planned, other)
        trial._run(trial.planned, x)
        for name, arrays in seen.items():
            kept = trial.planned.kept[name]
            assert kept.data is not None
            assert kept.grad is not None
            arrays.append((kept.data.copy(), kept.grad.copy()))
    assert trial.planned.is_replaying
    for arrays in seen.values():
        for data, grad in arrays[1:]:
            np.testing.assert_allclose(data, arrays[0][0], rtol=1e-3, atol=1e-5)
            np.testing.assert_allclose(grad, arrays[0][1], rtol=1e-3, atol=1e-3)


def test_float64_and_reference_precision_run_as_ordinary_functions() -> None:
    trial = Trial(resnet_like)
    with ut.precision("reference"):
        for _ in range(4):
            trial.both(trial.data(), tolerance=1e-7)
        assert trial.planned.is_replaying
        assert not trial.calls(ConvUnit)


def test_a_frozen_convolution_gets_no_gradient() -> None:
    trial = Trial(darknet_like)
    trial.step(trial.data())
    for name in ("a.w", "a.gamma", "a.beta"):
        trial.blocks.parameters[name].requires_grad = False
    x, other = trial.data(), trial.data()
    names = [n for n, p in trial.blocks.parameters.items() if p.requires_grad]
    grads = []
    for k in range(4):
        trial.planned(other)
        for parameter in trial.blocks.parameters.values():
            parameter.clear_grad()
        trial.planned(x)
        assert trial.blocks.parameters["a.w"].grad is None
        grads.append({n: trial.blocks.parameters[n].grad.copy() for n in names})
        assert trial.planned.is_replaying == (k > 0)
    for n in names:
        assert np.linalg.norm(grads[-1][n] - grads[0][n]) <= 2e-4 * np.linalg.norm(grads[0][n]) + 1e-5


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("slope", [0.25, 0.0, -0.5])
def test_leaky_relu_of_any_slope(slope: float, fused: bool) -> None:
    """A result above 0 may come from either side where the slope is below 0: the gradient needs x itself."""
    rng = np.random.default_rng(0)
    w = ut.Parameter(rng.standard_normal((3, 3, 3, 3)).astype(np.float32))
    x = rng.standard_normal((2, 3, 6, 6)).astype(np.float32)

    def step(x: np.ndarray) -> ut.Variable:
        w.clear_grad()
        y = F.conv2d(ut.Variable(x), w)
        loss = F.sum(F.square(F.leaky_relu(y if fused else F.sin(y), slope)))
        loss.backward()
        return loss

    step(x)
    expected = w.grad
    planned = ut.plan(step)
    for _ in range(4):
        planned(x)
        np.testing.assert_allclose(w.grad, expected, rtol=1e-4, atol=1e-4)


class Switch(ut.Function):
    """y = x; another number of threads from now on."""

    threads = iter(())

    def forward(self, x: np.ndarray) -> np.ndarray:
        ut.set_threads(next(Switch.threads))
        return x.copy()

    def backward(self, gy: ut.Variable) -> ut.Variable:
        ut.set_threads(next(Switch.threads))
        return gy * 1.0


def test_the_number_of_threads_may_change_while_a_plan_runs() -> None:
    trial = Trial(lambda b, x: b.leaky("c", b.leaky("b", Switch()(b.leaky("a", x, 16)), 16), 16))
    Switch.threads = itertools.cycle((1, 2, 3))
    try:
        for _ in range(5):
            trial.both(trial.data())
    finally:
        ut.set_threads(None)
    assert trial.planned.is_replaying
