"""The activations of Darknet (activations.h), each with two gradients, and the smooth units of later networks.

`gradient` takes the derivative from the OUTPUT, exactly as the C program does; `true_gradient` is the derivative
at the INPUT. They agree away from kinks, where the derivative jumps; both take the same side there except
where Darknet cannot see the side in the output.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from undertow.errors import UndertowError

Array = np.ndarray[Any, Any]
SELU_SCALE, SELU_ALPHA = 1.0507, 1.6732  # as Darknet rounds them


class Kinks(NamedTuple):
    """Where a derivative jumps: at `points`, repeated every `period` where there is one."""

    points: tuple[float, ...] = ()
    period: float | None = None


class Activation(NamedTuple):
    """One activation: value at x, derivative taken from the output y, derivative at x, kinks in x."""

    formula: str
    forward: Callable[[Array], Array]
    from_output: Callable[[Array], Array]
    derivative: Callable[[Array], Array]
    kinks: Kinks = Kinks()


class SmoothUnit(NamedTuple):
    """Value and derivative at x; the derivative cannot be told from the value."""

    forward: Callable[[Array], Array]
    derivative: Callable[[Array], Array]


def activate(x: Array, name: str) -> Array:
    """y = f(x) for Darknet's activation of that name, mish or swish; a new array of x's shape and type."""
    return _elementwise(UNITS[name].forward if name in UNITS else _find(name).forward, x)


def gradient(y: Array, name: str) -> Array:
    """f'(x) computed from the output y = f(x) as Darknet does (activations.h); y's shape and type."""
    return _elementwise(_find(name).from_output, y)


def true_gradient(x: Array, name: str) -> Array:
    """f'(x) from the input x; at a kink the one-sided derivative that Darknet takes. x's shape and type."""
    return _elementwise(UNITS[name].derivative if name in UNITS else _find(name).derivative, x)


def activate_backward(gy: Array, saved: Array, name: str, from_output: bool = False) -> Array:
    """gx = gy * f'. saved: the input, or with from_output the output, from which Darknet takes f'."""
    return gy * (gradient(saved, name) if from_output else true_gradient(saved, name))


def broken_line(x: Array, above: float, below: float) -> Array:
    """y = above * x for x > 0, below * x else: relu and leaky relu of any slope."""
    # below = 0 must give 0 for minus infinity too, and NaN must stay NaN.
    return np.where(x > 0, above * x, below * x) if below else np.where(x <= 0, 0, above * x)


def broken_line_backward(gy: Array, saved: Array, above: float, below: float) -> Array:
    """gx = gy * above where saved > 0, gy * below else. saved: input or output (their signs are equal)."""
    return gy * _slope(below, above)(saved)


def kinks_between(name: str, low: float, high: float) -> list[float]:
    """All points of [low, high] where the derivative of the activation jumps, ascending."""
    points, period = _find(name).kinks
    if period is None:
        return [p for p in points if low <= p <= high]
    first, last = int(np.ceil(low / period)), int(np.floor(high / period))
    return sorted(p + i * period for p in points for i in range(first - 1, last + 1) if low <= p + i * period <= high)


def _find(name: str) -> Activation:
    try:
        return ACTIVATIONS[name]
    except KeyError:
        raise UndertowError(f"there is no activation '{name}'", remedy=f"use one of {', '.join(ACTIVATIONS)}") from None


def _elementwise(f: Callable[[Array], Array], x: Array) -> Array:
    if not np.issubdtype(x.dtype, np.floating):
        raise TypeError(f"activations work on arrays of floats, got {x.dtype}")
    return np.asarray(f(x), dtype=x.dtype)


def _logistic(x: Array) -> Array:
    """1 / (1 + exp(-x)) without overflow."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, small) / (1 + small)


def _logistic_derivative(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return small / (1 + small) ** 2


def _softplus_tanh(x: Array) -> Array:
    """tanh(ln(1 + exp(x))) without overflow."""
    return np.tanh(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))))


def _mish_derivative(x: Array) -> Array:
    t = _softplus_tanh(x)
    return t + x * (1 - t * t) * _logistic(x)


def _swish_derivative(x: Array) -> Array:
    s = _logistic(x)
    return s + x * s * (1 - s)


def _elu(x: Array) -> Array:
    return np.where(x >= 0, x, np.expm1(np.minimum(x, 0)))


def _elu_derivative(x: Array) -> Array:
    return np.exp(np.minimum(x, 0))


def _selu(x: Array) -> Array:
    return SELU_SCALE * np.where(x >= 0, x, SELU_ALPHA * np.expm1(np.minimum(x, 0)))


