"""What is called dead in user code, and what is not."""

from __future__ import annotations

import numpy as np

import undertow as ut


def marked(function) -> list[tuple[str, str]]:
    with ut.trace() as found:
        function().backward()
    return [(mark.kind, found.layers[mark.layer].type) for mark in found.marks]


def test_only_what_switches_units_off_is_called_dead(rng: np.random.Generator) -> None:
    x = ut.Variable(rng.standard_normal((5, 4)).astype(np.float32))
    u = ut.Parameter(rng.standard_normal((4, 4)).astype(np.float32), name="u")
    state = np.zeros((5, 4), np.float32)
    assert marked(lambda: ut.sum(ut.tanh(ut.linear(state, u) + ut.linear(x, u)))) == []
    assert marked(lambda: ut.sum(ut.linear(ut.relu(ut.Variable(state)), u) + ut.linear(x, u))) == []
    assert ("dead", "mean") not in marked(lambda: ut.mean(ut.square(ut.linear(x, u) - ut.linear(x, u).data)))
    assert marked(lambda: ut.sum(ut.Variable(np.zeros((0, 3))))) == []
    assert ("dead", "relu") not in marked(lambda: ut.relu(ut.sum(-ut.square(x))))  # a hinge that is satisfied


def test_dead_rectifiers_of_user_code_are_marked(rng: np.random.Generator) -> None:
    x = ut.Variable(rng.standard_normal((5, 4)).astype(np.float32))
    assert ("dead", "relu") in marked(lambda: ut.sum(ut.relu(-ut.square(x))))
    assert ("dead", "maximum") in marked(lambda: ut.sum(ut.maximum(-ut.square(x), 0)))
    assert ("dead", "sigmoid") in marked(lambda: ut.sum(ut.sigmoid(x * 0 - 200)))
