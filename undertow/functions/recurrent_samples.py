"""Samples of recurrent networks for the registry, with their definitions written out number by number."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from undertow.core.registry import Sample
from undertow.functions.sampling import Samples

Array = np.ndarray[Any, Any]
# steps, batch, inputs, hidden
SIZES = [(3, 2, 3, 2), (1, 1, 2, 1), (4, 1, 1, 3)]


def rnn_samples(call: Callable[..., Any]) -> Samples:
    """Of `call(x, h0, w_x, w_h, b, activation)`."""

    def sample(rng: np.random.Generator, sizes: tuple[int, ...], activation: str) -> Sample:
        act = math.tanh if activation == "tanh" else lambda z: max(z, 0.0)

        def by_hand(x: Array, h: Array, w_x: Array, w_h: Array, b: Array) -> Array:
            states = []
            for step in x:
                h = _apply(act, _dot(step, w_x) + _dot(h, w_h) + b)
                states.append(h)
            return np.array(states)

        arrays = _arrays(rng, sizes, parts=1, states=1, biases=1)
        return Sample(arrays, lambda *args: call(*args, activation), by_hand, f"{activation}, {sizes}")

    return lambda rng: [*(sample(rng, s, "tanh") for s in SIZES), sample(rng, SIZES[0], "relu")]


def lstm_samples(call: Callable[..., Any]) -> Samples:
    """Of `call(x, h0, c0, w_x, w_h, b)`."""

    def by_hand(x: Array, h: Array, c: Array, w_x: Array, w_h: Array, b: Array) -> tuple[Array, Array]:
        outputs = []
        for step in x:
            i, f, g, o = np.split(_dot(step, w_x) + _dot(h, w_h) + b, 4, axis=1)
            c = _apply(_sigmoid, f) * c + _apply(_sigmoid, i) * _apply(math.tanh, g)
            h = _apply(_sigmoid, o) * _apply(math.tanh, c)
            outputs.append(h)
        return np.array(outputs), c

    return lambda rng: [Sample(_arrays(rng, s, 4, 2, 1), call, by_hand, str(s)) for s in SIZES]


def gru_samples(call: Callable[..., Any]) -> Samples:
    """Of `call(x, h0, w_x, w_h, b_x, b_h)`."""

    def by_hand(x: Array, h: Array, w_x: Array, w_h: Array, b_x: Array, b_h: Array) -> Array:
        states = []
        for step in x:
            x_r, x_z, x_n = np.split(_dot(step, w_x) + b_x, 3, axis=1)
            h_r, h_z, h_n = np.split(_dot(h, w_h) + b_h, 3, axis=1)
            r, z = _apply(_sigmoid, x_r + h_r), _apply(_sigmoid, x_z + h_z)
            h = (1 - z) * _apply(math.tanh, x_n + r * h_n) + z * h
            states.append(h)
        return np.array(states)

    return lambda rng: [Sample(_arrays(rng, s, 3, 1, 2), call, by_hand, str(s)) for s in SIZES]


def _arrays(
    rng: np.random.Generator, sizes: tuple[int, ...], parts: int, states: int, biases: int
) -> tuple[Array, ...]:
    steps, batch, inputs, hidden = sizes
    shapes: list[tuple[int, ...]] = [(steps, batch, inputs), *[(batch, hidden)] * states]
    shapes += [(parts * hidden, inputs), (parts * hidden, hidden), *[(parts * hidden,)] * biases]
    return tuple(rng.standard_normal(shape) for shape in shapes)


def _dot(x: Array, w: Array) -> Array:
    return np.array([[sum(a * b for a, b in zip(row, weights, strict=True)) for weights in w] for row in x])


def _apply(function: Callable[[float], float], x: Array) -> Array:
    return np.array([[function(float(value)) for value in row] for row in x])


def _sigmoid(z: float) -> float:
    return 1 / (1 + math.exp(-z))
