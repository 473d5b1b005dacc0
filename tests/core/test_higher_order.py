"""Gradients of gradients: create_graph, ut.grad, and classes that are differentiable once."""

from __future__ import annotations

import math

import numpy as np
import pytest

import undertow as ut
from undertow import Function, Variable


class OnceSquare(Function):
    def forward(self, x):
        return x * x

    def backward(self, gy):
        return 2 * self.input.data * gy


class TwiceSquare(Function):
    def forward(self, x):
        return x * x

    def backward_graph(self, gy):
        return 2 * self.input * gy


@pytest.mark.parametrize("order", range(1, 6))
def test_derivatives_of_sine(order):
    x = Variable(np.linspace(-3, 3, 7))
    y = ut.sin(x)
    for _ in range(order):
        y = ut.grad(y, x, create_graph=True)
    np.testing.assert_allclose(y.data, np.sin(x.data + order * math.pi / 2), atol=1e-12)


def test_second_derivative_of_tanh():
    x = Variable(np.linspace(-2, 2, 9))
    second = ut.grad(ut.grad(ut.tanh(x), x, create_graph=True), x)
    t = np.tanh(x.data)
    np.testing.assert_allclose(second.data, -2 * t * (1 - t * t), atol=1e-14)


def test_backward_with_create_graph_leaves_a_differentiable_gradient():
    x = Variable(np.array(2.0))
    y = x**4 - 2 * x**2
    y.backward(create_graph=True)
    assert x.grad == 24.0
    first = x.grad_var
    assert first.creator is not None
    x.clear_grad()
    first.backward()
    assert x.grad == 44.0


def test_newtons_method():
    x = Variable(np.array(2.0))
    for _ in range(10):
        y = x**4 - 2 * x**2
        first = ut.grad(y, x, create_graph=True)
        second = ut.grad(first, x)
        x.data = x.data - first.data / second.data
    assert x.data == 1.0


def test_create_graph_adds_up_in_leaves_too():
    x = Variable(np.array(3.0))
    y = x * x
    y.backward(create_graph=True)
    y.backward(create_graph=True)
    assert x.grad == 12.0
    assert ut.grad(x.grad_var, x).data == 4.0


def test_gradient_penalty_reaches_the_weights():
    rng = np.random.default_rng(3)
    w, x = Variable(rng.standard_normal((3, 2))), Variable(rng.standard_normal((4, 3)))

    def penalty(w, x):
        g = ut.grad(ut.sum(ut.tanh(x @ w)), x, create_graph=True)
        return ut.sum(g * g)

    ut.check_gradients(penalty, [w.data, x.data])


def test_hessian_vector_product():
    x = Variable(np.array([1.0, 2.0, 3.0]))
    v = np.array([1.0, -1.0, 2.0])
    first = ut.grad(ut.sum(x**3), x, create_graph=True)
    product = ut.grad(ut.sum(first * v), x)
    np.testing.assert_allclose(product.data, 6 * x.data * v)


def test_a_class_over_variables_differentiates_twice_and_derives_its_array_backward():
    x = Variable(np.array(3.0))
    y = TwiceSquare()(x)
    assert y.creator.backward(np.array(1.0)) == 6.0
    assert isinstance(y.creator.backward(np.array(1.0)), np.ndarray)
    first = ut.grad(y, x, create_graph=True)
    assert ut.grad(first, x).data == 2.0


def test_a_once_differentiable_class_is_named():
    x = Variable(np.array(3.0))
    y = ut.exp(OnceSquare()(x))
    assert ut.grad(y, x).data == pytest.approx(6 * math.exp(9))
    with pytest.raises(ut.UndertowError, match="OnceSquare cannot be differentiated twice"):
        y.backward(create_graph=True)
    with pytest.raises(ut.UndertowError, match="OnceSquare cannot be differentiated twice"):
        ut.grad(y, x, create_graph=True)


def test_a_plain_way_back_records_nothing():
    x = Variable(np.array(3.0))
    y = TwiceSquare()(x)
    y.backward()
    assert x.grad_var.creator is None
    assert not ut.grad(y, x).requires_grad


def test_create_graph_works_inside_no_grad():
    x = Variable(np.array(3.0))
    y = x**3
    with ut.no_grad():
        first = ut.grad(y, x, create_graph=True)
        assert not ut.is_recording()
    assert ut.grad(first, x).data == 18.0


def test_setting_a_gradient_replaces_the_differentiable_one():
    x = Variable(np.array(3.0))
    (x * x).backward(create_graph=True)
    x.grad = np.array(1.0)
    assert x.grad_var.creator is None
    assert x.grad_var.data == 1.0
    x.grad = None
    assert x.grad_var is None


def test_a_differentiable_seed():
    x, seed = Variable(np.array(2.0)), Variable(np.array(5.0))
    g = ut.grad(x**3, x, seed, create_graph=True)
    assert g.data == 60.0
    gs, gx = ut.grad(g, [seed, x])
    assert (gs.data, gx.data) == (12.0, 60.0)
