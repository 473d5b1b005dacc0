"""Indexing: repeated indices add up, Variables and lists in an index, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import undertow as ut
from undertow import Variable


def test_repeated_indices_add_up():
    x = Variable(np.zeros(4))
    y = x[np.array([1, 1, 3, 1])]
    y.grad = np.array([1.0, 10.0, 100.0, 1000.0])
    y.backward()
    assert np.array_equal(x.grad, [0.0, 1011.0, 0.0, 100.0])


def test_lists_and_variables_in_an_index():
    x = Variable(np.arange(12.0).reshape(3, 4))
    where = Variable(np.array([2, 0]), requires_grad=False)
    assert np.array_equal(x[[2, 0]].data, x.data[[2, 0]])
    assert np.array_equal(x[where].data, x.data[[2, 0]])
    assert np.array_equal(x[where, [1, 3]].data, x.data[[2, 0], [1, 3]])
    assert x[[]].shape == (0, 4)
    assert np.array_equal(x[[True, False, True]].data, x.data[[0, 2]])


def test_a_mask():
    x = Variable(np.array([-1.0, 2.0, -3.0, 4.0]))
    ut.sum(x[x.data > 0] * 5.0).backward()
    assert np.array_equal(x.grad, [0.0, 5.0, 0.0, 5.0])


def test_slices_do_not_use_the_slow_addition(monkeypatch):
    def slow(*_):
        raise AssertionError("np.add.at is for repeated indices only")

    class Add:
        at = staticmethod(slow)

    x = Variable(np.arange(6.0))
    y = x[1:4]
    monkeypatch.setattr(np, "add", Add)
    y.backward()
    assert np.array_equal(x.grad, [0, 1, 1, 1, 0, 0])


def test_a_negative_and_a_positive_index_of_one_element():
    x = Variable(np.arange(3.0))
    (x[-1] * 2.0 + x[2]).backward()
    assert np.array_equal(x.grad, [0.0, 0.0, 3.0])


def test_out_of_range_names_the_operation():
    with pytest.raises(IndexError) as caught:
        Variable(np.arange(3.0))[5]
    assert "in GetItem of float64[3]" in caught.value.__notes__


def test_scatter_refuses_a_shape_that_does_not_fit():
    with pytest.raises(ut.UndertowError, match=r"shape \(2,\) cannot be scattered to places of shape \(3,\)"):
        ut.scatter(np.ones(2), np.array([0, 1, 2]), (5,))
