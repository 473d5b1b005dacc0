"""What a plan takes for its inputs: arguments and parameters themselves, whatever memory they share or came from."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import undertow as ut
from undertow import layers
from undertow.plans import Planned, plan

Array = np.ndarray
Step = Callable[..., ut.Variable]


def drawn(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


def replays(step: Step, calls: list[tuple[Array, ...]], planned: Planned | None = None) -> list[bool]:
    """Whether each call was a replay; all have the step's own result."""
    planned = planned or plan(step)
    found = []
    for arguments in calls:
        result = planned(*arguments)
        found.append(planned.is_replaying)
        np.testing.assert_array_equal(result.data, step(*arguments).data)
    return found


def constant(array: Array) -> ut.Variable:
    return ut.Variable(array, requires_grad=False)


# --- arguments that share memory --------------------------------------------------------------------------


def difference(x: Array, y: Array) -> ut.Variable:
    return ut.exp(constant(x)) - constant(y)


def test_arguments_that_overlap_are_taken_for_themselves() -> None:
    frames = drawn(0, 12, 3)
    windows = [(frames[i : i + 4], frames[i + 1 : i + 5]) for i in range(4)]
    apart = [(drawn(i, 4, 3), drawn(i + 9, 4, 3)) for i in range(4)]
    assert replays(difference, windows + apart)[-1]


def test_one_array_as_two_arguments_is_another_plan_than_two_arrays() -> None:
    twice = [(x, x) for x in (drawn(i, 4, 3) for i in range(3))]
    apart = [(drawn(i, 4, 3), drawn(i + 9, 4, 3)) for i in range(3)]
    assert replays(difference, twice + apart + twice) == [False, False, True, False, False, True, True, True, True]


def test_views_of_overlapping_arguments_stay_within_them() -> None:
    def step(x: Array, y: Array) -> ut.Variable:
        return constant(x[1:]) * 2 - constant(y[:2])

    frames = drawn(0, 12, 3)
    windows = [(frames[i : i + 4], frames[i + 2 : i + 6]) for i in range(5)]
    apart = [(drawn(i, 4, 3), drawn(i + 9, 4, 3)) for i in range(5)]
    step_of_equal_rows = lambda x, y: step(x[:3], y)  # noqa: E731
    assert replays(step_of_equal_rows, windows + apart)[-1]


@pytest.mark.parametrize("view", [lambda x: x.view(np.int64), lambda x: x.T[1:]], ids=["type", "strides"])
def test_a_view_that_cannot_be_followed_is_not_planned(view: Callable[[Array], Array]) -> None:
    def step(x: Array) -> ut.Variable:
        return constant(view(x)).sum() * 2

    planned = plan(step)
    base = drawn(0, 4, 4)
    arrays = []
    for n in range(4):  # what is looked at stays the same
        array = base.copy() if n < 2 else drawn(n, 4, 4)
        arrays.append((np.asfortranarray(array),) if view(np.eye(2)).dtype == float else (array,))
    assert not any(replays(step, arrays, planned))
    assert "a view of argument 0" in (planned.reason() or "")


# --- constants that may be derived ------------------------------------------------------------------------


def test_a_constant_from_an_argument_that_is_equal_at_first_is_found_out() -> None:
    w = ut.Parameter(np.ones((3, 4)))

    def step(x: Array, labels: Array) -> ut.Variable:
        with ut.no_grad():
            return ut.linear(x, w) * np.eye(3)[labels]

    planned = plan(step)
    labels = [np.full(5, c) for c in (0, 0, 0, 1, 2, 0)]
    calls = [(drawn(n, 5, 4), t) for n, t in enumerate(labels)]
    assert replays(step, calls, planned)[3:] == [False, False, False]
    assert "a constant of shape (5, 3) changes" in (planned.reason() or "")


