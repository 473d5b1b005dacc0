"""The error function, in NumPy alone and accurate to the last bits of float64."""

from __future__ import annotations

import math

import numpy as np

from undertow.core.function import Function
from undertow.core.registry import register
from undertow.core.variable import Operand, Variable
from undertow.functions.elementary import exp
from undertow.functions.sampling import unary_samples

__all__ = ["Erf", "erf"]

SLOPE_AT_0 = 2 / math.sqrt(math.pi)

# Rational Chebyshev approximations of W. J. Cody, Math. Comp. 23 (1969), 631-637, leading coefficient first:
# erf(x) = x P(x^2) / Q(x^2) up to 0.46875, erfc(x) = exp(-x^2) P(x) / Q(x) above.
_SMALL_P = (
    1.85777706184603153e-1,
    3.16112374387056560e0,
    1.13864154151050156e2,
    3.77485237685302021e2,
    3.20937758913846947e3,
)
_SMALL_Q = (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3)
_LARGE_P = (
    2.15311535474403846e-8,
    5.64188496988670089e-1,
    8.88314979438837594e0,
    6.61191906371416295e1,
    2.98635138197400131e2,
    8.81952221241769090e2,
    1.71204761263407058e3,
    2.05107837782607147e3,
    1.23033935479799725e3,
)
_LARGE_Q = (
    1.0,
    1.57449261107098347e1,
    1.17693950891312499e2,
    5.37181101862009858e2,
    1.62138957456669019e3,
    3.29079923573345963e3,
    4.36261909014324716e3,
    3.43936767414372164e3,
    1.23033935480374942e3,
)


def erf_array(x: np.ndarray) -> np.ndarray:
    """erf of every element; from 6 on it is 1 to the last bit of float64; float16 goes by float32: it overflows."""
    if x.dtype == np.float16:
        return erf_array(x.astype(np.float32)).astype(x.dtype)
    x = np.clip(x, -6.0, 6.0)
    size = np.abs(x)
    squared = x * x
    small = x * (_polynomial(_SMALL_P, squared) / _polynomial(_SMALL_Q, squared))
    rest = np.exp(-squared) * (_polynomial(_LARGE_P, size) / _polynomial(_LARGE_Q, size))
    return np.where(size <= 0.46875, small, np.copysign(1 - rest, x))


def _polynomial(coefficients: tuple[float, ...], x: np.ndarray) -> np.ndarray:
    value = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        value = value * x + coefficient
    return value


@register(
    "erf",
    gradient="twice",
    forward="y = 2 / sqrt(pi) times the integral of e^(-t^2) from 0 to x",
    backward="gx = 2 / sqrt(pi) e^(-x^2) gy",
    samples=unary_samples(lambda x: erf(x), math.erf, low=-3.0, high=3.0),
)
class Erf(Function):
    """The error function, in (-1, 1)."""

    def forward(self, x: np.ndarray) -> np.ndarray:
        return erf_array(x)

    def backward(self, gy: np.ndarray) -> np.ndarray:
        x = self.inputs[0].data
        return gy * np.exp(-x * x) * SLOPE_AT_0

    def backward_graph(self, gy: Variable) -> Variable:
        return gy * exp(-(self.input**2)) * SLOPE_AT_0


def erf(x: Operand) -> Variable:
    """The error function, in (-1, 1)."""
    return Erf()(x)
