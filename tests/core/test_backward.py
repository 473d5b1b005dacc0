"""The walk backward: accumulation, order, seeds, what is kept and what is not, and who owns an array."""

from __future__ import annotations

import numpy as np
import pytest

import undertow as ut
from undertow import Function, Variable
from undertow.core.hooks import FunctionHook


class Calls(FunctionHook):
    """Remembers which functions went backward, in order."""

    def __init__(self):
        self.order = []

    def before_backward(self, function, output_grads):
        self.order.append(function)


# --- leaves add up, intermediates start from nothing --------------------------------------------------------------


def test_a_second_backward_doubles_the_leaves_exactly(rng):
    x, w = Variable(rng.standard_normal((3, 4))), Variable(rng.standard_normal((4, 2)))
    y = ut.sum(ut.tanh(x @ w) ** 3)
    y.backward()
    first = x.grad.copy(), w.grad.copy()
    y.backward()
    assert np.array_equal(x.grad, 2 * first[0])
    assert np.array_equal(w.grad, 2 * first[1])
    y.backward()
    assert np.array_equal(x.grad, 2 * first[0] + first[0])


def test_a_second_backward_doubles_the_leaves_with_intermediates_retained(rng):
    x = Variable(rng.standard_normal(5))
    a = ut.exp(x)
    y = ut.sum(a * a)
    y.backward(retain_grad=True)
    first, inner = x.grad.copy(), a.grad.copy()
    y.backward(retain_grad=True)
    assert np.array_equal(x.grad, 2 * first)
    assert np.array_equal(a.grad, inner)


def test_gradients_of_two_graphs_add_up_in_a_shared_leaf():
    x = Variable(np.array(3.0))
    (x * x).backward()
    (x * 5.0).backward()
    assert x.grad == 6.0 + 5.0
    x.clear_grad()
    assert x.grad is None
    (x * 5.0).backward()
    assert x.grad == 5.0


def test_intermediate_gradients_are_freed_unless_asked_for():
    x = Variable(np.array(2.0))
    a = x * x
    b = a * 3.0
    y = b + 1.0
    b.retain_grad()
    y.backward()
    assert a.grad is None
    assert b.grad == 1.0
    assert x.grad == 12.0
    y.backward(retain_grad=True)
    assert a.grad == 3.0


def test_a_kept_intermediate_gradient_is_forgotten_by_a_later_plain_backward():
    x = Variable(np.array(2.0))
    a = x * x
    y = a * 3.0
    y.backward(retain_grad=True)
    assert a.grad == 3.0
    y.backward()
    assert a.grad is None


# --- order --------------------------------------------------------------------------------------------------------


def test_diamond():
    x = Variable(np.array(2.0))
    a = ut.square(x)
    y = ut.square(a) + ut.square(a)
    with Calls() as calls:
        y.backward()
    assert x.grad == 64.0
    assert len(calls.order) == 4
    assert calls.order[-1] is a.creator


def test_a_short_branch_waits_for_the_long_one():
    x = Variable(np.array(0.5))
    a = x * 2.0
    long = a
    for _ in range(5):
        long = ut.sin(long)
    y = long * a
    with Calls() as calls:
        y.backward()
    generations = [function.generation for function in calls.order]
    assert generations == sorted(generations, reverse=True)
    assert len(calls.order) == len(set(calls.order)) == 7


def test_one_variable_on_both_sides():
    x = Variable(np.array(3.0))
    y = x + x
    y.backward()
    assert x.grad == 2.0


def test_many_paths_are_walked_once_per_function():
    x = y = Variable(np.array(1.0))
    for _ in range(60):
        y = y + y
    with Calls() as calls:
        y.backward()
    assert x.grad == 2.0**60
    assert len(calls.order) == 60


def test_the_same_function_object_called_twice():
    f = ut.Square()
    x = Variable(np.array(3.0))
    a = f(x)
    y = f(a)
    assert a.creator is not y.creator
    y.backward()
    assert x.grad == 4 * 27.0


def test_options_survive_a_second_call_of_the_same_object():
    f = ut.Power(3)
    x, z = Variable(np.array(2.0)), Variable(np.array(5.0))
    y = f(x) + f(z)
    y.backward()
    assert (x.grad, z.grad) == (12.0, 75.0)


# --- seeds --------------------------------------------------------------------------------------------------------


def test_the_seed_is_the_gradient_already_there():
    x = Variable(np.array([1.0, 2.0]))
    y = x * x
    y.grad = np.array([10.0, 100.0])
    y.backward()
    assert np.array_equal(x.grad, [20.0, 400.0])
    assert np.array_equal(y.grad, [10.0, 100.0])


