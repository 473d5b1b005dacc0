"""Calls from several threads, calls with numbers and shapes that change, copies of a plan."""

from __future__ import annotations

import copy
import logging
import pickle
import threading

import numpy as np
import pytest

import undertow as ut
from undertow import layers
from undertow.errors import UndertowError
from undertow.plans import plan

Array = np.ndarray


def test_while_one_thread_records_the_calls_of_others_are_ordinary_ones() -> None:
    w = ut.Parameter(np.ones(3))
    inside, go_on = threading.Event(), threading.Event()
    seen: list[object] = []

    def step(x: Array) -> ut.Variable:
        with ut.no_grad():
            y = w * x
        if x[0] >= 100:
            inside.set()
            assert go_on.wait(30)
        return y

    planned = plan(step)
    for n in (100, 101, 102):
        inside.clear()
        go_on.clear()
        thread = threading.Thread(target=lambda n=n: seen.append(planned(np.arange(3.0) + n)))
        thread.start()
        if n < 102:  # from the third call on it is replayed
            assert inside.wait(30)
            assert w.grad is None
            for k in range(2):
                np.testing.assert_array_equal(planned(np.arange(3.0) + k).data, np.arange(3.0) + k)
        go_on.set()
        thread.join()
        assert planned.reason() is None
    assert planned.is_replaying
    assert len(seen) == 3


def test_an_inference_step_that_clears_gradients_is_not_planned() -> None:
    w = ut.Parameter(np.ones(3))

    def clears(x: Array) -> ut.Variable:
        w.clear_grad()
        with ut.no_grad():
            return w * x

    def sets(x: Array) -> ut.Variable:
        w.grad = None
        with ut.no_grad():
            return w * x

    def perhaps(x: Array) -> ut.Variable:
        if w.grad is not None:
            w.clear_grad()
        with ut.no_grad():
            return w * x

    for step in (clears, sets, perhaps):
        planned = plan(step)
        w.clear_grad()
        for n in range(4):
            planned(np.arange(3.0) + n)
            assert w.grad is None
            w.grad = np.ones(3) if n == 2 else None
        assert "gradient" in (planned.reason() or "")


class Trainer:
    def __init__(self) -> None:
        self.net = layers.Linear(2, 3, rng=1)
        self.planned = plan(self.step)

    def step(self, x: Array) -> ut.Variable:
        loss = ut.square(self.net(ut.Variable(x, requires_grad=False))).sum()
        loss.backward()
        return loss


def test_a_deep_copy_plans_the_step_of_the_copied_object() -> None:
    first = Trainer()
    xs = [np.full((2, 3), n + 1, np.float32) for n in range(4)]
    for x in xs:
        first.planned(x)
    twin = copy.deepcopy(first)
    first.net.weight.data[...] = 0
    for x in xs:
        twin.net.clear_grads()
        assert float(twin.planned(x).data) > 0
        assert twin.net.weight.grad is not None
    assert twin.planned.is_replaying
    assert float(first.planned(xs[0]).data) == 0
    other = copy.deepcopy(first.planned)
    assert other.step.__self__.planned is other  # type: ignore[attr-defined]
    assert copy.copy(first.planned).step == first.planned.step


def test_a_plan_that_is_pickled_says_what_to_do() -> None:
    trainer = Trainer()
    with pytest.raises(UndertowError, match=r"Trainer\.step cannot be pickled.*make the plan again"):
        pickle.dumps(trainer)


def test_a_python_number_that_always_changes_is_told(caplog: pytest.LogCaptureFixture) -> None:
    w = ut.Parameter(np.ones(3))

    def step(x: Array, weight: float) -> ut.Variable:
        loss = (w * x).sum() * weight
        loss.backward()
        return loss

    planned = plan(step)
    with caplog.at_level(logging.WARNING, "undertow.plan"):
        for n in range(30):
            w.clear_grad()
            assert float(planned(np.ones(3), n * 0.5).data) == 1.5 * n
    (record,) = caplog.records
    assert "argument 1" in record.getMessage()
    assert "shape ()" in (planned.reason() or "")
    for n in range(4):  # the last of these numbers is met again, and then planned
        planned(np.ones(3) * n, 14.5)
    assert planned.is_replaying
    planned.forget()
    assert planned.reason() is None


def test_numbers_that_stay_for_a_while_are_planned() -> None:
    planned = plan(lambda x, k: ut.Variable(x, requires_grad=False) * k)
    for k in range(20):
        for n in range(4):
            planned(np.arange(3.0) + n, k)
        assert planned.is_replaying
    assert planned.reason() is None


def test_more_shapes_than_plans_are_told(caplog: pytest.LogCaptureFixture) -> None:
    planned = plan(lambda x: ut.Variable(x, requires_grad=False) * 2)
    with caplog.at_level(logging.WARNING, "undertow.plan"):
        for n in range(1, 65):
            planned(np.ones(n))
        assert planned.reason() is None
        planned(np.ones(65))
    (record,) = caplog.records
    assert "more than 64" in record.getMessage()
    assert "more than 64" in (planned.reason() or "")


@pytest.mark.parametrize("freezes", [True, False])
@pytest.mark.parametrize("after", [1, 2, 3])
def test_freezing_between_any_two_calls_makes_a_new_plan(freezes: bool, after: int) -> None:
    net = layers.Sequential(layers.Linear(4, 3, rng=1), layers.Linear(2, 4, rng=2))
    net(np.ones((1, 3), np.float32))
    net[0].weight.requires_grad = freezes

    def step(x: Array) -> ut.Variable:
        loss = ut.square(net(ut.Variable(x, requires_grad=False))).sum()
        loss.backward()
        return loss

    planned = plan(step)
    for n in range(7):
        if n == after:
            net[0].weight.requires_grad = not freezes
        net.clear_grads()
        planned(np.full((2, 3), n + 1, np.float32))
        assert (net[0].weight.grad is not None) == net[0].weight.requires_grad
    assert planned.is_replaying
    assert planned.reason() is None
