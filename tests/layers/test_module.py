"""Module: names, sharing, buffers, state with precise errors, dtype, and its picture in text."""

from __future__ import annotations

import numpy as np
import pytest

from undertow.core import Parameter
from undertow.errors import ShapeError, UndertowError, UndertowWarning
from undertow.layers import Module, ModuleList, Sequential


class Scale(Module):
    """y = weight * x, and counts what it saw."""

    def __init__(self, size: int) -> None:
        self.weight = Parameter(np.full(size, 2.0, np.float32))
        self.register_buffer("seen", np.zeros((), np.int64))
        self.register_buffer("average", np.zeros(size, np.float32))

    def options(self) -> str:
        return str(self.weight.size)

    def forward(self, x):  # type: ignore[no-untyped-def]
        self.seen += 1
        return self.weight * x


class Net(Module):
    def __init__(self) -> None:
        self.first = Scale(2)
        self.note = "not a parameter"
        self.bias = Parameter(np.zeros(2, np.float32))
        self.rest = ModuleList(Scale(2), Scale(2))

    def forward(self, x):  # type: ignore[no-untyped-def]
        x = self.first(x) + self.bias
        for layer in self.rest:
            x = layer(x)
        return x


def test_names_follow_attributes() -> None:
    net = Net()
    assert [name for name, _ in net.named_parameters()] == ["bias", "first.weight", "rest.0.weight", "rest.1.weight"]
    assert [name for name, _ in net.named_modules()] == ["", "first", "rest", "rest.0", "rest.1"]
    assert list(dict(net.named_buffers()))[:2] == ["first.seen", "first.average"]
    assert net.parameter_count() == 8
    assert len(list(net.parameters())) == 4


def test_calling_runs_forward_and_gradients_reach_all_parameters() -> None:
    net = Net()
    y = net(np.array([1.0, 3.0], np.float32))
    np.testing.assert_array_equal(y.data, [8, 24])
    y.sum().backward()
    assert all(p.grad is not None for p in net.parameters())
    np.testing.assert_array_equal(net.first.weight.grad, [4, 12])
    net.clear_grads()
    assert all(p.grad is None for p in net.parameters())
    assert net.first.seen == 1


def test_a_shared_module_or_parameter_is_listed_once() -> None:
    net = Net()
    net.again = net.first
    net.tied = net.bias
    assert [name for name, _ in net.named_parameters()] == ["bias", "first.weight", "rest.0.weight", "rest.1.weight"]
    net.net = net  # even a ring ends
    assert len(list(net.named_modules())) == 5


def test_state_is_a_copy_and_comes_back_in_place() -> None:
    net, other = Net(), Net()
    net.first.seen += 5
    net.bias.data[...] = [3, 4]
    state = net.state()
    net.bias.data[...] = 0
    np.testing.assert_array_equal(state["bias"], [3, 4])
    assert net.state(copy=False)["bias"] is net.bias.data
    held = other.bias.data
    other.load_state(state)
    assert other.bias.data is held
    np.testing.assert_array_equal(held, [3, 4])
    assert other.first.seen == 5


def test_loading_names_what_is_missing_and_what_is_unknown_and_changes_nothing() -> None:
    net = Net()
    state = net.state()
    state["bias"] += 1
    state["rest.2.weight"] = state.pop("rest.1.weight")
    with pytest.raises(UndertowError, match=r"fit this Net: missing rest.1.weight; not in the model: rest.2.weight"):
        net.load_state(state)
    assert not net.bias.data.any()
    with pytest.warns(UndertowWarning, match=r"missing rest.1.weight"):
        net.load_state(state, strict=False)
    np.testing.assert_array_equal(net.bias.data, [1, 1])


def test_long_lists_of_names_are_cut() -> None:
    with pytest.raises(UndertowError, match=r"rest.0.weight, .* and 2 more\."):
        Net().load_state({})


def test_shapes_and_kinds_are_checked_before_anything_is_written() -> None:
    net = Net()
    state = net.state()
    state["bias"] += 1
    with pytest.raises(ShapeError, match=r"'rest.1.weight' has shape \(3,\), the model needs \(2,\)"):
        net.load_state({**state, "rest.1.weight": np.zeros(3, np.float32)})
    with pytest.raises(UndertowError, match=r"'first\.seen' holds values of type float64, the model needs int64"):
        net.load_state({**state, "first.seen": np.zeros(())})
    assert not net.bias.data.any()


def test_float64_values_go_into_float32_parameters() -> None:
    net = Net()
    net.load_state({**net.state(), "bias": np.array([0.5, 0.25])})
    assert net.bias.dtype == np.float32
    np.testing.assert_array_equal(net.bias.data, [0.5, 0.25])


def test_to_dtype_leaves_integers_alone() -> None:
    net = Net().to_dtype(np.float64)
    assert {p.dtype for p in net.parameters()} == {np.dtype(np.float64)}
    assert net.first.average.dtype == np.float64
    assert net.first.seen.dtype == np.int64
    assert net.rest[0].dtype == np.float64
    assert Net().dtype == np.float32


class Waiting(Module):
    def __init__(self) -> None:
        self.weight = Parameter(None)


def test_a_parameter_that_waits_can_be_loaded_but_not_saved() -> None:
    waiting = Waiting()
    assert waiting.parameter_count() == 0
    assert repr(waiting) == "Waiting()  weight waits for its input"
    with pytest.raises(UndertowError, match="'weight' has no values yet"):
        waiting.state()
    with pytest.raises(UndertowError, match="'weight' holds values of type int64, the model needs float"):
        waiting.load_state({"weight": np.zeros(3, np.int64)})
    waiting.load_state({"weight": np.ones((2, 3))})
    assert waiting.weight.dtype == np.float32


def test_modules_and_parameters_hidden_in_plain_containers_are_refused() -> None:
    net = Net()
    for hidden in ([Scale(1)], (Scale(1),), {"a": Scale(1)}, [net.bias]):
        net.layers = hidden
        with pytest.raises(UndertowError, match="'layers' of Net is a plain container"):
            list(net.parameters())
    net.layers = [1, 2, 3]
    assert len(list(net.parameters())) == 4


def double(x):  # type: ignore[no-untyped-def]
    return x + x


def test_sequential_takes_modules_and_functions() -> None:
    net = Sequential(Scale(2), double)
    net.append(Scale(2))
    y = net(np.array([1.0, 2.0], np.float32))
    np.testing.assert_array_equal(y.data, [8, 16])
    assert [name for name, _ in net.named_parameters()] == ["0.weight", "2.weight"]
    assert len(net) == 3
    assert net[1] is double
    assert list(net)[1] is double
    with pytest.raises(TypeError, match="Sequential takes modules and functions, got int"):
        net.append(3)  # type: ignore[arg-type]


def test_repr_shows_the_tree_with_shapes() -> None:
    net = Sequential(Scale(2), double)
    assert repr(net) == "\n".join(
        [
            "Sequential()",
            "  0: Scale(2)  weight (2,), average (2,)",
            "  1: double",
        ]
    )
    lines = repr(Net()).splitlines()
    assert lines[0] == "Net()  bias (2,)"
    assert lines[2:4] == ["  rest: ModuleList()", "    0: Scale(2)  weight (2,), average (2,)"]


def test_the_base_has_no_forward() -> None:
    with pytest.raises(NotImplementedError, match="Module has no forward"):
        Module()(1)