def test_without_a_seed_every_element_counts_once():
    x = Variable(np.array([1.0, 2.0]))
    (x * x).backward()
    assert np.array_equal(x.grad, [2.0, 4.0])


def test_a_seed_of_the_wrong_shape_is_refused():
    x = Variable(np.ones((2, 3)))
    y = x * 2.0
    y.grad = np.ones(3)
    with pytest.raises(ut.UndertowError, match=r"the seed has shape \(3,\), the value to differentiate \(2, 3\)"):
        y.backward()
    with pytest.raises(ut.UndertowError, match="the seed has shape"):
        ut.grad(y, x, np.ones((3, 2)))


def test_a_seed_takes_the_float_type_of_its_value():
    x = Variable(np.ones(2, np.float32))
    y = x * x
    y.grad = np.ones(2)
    y.backward()
    assert x.grad.dtype == np.float32


def test_the_gradient_of_a_leaf_itself_is_its_seed():
    x = Variable(np.array([1.0, 2.0]))
    x.backward()
    assert np.array_equal(x.grad, [1.0, 1.0])
    x.grad = np.array([3.0, 4.0])
    x.backward()
    assert np.array_equal(x.grad, [3.0, 4.0])


def test_grad_refuses_numbers():
    x = Variable(np.array(1.0))
    with pytest.raises(TypeError, match=r"grad takes an ndarray or None, got float"):
        x.grad = 1.0


# --- what cannot be answered --------------------------------------------------------------------------------------


def test_nothing_recorded_is_an_error():
    with ut.no_grad():
        y = Variable(np.array(1.0)) * 2.0
    with pytest.raises(ut.UndertowError, match="nothing to differentiate"):
        y.backward()


def test_a_constant_result_is_an_error():
    y = ut.exp(np.array(1.0))
    with pytest.raises(ut.UndertowError, match="nothing to differentiate"):
        y.backward()


def test_a_wrongly_shaped_gradient_names_the_function_and_the_input():
    class Careless(Function):
        def forward(self, a, b):
            return a + b

        def backward(self, gy):
            return gy, gy

    a, b = Variable(np.ones((2, 3))), Variable(np.ones(3))
    with pytest.raises(ut.UndertowError, match=r"backward of Careless .* shape \(2, 3\) for input 1 of shape \(3,\)"):
        Careless()(a, b).backward()


def test_a_wrong_number_of_gradients_names_the_function():
    class Forgetful(Function):
        def forward(self, a, b):
            return a + b

        def backward(self, gy):
            return gy

    with pytest.raises(ut.UndertowError, match="backward of Forgetful returned 1 gradients for 2 inputs"):
        Forgetful()(Variable(np.ones(2)), Variable(np.ones(2))).backward()


def test_an_error_on_the_way_back_says_where():
    class Broken(Function):
        def forward(self, x):
            return x

        def backward(self, gy):
            return gy / undefined  # noqa: F821

    with pytest.raises(NameError) as caught:
        Broken()(Variable(np.ones(2))).backward()
    assert "on the way back, in Broken" in caught.value.__notes__


def test_an_error_on_the_way_forward_says_where():
    with pytest.raises(ValueError, match="broadcast") as caught:
        Variable(np.ones((2, 3))) + np.ones(2, np.float32)
    assert caught.value.__notes__ == ["in Add of float64[2, 3], float32[2]"]


def test_a_variable_without_data_is_named():
    with pytest.raises(ut.UndertowError, match=r"Square: input 0 has no data yet\. To mend it"):
        ut.square(Variable(None))


# --- several outputs, no gradient ---------------------------------------------------------------------------------


def test_unused_outputs_get_zeros():
    x = Variable(np.arange(6.0))
    first, _, last = ut.split(x, 3)
    (first * 2.0 + last).backward()
    assert np.array_equal(x.grad, [2.0, 2.0, 0.0, 0.0, 1.0, 1.0])


def test_outputs_that_are_gone_get_zeros_of_their_type():
    x = Variable(np.arange(6, dtype=np.float32))
    first = ut.split(x, 3)[0]
    first.backward()
    assert np.array_equal(x.grad, [1, 1, 0, 0, 0, 0])
    assert x.grad.dtype == np.float32


def test_an_output_that_is_gone_cannot_be_asked_for():
    x = Variable(np.arange(6.0))
    first = ut.split(x, 3)[0]
    with pytest.raises(ut.UndertowError, match="an output of Split is gone"):
        _ = first.creator.outputs


