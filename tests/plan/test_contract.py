"""The contract of `plan`, point by point, on small steps whose operations run as ordinary functions."""

from __future__ import annotations

import itertools
import logging

import numpy as np
import pytest

import undertow as ut
from undertow import layers
from undertow.errors import GraphError
from undertow.functions import linear
from undertow.plans import plan


class Net:
    """Two linear layers and a squared error, in float64."""

    def __init__(self, dtype: str = "float64") -> None:
        rng = np.random.default_rng(1)
        self.w1 = ut.Parameter(rng.standard_normal((6, 3)).astype(dtype), name="w1")
        self.w2 = ut.Parameter(rng.standard_normal((2, 6)).astype(dtype), name="w2")

    def step(self, x: np.ndarray, t: np.ndarray) -> tuple[ut.Variable, ut.Variable]:
        y = linear(ut.tanh(linear(x, self.w1)), self.w2)
        loss = ((y - t) ** 2).sum()
        loss.backward()
        return loss, y

    def clear(self) -> None:
        self.w1.clear_grad()
        self.w2.clear_grad()


def batches(count: int, dtype: str = "float64", rows: int = 5) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(7)
    return [
        (rng.standard_normal((rows, 3)).astype(dtype), rng.standard_normal((rows, 2)).astype(dtype))
        for _ in range(count)
    ]


def run(step, net, batch):  # type: ignore[no-untyped-def]
    net.clear()
    loss, y = step(*batch)
    return loss.data.copy(), y.data.copy(), net.w1.grad.copy(), net.w2.grad.copy()


def test_replays_give_the_very_numbers_of_the_step() -> None:
    net = Net()
    planned = plan(net.step)
    for n, batch in enumerate(batches(5)):
        found, expected = run(planned, net, batch), run(net.step, net, batch)
        assert planned.is_replaying == (n >= 2)
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_array_equal(a, b)


def test_gradients_add_up_until_they_are_cleared() -> None:
    net = Net()
    planned = plan(net.step)
    one, two, three, four = batches(4)
    run(planned, net, one)
    run(planned, net, two)
    net.clear()
    planned(*three)
    first = net.w1.grad
    before = first.copy()
    planned(*four)
    np.testing.assert_allclose(net.w1.grad, before + run(net.step, net, four)[2], rtol=1e-12)
    np.testing.assert_array_equal(first, before)


def test_a_gradient_that_somebody_holds_is_not_written_over() -> None:
    net = Net()
    planned = plan(net.step)
    held = []
    for batch in batches(4):
        net.clear()
        planned(*batch)
        held.append((net.w1.grad, net.w1.grad.copy()))
    for gradient, copy in held:
        np.testing.assert_array_equal(gradient, copy)


def test_clearing_gradients_inside_the_step_is_replayed() -> None:
    net = Net()

    def step(x: np.ndarray, t: np.ndarray) -> ut.Variable:
        y = linear(ut.tanh(linear(x, net.w1)), net.w2)
        loss = ((y - t) ** 2).sum()
        net.clear()
        loss.backward()
        return loss

    planned = plan(step)
    for batch in batches(5):
        planned(*batch)
    assert planned.is_replaying
    np.testing.assert_array_equal(net.w1.grad, run(net.step, net, batches(5)[-1])[2])


def test_edited_and_replaced_parameters_take_effect() -> None:
    net = Net()
    planned = plan(net.step)
    for batch in batches(3):
        run(planned, net, batch)
    net.w1.data[0, 0] += 1
    batch = batches(1)[0]
    np.testing.assert_array_equal(run(planned, net, batch)[1], run(net.step, net, batch)[1])
    net.w2.data = net.w2.data * 2
    np.testing.assert_array_equal(run(planned, net, batch)[1], run(net.step, net, batch)[1])
    assert not planned.is_replaying or planned.reason() is None


def test_returned_arrays_are_copies() -> None:
    net = Net()
    planned = plan(net.step)
    results = [planned(*batch)[1] for batch in batches(5)]
    expected = [net.step(*batch)[1].data for batch in batches(5)]
    for a, b in zip(results, expected, strict=True):
        np.testing.assert_array_equal(a.data, b)


