"""Variable as a value: what it takes, how it looks, and how it mixes with arrays and numbers."""

from __future__ import annotations

import numpy as np
import pytest

import undertow as ut
from undertow import Parameter, Variable


@pytest.mark.parametrize("data", [1.0, 3, [1.0, 2.0], np.float64(1.0), (1,)])
def test_only_arrays_are_taken(data):
    with pytest.raises(TypeError, match=f"Variable takes an ndarray, got {type(data).__name__}"):
        Variable(data)


def test_a_long_value_is_not_printed_whole():
    with pytest.raises(TypeError) as caught:
        Variable(list(range(1000)))
    assert len(str(caught.value)) < 200


def test_looks_like_an_array():
    x = Variable(np.arange(6, dtype=np.float32).reshape(2, 3), name="x")
    assert (x.shape, x.ndim, x.size, x.dtype, len(x), x.name) == ((2, 3), 2, 6, np.float32, 2, "x")
    assert x.T.shape == (3, 2)
    assert x.reshape(3, 2).shape == x.reshape((3, 2)).shape == x.reshape(-1, 2).shape == (3, 2)
    assert x.transpose(1, 0).shape == x.transpose((1, 0)).shape == x.transpose().shape == (3, 2)
    assert x.flatten().shape == (6,)
    assert x.sum(axis=0).shape == (3,)
    assert x.mean(axis=1, keepdims=True).shape == (2, 1)
    assert x[1, 2].item() == float(x[1, 2]) == 5.0


def test_repr():
    assert repr(Variable(np.array([1.0, 2.0]))) == "variable([1. 2.])"
    assert repr(Parameter(np.array([1.0, 2.0]))) == "parameter([1. 2.])"
    assert repr(Variable(np.arange(4).reshape(2, 2))) == "variable([[0 1]\n          [2 3]])"


def test_as_variable():
    x = Variable(np.ones(2))
    assert ut.as_variable(x) is x
    constant = ut.as_variable(np.ones(2))
    assert not constant.requires_grad
    assert ut.as_variable(3.0).shape == ()


OPERATIONS = [
    lambda a, b: a + b,
    lambda a, b: a - b,
    lambda a, b: a * b,
    lambda a, b: a / b,
    lambda a, b: a**b,
]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("number", [2, 2.5, np.float64(2.5), np.float32(2.5), np.int64(2)])
@pytest.mark.parametrize("shape", [(), (2,)])
def test_numbers_on_either_side_take_the_float_type_of_the_variable(operation, dtype, number, shape):
    x = Variable(np.full(shape, 1.5, dtype))
    for y, expected in [
        (operation(x, number), operation(1.5, float(number))),
        (operation(number, x), operation(float(number), 1.5)),
    ]:
        assert isinstance(y, Variable)
        assert y.dtype == dtype
        np.testing.assert_allclose(y.data, expected, rtol=1e-6)
        x.clear_grad()
        y.backward()
        assert x.grad.dtype == dtype
        assert x.grad.shape == shape


@pytest.mark.parametrize("operation", [*OPERATIONS, lambda a, b: a @ b])
def test_arrays_on_either_side(operation):
    x, array = Variable(np.array([[1.5, 2.0], [0.5, 1.0]])), np.array([[2.0, 3.0], [1.0, 0.5]])
    left, right = operation(x, array), operation(array, x)
    assert isinstance(left, Variable)
    assert isinstance(right, Variable)
    np.testing.assert_array_equal(left.data, operation(x.data, array))
    np.testing.assert_array_equal(right.data, operation(array, x.data))


def test_whole_numbers_and_numbers_mix_as_in_numpy():
    x = Variable(np.array([1, 2, 3]))
    assert (x * 2).dtype == np.int64
    assert (x * 0.5).dtype == np.float64
    np.testing.assert_array_equal((x * 0.5).data, [0.5, 1.0, 1.5])


def test_what_is_no_operand_is_refused():
    with pytest.raises(TypeError, match="an operand must be a Variable, an ndarray or a number, got object"):
        Variable(np.ones(2)) + object()


def test_unary_operators():
    x = Variable(np.array([-1.0, 2.0]))
    np.testing.assert_array_equal((-x).data, [1.0, -2.0])
    np.testing.assert_array_equal(abs(x).data, [1.0, 2.0])


def test_truth_value():
    assert Variable(np.array(1.0))
    assert not Variable(np.array(0.0))
    assert not Variable(None)
    with pytest.raises(ValueError):
        bool(Variable(np.ones(2)))


def test_variables_are_compared_and_hashed_by_identity():
    x, z = Variable(np.ones(2)), Variable(np.ones(2))
    assert x == x
    assert x != z
    assert len({x, z}) == 2


def test_no_strange_attributes():
    with pytest.raises(AttributeError):
        Variable(np.ones(2)).gradient = 1


# --- what is no array is told, where it is met --------------------------------------------------------------------


def test_a_variable_is_not_wrapped_again():
    with pytest.raises(TypeError, match="got a Variable; use it as it is"):
        Variable(Variable(np.array(1.0)))


def test_words_are_not_data():
    with pytest.raises(TypeError, match=r"an ndarray of numbers, got str$"):
        Variable("0.5")


@pytest.mark.parametrize("data", [None, 0.5])
@pytest.mark.parametrize("use", [lambda x: x.shape, lambda x: x.dtype, lambda x: x + 1, lambda x: x.backward()])
def test_data_that_is_no_array_is_told(data, use):
    x = Variable(None, name="x")
    x.data = data
    with pytest.raises(TypeError, match=rf"this variable 'x' holds {data}, not an ndarray"):
        use(x)


def test_a_scalar_of_numpy_in_data_works():
    x = Variable(np.array(2.0))
    x.data = x.data - 0.5  # NumPy makes a scalar of this
    y = ut.square(x)
    y.backward()
    assert (x.shape, x.grad) == ((), 3.0)


def test_grad_takes_variables():
    x = Variable(np.array(2.0))
    with pytest.raises(TypeError, match="Variables as xs, got float"):
        ut.grad(ut.square(x), 2.0)
    with pytest.raises(TypeError, match="Variables as ys, got ndarray"):
        ut.grad([np.array(1.0)], x)


def test_a_forward_without_return_is_told():
    class Forgetful(ut.Function):
        def forward(self, x):
            x + 1

    with pytest.raises(TypeError, match="forward of Forgetful must return an ndarray or a tuple of them, not NoneType"):
        Forgetful()(np.ones(2))


@pytest.mark.parametrize("name", [None, "weight"])
def test_an_operation_on_a_variable_without_data_says_so(name):
    empty, x = ut.Parameter(None, name=name), ut.Variable(np.ones((2, 3), np.float32))
    told = f"input 1{' [(]weight[)]' if name else ''} has no data yet. To mend it: set its .data"
    for operation in (lambda a, b: a + b, lambda a, b: a * b):
        with pytest.raises(ut.UndertowError, match=told):
            operation(x, empty)
    pictures = ut.Variable(np.ones((1, 3, 4, 4), np.float32))
    with pytest.raises(ut.UndertowError, match=told):
        ut.conv2d(pictures, empty)
