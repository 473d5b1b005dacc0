"""Hooks entered, and other plans called, within a step."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np
import pytest

import undertow as ut
from undertow.core.hooks import FunctionHook
from undertow.errors import NonFiniteError
from undertow.plans import plan

Array = np.ndarray


class Own(FunctionHook):
    def after_forward(self, *seen: object) -> None:
        SEEN.append(1)


SEEN: list[int] = []


@pytest.mark.parametrize("hook", [ut.NaNHook, ut.TimerHook, ut.trace, Own])
def test_a_step_that_enters_a_hook_is_not_planned(
    hook: Callable[[], AbstractContextManager[object]], caplog: pytest.LogCaptureFixture
) -> None:
    w = ut.Parameter(np.ones(3))

    def step(x: Array) -> ut.Variable:
        with hook():  # entered
            loss = (w * x).sum()
            loss.backward()
            return loss

    planned = plan(step)
    SEEN.clear()
    with caplog.at_level(logging.WARNING, "undertow.plan"):
        for n in range(4):
            planned(np.arange(3.0) + n)
    assert not planned.is_replaying
    assert "hook" in (planned.reason() or "")
    assert len(caplog.records) == 1
    if hook is Own:
        assert len(SEEN) == 8
    if hook is ut.NaNHook:
        with pytest.raises(NonFiniteError):
            planned(np.full(3, np.nan))


def test_a_hook_around_the_call_is_none_within_the_step() -> None:
    w = ut.Parameter(np.ones(3))
    planned = plan(lambda x: (w * x).sum().backward())
    with ut.TimerHook():
        planned(np.arange(3.0))
    for n in range(3):
        planned(np.arange(3.0) + n)
    assert planned.is_replaying
    assert planned.reason() is None


def test_a_plan_within_a_step_is_part_of_it(caplog: pytest.LogCaptureFixture) -> None:
    w = ut.Parameter(np.ones(3))

    def inner(x: Array) -> ut.Variable:
        with ut.no_grad():
            return ut.exp(x)

    target = plan(inner)

    def step(x: Array) -> ut.Variable:
        loss = ut.square(w * x - target(x)).sum()
        loss.backward()
        return loss

    planned = plan(step)
    with caplog.at_level(logging.WARNING, "undertow.plan"):
        for n in range(4):
            x = np.arange(3.0) + n
            np.testing.assert_allclose(planned(x).data, np.square(x - np.exp(x)).sum())
    assert planned.is_replaying
    (record,) = caplog.records
    assert "hook" not in record.getMessage()
    assert "part of that step" in record.getMessage()


def test_named_values_of_a_plan_within_a_step_are_kept_in_every_call() -> None:
    w = ut.Parameter(np.ones(3))

    def inner(x: Array) -> ut.Variable:
        with ut.no_grad():
            y = ut.exp(x)
            y.name = "y"
            return y * 1

    target = plan(inner, persistent=["y"])

    def step(x: Array) -> ut.Variable:
        loss = (w * target(x)).sum()
        loss.backward()
        return loss

    planned = plan(step)
    for n in range(4):
        planned(np.arange(3.0) + n)
        np.testing.assert_array_equal(target.kept["y"].data, np.exp(np.arange(3.0) + n))
    assert "persistent" in (planned.reason() or "")