def test_an_argument_that_never_changes_does_not_forbid_planning() -> None:
    def step(x: Array, rate: Array) -> ut.Variable:
        return constant(x) * 2 * constant(rate)

    rates = [0.5] * 5 + [0.1] * 2 + [0.01] * 3
    calls = [(drawn(n, 5), np.array(rate)) for n, rate in enumerate(rates)]
    found = replays(step, calls)
    assert found == [False, False, True, True, True, False, True, True, True, True]  # recorded once more, for the rate


def test_a_constant_from_parameters_that_are_equal_at_first_is_found_out() -> None:
    w = ut.Parameter(np.ones(4))

    def step(x: Array) -> ut.Variable:
        with ut.no_grad():
            return (w * x) * np.sign(w.data)

    planned = plan(step)
    assert replays(step, [(drawn(n, 4),) for n in range(4)], planned) == [False, False, True, True]
    w.data[1] = -1
    assert not any(replays(step, [(drawn(n, 4),) for n in range(4)], planned))


def test_reason_says_why_planning_waits_and_what_cannot_be_an_argument() -> None:
    planned = plan(lambda x: constant(np.atleast_1d(x)) * 2)
    for _ in range(3):
        planned(np.ones(3))
    assert "planning waits" in (planned.reason() or "")
    for n in range(3):
        planned(np.ones(3) + n)
    assert planned.is_replaying
    assert planned.reason() is None
    planned(np.float32(2))
    assert "argument 0 is a float32" in (planned.reason() or "")


# --- parameters that are replaced -------------------------------------------------------------------------

net = layers.Linear(2, 3, rng=0)


def test_a_parameter_that_is_replaced_is_read_anew() -> None:
    model = layers.Sequential(layers.Linear(4, 3, rng=1), layers.BatchNorm(), layers.Linear(2, 4, rng=2))
    model(np.ones((2, 3), np.float32))

    def step(x: Array) -> ut.Variable:
        with ut.no_grad(), ut.test_mode():
            return model(constant(x)) * 1.0

    planned = plan(step)
    batches = [(drawn(n, 5, 3).astype(np.float32),) for n in range(4)]

    def edited() -> list[bool]:
        found = []
        for (x,) in batches:
            result = planned(x)
            found.append(planned.is_replaying)
            np.testing.assert_allclose(result.data, step(x).data, rtol=1e-5, atol=1e-6)
        return found

    assert edited() == [False, False, True, True]
    model[0].weight = layers.Linear(4, 3, rng=5).weight
    assert edited() == [False, False, True, True]
    model._items[2] = layers.Linear(2, 4, rng=7)
    assert edited() == [False, False, True, True]
    model[1].running_mean = model[1].running_mean + 1
    assert edited() == [False, False, True, True]


class Trainer:
    """Holds a model beside much data."""

    def __init__(self) -> None:
        self.data = [(n, [n]) for n in range(30_000)]
        self.models = {"first": layers.Linear(2, 3, rng=0)}

    def step(self, x: Array) -> ut.Variable:
        with ut.no_grad():
            return self.models["first"](constant(x)) * 1.0


def test_a_parameter_is_found_beside_much_data() -> None:
    trainer = Trainer()
    planned = plan(trainer.step)
    for seed in (1, 2):
        trainer.models["first"].weight = layers.Linear(2, 3, rng=seed).weight
        for n in range(4):
            x = drawn(n, 5, 3).astype(np.float32)
            np.testing.assert_allclose(planned(x).data, trainer.step(x).data, rtol=1e-5, atol=1e-6)
        assert planned.is_replaying


def test_a_model_behind_a_global_name_may_be_replaced() -> None:
    global net

    def step(x: Array) -> ut.Variable:
        with ut.no_grad():
            return net(constant(x)) * 1.0

    planned = plan(step)
    for seed in (1, 2):
        net = layers.Linear(2, 3, rng=seed)
        for n in range(4):
            x = drawn(n, 5, 3).astype(np.float32)
            np.testing.assert_allclose(planned(x).data, step(x).data, rtol=1e-5, atol=1e-6)
        assert planned.is_replaying
