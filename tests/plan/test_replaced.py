"""Models, parameters and arrays that are replaced by others, between calls or by the step itself."""

from __future__ import annotations

import dataclasses
import operator
import types
import weakref
from collections import UserDict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow import layers
from undertow.plans import Planned, plan

Array = np.ndarray


def linear(seed: int, outputs: int = 3) -> layers.Linear:
    return layers.Linear(outputs, 4, rng=seed)


def batch(n: int) -> Array:
    return np.random.default_rng(n).standard_normal((5, 4)).astype(np.float32)


def constant(array: Array) -> ut.Variable:
    return ut.Variable(array, requires_grad=False)


def agrees(step: Callable[..., ut.Variable], planned: Planned, calls: int = 4) -> bool:
    """Whether the last of some calls was a replay; all have the step's own result."""
    for n in range(calls):
        found = planned(batch(n)).data
        replayed = planned.is_replaying
        np.testing.assert_allclose(found, step(batch(n)).data, rtol=1e-5, atol=1e-6)
    return replayed


# --- where the model stands -------------------------------------------------------------------------------


@dataclasses.dataclass(slots=True)
class Slots:
    m: Any


class Plain:
    def __init__(self, m: Any) -> None:
        self.m = m

    def apply(self, x: Any) -> Any:
        return self.m(x)


class Chain(layers.Sequential):
    def forward(self, x: Any) -> Any:
        return self[0](x)


class Private:
    __slots__ = ("__m",)

    def __init__(self, m: Any) -> None:
        self.__m = m

    def replace(self, m: Any) -> None:
        self.__m = m

    def apply(self, x: Any) -> Any:
        return self.__m(x)


def objects(m: Any) -> Array:
    found = np.empty(2, object)
    found[0] = m
    return found


class Shared:
    m: Any = None


HOLDERS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], Callable[[Any, Any], Any]]] = {
    "dict": (lambda m: {"m": m}, lambda h: h["m"], lambda h, m: h.update(m=m)),
    "list": (lambda m: [m], lambda h: h[0], lambda h, m: h.__setitem__(0, m)),
    "dict of an object": (lambda m: Plain({"m": m}), lambda h: h.m["m"], lambda h, m: h.m.update(m=m)),
    "another object": (lambda m: Plain(Plain(m)), lambda h: h.m.m, lambda h, m: setattr(h, "m", Plain(m))),
    "tuple": (lambda m: Plain((m, 1)), lambda h: h.m[0], lambda h, m: setattr(h, "m", (m, 1))),
    "namespace": (lambda m: types.SimpleNamespace(m=m), lambda h: h.m, lambda h, m: setattr(h, "m", m)),
    "slots": (Slots, lambda h: h.m, lambda h, m: setattr(h, "m", m)),
    "class": (lambda m: setattr(Shared, "m", m) or Shared, lambda h: h.m, lambda h, m: setattr(h, "m", m)),
    "array of objects": (objects, lambda h: h[0], lambda h, m: h.__setitem__(0, m)),
    "user's dict": (lambda m: UserDict(m=m), lambda h: h["m"], lambda h, m: h.update(m=m)),
    "items of a user's Sequential": (Chain, lambda h: h, lambda h, m: h._items.__setitem__(0, m)),
    "attrgetter": (Plain, operator.attrgetter("m"), lambda h, m: setattr(h, "m", m)),
    "private": (Private, lambda h: h.apply, lambda h, m: h.replace(m)),
    "method": (Plain, lambda h: h.apply, lambda h, m: setattr(h, "m", m)),
}


@pytest.mark.parametrize("name", HOLDERS)
def test_a_model_is_replaced_wherever_it_stands(name: str) -> None:
    make, get, put = HOLDERS[name]
    holder = make(linear(1))

    def step(x: Array) -> ut.Variable:
        with ut.no_grad():
            return get(holder)(constant(x)) * 2

    planned = plan(step)
    for seed in (1, 2, 3):
        put(holder, linear(seed))
        assert agrees(step, planned)


def test_a_list_of_layers_grows() -> None:
    hidden = [linear(1, 4)]

    def step(x: Array) -> ut.Variable:
        with ut.no_grad():
            h = constant(x)
            for layer in hidden:
                h = ut.tanh(layer(h))
            return h

    planned = plan(step)
    assert agrees(step, planned)
    hidden.append(linear(2, 4))
    assert agrees(step, planned)


