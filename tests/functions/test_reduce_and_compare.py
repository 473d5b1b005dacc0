"""Ties, kinks and extremes of reductions and comparisons."""

from __future__ import annotations

import numpy as np
import pytest

import undertow as ut
from undertow import Variable


@pytest.mark.parametrize("function", [ut.max, ut.min])
def test_ties_share_the_gradient_equally(function):
    x = Variable(np.array([[2.0, 2.0, 2.0], [0.0, 5.0, 5.0 if function is ut.max else 0.0]]))
    y = function(x, axis=1)
    y.grad = np.array([3.0, 8.0])
    y.backward()
    shared = [0.0, 4.0, 4.0] if function is ut.max else [4.0, 0.0, 4.0]
    np.testing.assert_allclose(x.grad, [[1.0, 1.0, 1.0], shared])
    ut.check_gradients(lambda x: function(x, axis=1), [x.data])


@pytest.mark.parametrize("function", [ut.maximum, ut.minimum])
def test_equal_operands_get_half_each(function):
    a, b = Variable(np.array([1.0, 2.0])), Variable(np.array([1.0, 3.0]))
    ut.sum(function(a, b)).backward()
    large = 0.0 if function is ut.maximum else 1.0
    assert np.array_equal(a.grad, [0.5, large])
    assert np.array_equal(b.grad, [0.5, 1 - large])
    ut.check_gradients(function, [a.data, b.data])


@pytest.mark.parametrize(
    ("function", "kinks", "slopes"),
    [
        (ut.abs, [0.0], [0.0]),
        (lambda x: ut.clip(x, -1.0, 2.0), [-1.0, 2.0], [1.0, 1.0]),
        (ut.relu, [0.0], [0.0]),
        (lambda x: ut.leaky_relu(x, 0.1), [0.0], [0.1]),
        (lambda x: ut.prelu(x, np.array(0.3)), [0.0], [0.3]),
        (lambda x: ut.elu(x, 0.5), [0.0], [0.5]),
        (ut.relu6, [0.0, 6.0], [0.0, 1.0]),
        (ut.hard_sigmoid, [-3.0, 3.0], [0.0, 1 / 6]),
        (ut.hard_swish, [-3.0, 3.0], [0.0, 1.5]),
    ],
)
def test_the_stated_gradient_at_kinks(function, kinks, slopes):
    x = Variable(np.array(kinks))
    function(x).backward()
    np.testing.assert_allclose(x.grad, slopes)
    assert ut.check_gradients(function, [x.data]).kinks == len(kinks)


def test_where_passes_no_gradient_to_what_was_not_chosen():
    a, b = Variable(np.array([1.0, np.nan])), Variable(np.array([np.inf, 2.0]))
    y = ut.where(np.array([True, False]), a, b)
    y.backward()
    assert np.array_equal(y.data, [1.0, 2.0])
    assert np.array_equal(a.grad, [1.0, 0.0])
    assert np.array_equal(b.grad, [0.0, 1.0])


def test_where_takes_a_variable_as_condition():
    x = Variable(np.array([-1.0, 0.0, 2.0]))
    assert np.array_equal(ut.where(x, x, 7.0).data, [-1.0, 7.0, 2.0])


def test_clip_refuses_crossed_limits():
    with pytest.raises(ValueError, match="low 2 is above high 1"):
        ut.clip(np.ones(2), 2, 1)


def test_sign_is_a_constant():
    x = Variable(np.array([-2.0, 0.0, 3.0]))
    y = ut.sign(x) * x
    y.backward()
    assert np.array_equal(y.data, [2.0, 0.0, 3.0])
    assert np.array_equal(x.grad, [-1.0, 0.0, 1.0])


def test_prod_with_several_zeros():
    x = Variable(np.array([[0.0, 2.0, 3.0], [0.0, 0.0, 3.0]]))
    ut.prod(x, axis=1).backward()
    assert np.array_equal(x.grad, [[6.0, 0.0, 0.0], [0.0, 0.0, 0.0]])


def test_logsumexp_does_not_overflow():
    x = Variable(np.array([[1000.0, 1000.0], [-1000.0, -1000.0], [-np.inf, 5.0]]))
    with np.errstate(over="raise", invalid="raise"):
        y = ut.logsumexp(x, axis=1)
        y.backward()
    np.testing.assert_allclose(y.data, [1000 + np.log(2), -1000 + np.log(2), 5.0])
    np.testing.assert_allclose(x.grad, [[0.5, 0.5], [0.5, 0.5], [0.0, 1.0]])


def test_logsumexp_of_nothing_but_minus_infinity():
    with np.errstate(divide="ignore"):
        assert ut.logsumexp(np.full(3, -np.inf)).data == -np.inf


def test_softmax_does_not_overflow():
    x = Variable(np.array([[1e4, 0.0, -1e4]], np.float32))
    with np.errstate(over="raise", invalid="raise"):
        assert np.array_equal(ut.softmax(x).data, [[1, 0, 0]])
        assert np.array_equal(ut.log_softmax(x).data, [[0, -1e4, -2e4]])


def test_means_of_integers():
    assert ut.mean(np.array([1, 2])).data == 1.5


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("shape", "correction"), [((0, 3), 0), ((1, 3), 1)])
def test_a_variance_that_is_not_defined_is_nan_both_ways(shape, correction):
    x = Variable(np.ones(shape))
    y = ut.var(x, axis=0, correction=correction)
    ut.sum(y).backward()
    assert np.isnan(y.data).all()
    assert x.grad.shape == shape
    assert np.isnan(x.grad).all()
