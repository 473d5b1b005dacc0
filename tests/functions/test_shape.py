"""Shapes: what is refused, and the functions that are made of others."""

from __future__ import annotations

import numpy as np
import pytest

import undertow as ut
from undertow import Variable


@pytest.fixture
def x(rng):
    return Variable(rng.standard_normal((2, 3, 4)))


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda x: ut.expand_dims(x, 0), lambda x: x[None]),
        (lambda x: ut.expand_dims(x, 2), lambda x: x[:, :, None]),
        (lambda x: ut.expand_dims(x, -1), lambda x: x[..., None]),
        (lambda x: ut.squeeze(x[:, :1, :1]), lambda x: x[:, 0, 0]),
        (lambda x: ut.squeeze(x[:, :1, :1], -1), lambda x: x[:, :1, 0]),
        (lambda x: ut.squeeze(x[:, :1, :1], (1, 2)), lambda x: x[:, 0, 0]),
        (ut.flatten, lambda x: x.ravel()),
        (lambda x: ut.flatten(x, 1), lambda x: x.reshape(2, 12)),
        (lambda x: ut.moveaxis(x, 0, 2), lambda x: np.moveaxis(x, 0, 2)),
        (lambda x: ut.moveaxis(x, -1, 0), lambda x: np.moveaxis(x, -1, 0)),
        (lambda x: ut.swapaxes(x, 0, -1), lambda x: np.swapaxes(x, 0, -1)),
        (lambda x: ut.tile(x, 2), lambda x: np.tile(x, 2)),
        (lambda x: ut.tile(x, (2, 1, 3)), lambda x: np.tile(x, (2, 1, 3))),
        (lambda x: ut.tile(x, (3, 1, 2, 1)), lambda x: np.tile(x, (3, 1, 2, 1))),
        (lambda x: ut.repeat(x, 3, 0), lambda x: np.repeat(x, 3, 0)),
        (lambda x: ut.repeat(x, 2, -1), lambda x: np.repeat(x, 2, -1)),
        (ut.flip, np.flip),
        (lambda x: ut.flip(x, 1), lambda x: np.flip(x, 1)),
        (lambda x: ut.flip(x, (0, -1)), lambda x: np.flip(x, (0, -1))),
        (lambda x: ut.stack([x, x * 2.0]), lambda x: np.stack([x, x * 2.0])),
        (lambda x: ut.stack([x, x * 2.0], 1), lambda x: np.stack([x, x * 2.0], 1)),
        (lambda x: ut.stack([x, x * 2.0], -1), lambda x: np.stack([x, x * 2.0], -1)),
    ],
)
def test_made_of_others(call, expected, x):
    np.testing.assert_array_equal(call(x).data, expected(x.data))
    ut.check_gradients(call, [x.data], second_order=True)


def test_nothing_is_recorded_where_nothing_changes(x):
    assert ut.reshape(x, (2, 3, 4)) is x
    assert ut.broadcast_to(x, (2, 3, 4)) is x
    assert ut.sum_to(x, (2, 3, 4)) is x


def test_flatten_of_a_single_number():
    assert ut.flatten(Variable(np.array(3.0))).shape == (1,)


def test_zero_sized_arrays():
    x = Variable(np.zeros((0, 3)))
    assert ut.reshape(x, (3, 0)).shape == (3, 0)
    y = ut.sum(ut.concat([x, x], 0) * 2.0)
    y.backward()
    assert x.grad.shape == (0, 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: ut.reshape(x, (5, 5)), r"24 elements of shape \(2, 3, 4\) do not fit into shape \(5, 5\)"),
        (lambda x: ut.reshape(x, (-1, -1)), "do not fit"),
        (lambda x: ut.reshape(x, (-1, 5)), "do not fit"),
        (lambda x: ut.reshape(x, (-2, -12)), "do not fit"),
        (lambda x: ut.transpose(x, (0, 1)), "are not a permutation"),
        (lambda x: ut.transpose(x, (0, 1, 1)), "are not a permutation"),
        (lambda x: ut.broadcast_to(x, (2, 3, 5)), r"\(2, 3, 4\) cannot be broadcast to \(2, 3, 5\)"),
        (lambda x: ut.broadcast_to(x, (3, 4)), "cannot be broadcast"),
        (lambda x: ut.sum_to(x, (2, 1, 1, 1)), "cannot be broadcast"),
        (lambda x: ut.squeeze(x, 1), "only axes of length 1 can go"),
        (lambda x: ut.expand_dims(x, 5), "axis 5 does not exist"),
        (lambda x: ut.sum(x, axis=3), "axis 3 does not exist"),
        (lambda x: ut.sum(x, axis=(0, -3)), "name an axis twice"),
        (lambda x: ut.flip(x, 3), "axis 3 does not exist"),
        (lambda x: ut.concat([x, x[:, :2]], 0), "array 1 of shape .* does not fit the first"),
        (lambda x: ut.concat([x, x[0]], 0), "does not fit the first"),
        (lambda x: ut.concat([]), "at least one"),
        (lambda x: ut.split(x, 2, 1), "cannot be split into 2 equal pieces"),
        (lambda x: ut.pad(x, [(1, 1)]), "do not fit shape"),
        (lambda x: ut.pad(x, -1), "do not fit shape"),
    ],
)
def test_what_does_not_fit_is_refused(call, message, x):
    with pytest.raises(ut.UndertowError, match=message):
        call(x)