def _selu_derivative(x: Array) -> Array:
    return SELU_SCALE * np.where(x >= 0, 1, SELU_ALPHA * np.exp(np.minimum(x, 0)))


def _selu_from_output(y: Array) -> Array:
    return np.where(y >= 0, SELU_SCALE, y + SELU_SCALE * SELU_ALPHA)


def _stair(x: Array) -> Array:
    step = np.floor(x)
    return np.floor(x / 2) + np.where(step % 2 == 0, 0, x - step)


def _plse(x: Array) -> Array:
    middle = 0.125 * x + 0.5
    return np.where(x < -4, 0.01 * (x + 4), np.where(x > 4, 0.01 * (x - 4) + 1, middle))


def _lhtan(x: Array) -> Array:
    return np.where(x < 0, 0.001 * x, np.where(x > 1, 0.001 * (x - 1) + 1, x))


def _slope(left: float, right: float) -> Callable[[Array], Array]:
    """left where the argument is at most 0, right above."""
    return lambda v: np.where(v > 0, right, left)


def _between(low: float, high: float, inside: float, outside: float) -> Callable[[Array], Array]:
    """inside strictly between low and high, outside elsewhere."""
    return lambda v: np.where((v > low) & (v < high), inside, outside)


UNITS: dict[str, SmoothUnit] = {
    "mish": SmoothUnit(lambda x: x * _softplus_tanh(x), _mish_derivative),
    "swish": SmoothUnit(lambda x: x * _logistic(x), _swish_derivative),
}

ACTIVATIONS: dict[str, Activation] = {
    "logistic": Activation("1 / (1 + exp(-x))", _logistic, lambda y: (1 - y) * y, _logistic_derivative),
    "loggy": Activation(
        "2 / (1 + exp(-x)) - 1",
        lambda x: np.tanh(x / 2),
        lambda y: 2 * (1 - (y + 1) / 2) * ((y + 1) / 2),
        lambda x: 2 * _logistic_derivative(x),
    ),
    "relu": Activation("max(x, 0)", lambda x: np.maximum(x, 0), _slope(0, 1), _slope(0, 1), Kinks((0.0,))),
    "elu": Activation("x for x >= 0, else exp(x) - 1", _elu, lambda y: np.where(y >= 0, 1, y + 1), _elu_derivative),
    "selu": Activation(
        "1.0507 x for x >= 0, else 1.0507 * 1.6732 (exp(x) - 1)",
        _selu,
        _selu_from_output,
        _selu_derivative,
        Kinks((0.0,)),
    ),
    "relie": Activation(
        "x for x > 0, else .01 x",
        lambda x: np.where(x > 0, x, 0.01 * x),
        _slope(0.01, 1),
        _slope(0.01, 1),
        Kinks((0.0,)),
    ),
    "ramp": Activation(
        "max(x, 0) + .1 x",
        lambda x: np.maximum(x, 0) + 0.1 * x,
        _slope(0.1, 1.1),
        _slope(0.1, 1.1),
        Kinks((0.0,)),
    ),
    "linear": Activation("x", np.array, np.ones_like, np.ones_like),
    "tanh": Activation("tanh(x)", np.tanh, lambda y: 1 - y * y, lambda x: 4 * _logistic_derivative(2 * x)),
    "plse": Activation(
        ".01 (x + 4) below -4, .01 (x - 4) + 1 above 4, else .125 x + .5",
        _plse,
        lambda y: np.where((y < 0) | (y > 1), 0.01, 0.125),
        lambda x: np.where((x < -4) | (x > 4), 0.01, 0.125),
        Kinks((-4.0, 4.0)),
    ),
    "leaky": Activation(
        "x for x > 0, else .1 x",
        lambda x: np.where(x > 0, x, 0.1 * x),
        _slope(0.1, 1),
        _slope(0.1, 1),
        Kinks((0.0,)),
    ),
    "stair": Activation(
        "floor(x / 2) where floor(x) is even, else x - floor(x) + floor(x / 2)",
        _stair,
        lambda y: np.where(np.floor(y) == y, 0, 1),
        lambda x: np.where((np.floor(x) % 2 == 0) | (np.floor(x) == x), 0, 1),
        Kinks((0.0,), 1.0),
    ),
    "hardtan": Activation(
        "x clipped to -1..1",
        lambda x: np.clip(x, -1, 1),
        _between(-1, 1, 1, 0),
        _between(-1, 1, 1, 0),
        Kinks((-1.0, 1.0)),
    ),
    "lhtan": Activation(
        ".001 x below 0, .001 (x - 1) + 1 above 1, else x",
        _lhtan,
        _between(0, 1, 1, 0.001),
        _between(0, 1, 1, 0.001),
        Kinks((0.0, 1.0)),
    ),
}
