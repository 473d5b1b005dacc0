"""What a planned step returns is the same kind of thing in every call."""

from __future__ import annotations

import numpy as np
import pytest

import undertow as ut
from undertow import layers
from undertow.errors import GraphError
from undertow.plans import plan

Array = np.ndarray


def constant(x: Array) -> ut.Variable:
    return ut.Variable(x, requires_grad=False)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_returned_gradient_is_that_of_the_parameter(dtype: type) -> None:
    net = layers.Sequential(layers.Linear(4, 3, rng=1), layers.ReLU(), layers.Linear(2, 4, rng=2))
    net.to_dtype(dtype)

    def step(x: Array) -> tuple[ut.Variable, list[Array]]:
        loss = ut.square(net(constant(x))).sum()
        loss.backward()
        return loss, [p.grad for p in net.parameters()]

    planned = plan(step)
    held = []
    for n in range(5):
        net.clear_grads()
        _, gradients = planned(np.full((2, 3), n + 1, dtype))
        for p, gradient in zip(net.parameters(), gradients, strict=True):
            assert gradient is p.grad
            gradient *= 0.5
            held.append((gradient, gradient.copy()))
    assert planned.is_replaying
    for gradient, copy in held:  # a replay writes over none that somebody holds
        np.testing.assert_array_equal(gradient, copy)


def test_a_gradient_that_no_walk_reaches_is_none_in_every_call() -> None:
    w, unused = ut.Parameter(np.ones(3)), ut.Parameter(np.ones(3))

    def step(x: Array) -> list[Array | None]:
        (w * x + (unused * x).data).sum().backward()
        return [w.grad, unused.grad]

    planned = plan(step)
    for n in range(4):
        assert planned(np.arange(3.0) + n)[1] is None
    assert planned.is_replaying


def test_parameters_and_arguments_are_returned_as_they_are() -> None:
    w = ut.Parameter(np.ones(3))

    def step(x: Array) -> tuple[ut.Variable, Array, Array]:
        (w * x).sum().backward()
        return w, w.data, x

    planned = plan(step)
    for n in range(4):
        x = np.arange(3.0) + n
        found = planned(x)
        assert found[0] is w
        assert found[1] is w.data
        assert found[2] is x
    assert planned.is_replaying


def test_a_leaf_made_in_the_step_is_returned_with_its_gradient() -> None:
    w = ut.Parameter(np.full(3, 2.0, np.float32))

    def step(x: Array) -> ut.Variable:
        picture = ut.Variable(x)
        (w * picture).sum().backward()
        return picture

    planned = plan(step)
    for n in range(4):
        picture = planned(np.arange(3, dtype=np.float32) + n)
        np.testing.assert_array_equal(picture.data, np.arange(3) + n)
        np.testing.assert_array_equal(picture.grad, w.data)
        ut.square(picture).sum().backward()
        np.testing.assert_array_equal(picture.grad, w.data + 2 * picture.data)
    assert planned.is_replaying


def further(net: layers.Linear) -> tuple[ut.plans.Planned, layers.Linear]:
    def step(x: Array) -> tuple[ut.Variable, ut.Variable]:
        y = net(constant(x))
        loss = ut.square(y).sum()
        loss.backward()
        return loss, y

    head = layers.Linear(2, 4, rng=2)
    return plan(step), head


def test_a_walk_backward_into_a_result_is_an_error_from_the_first_call_on() -> None:
    net = layers.Linear(4, 3, rng=1)
    planned, head = further(net)
    for n in range(4):
        net.clear_grads()
        loss, y = planned(np.full((2, 3), n + 1, np.float32))
        before = net.weight.grad.copy()
        extra = head(y).sum()
        for walk in (
            loss.backward,
            extra.backward,
            lambda e=extra: e.backward(create_graph=True),
            lambda e=extra: ut.grad(e + net.weight.sum(), net.weight),
        ):
            with pytest.raises(GraphError, match=r"planned step, made at .*test_results.*within the step"):
                walk()
        np.testing.assert_array_equal(net.weight.grad, before)
    assert planned.is_replaying


def test_a_result_may_be_taken_as_a_constant() -> None:
    net = layers.Linear(4, 3, rng=1)
    planned, head = further(net)
    for n in range(4):
        head.clear_grads()
        _, y = planned(np.full((2, 3), n + 1, np.float32))
        head(constant(y.data)).sum().backward()
        expected = head.weight.grad.copy()
        (found,) = ut.grad(head(y).sum(), [head.weight])  # not through the result
        np.testing.assert_allclose(found.data, expected)
    assert planned.is_replaying
