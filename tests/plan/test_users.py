"""Functions that users write, in plans: what they keep stays, and they start every run as when recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest

import undertow as ut
from undertow import layers
from undertow.plans import plan

Array = np.ndarray
Operation = Callable[[ut.Variable], ut.Variable]


class Probe(ut.Function):
    """y = x; keeps all that it sees."""

    seen: ClassVar[list[tuple[Array, Array]]] = []

    def keep(self, *arrays: Array) -> None:
        Probe.seen.extend((a, a.copy()) for a in arrays)

    def forward(self, x: Array) -> Array:
        y = x * 1
        self.keep(x, x[:1], y)
        return y

    def backward(self, gy: Array) -> Array:
        gx = gy * 1
        self.keep(gy, self.input.data, self.output.data, gx)
        return gx


class Difference(ut.Function):
    """y = x less what this object has had before."""

    def __init__(self) -> None:
        self.last: Array | float = 0.0
        self.last_gradient: Array | float = 0.0

    def forward(self, x: Array) -> Array:
        y = x - self.last
        self.last = x
        return y

    def backward(self, gy: Array) -> Array:
        gx = gy + self.last_gradient
        self.last_gradient = gy
        return gx


class Counting(ut.Function):
    """Multiplies by the number of its runs, which it keeps in a place that it is given."""

    def __init__(self, counter: Any) -> None:
        self.counter = counter

    def forward(self, x: Array) -> Array:
        if isinstance(self.counter, list):
            self.counter.append(1)
            return x * len(self.counter)
        self.counter += 1
        return x * self.counter

    def backward(self, gy: Array) -> Array:
        return gy * len(self.counter) if isinstance(self.counter, list) else gy * self.counter


def run(make: Callable[[], Operation], planned: bool, graph: bool = True) -> tuple[list[Array], ut.plans.Planned]:
    """Losses and gradients of some steps with an operation between convolutions."""
    first, second = layers.Conv2d(4, 3, pad=1, rng=1), layers.Conv2d(2, 3, rng=2)
    operation = make()

    def step(x: Array) -> ut.Variable:
        h = operation(first(ut.Variable(x, requires_grad=False)))
        loss = ut.mean(ut.square(second(h)))
        if graph:
            loss.backward()
        return loss

    called = plan(step)
    found = []
    rng = np.random.default_rng(3)
    for _ in range(6):
        x = rng.random((2, 3, 6, 6), np.float32)
        for layer in (first, second):
            layer.clear_grads()
        if graph:
            found.append((called if planned else step)(x).data)
            found.extend(p.grad.copy() for layer in (first, second) for p in layer.parameters())
        else:
            with ut.no_grad():
                found.append((called if planned else step)(x).data)
    return found, called


def same(make: Callable[[], Operation], graph: bool = True) -> ut.plans.Planned:
    unplanned, _ = run(make, planned=False, graph=graph)
    found, called = run(make, planned=True, graph=graph)
    for a, b in zip(found, unplanned, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)
    return called


def test_arrays_that_a_function_keeps_are_not_written_over() -> None:
    Probe.seen.clear()
    assert same(lambda: lambda x: Probe()(x)).is_replaying
    assert len(Probe.seen) == 2 * 6 * 7
    for array, copy in Probe.seen:
        np.testing.assert_array_equal(array, copy)


def test_a_function_made_anew_in_every_call_starts_anew() -> None:
    assert same(lambda: lambda x: Difference()(x)).is_replaying


@pytest.mark.parametrize("graph", [True, False])
def test_a_function_that_is_called_again_goes_on_as_unplanned(graph: bool) -> None:
    """With a graph each call is a copy of the first one's object, without it is that object."""
    called = same(Difference, graph)
    assert called.is_replaying or called.reason()


def test_what_is_made_anew_and_changed_in_place_keeps_a_step_unplanned() -> None:
    for make in (list, lambda: np.zeros(1, np.float32)):
        called = same(lambda make=make: lambda x: Counting(make())(x))
        assert "in place" in (called.reason() or "")
        assert not called.is_replaying