def test_reading_an_intermediate_is_an_error() -> None:
    net = Net()
    seen: list[ut.Variable] = []

    def step(x: np.ndarray) -> ut.Variable:
        hidden = linear(x, net.w1)
        seen.append(hidden)
        y = hidden.sum()
        y.backward()
        return y

    planned = plan(step)
    for x, _ in batches(3):
        planned(x)
    assert planned.is_replaying
    assert len(seen) == 2
    for read in (lambda v: v.data, lambda v: v.grad, lambda v: v.shape, lambda v: v + 1, float):
        with pytest.raises(GraphError, match="intermediate value of a planned step"):
            read(seen[1])


def _line_of(text: str) -> int:
    with open(__file__) as source:
        return next(n for n, line in enumerate(source, 1) if text in line and "_line_of" not in line)


def unplanned(step, calls, caplog) -> str:  # type: ignore[no-untyped-def]
    """The one line that says why; the step itself must go on giving right results."""
    planned = plan(step)
    with caplog.at_level(logging.WARNING, "undertow.plan"):
        for call in calls:
            np.testing.assert_array_equal(planned(*call).data, step(*call).data)
    assert not planned.is_replaying
    (record,) = caplog.records
    return record.getMessage()


def test_a_constant_that_changes_keeps_the_step_unplanned(caplog: pytest.LogCaptureFixture) -> None:
    count = iter(range(100))
    w = ut.Parameter(np.ones(3))

    def step(x: np.ndarray) -> ut.Variable:
        with ut.no_grad():
            return w * x * (1.0 + next(count) // 2)  # changes

    line = unplanned(step, [(np.ones(3) * k,) for k in range(4)], caplog)
    assert f"{__file__}:{_line_of('# changes')}" in line


def test_an_option_that_changes_keeps_the_step_unplanned(caplog: pytest.LogCaptureFixture) -> None:
    sizes = iter([0, 0, 1, 1, 0, 0, 1, 1])

    def step(x: np.ndarray) -> ut.Variable:
        return ut.Variable(x, requires_grad=False).sum(axis=next(sizes))  # other axis

    line = unplanned(step, [(np.arange(9.0).reshape(3, 3) + k,) for k in range(4)], caplog)
    assert f":{_line_of('# other axis')}" in line
    assert "axis" in line


def test_control_flow_that_changes_keeps_the_step_unplanned(caplog: pytest.LogCaptureFixture) -> None:
    def step(x: np.ndarray) -> ut.Variable:
        y = ut.Variable(x, requires_grad=False) * 2
        if y.data[0] > 1:
            y = ut.exp(y)  # sometimes
        return y

    line = unplanned(step, [(np.array([float(k % 2)]),) for k in range(4)], caplog)
    assert f":{_line_of('# sometimes')}" in line


def test_an_argument_changed_in_python_is_not_taken_for_a_constant(caplog: pytest.LogCaptureFixture) -> None:
    def step(x: np.ndarray) -> ut.Variable:
        return ut.Variable(x / 255, requires_grad=False) * 2  # derived

    line = unplanned(step, [(np.arange(3.0) + k,) for k in range(4)], caplog)
    assert f":{_line_of('# derived')}" in line


def test_with_equal_arguments_a_fresh_array_leaves_the_step_undecided(caplog: pytest.LogCaptureFixture) -> None:
    def step(x: np.ndarray) -> ut.Variable:
        return ut.Variable(x / 255, requires_grad=False) * 2

    planned = plan(step)
    with caplog.at_level(logging.WARNING, "undertow.plan"):
        for _ in range(4):
            planned(np.arange(3.0))
    assert not planned.is_replaying
    assert "may depend on the arguments" in caplog.records[0].getMessage()
    np.testing.assert_array_equal(planned(np.arange(3.0) + 1).data, step(np.arange(3.0) + 1).data)
    assert not planned.is_replaying


@pytest.mark.parametrize("derive", [lambda x: x, lambda x: x.reshape(3, 4), lambda x: x[1:], lambda x: x[:, ::2]])
def test_views_of_arguments_are_arguments(derive) -> None:  # type: ignore[no-untyped-def]
    def step(x: np.ndarray) -> ut.Variable:
        return ut.Variable(derive(x), requires_grad=False) * 2

    planned = plan(step)
    for k in range(4):
        x = np.arange(12.0).reshape(2, 6) * k
        np.testing.assert_array_equal(planned(x).data, step(x).data)
    assert planned.is_replaying


def test_a_leaf_on_an_earlier_result_is_that_result() -> None:
    w = ut.Parameter(np.arange(3.0), name="w")

    def step(x: np.ndarray) -> ut.Variable:
        y = w * x
        target = ut.Variable(y.data, requires_grad=False)
        loss = (y * target).sum()
        loss.backward()
        return loss

    planned = plan(step)
    for k in range(1, 5):
        x = np.arange(3.0) + k
        w.clear_grad()
        planned(x)
        found = w.grad.copy()
        w.clear_grad()
        step(x)
        np.testing.assert_array_equal(found, w.grad)
    assert planned.is_replaying


def test_a_number_passed_as_an_array_is_read_anew() -> None:
    w = ut.Parameter(np.ones(3))

    def step(x: np.ndarray, rate: np.ndarray) -> ut.Variable:
        with ut.no_grad():
            return w * x * rate

    planned = plan(step)
    for k in range(5):
        np.testing.assert_array_equal(planned(np.arange(3.0), np.array(0.5 * k)).data, np.arange(3.0) * 0.5 * k)
    assert planned.is_replaying


def test_dropout_draws_at_every_replay() -> None:
    rng = np.random.default_rng(3)

    def step(x: np.ndarray) -> ut.Variable:
        with ut.no_grad():
            return ut.dropout(x, 0.5, rng=rng)

    planned = plan(step)
    drawn = [planned(np.ones(1000) + k).data > 0 for k in range(6)]
    assert planned.is_replaying
    assert all((a != b).any() for a, b in itertools.pairwise(drawn))
    rng = np.random.default_rng(3)
    for k, mask in enumerate(drawn):
        np.testing.assert_array_equal(mask, step(np.ones(1000) + k).data > 0)


def test_a_layer_that_drops_values_is_planned_and_draws_what_it_draws_without_a_plan() -> None:
    one, two = (layers.Dropout(0.5, rng=3) for _ in range(2))
    planned = plan(lambda x: one(ut.Variable(x, requires_grad=False)))
    for k in range(5):
        np.testing.assert_array_equal(planned(np.ones(100) + k).data, two(np.ones(100) + k).data)
        assert planned.is_replaying == (k > 1)
    np.testing.assert_array_equal(one.calls, 5)
    for layer in (one, two):
        layer.load_state({"calls": np.array(1)})
    np.testing.assert_array_equal(planned(np.ones(100)).data, two(np.ones(100)).data)
    assert planned.is_replaying


def test_arguments_may_be_given_by_name() -> None:
    def step(x: np.ndarray, scale: float = 1.0, *, power: int = 1) -> ut.Variable:
        return ut.Variable(x, requires_grad=False) ** power * scale

    planned = plan(step)
    for k in range(4):
        np.testing.assert_array_equal(planned(scale=2.0, x=np.ones(3) + k).data, (np.ones(3) + k) * 2)
        assert planned.is_replaying == (k > 1)
    planned(np.ones(3) + k, 2.0)
    assert planned.is_replaying
    np.testing.assert_array_equal(planned(np.ones(3) * 2, power=3).data, np.full(3, 8.0))
    assert not planned.is_replaying
    assert "'power'" in (planned.reason() or "")
    with pytest.raises(TypeError, match="missing a required argument: 'x'"):
        planned(scale=3.0)


def test_work_that_depends_on_the_data_runs_at_every_replay() -> None:
    class Largest(ut.Function):
        """Zeros but for the largest; a decision of its own at every call."""

        def forward(self, x: np.ndarray) -> np.ndarray:
            self.at = int(x.argmax())
            y = np.zeros_like(x)
            y[self.at] = x[self.at]
            return y

        def backward(self, gy: np.ndarray) -> np.ndarray:
            gx = np.zeros_like(gy)
            gx[self.at] = gy[self.at]
            return gx

    w = ut.Parameter(np.ones(4))
    last: list[Largest] = []

    def step(x: np.ndarray) -> ut.Variable:
        last[:] = [Largest()]
        y = last[0](w * x).sum()
        y.backward()
        return y

    planned = plan(step)
    for k in range(6):
        x = np.roll(np.arange(4.0), k)
        w.clear_grad()
        assert float(planned(x).data) == 3.0
        assert last[0].at == x.argmax()
        assert w.grad.argmax() == x.argmax()
    assert planned.is_replaying


def test_a_step_that_changes_a_parameter_is_not_planned(caplog: pytest.LogCaptureFixture) -> None:
    w = ut.Parameter(np.ones(3), name="w")

    def step(x: np.ndarray) -> ut.Variable:
        loss = (w * x).sum()
        w.clear_grad()
        loss.backward()
        w.data -= 0.1 * w.grad
        return loss

    planned = plan(step)
    with caplog.at_level(logging.WARNING, "undertow.plan"):
        for k in range(4):
            planned(np.arange(3.0) + k)
    assert not planned.is_replaying
    assert "changes 'w'" in caplog.records[0].getMessage()


def test_a_step_that_clips_gradients_is_not_planned(caplog: pytest.LogCaptureFixture) -> None:
    w = ut.Parameter(np.ones(3), name="w")

    def step(x: np.ndarray) -> ut.Variable:
        loss = (w * x).sum()
        loss.backward()
        w.grad *= 0.5
        return loss

    planned = plan(step)
    with caplog.at_level(logging.WARNING, "undertow.plan"):
        for k in range(4):
            planned(np.arange(3.0) + k)
    assert not planned.is_replaying
    assert "gradient of 'w'" in caplog.records[0].getMessage()


def test_numbers_and_derived_arrays_are_not_returned_by_plans(caplog: pytest.LogCaptureFixture) -> None:
    for derive, word in (
        (lambda y: float(y.data[0]), "float"),
        (lambda y: y.data.max(axis=0, keepdims=True), "derived"),
    ):

        def step(x: np.ndarray, derive=derive) -> object:  # type: ignore[no-untyped-def]
            with ut.no_grad():
                return derive(ut.exp(x))

        caplog.clear()
        planned = plan(step)
        with caplog.at_level(logging.WARNING, "undertow.plan"):
            for k in range(4):
                np.testing.assert_array_equal(planned(np.arange(3.0) + k), step(np.arange(3.0) + k))
        assert word in caplog.records[0].getMessage()


def test_a_graph_left_open_is_not_planned() -> None:
    w = ut.Parameter(np.ones(3))
    planned = plan(lambda x: (w * x).sum())
    for k in range(4):
        loss = planned(np.arange(3.0) + k)
        w.clear_grad()
        loss.backward()
        np.testing.assert_array_equal(w.grad, np.arange(3.0) + k)
    assert "backward()" in (planned.reason() or "")


def test_new_shapes_make_new_plans() -> None:
    net = Net()
    planned = plan(net.step)
    for rows in (5, 5, 5, 2, 2, 2, 5, 2):
        batch = batches(1, rows=rows)[0]
        np.testing.assert_array_equal(run(planned, net, batch)[2], run(net.step, net, batch)[2])
    assert planned.is_replaying


def test_modes_make_new_plans() -> None:
    rng = np.random.default_rng(3)
    planned = plan(lambda x: ut.dropout(ut.Variable(x, requires_grad=False), 0.5, rng=rng) * 1.0)
    for k in range(3):
        planned(np.ones(100) + k)
    assert planned.is_replaying
    with ut.test_mode():
        for k in range(4):
            np.testing.assert_array_equal(planned(np.ones(100) + k).data, np.ones(100) + k)
        assert planned.is_replaying


def test_a_frozen_parameter_makes_a_new_plan() -> None:
    net = Net()
    planned = plan(net.step)
    for batch in batches(3):
        run(planned, net, batch)
    net.w1.requires_grad = False
    net.clear()
    for batch in batches(3):
        planned(*batch)
        assert net.w1.grad is None
        assert net.w2.grad is not None
    assert planned.is_replaying


def test_hooks_take_the_unplanned_way_and_it_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    net = Net()
    planned = plan(net.step)
    for batch in batches(3):
        run(planned, net, batch)
    with caplog.at_level(logging.WARNING, "undertow.plan"):
        for batch in batches(3):
            with ut.TimerHook() as timer:
                run(planned, net, batch)
            assert timer.calls["Linear"] == 2
            assert not planned.is_replaying
    assert len(caplog.records) == 1
    run(planned, net, batches(1)[0])
    assert planned.is_replaying


def test_two_walks_in_one_step() -> None:
    a, b = ut.Parameter(np.ones(3)), ut.Parameter(np.full(3, 2.0))

    def step(x: np.ndarray) -> tuple[ut.Variable, ut.Variable]:
        first = (a * x).sum()
        first.backward()
        second = (a * b * x).sum()
        second.backward()
        return first, second

    planned = plan(step)
    for k in range(5):
        x = np.arange(3.0) + k
        a.clear_grad()
        b.clear_grad()
        planned(x)
        np.testing.assert_array_equal(a.grad, x + 2 * x)
        np.testing.assert_array_equal(b.grad, x)
    assert planned.is_replaying


def test_a_seed_set_by_the_step_is_replayed() -> None:
    w = ut.Parameter(np.ones(3))

    def step(x: np.ndarray, seed: np.ndarray) -> ut.Variable:
        y = w * x
        y.grad = seed
        y.backward()
        return y

    planned = plan(step)
    for k in range(5):
        w.clear_grad()
        planned(np.arange(3.0), np.arange(3.0) + k)
        np.testing.assert_array_equal(w.grad, np.arange(3.0) * (np.arange(3.0) + k))
    assert planned.is_replaying


def test_checking_passes_and_finds_a_plan_gone_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNDERTOW_CHECK_PLAN", "1")
    net = Net()
    factor = [1.0]

    def step(x: np.ndarray, t: np.ndarray) -> tuple[ut.Variable, ut.Variable]:
        y = linear(ut.tanh(linear(x, net.w1)), net.w2)
        loss = ((y - t) ** 2).sum() * factor[0]
        loss.backward()
        return loss, y

    planned = plan(step)
    for batch in batches(5):
        found = run(planned, net, batch)
        np.testing.assert_array_equal(found[2], run(step, net, batch)[2])
    factor[0] = 2.0
    with pytest.raises(GraphError, match="parameter w"):
        run(planned, net, batches(1)[0])


def test_checking_sets_random_draws_and_statistics_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNDERTOW_CHECK_PLAN", "1")
    rng = np.random.default_rng(3)
    running = ut.RunningStatistics(np.zeros(2), np.ones(2), 0.1)

    def step(x: np.ndarray) -> ut.Variable:
        with ut.no_grad():
            return drop(ut.dropout(ut.batch_norm(x, running=running), 0.5, rng=rng))

    drop = layers.Dropout(0.2, rng=5)
    planned = plan(step)
    data = [np.random.default_rng(k).standard_normal((8, 2)) for k in range(5)]
    found = [planned(x).data for x in data]
    assert planned.is_replaying
    statistics = running.mean.copy()
    rng = np.random.default_rng(3)
    drop = layers.Dropout(0.2, rng=5)
    running = ut.RunningStatistics(np.zeros(2), np.ones(2), 0.1)
    for x, y in zip(data, found, strict=True):
        np.testing.assert_array_equal(step(x).data, y)
    np.testing.assert_array_equal(statistics, running.mean)
