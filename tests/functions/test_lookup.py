"""Embedding: repeated rows, ignored numbers, refusals; PyTorch where it is installed."""

from __future__ import annotations

import numpy as np
import pytest

import undertow as ut
from undertow.core import Variable
from undertow.errors import ShapeError


def test_repeated_rows_add_up(rng: np.random.Generator) -> None:
    """Against a loop that adds one row at a time."""
    w, indexes = Variable(rng.standard_normal((50, 8))), rng.integers(0, 50, (40, 30))
    y = ut.embedding(indexes, w)
    y.grad = rng.standard_normal(y.shape)
    y.backward()
    expected = np.zeros(w.shape)
    for place in np.ndindex(*indexes.shape):
        np.testing.assert_array_equal(y.data[place], w.data[indexes[place]])
        expected[indexes[place]] += y.grad[place]
    np.testing.assert_allclose(w.grad, expected, rtol=1e-12, atol=1e-12)


def test_ignored_numbers(rng: np.random.Generator) -> None:
    w, indexes = Variable(rng.standard_normal((5, 2))), np.array([4, 0, 0, 1])
    y = ut.embedding(Variable(indexes), w, ignore_index=0)
    y.backward()
    np.testing.assert_array_equal(y.data[1:3], 0)
    np.testing.assert_array_equal(w.grad[:, 0], [0, 1, 0, 0, 1])


def test_no_numbers_at_all() -> None:
    w = Variable(np.ones((3, 2)))
    y = ut.embedding(np.zeros((0,), int), w)
    y.backward()
    assert y.shape == (0, 2)
    np.testing.assert_array_equal(w.grad, 0)


def test_refusals() -> None:
    w = np.ones((3, 2))
    for index in (3, -1):
        with pytest.raises(ValueError, match=f"{index} is not one of the 3 rows"):
            ut.embedding(np.array([0, index]), w)
    with pytest.raises(ShapeError):
        ut.embedding(np.array([0.0]), w)
    with pytest.raises(ShapeError):
        ut.embedding(np.array([0]), np.ones(3))


def test_against_pytorch(rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    values, indexes = rng.standard_normal((7, 3)), rng.integers(0, 7, (4, 5))
    w, t = Variable(values), torch.tensor(values, requires_grad=True)
    y = ut.embedding(indexes, w)
    y.grad = rng.standard_normal(y.shape)
    y.backward()
    torch.nn.functional.embedding(torch.tensor(indexes), t).backward(torch.tensor(y.grad))
    np.testing.assert_allclose(w.grad, t.grad.numpy(), rtol=1e-12)
