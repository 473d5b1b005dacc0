"""The activations of Darknet under its names, from the table in the kernels.

Two gradients: "true" is the derivative at the input; "darknet" takes the derivative from the output, as the C
program does (activations.c). They differ only where the output does not tell on which side of a kink x lay.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, get_args

import numpy as np

from undertow.core.function import Function
from undertow.core.registry import Sample, register
from undertow.core.variable import Operand, Variable
from undertow.functions.compare import where
from undertow.functions.sampling import elementwise
from undertow.kernels import select
from undertow.kernels.reference.activations import (
    ACTIVATIONS,
    SELU_ALPHA,
    SELU_SCALE,
    gradient,
    true_gradient,
)

__all__ = [
    "DarknetActivation",
    "darknet_activation",
    "hardtan",
    "leaky",
    "lhtan",
    "loggy",
    "logistic",
    "plse",
    "ramp",
    "relie",
    "stair",
]

GradientRule = Literal["true", "darknet"]

# f' from y = f(x) for the curved ones, to be differentiated again; the others are made of straight pieces.
_CURVED: dict[str, Callable[[Variable], Variable]] = {
    "logistic": lambda y: y * (1 - y),
    "loggy": lambda y: (1 - y * y) * 0.5,
    "tanh": lambda y: 1 - y * y,
    "elu": lambda y: where(y.data >= 0, 1, y + 1),
    "selu": lambda y: where(y.data >= 0, SELU_SCALE, y + SELU_SCALE * SELU_ALPHA),
}


def _stair(x: float) -> float:
    n = math.floor(x)
    return math.floor(x / 2) if n % 2 == 0 else (x - n) + math.floor(x / 2)


_BY_HAND: dict[str, Callable[[float], float]] = {
    "logistic": lambda x: 1 / (1 + math.exp(-x)),
    "loggy": lambda x: 2 / (1 + math.exp(-x)) - 1,
    "relu": lambda x: x if x > 0 else 0.0,
    "elu": lambda x: x if x >= 0 else math.exp(x) - 1,
    "selu": lambda x: 1.0507 * x if x >= 0 else 1.0507 * 1.6732 * (math.exp(x) - 1),
    "relie": lambda x: x if x > 0 else 0.01 * x,
    "ramp": lambda x: (x if x > 0 else 0.0) + 0.1 * x,
    "linear": lambda x: x,
    "tanh": lambda x: (math.exp(2 * x) - 1) / (math.exp(2 * x) + 1),
    "plse": lambda x: 0.01 * (x + 4) if x < -4 else 0.01 * (x - 4) + 1 if x > 4 else 0.125 * x + 0.5,
    "leaky": lambda x: x if x > 0 else 0.1 * x,
    "stair": _stair,
    "hardtan": lambda x: -1.0 if x < -1 else 1.0 if x > 1 else x,
    "lhtan": lambda x: 0.001 * x if x < 0 else 0.001 * (x - 1) + 1 if x > 1 else x,
}


def _samples(rng: np.random.Generator) -> list[Sample]:
    return [
        Sample(
            (rng.uniform(-6, 6, (3, 7)),),
            lambda x, n=name, g=rule: darknet_activation(x, n, g),
            elementwise(_BY_HAND[name]),
            note=f"{name}, gradient {rule}",
        )
        for name in ACTIVATIONS
        for rule in get_args(GradientRule)
    ]


@register(
    "darknet_activation",
    gradient="twice",
    forward="y = f(x); " + "; ".join(f"{name}: {entry.formula}" for name, entry in ACTIVATIONS.items()),
    backward="gx = f'(x) gy, or as Darknet, f' taken from y",
    samples=_samples,
)
class DarknetActivation(Function):
    """One of Darknet's activations by name, with the true derivative or the one Darknet takes from the output."""

    def __init__(self, name: str, gradient: GradientRule = "true") -> None:
        self.name, self.rule = name, gradient

    @property
    def label(self) -> str:
        return f"DarknetActivation({self.name})"

    def forward(self, x: np.ndarray) -> np.ndarray:
        return select.activate(x, self.name)

    def backward(self, gy: np.ndarray) -> np.ndarray:
        from_output = self.rule == "darknet"
        saved = self.output.data if from_output else self.inputs[0].data
        return select.activate_backward(gy, saved, self.name, from_output)

    def backward_graph(self, gy: Variable) -> Variable:
        curved = _CURVED.get(self.name)
        return gy * (self._slopes() if curved is None else curved(self.output))

    def _slopes(self) -> np.ndarray:
        if self.rule == "darknet":
            return gradient(self.output.data, self.name)
        return true_gradient(self.inputs[0].data, self.name)


def darknet_activation(x: Operand, name: str, gradient: GradientRule = "true") -> Variable:
    """Darknet's activation `name` (logistic, loggy, relu, elu, selu, relie, ramp, linear, tanh, plse, leaky, stair,
    hardtan, lhtan), element by element.

    gradient: "true" for the derivative at x, "darknet" for the one the C program takes from the output.
    Raises UndertowError for a name that is not known, ValueError for another gradient.
    """
    if gradient not in get_args(GradientRule):
        raise ValueError(f"gradient must be 'true' or 'darknet', got {gradient!r}")
    return DarknetActivation(name, gradient)(x)


def logistic(x: Operand) -> Variable:
    """1 / (1 + e^-x), Darknet's name for sigmoid."""
    return DarknetActivation("logistic")(x)


def loggy(x: Operand) -> Variable:
    """2 / (1 + e^-x) - 1."""
    return DarknetActivation("loggy")(x)


def relie(x: Operand) -> Variable:
    """x where positive, else .01 x; kink at 0."""
    return DarknetActivation("relie")(x)


def ramp(x: Operand) -> Variable:
    """max(x, 0) + .1 x; kink at 0."""
    return DarknetActivation("ramp")(x)


def plse(x: Operand) -> Variable:
    """.125 x + .5 within -4..4, slope .01 outside; kinks at -4 and 4."""
    return DarknetActivation("plse")(x)


def leaky(x: Operand) -> Variable:
    """x where positive, else .1 x; kink at 0."""
    return DarknetActivation("leaky")(x)


def stair(x: Operand) -> Variable:
    """Steps: flat from each even number to the next odd one, slope 1 from there; kinks at all whole numbers."""
    return DarknetActivation("stair")(x)


def hardtan(x: Operand) -> Variable:
    """x limited to -1..1; kinks there."""
    return DarknetActivation("hardtan")(x)


def lhtan(x: Operand) -> Variable:
    """x within 0..1, slope .001 outside; kinks at 0 and 1."""
    return DarknetActivation("lhtan")(x)