def test_none_means_no_gradient():
    class First(Function):
        def forward(self, a, b):
            return a + b

        def backward(self, gy):
            return gy, None

    a, b = Variable(np.ones(2)), Variable(np.ones(2))
    First()(a, b).backward()
    assert np.array_equal(a.grad, [1.0, 1.0])
    assert b.grad is None


def test_functions_are_told_which_gradients_are_wanted():
    seen = []

    class Asking(Function):
        def forward(self, a, b, c):
            seen.append(self.needs_input_grad)
            return a + b + c

        def backward(self, gy):
            seen.append(self.needs_input_grad)
            return gy, None, gy

    a, c = Variable(np.ones(2)), Variable(np.ones(2))
    Asking()(a, np.ones(2), c).backward()
    with ut.no_grad():
        Asking()(a, np.ones(2), c)
    assert seen == [(True, False, True), (True, False, True), (False, False, False)]


def test_a_constant_gets_no_gradient():
    x, c = Variable(np.array(2.0)), Variable(np.array(3.0), requires_grad=False)
    (x * c).backward()
    assert x.grad == 3.0
    assert c.grad is None


# --- whole numbers, float types -----------------------------------------------------------------------------------


def test_whole_numbers_have_gradients_too():
    x = Variable(np.array(3))
    y = ut.square(x)
    y.backward()
    assert x.grad == 6
    x.clear_grad()
    (ut.exp(x) + x * x + x).backward()
    assert x.grad == pytest.approx(np.exp(3) + 7)


def test_a_gradient_takes_the_float_type_of_its_variable():
    class Wide(Function):
        def forward(self, x):
            return x * 2

        def backward(self, gy):
            return np.asarray(gy * 2, np.float64)

    x = Variable(np.ones(3, np.float32))
    Wide()(x).backward()
    assert x.grad.dtype == np.float32


# --- who owns an array --------------------------------------------------------------------------------------------


def test_the_seed_is_never_written_into():
    x = Variable(np.ones(3))
    y = x + x + x
    seed = np.array([1.0, 2.0, 3.0])
    y.grad = seed
    y.backward()
    y.backward()
    assert np.array_equal(seed, [1.0, 2.0, 3.0])
    assert not np.shares_memory(seed, x.grad)


def test_two_leaves_do_not_share_one_gradient_array():
    a, b = Variable(np.ones(3)), Variable(np.ones(3))
    y = a + b
    y.backward(retain_grad=True)
    assert not np.shares_memory(a.grad, b.grad)
    assert not np.shares_memory(a.grad, y.grad)
    a.grad *= 10.0
    assert np.array_equal(b.grad, [1.0, 1.0, 1.0])


def test_two_leaves_do_not_share_one_gradient_array_with_create_graph():
    a, b = Variable(np.ones(3)), Variable(np.ones(3))
    (a + b).backward(create_graph=True)
    a.grad *= 10.0
    assert np.array_equal(b.grad, [1.0, 1.0, 1.0])


def test_results_of_grad_do_not_share_memory():
    a, b = Variable(np.ones(3)), Variable(np.ones(3))
    c = a + b
    y = c * 1.0
    ga, gb, gc = ut.grad(y, [a, b, c])
    ga.data[:] = 7.0
    assert np.array_equal(gb.data, [1.0, 1.0, 1.0])
    assert np.array_equal(gc.data, [1.0, 1.0, 1.0])


def test_views_become_arrays_of_their_own():
    x = Variable(np.ones((2, 3)))
    ut.sum(ut.transpose(x)).backward()
    assert x.grad.flags.writeable
    assert x.grad.flags.c_contiguous
    assert x.grad.strides == (24, 8)


def test_a_gradient_that_the_function_keeps_is_not_grown_in_place():
    kept = []

    class Keeping(Function):
        def forward(self, x):
            return x * 2.0

        def backward(self, gy):
            gx = gy * 2.0
            kept.append((gx, gx.copy()))
            return gx

    x = Variable(np.ones(3))
    y = Keeping()(x) + Keeping()(x) + Keeping()(x)
    y.backward()
    x.grad += 100.0
    assert all(np.array_equal(now, then) for now, then in kept)
    assert len(kept) == 3


def test_a_fresh_gradient_is_handed_over_without_a_copy():
    made = []

    class Making(Function):
        def forward(self, x):
            return x.copy()

        def backward(self, gy):
            gx = gy * 2.0
            made.append(gx.__array_interface__["data"][0])
            return gx

    x = Variable(np.ones(1000))
    Making()(x).backward()
    assert x.grad.__array_interface__["data"][0] == made[0]


