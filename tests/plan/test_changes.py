"""Steps whose Python code, or a careless operation of theirs, changes what a replay would leave as it is."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import undertow as ut
from undertow import layers
from undertow.plans import plan

Array = np.ndarray


class Model:
    """A small network whose step does something more at one point."""

    def __init__(self, before: Extra = lambda model, x: None, after: Extra = lambda model, x: None) -> None:
        self.net = layers.Sequential(layers.Linear(4, 3, rng=1), layers.BatchNorm(), layers.Linear(2, 4, rng=2))
        self.spare = layers.Linear(2, 4, rng=3)
        self.net.to_dtype(np.float64)
        self.net(np.ones((2, 3)))
        self.before, self.after = before, after

    def step(self, x: Array) -> ut.Variable:
        self.before(self, x)
        loss = ut.square(self.net(ut.Variable(x, requires_grad=False))).sum()
        loss.backward()
        self.after(self, x)
        return loss

    def state(self) -> list[Array]:
        gradients = [p.grad for p in self.net.parameters() if p.grad is not None]
        return [*self.net.state().values(), *self.spare.state().values(), *gradients]


Extra = Callable[[Model, Array], object]


def scaled_gradient(model: Model, x: Array) -> None:
    if model.net[2].weight.grad is not None:
        model.net[2].weight.grad *= 0.5


def clipped_late(model: Model, x: Array) -> None:
    gradient = model.net[0].weight.grad
    if np.linalg.norm(gradient) > 1e3:
        gradient *= 1e-3


def replaced_data(model: Model, x: Array) -> None:
    model.net[2].weight.data = model.net[2].weight.data * 0.9


def edited_statistics(model: Model, x: Array) -> None:
    model.net[1].running_mean *= 0.5


def edited_spare(model: Model, x: Array) -> None:
    model.spare.weight.data[...] = 0.9 * model.spare.weight.data + 0.1


def edited_argument(model: Model, x: Array) -> None:
    x *= 2


def frozen(model: Model, x: Array) -> None:
    model.net[0].weight.requires_grad = False


def cleared_spare(model: Model, x: Array) -> None:
    model.spare.weight.clear_grad()


CHANGES = [
    (scaled_gradient, None, "gradient"),
    (None, scaled_gradient, "gradient"),
    (None, clipped_late, "looks at the gradient"),
    (replaced_data, None, "changes"),
    (None, replaced_data, "changes"),
    (edited_statistics, None, "changes an array of shape (4,)"),
    (None, edited_statistics, "changes an array of shape (4,)"),
    (None, edited_spare, "changes"),
    (edited_argument, None, "changes argument 0"),
    (None, frozen, "requires_grad"),
    (None, cleared_spare, "gradient"),
]


@pytest.mark.parametrize(("before", "after", "problem"), CHANGES)
def test_a_step_that_changes_more_than_its_operations_do_is_not_planned(
    before: Extra | None, after: Extra | None, problem: str
) -> None:
    nothing: Extra = lambda model, x: None  # noqa: E731
    model, other = (Model(before or nothing, after or nothing) for _ in range(2))
    for m in (model, other):
        m.spare.weight.grad = np.ones_like(m.spare.weight.data)
    planned = plan(model.step)
    for n in range(5):
        x = np.random.default_rng(n).standard_normal((5, 3)) * (100 if n == 4 else 1)
        assert float(planned(x.copy()).data) == float(other.step(x.copy()).data)
        for one, two in zip(model.state(), other.state(), strict=True):
            np.testing.assert_array_equal(one, two)
    assert not planned.is_replaying
    assert problem in (planned.reason() or "")


def test_a_result_that_python_code_edits_is_not_planned() -> None:
    def doubled(x: Array) -> ut.Variable:
        y = ut.exp(ut.Variable(x, requires_grad=False))
        y.data *= 2
        return ut.tanh(y)

    def replaced(x: Array) -> ut.Variable:
        y = ut.exp(ut.Variable(x, requires_grad=False))
        y.data = y.data / 2
        return y

    for step in (doubled, replaced):
        planned = plan(step)
        for n in range(4):
            np.testing.assert_array_equal(planned(np.arange(3.0) + n).data, step(np.arange(3.0) + n).data)
        assert not planned.is_replaying


def test_a_gradient_may_be_returned_and_cleared() -> None:
    w = ut.Parameter(np.ones(3))

    def step(x: Array) -> tuple[ut.Variable, Array]:
        if w.grad is not None:
            w.clear_grad()
        loss = (w * x).sum()
        loss.backward()
        return loss, w.grad

    planned = plan(step)
    for n in range(5):
        np.testing.assert_array_equal(planned(np.arange(3.0) + n)[1], np.arange(3.0) + n)
    assert planned.is_replaying


class InPlace(ut.Function):
    def forward(self, x: Array) -> Array:
        x *= 1.5
        return x

    def backward(self, gy: Array) -> Array:
        return gy * 1.5


class GradientInPlace(ut.Function):
    def forward(self, x: Array) -> Array:
        return x * 3

    def backward(self, gy: Array) -> Array:
        gy *= 3
        return gy


@pytest.mark.parametrize(("kind", "problem"), [(InPlace, "over its input"), (GradientInPlace, "over the gradient")])
def test_an_operation_that_writes_over_what_it_is_given_is_not_planned(kind: type[ut.Function], problem: str) -> None:
    w = ut.Parameter(np.ones(3))

    def step(x: Array) -> ut.Variable:
        h = w * x
        loss = ut.square(kind()(h) + h).sum()
        loss.backward()
        return loss

    planned = plan(step)
    for n in range(5):
        x = np.arange(3.0) + n
        w.clear_grad()
        loss, found = planned(x), w.grad
        w.clear_grad()
        assert float(step(x).data) == float(loss.data)
        np.testing.assert_array_equal(found, w.grad)
    assert not planned.is_replaying
    assert problem in (planned.reason() or "")


def test_a_name_that_loses_its_value_is_noticed() -> None:
    """As Python would: the call fails with a NameError, not with one from inside the plan."""
    weight = ut.Parameter(np.ones(3, np.float32))

    def step(x: np.ndarray) -> ut.Variable:
        loss = (ut.as_variable(x) * weight).sum()
        loss.backward()
        return loss

    def forget() -> None:
        nonlocal weight
        del weight

    planned = ut.plan(step)
    for k in range(4):
        planned(np.full(3, k, np.float32))
    assert planned.is_replaying
    forget()
    with pytest.raises(NameError, match="weight"):
        planned(np.ones(3, np.float32))
