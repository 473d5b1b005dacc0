"""Smooth activations: sigmoid, softplus, gelu, swish (silu), mish. tanh stands among the elementary functions."""

from __future__ import annotations

import math

import numpy as np

from undertow.core.function import Function
from undertow.core.registry import Sample, register
from undertow.core.variable import Operand, Variable
from undertow.functions.elementary import exp, tanh
from undertow.functions.errorfunction import erf, erf_array
from undertow.functions.sampling import elementwise, unary_samples
from undertow.kernels import select

__all__ = [
    "Gelu",
    "GeluTanh",
    "Mish",
    "Sigmoid",
    "Softplus",
    "Swish",
    "gelu",
    "mish",
    "sigmoid",
    "silu",
    "softplus",
    "swish",
]

SQRT_HALF = math.sqrt(0.5)
NORMAL_PEAK = 1 / math.sqrt(2 * math.pi)
GELU_TANH_SCALE = math.sqrt(2 / math.pi)
GELU_TANH_CUBIC = 0.044715


def sigmoid_array(x: np.ndarray) -> np.ndarray:
    """1 / (1 + e^-x) without overflow and without losing the smallest values."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, x.dtype.type(1), small) / (1 + small)


def softplus_array(x: np.ndarray) -> np.ndarray:
    """ln(1 + e^x) without overflow."""
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


@register(
    "sigmoid",
    gradient="twice",
    forward="y = 1 / (1 + e^-x)",
    backward="gx = y (1 - y) gy",
    samples=unary_samples(lambda x: sigmoid(x), _sigmoid, low=-6.0, high=6.0),
)
class Sigmoid(Function):
    """The logistic function, in (0, 1)."""

    def forward(self, x: np.ndarray) -> np.ndarray:
        return sigmoid_array(x)

    def backward(self, gy: np.ndarray) -> np.ndarray:
        y = self.output.data
        return gy * y * (1 - y)

    def backward_graph(self, gy: Variable) -> Variable:
        y = self.output
        return gy * y * (1 - y)


def _softplus_samples(rng: np.random.Generator) -> list[Sample]:
    def reference(x: float, beta: float) -> float:
        return math.log(1 + math.exp(beta * x)) / beta

    return [
        Sample(
            (rng.uniform(-4, 4, (3, 4)),),
            lambda x, b=b: softplus(x, b),
            elementwise(lambda x, b=b: reference(x, b)),
            note=f"beta {b}",
        )
        for b in (1.0, 2.5)
    ]


@register(
    "softplus",
    gradient="twice",
    forward="y = ln(1 + e^(beta x)) / beta",
    backward="gx = sigmoid(beta x) gy",
    samples=_softplus_samples,
)
class Softplus(Function):
    """A smooth max(x, 0); the larger beta, the nearer to it."""

    def __init__(self, beta: float = 1.0) -> None:
        self.beta = beta

    def forward(self, x: np.ndarray) -> np.ndarray:
        return softplus_array(x * self.beta) / self.beta

    def backward(self, gy: np.ndarray) -> np.ndarray:
        return gy * sigmoid_array(self.inputs[0].data * self.beta)

    def backward_graph(self, gy: Variable) -> Variable:
        return gy * sigmoid(self.input * self.beta)


@register(
    "gelu",
    gradient="twice",
    forward="y = x P(x), P(x) = (1 + erf(x / sqrt 2)) / 2",
    backward="gx = (P(x) + x p(x)) gy, p(x) = e^(-x^2 / 2) / sqrt(2 pi)",
    samples=unary_samples(lambda x: gelu(x), lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2, low=-3.0, high=3.0),
)
class Gelu(Function):
    """x times the probability that a standard normal variable lies below x."""

    def forward(self, x: np.ndarray) -> np.ndarray:
        return x * (1 + erf_array(x * SQRT_HALF)) * 0.5

    def backward(self, gy: np.ndarray) -> np.ndarray:
        x = self.inputs[0].data
        return gy * ((1 + erf_array(x * SQRT_HALF)) * 0.5 + x * np.exp(x * x * -0.5) * NORMAL_PEAK)

    def backward_graph(self, gy: Variable) -> Variable:
        x = self.input
        return gy * ((1 + erf(x * SQRT_HALF)) * 0.5 + x * exp(x * x * -0.5) * NORMAL_PEAK)


def _gelu_tanh(x: float) -> float:
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


@register(
    "gelu_tanh",
    gradient="twice",
    forward="y = x (1 + t) / 2, t = tanh(u), u = sqrt(2 / pi) (x + 0.044715 x^3)",
    backward="gx = ((1 + t) / 2 + x (1 - t^2) u' / 2) gy, u' = sqrt(2 / pi) (1 + 0.134145 x^2)",
    samples=unary_samples(lambda x: gelu(x, approximate=True), _gelu_tanh, low=-3.0, high=3.0),
)
class GeluTanh(Function):
    """The approximation of gelu by tanh that many trained models were made with."""

    def forward(self, x: np.ndarray) -> np.ndarray:
        return x * (1 + np.tanh(GELU_TANH_SCALE * (x + GELU_TANH_CUBIC * (x * x * x)))) * 0.5

    def backward(self, gy: np.ndarray) -> np.ndarray:
        x = self.inputs[0].data
        squared = x * x
        t = np.tanh(GELU_TANH_SCALE * (x + GELU_TANH_CUBIC * (squared * x)))
        slope = GELU_TANH_SCALE * (1 + 3 * GELU_TANH_CUBIC * squared)
        return gy * ((1 + t) * 0.5 + x * (1 - t * t) * slope * 0.5)

    def backward_graph(self, gy: Variable) -> Variable:
        x = self.input
        squared = x * x
        t = tanh(GELU_TANH_SCALE * (x + GELU_TANH_CUBIC * (squared * x)))
        slope = GELU_TANH_SCALE * (1 + 3 * GELU_TANH_CUBIC * squared)
        return gy * ((1 + t) * 0.5 + x * (1 - t * t) * slope * 0.5)


@register(
    "swish",
    gradient="twice",
    forward="y = x s, s = 1 / (1 + e^-x)",
    backward="gx = (s + y (1 - s)) gy",
    samples=unary_samples(lambda x: swish(x), lambda x: x * _sigmoid(x), low=-5.0, high=5.0),
)
class Swish(Function):
    """x times its sigmoid, also called silu."""

    def forward(self, x: np.ndarray) -> np.ndarray:
        return select.activate(x, "swish")

    def backward(self, gy: np.ndarray) -> np.ndarray:
        return select.activate_backward(gy, self.inputs[0].data, "swish")

    def backward_graph(self, gy: Variable) -> Variable:
        x = self.input
        s = sigmoid(x)
        return gy * (s + x * s * (1 - s))


@register(
    "mish",
    gradient="twice",
    forward="y = x t, t = tanh(ln(1 + e^x))",
    backward="gx = (t + x (1 - t^2) sigmoid(x)) gy",
    samples=unary_samples(lambda x: mish(x), lambda x: x * math.tanh(math.log(1 + math.exp(x))), low=-5.0, high=5.0),
)
class Mish(Function):
    """x times tanh of its softplus."""

    def forward(self, x: np.ndarray) -> np.ndarray:
        return select.activate(x, "mish")

    def backward(self, gy: np.ndarray) -> np.ndarray:
        return select.activate_backward(gy, self.inputs[0].data, "mish")

    def backward_graph(self, gy: Variable) -> Variable:
        x = self.input
        t = tanh(softplus(x))
        return gy * (t + x * (1 - t * t) * sigmoid(x))


def sigmoid(x: Operand) -> Variable:
    """The logistic function 1 / (1 + e^-x), in (0, 1)."""
    return Sigmoid()(x)


def softplus(x: Operand, beta: float = 1.0) -> Variable:
    """ln(1 + e^(beta x)) / beta, a smooth max(x, 0)."""
    return Softplus(beta)(x)


def gelu(x: Operand, approximate: bool = False) -> Variable:
    """x times the normal distribution function of x; approximate: the form with tanh, off by up to 5e-4."""
    return GeluTanh()(x) if approximate else Gelu()(x)


def swish(x: Operand) -> Variable:
    """x sigmoid(x), also called silu."""
    return Swish()(x)


def silu(x: Operand) -> Variable:
    """x sigmoid(x), also called swish."""
    return Swish()(x)


def mish(x: Operand) -> Variable:
    """x tanh(softplus(x))."""
    return Mish()(x)
