"""Modes are context managers of one thread; hooks see every operation of one thread."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import undertow as ut
from undertow import FunctionHook, NaNHook, TimerHook, Variable


def _in_a_thread(function):
    found = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


# --- modes --------------------------------------------------------------------------------------------------------


def test_no_grad_records_nothing():
    x = Variable(np.array(2.0))
    with ut.no_grad():
        y = x * x
        assert not ut.is_recording()
        with ut.enable_grad():
            z = x * x
    assert ut.is_recording()
    assert (y.creator, y.requires_grad) == (None, False)
    assert z.creator is not None


def test_test_mode_and_train_mode():
    assert ut.is_training()
    with ut.test_mode():
        assert not ut.is_training()
        with ut.train_mode():
            assert ut.is_training()
        assert not ut.is_training()
    assert ut.is_training()


def test_precision():
    assert ut.current_precision() == "fast"
    with ut.precision("reference"):
        assert ut.current_precision() == "reference"
        with ut.precision("precise"):
            assert ut.current_precision() == "precise"
    assert ut.current_precision() == "fast"
    with (
        pytest.raises(ValueError, match="precision must be one of fast, precise, reference, got 'exact'"),
        ut.precision("exact"),
    ):
        pass


@pytest.mark.parametrize(
    ("mode", "state"),
    [
        (ut.no_grad, ut.is_recording),
        (ut.test_mode, ut.is_training),
        (lambda: ut.precision("reference"), ut.current_precision),
    ],
)
def test_modes_end_with_an_error_too(mode, state):
    before = state()
    with pytest.raises(KeyError), mode():
        raise KeyError
    assert state() == before


def test_modes_belong_to_one_thread():
    with ut.no_grad(), ut.test_mode(), ut.precision("reference"):
        there = _in_a_thread(lambda: (ut.is_recording(), ut.is_training(), ut.current_precision()))
        assert there == (True, True, "fast")

    entered, checked = threading.Event(), threading.Event()

    def other():
        with ut.no_grad(), ut.test_mode():
            entered.set()
            checked.wait(10)

    thread = threading.Thread(target=other)
    thread.start()
    entered.wait(10)
    here = (ut.is_recording(), ut.is_training())
    checked.set()
    thread.join()
    assert here == (True, True)


def test_graphs_are_built_in_threads_side_by_side():
    def work():
        x = Variable(np.array(1.5))
        ut.exp(x * x).backward()
        return float(x.grad)

    with ut.no_grad():
        assert _in_a_thread(work) == pytest.approx(3 * np.exp(2.25))


# --- hooks --------------------------------------------------------------------------------------------------------


class Log(FunctionHook):
    def __init__(self, name="", log=None):
        self.name = name
        self.log = [] if log is None else log

    def before_forward(self, function, inputs):
        self.log.append((self.name, "before forward", function.label, len(inputs)))

    def after_forward(self, function, inputs, outputs):
        self.log.append((self.name, "after forward", function.label, len(outputs)))

    def before_backward(self, function, output_grads):
        self.log.append((self.name, "before backward", function.label, len(output_grads)))

    def after_backward(self, function, output_grads, input_grads):
        self.log.append((self.name, "after backward", function.label, len(input_grads)))


def test_hooks_see_every_operation_both_ways():
    x = Variable(np.array(2.0))
    with Log() as hook:
        y = ut.exp(x) * x
        y.backward()
    assert [entry[1:] for entry in hook.log] == [
        ("before forward", "Exp", 1),
        ("after forward", "Exp", 1),
        ("before forward", "Mul", 2),
        ("after forward", "Mul", 1),
        ("before backward", "Mul", 1),
        ("after backward", "Mul", 2),
        ("before backward", "Exp", 1),
        ("after backward", "Exp", 1),
    ]
    (x * x).backward()
    assert len(hook.log) == 8


def test_hooks_nest_like_brackets():
    log = []
    x = Variable(np.array(2.0))
    with Log("outer", log), Log("inner", log):
        ut.exp(x).backward()
    assert [entry[0] for entry in log] == ["outer", "inner", "inner", "outer"] * 2


def test_hooks_get_arrays():
    seen = []

    class Look(FunctionHook):
        def after_forward(self, function, inputs, outputs):
            seen.extend([*inputs, *outputs])

        def after_backward(self, function, output_grads, input_grads):
            seen.extend([*output_grads, *input_grads])

    x = Variable(np.array(2.0))
    with Look():
        ut.exp(ut.square(x)).backward()
        ut.exp(ut.square(x)).backward(create_graph=True)
    assert all(isinstance(array, np.ndarray) for array in seen)


def test_hooks_see_none_where_there_is_no_gradient():
    seen = []

    class Look(FunctionHook):
        def after_backward(self, function, output_grads, input_grads):
            seen.append([g is None for g in input_grads])

    with Look():
        (Variable(np.array(2.0)) * 3.0).backward()
    assert seen == [[False, True]]


def test_hooks_belong_to_one_thread():
    with Log() as hook:
        _in_a_thread(lambda: ut.exp(Variable(np.array(1.0))))
    assert hook.log == []


def test_the_timer_counts_calls_and_seconds_per_kind():
    x = Variable(np.ones(1000))
    with TimerHook() as timer:
        ut.sum(ut.exp(ut.exp(x) * 0.1)).backward()
    assert dict(timer.calls) == {"Exp": 2, "Mul": 1, "Sum": 1}
    assert set(timer.forward) == set(timer.backward) == {"Exp", "Mul", "Sum"}
    assert all(seconds > 0 for seconds in timer.forward.values())


def test_the_nan_search_names_the_first_operation():
    x = Variable(np.array([1.0, -1.0, 0.0]))
    with NaNHook():
        ut.exp(x)
        with pytest.raises(
            ut.UndertowError, match=r"forward of Log made 2 non-finite values .* \(from finite inputs\)"
        ):
            ut.log(x)


@pytest.mark.filterwarnings("error")
def test_nan_hook_alone_tells_and_numpy_does_not_beside_it() -> None:
    before = np.geterr()
    for bad in (lambda: ut.log(Variable(np.array([-1.0]))), lambda: Variable(np.ones(1)) / np.zeros(1)):
        hook = NaNHook()
        with pytest.raises(ut.UndertowError, match="made 1 non-finite"), hook, hook:
            bad()
    assert np.geterr() == before


def test_the_nan_search_looks_at_the_way_back_too():
    x = Variable(np.array([4.0, 0.0]))
    y = ut.sqrt(x)
    with NaNHook(), pytest.raises(ut.UndertowError, match="backward of Sqrt made 1"):
        y.backward()


def test_the_nan_search_says_when_the_input_was_bad_already():
    x = Variable(np.array([np.nan]))
    with NaNHook(), pytest.raises(ut.UndertowError, match="its inputs were already not finite"):
        ut.exp(x)