def test_a_parameter_and_an_activation_in_a_dict_are_replaced() -> None:
    model: dict[str, Any] = {"w": linear(1).weight, "f": ut.tanh}

    def step(x: Array) -> ut.Variable:
        with ut.no_grad():
            return model["f"](ut.linear(constant(x), model["w"]))

    planned = plan(step)
    assert agrees(step, planned)
    model["w"] = linear(2).weight
    assert agrees(step, planned)
    model["f"] = ut.sigmoid
    assert agrees(step, planned)


def test_a_weak_proxy_of_what_is_no_more_is_passed_over() -> None:
    lost = weakref.proxy(linear(0))

    def step(x: Array) -> ut.Variable:
        with ut.no_grad():
            return constant(x) * 2 if x.size else lost(x)

    assert agrees(step, plan(step))


def test_what_is_replaced_again_and_again_is_not_planned() -> None:
    models = {"m": linear(0)}

    def step(x: Array) -> ut.Variable:
        with ut.no_grad():
            return models["m"](constant(x))

    planned = plan(step)
    for n in range(20):
        models["m"] = linear(n)
        replayed = agrees(step, planned, 3)
    assert not replayed
    assert "'m' of a dict is replaced again and again" in (planned.reason() or "")


# --- arrays -----------------------------------------------------------------------------------------------


class Masked(layers.Module):
    def __init__(self) -> None:
        self.inner = linear(1)
        self.register_buffer("mask", np.ones((3, 4), np.float32))
        self.scales = {"scale": np.ones(3, np.float32)}

    def forward(self, x: Any) -> Any:
        return ut.linear(x, self.inner.weight * self.mask, self.inner.bias) * self.scales["scale"] * SCALE


SCALE = np.ones((5, 1), np.float32)


def test_an_array_is_replaced_in_a_buffer_a_dict_and_a_name() -> None:
    global SCALE
    net = Masked()

    def step(x: Array) -> ut.Variable:
        with ut.no_grad():
            return net(constant(x))

    planned = plan(step)
    assert agrees(step, planned)
    net.mask = np.float32(np.abs(net.inner.weight.data) > 0.3)
    assert agrees(step, planned)
    net.scales["scale"] = np.arange(3, dtype=np.float32)
    assert agrees(step, planned)
    SCALE = np.arange(5, dtype=np.float32)[:, None]
    assert agrees(step, planned)


def test_the_data_of_a_variable_used_as_an_array_is_replaced() -> None:
    teacher = linear(2)

    def step(x: Array) -> ut.Variable:
        with ut.no_grad():
            return ut.linear(constant(x), constant(teacher.weight.data))

    planned = plan(step)
    assert agrees(step, planned)
    teacher.weight.data = teacher.weight.data * 2
    assert agrees(step, planned)


@pytest.mark.parametrize("replace", [False, True], ids=["edited", "replaced"])
def test_an_array_that_python_code_computes_with_is_compared(replace: bool) -> None:
    holder = Plain(np.ones(4, np.float32))

    def step(x: Array) -> ut.Variable:
        return constant(x) * (holder.m * 2)

    planned = plan(step)
    assert agrees(step, planned)
    if replace:
        holder.m = np.arange(4, dtype=np.float32)
    else:
        holder.m[1] = 5
    assert agrees(step, planned) is replace


@pytest.mark.parametrize("replace", [False, True], ids=["edited", "replaced"])
def test_a_view_of_an_array_is_read_anew(replace: bool) -> None:
    w, holder = ut.Parameter(np.ones((4, 5), np.float32)), Plain(np.ones(4, np.float32))

    def step(x: Array) -> ut.Variable:
        return constant(x) * w.data.T + constant(holder.m[None])

    planned = plan(step)
    for n in (1, 2, 3):
        assert agrees(step, planned)
        if replace:
            w.data, holder.m = w.data + n, holder.m * n
        else:
            w.data += n
            holder.m *= n
    assert agrees(step, planned)


def test_rows_chosen_by_an_order_that_is_shuffled_late() -> None:
    rows, order = np.arange(40, dtype=np.float32).reshape(10, 4), np.arange(10)

    def step(x: Array) -> ut.Variable:
        return constant(x) * constant(rows[order[:5]])

    planned = plan(step)
    assert agrees(step, planned)
    order[:] = order[::-1].copy()
    assert not agrees(step, planned)
    assert "changes from call to call" in (planned.reason() or "")


