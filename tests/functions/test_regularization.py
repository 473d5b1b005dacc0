"""Dropout: shares, scale, repeatability, Darknet's numbers, and nothing at inference."""

from __future__ import annotations

import numpy as np
import pytest

import undertow as ut
from undertow.core import Variable
from undertow.errors import ShapeError


def test_share_and_mean() -> None:
    x = Variable(np.ones((200, 500)))
    y = ut.dropout(x, 0.3, np.random.default_rng(1))
    assert np.mean(y.data == 0) == pytest.approx(0.3, abs=0.005)
    assert set(np.unique(y.data)) == {0, 1 / 0.7}
    assert y.data.mean() == pytest.approx(1, abs=0.01)
    y.backward()
    np.testing.assert_array_equal(x.grad, y.data)


def test_same_generator_same_mask() -> None:
    x = np.ones((30, 30))
    first, second = (ut.dropout(x, 0.5, np.random.default_rng(7)).data for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert (ut.dropout(x, 0.5).data != ut.dropout(x, 0.5).data).any()


def test_numbers_below_the_ratio_drop() -> None:
    """dropout_layer.c: if (r < probability) 0, else times 1/(1 - probability)."""
    y = ut.dropout(np.ones(4, np.float32), 0.25, uniform=np.array([0.0, 0.2499, 0.25, 0.9], np.float32))
    np.testing.assert_array_equal(y.data, np.array([0, 0, 4 / 3, 4 / 3], np.float32))
    assert y.dtype == np.float32


def test_passes_at_inference_and_with_ratio_zero() -> None:
    x = Variable(np.arange(6.0))
    with ut.test_mode():
        assert ut.dropout(x, 0.9) is x
    np.testing.assert_array_equal(ut.dropout(x, 0).data, x.data)


def test_refusals() -> None:
    for ratio in (-0.1, 1.0, float("nan")):
        with pytest.raises(ValueError, match="ratio"):
            ut.dropout(np.ones(3), ratio)
    with pytest.raises(ShapeError):
        ut.dropout(np.ones(3), uniform=np.ones(4))