def test_an_accumulated_gradient_leaves_the_earlier_array_alone():
    x = Variable(np.ones(3))
    y = x * 2.0
    y.backward()
    first = x.grad
    y.backward()
    assert np.array_equal(first, [2.0, 2.0, 2.0])
    assert np.array_equal(x.grad, [4.0, 4.0, 4.0])


def test_inputs_are_never_written_into(rng):
    arrays = [rng.standard_normal((3, 3)) for _ in range(2)]
    copies = [a.copy() for a in arrays]
    x, w = map(Variable, arrays)
    y = ut.sum(ut.relu(x @ w + x) * w)
    y.backward()
    y.backward()
    assert all(np.array_equal(a, c) for a, c in zip(arrays, copies, strict=True))


# --- grad() -------------------------------------------------------------------------------------------------------


def test_grad_writes_nothing_into_grad():
    x = Variable(np.array(3.0))
    a = x * x
    y = a * 2.0
    ga, gx = ut.grad(y, [a, x])
    assert (ga.data, gx.data) == (2.0, 12.0)
    assert x.grad is None
    assert a.grad is None
    assert y.grad is None


def test_grad_leaves_gradients_alone_that_are_there():
    x = Variable(np.array(3.0))
    a = x * x
    a.grad = np.array(5.0)
    assert ut.grad(a * 2.0, x).data == 12.0
    assert a.grad == 5.0


def test_grad_of_one_variable_is_one_variable():
    x = Variable(np.array(3.0))
    g = ut.grad(x * x, x)
    assert isinstance(g, Variable)
    assert not g.requires_grad
    assert isinstance(ut.grad(x * x, [x]), tuple)


def test_grad_of_several_results_with_seeds():
    x = Variable(np.array(3.0))
    ys = [x * x, x * 5.0]
    assert ut.grad(ys, x).data == 11.0
    assert ut.grad(ys, x, [np.array(10.0), None]).data == 65.0
    assert ut.grad(ys, x, np.float64(2.0)).data == 22.0
    with pytest.raises(ut.UndertowError, match="2 outputs but 1 seeds"):
        ut.grad(ys, x, [None])


def test_grad_of_a_value_by_itself_is_its_seed():
    x = Variable(np.array(3.0))
    y = x * x
    gy, gx = ut.grad(y, [y, x])
    assert (gy.data, gx.data) == (1.0, 6.0)


def test_grad_with_the_same_variable_twice():
    x = Variable(np.array(3.0))
    first, second = ut.grad(x * x, [x, x])
    assert first.data == second.data == 6.0


def test_grad_visits_only_what_leads_to_the_targets():
    x, z = Variable(np.array(1.0)), Variable(np.array(1.0))
    side = z
    for _ in range(10):
        side = ut.sin(side)
    a = x * 2.0
    y = a * side
    with Calls() as calls:
        assert ut.grad(y, a).data == side.data
    assert calls.order == [y.creator]


def test_grad_says_what_the_graph_does_not_reach():
    x, z = Variable(np.ones(3), name="x"), Variable(np.ones((2, 2)), name="weights")
    y = ut.sum(x * x)
    with pytest.raises(ut.UndertowError, match=r"variable 'weights' of shape \(2, 2\) does not influence the outputs"):
        ut.grad(y, [x, z])
    z.name = None
    with pytest.raises(ut.UndertowError, match="variable number 1 of shape"):
        ut.grad(y, [x, z])


def test_grad_does_not_reach_across_no_grad():
    x = Variable(np.array(2.0))
    with ut.no_grad():
        a = x * x
    with pytest.raises(ut.UndertowError, match="does not influence"):
        ut.grad(a * 2.0, x)


# --- cutting the graph --------------------------------------------------------------------------------------------


def test_unchain_makes_a_leaf():
    x = Variable(np.array(2.0))
    a = x * x
    a.unchain()
    y = a * 3.0
    y.backward()
    assert x.grad is None
    assert a.grad == 3.0
    assert (a.creator, a.generation) == (None, 0)


def test_unchain_backward_cuts_everything_behind():
    x = Variable(np.array(2.0))
    values = [x]
    for _ in range(4):
        values.append(values[-1] * values[-1])
    values[3].unchain_backward()
    assert all(v.creator is None for v in values[:4])
    assert values[4].creator is not None
    values[4].backward()
    assert x.grad is None
    assert values[3].grad == 2 * values[3].data