def test_an_array_too_large_to_be_compared_keeps_the_step_unplanned() -> None:
    rows = np.zeros((400, 2000, 4), np.float32)

    def step(x: Array) -> ut.Variable:
        return constant(x) * constant(rows[0, :5] + 1)

    planned = plan(step)
    assert not agrees(step, planned)
    assert "an array of shape (400, 2000, 4), too large" in (planned.reason() or "")


def test_an_array_that_the_step_does_not_name_may_be_large() -> None:
    class Trainer:
        def __init__(self) -> None:
            self.rows = np.zeros((400, 2000, 4), np.float32)
            self.net = linear(1)

        def step(self, x: Array) -> ut.Variable:
            with ut.no_grad():
                return self.net(constant(x)) * 2

    trainer = Trainer()
    assert agrees(trainer.step, plan(trainer.step))


def test_a_constant_of_a_parameter_that_is_trained_later_than_others() -> None:
    frozen, trained = linear(1), linear(2)

    def step(x: Array) -> ut.Variable:
        scale = np.abs(frozen.weight.data).max()
        with ut.no_grad():
            return ut.linear(constant(x), frozen.weight / scale) + trained(constant(x))

    planned = plan(step)
    for n in range(5):
        trained.weight.data *= 0.9
        np.testing.assert_allclose(planned(batch(n)).data, step(batch(n)).data, rtol=1e-5, atol=1e-6)
    assert planned.is_replaying
    frozen.weight.data *= np.linspace(0, 3, 4, dtype=np.float32)
    assert not agrees(step, planned)


def test_an_array_kept_of_another_step_is_another_for_another_batch_size() -> None:
    head = plan(lambda x: named(ut.exp(constant(x)), "h"), persistent=["h"])

    def tail() -> ut.Variable:
        return constant(head.kept["h"].data) * 2

    planned = plan(tail)
    with ut.no_grad():
        for rows in (5, 5, 5, 5, 3, 5, 5, 5, 3, 3, 3):
            head(batch(rows)[:rows])
            np.testing.assert_array_equal(planned().data, tail().data)
    assert planned.is_replaying


def named(x: ut.Variable, name: str) -> ut.Variable:
    x.name = name
    return x


# --- by the step itself -----------------------------------------------------------------------------------


class Centre(layers.Module):
    def __init__(self) -> None:
        self.inner = linear(1)
        self.register_buffer("mean", np.zeros(3, np.float32))

    def forward(self, x: Any) -> Any:
        h = self.inner(x)
        self.mean = 0.9 * self.mean + 0.1 * h.data.mean(axis=0)
        return h


def test_a_module_that_replaces_its_statistic_is_not_planned() -> None:
    one, two = Centre(), Centre()
    planned = plan(lambda x: ut.exp(one(constant(x))))
    with ut.no_grad():
        for n in range(5):
            planned(batch(n))
            two(batch(n))
    np.testing.assert_array_equal(one.mean, two.mean)
    assert "the step replaces 'mean' of Centre" in (planned.reason() or "")


AVERAGES: dict[str, Callable[[dict[str, Array], Array], Any]] = {
    "replaced": lambda averages, x: averages.update(x=0.5 * averages["x"] + x),
    "in place": lambda averages, x: averages["x"].__iadd__(x),
}


@pytest.mark.parametrize("change", AVERAGES.values(), ids=AVERAGES)
def test_an_average_in_a_dict_keeps_the_step_unplanned(change: Callable[[dict[str, Array], Array], Any]) -> None:
    averages, expected = ({"x": np.zeros((5, 4), np.float32)} for _ in range(2))

    def step(x: Array) -> ut.Variable:
        change(averages, x)
        return ut.exp(constant(x))

    planned = plan(step)
    for n in range(5):
        planned(batch(n))
        change(expected, batch(n))
    np.testing.assert_array_equal(averages["x"], expected["x"])
    assert "the step " in (planned.reason() or "")


def test_a_result_may_be_left_where_the_one_before_stood() -> None:
    holder = Plain(None)
    w = ut.Parameter(np.ones(4, np.float32))

    def step(x: Array) -> ut.Variable:
        holder.m = ut.exp(constant(x) * w)
        loss = holder.m.sum()
        loss.backward()
        return loss

    planned = plan(step)
    for n in range(4):
        planned(batch(n))
    assert planned.is_replaying
