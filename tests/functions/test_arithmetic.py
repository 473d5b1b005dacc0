"""Arithmetic at its corners; its values and gradients are checked with the whole registry."""

from __future__ import annotations

import math

import numpy as np
import pytest

import undertow as ut
from undertow import Variable


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 7, -1, -2])
def test_whole_exponents_are_exact(exponent):
    x = Variable(np.array([-3.0, -1.0, 1.0, 2.0]))
    expected = [float(v) ** exponent for v in (-3, -1, 1, 2)]
    assert np.array_equal((x**exponent).data, expected)


@pytest.mark.parametrize(("exponent", "slope"), [(0, 0.0), (1, 1.0), (2, 0.0), (3, 0.0)])
def test_powers_of_zero(exponent, slope):
    x = Variable(np.array(0.0))
    y = x**exponent
    y.backward()
    assert y.data == (1.0 if exponent == 0 else 0.0)
    assert x.grad == slope


def test_second_derivative_of_powers_of_zero():
    x = Variable(np.array([0.0, 0.0]))
    for exponent, expected in [(1, 0.0), (2, 2.0), (3, 0.0)]:
        first = ut.grad(x**exponent, x, create_graph=True)
        assert np.array_equal(ut.grad(first, x).data, [expected] * 2), exponent


def test_zero_to_the_power_zero_between_variables():
    a, b = Variable(np.array([0.0, 0.0, 2.0])), Variable(np.array([0.0, 2.0, 0.0]))
    y = a**b
    y.backward()
    assert np.array_equal(y.data, [1.0, 0.0, 1.0])
    assert np.array_equal(a.grad, [0.0, 0.0, 0.0])
    np.testing.assert_allclose(b.grad, [0.0, 0.0, math.log(2.0)])


def test_negative_bases_have_no_gradient_by_the_exponent():
    a, b = Variable(np.array([-2.0, 2.0])), Variable(np.array([3.0, 3.0]))
    y = a**b
    with np.errstate(invalid="ignore"):
        y.backward()
    assert np.array_equal(y.data, [-8.0, 8.0])
    assert np.array_equal(a.grad, [12.0, 12.0])
    assert np.isnan(b.grad[0])
    assert b.grad[1] == pytest.approx(8 * math.log(2.0))


def test_negative_bases_with_a_constant_exponent_array():
    a = Variable(np.array([-2.0, -3.0]))
    y = a ** np.array([3.0, 2.0])
    with np.errstate(all="raise"):
        y.backward()
    assert np.array_equal(a.grad, [12.0, -6.0])


def test_a_number_to_a_variable_power():
    x = Variable(np.array([0.0, 3.0]))
    y = 2.0**x
    y.backward()
    assert np.array_equal(y.data, [1.0, 8.0])
    np.testing.assert_allclose(x.grad, [math.log(2), 8 * math.log(2)])


def test_square_is_taken_for_the_exponent_two():
    assert isinstance((Variable(np.ones(2)) ** 2).creator, ut.Square)
    assert isinstance((Variable(np.ones(2)) ** np.float64(2.0)).creator, ut.Square)
    assert isinstance((Variable(np.ones(2)) ** 2.5).creator, ut.Power)


def test_constants_cost_no_gradient():
    x = Variable(np.ones((2, 3)))
    for y in (x * np.ones(3), x + np.ones(3), x - np.ones(3), x / np.ones(3)):
        function = y.creator
        assert function.needs_input_grad == (True, False)
        assert function.backward(np.ones((2, 3)))[1] is None


def test_equal_shapes_pass_the_gradient_on_without_a_copy():
    gy = np.ones((2, 3))
    function = (Variable(np.ones((2, 3))) + Variable(np.ones((2, 3)))).creator
    assert all(g is gy for g in function.backward(gy))


def test_shapes_that_do_not_fit_name_the_operation():
    with pytest.raises(ValueError, match="could not be broadcast") as caught:
        Variable(np.ones(2)) * Variable(np.ones(3))
    assert "in Mul of float64[2], float64[3]" in caught.value.__notes__
