"""Define-by-run as it is usually told: user classes, the links they leave, the walk by hand, then backward()."""

# ruff: noqa: RET504 - the classes stand as people write them
from __future__ import annotations

import numpy as np
import pytest

from undertow import Function, Variable, as_array, exp, square

EXPECTED = 3.297442541400256


class Square(Function):
    def forward(self, x):
        y = x**2
        return y

    def backward(self, gy):
        x = self.input.data
        gx = 2 * x * gy
        return gx


class Exp(Function):
    def forward(self, x):
        y = np.exp(x)
        return y

    def backward(self, gy):
        x = self.input.data
        gx = np.exp(x) * gy
        return gx


@pytest.fixture
def chain():
    A = Square()
    B = Exp()
    C = Square()

    x = Variable(np.array(0.5))
    a = A(x)
    b = B(a)
    y = C(b)
    return A, B, C, x, a, b, y


def test_calls_leave_links_behind(chain):
    A, B, C, x, a, b, y = chain
    assert y.creator == C
    assert y.creator.input == b
    assert y.creator.input.creator == B
    assert y.creator.input.creator.input == a
    assert y.creator.input.creator.input.creator == A
    assert y.creator.input.creator.input.creator.input == x
    assert C.output is y
    assert C.outputs == (y,)
    assert C.inputs == (b,)
    assert (x.generation, a.generation, b.generation, y.generation) == (0, 1, 2, 3)


def test_walk_back_by_hand(chain):
    _, _, _, x, _, _, y = chain
    y.grad = np.array(1.0)

    C = y.creator
    b = C.input
    b.grad = C.backward(y.grad)

    B = b.creator
    a = B.input
    a.grad = B.backward(b.grad)

    A = a.creator
    x = A.input
    x.grad = A.backward(a.grad)

    assert x.grad == EXPECTED


def test_walk_back_with_the_functions_in_order(chain):
    A, B, C, x, a, b, y = chain
    y.grad = np.array(1.0)
    b.grad = C.backward(y.grad)
    a.grad = B.backward(b.grad)
    x.grad = A.backward(a.grad)
    assert x.grad == EXPECTED


def test_walk_back_as_a_loop(chain):
    *_, x, _, _, y = chain
    y.grad = np.array(1.0)
    funcs = [y.creator]
    while funcs:
        f = funcs.pop()
        x, y = f.input, f.output
        x.grad = f.backward(y.grad)
        if x.creator is not None:
            funcs.append(x.creator)
    assert x.grad == EXPECTED


def test_walk_back_by_recursion(chain):
    *_, x, _, _, y = chain

    def backward(variable):
        f = variable.creator
        if f is not None:
            x = f.input
            x.grad = f.backward(variable.grad)
            backward(x)

    y.grad = np.array(1.0)
    backward(y)
    assert x.grad == EXPECTED


def test_backward_alone(chain):
    *_, x, _, _, y = chain
    y.backward()
    assert x.grad == EXPECTED


def test_backward_from_a_seed_given_by_hand(chain):
    *_, x, _, _, y = chain
    y.grad = np.array(1.0)
    y.backward()
    assert x.grad == EXPECTED


def test_functions_of_the_library():
    x = Variable(np.array(0.5))
    y = square(exp(square(x)))
    y.backward()
    assert x.grad == EXPECTED


def test_central_difference_agrees():
    def f(x):
        return square(exp(square(x)))

    eps = 1e-4
    before, after = f(Variable(np.array(0.5 - eps))), f(Variable(np.array(0.5 + eps)))
    assert abs((after.data - before.data) / (2 * eps) - EXPECTED) < 1e-6


def test_set_creator_links_by_hand():
    x = Variable(np.array(3.0))
    f = Square()
    f.inputs = (x,)
    y = Variable(np.array(9.0))
    y.set_creator(f)
    assert y.creator is f
    assert y.generation == 1
    assert f.output is y
    y.backward()
    assert x.grad == 6.0


def test_a_number_is_refused_with_the_way_out():
    with pytest.raises(TypeError, match=r"Variable takes an ndarray, got float; write Variable\(np.array\(0.5\)\)"):
        Variable(0.5)


def test_none_may_stand_for_data_to_come():
    x = Variable(None)
    assert x.data is None
    assert repr(x) == "variable(None)"
    x.data = np.array(2.0)
    assert square(x).data == 4.0


def test_results_of_single_numbers_stay_arrays():
    x = Variable(np.array(1.0))
    y = Square()(x)
    assert isinstance(y.data, np.ndarray)
    assert y.shape == ()
    y.backward()
    assert isinstance(x.grad, np.ndarray)
    assert isinstance(as_array(np.float64(1.0)), np.ndarray)
    array = np.ones(2)
    assert as_array(array) is array


def test_the_base_class_has_no_forward_and_no_backward():
    with pytest.raises(NotImplementedError, match="Function has no forward"):
        Function().forward(np.array(1.0))
    with pytest.raises(NotImplementedError, match="Function has no backward"):
        Function().backward(np.array(1.0))


def test_a_class_without_backward_says_so_on_the_way_back():
    class Forgotten(Function):
        def forward(self, x):
            return x

    with pytest.raises(NotImplementedError, match="Forgotten has no backward: write backward"):
        Forgotten()(Variable(np.array(1.0))).backward()
