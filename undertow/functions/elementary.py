"""Elementary functions of one variable: exponentials, logarithms, roots, trigonometry."""

from __future__ import annotations

import math

import numpy as np

from undertow.core.function import Function
from undertow.core.registry import register
from undertow.core.variable import Operand, Variable
from undertow.functions.sampling import unary_samples

LN2 = math.log(2.0)
LN10 = math.log(10.0)

__all__ = [
    "Arccos",
    "Arcsin",
    "Arctan",
    "Cos",
    "Cosh",
    "Exp",
    "Expm1",
    "Log",
    "Log1p",
    "Log2",
    "Log10",
    "Sin",
    "Sinh",
    "Sqrt",
    "Tan",
    "Tanh",
    "arccos",
    "arcsin",
    "arctan",
    "cos",
    "cosh",
    "exp",
    "expm1",
    "log",
    "log1p",
    "log2",
    "log10",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
]


@register(
    "exp",
    gradient="twice",
    forward="y = e^x",
    backward="gx = y gy",
    samples=unary_samples(lambda x: exp(x), math.exp),
)
class Exp(Function):
    """e to the power x."""

    def forward(self, x: np.ndarray) -> np.ndarray:
        return np.exp(x)

    def backward(self, gy: np.ndarray) -> np.ndarray:
        return gy * self.output.data

    def backward_graph(self, gy: Variable) -> Variable:
        return gy * self.output


@register(
    "expm1",
    gradient="twice",
    forward="y = e^x - 1, exact near 0",
    backward="gx = (y + 1) gy",
    samples=unary_samples(lambda x: expm1(x), math.expm1),
)
class Expm1(Function):
    """e to the power x, less 1, without cancellation near 0."""

    def forward(self, x: np.ndarray) -> np.ndarray:
        return np.expm1(x)

    def backward(self, gy: np.ndarray) -> np.ndarray:
        return gy * (self.output.data + 1)

    def backward_graph(self, gy: Variable) -> Variable:
        return gy * (self.output + 1)


@register(
    "log",
    gradient="twice",
    forward="y = ln x",
    backward="gx = gy / x",
    samples=unary_samples(lambda x: log(x), math.log, low=0.3, high=4.0),
)
class Log(Function):
    """Natural logarithm; -inf at 0, NaN below."""

    def forward(self, x: np.ndarray) -> np.ndarray:
        return np.log(x)

    def backward(self, gy: np.ndarray) -> np.ndarray:
        return gy / self.inputs[0].data

    def backward_graph(self, gy: Variable) -> Variable:
        return gy / self.input


@register(
    "log1p",
    gradient="twice",
    forward="y = ln(1 + x), exact near 0",
    backward="gx = gy / (1 + x)",
    samples=unary_samples(lambda x: log1p(x), math.log1p, low=-0.7, high=3.0),
)
class Log1p(Function):
    """Natural logarithm of 1 + x, without losing small x."""

    def forward(self, x: np.ndarray) -> np.ndarray:
        return np.log1p(x)

    def backward(self, gy: np.ndarray) -> np.ndarray:
        return gy / (1 + self.inputs[0].data)

    def backward_graph(self, gy: Variable) -> Variable:
        return gy / (1 + self.input)


@register(
    "log2",
    gradient="twice",
    forward="y = log2 x",
    backward="gx = gy / (x ln 2)",
    samples=unary_samples(lambda x: log2(x), math.log2, low=0.3, high=4.0),
)
class Log2(Function):
    """Logarithm to base 2."""

    def forward(self, x: np.ndarray) -> np.ndarray:
        return np.log2(x)

    def backward(self, gy: np.ndarray) -> np.ndarray:
        return gy / (self.inputs[0].data * LN2)

    def backward_graph(self, gy: Variable) -> Variable:
        return gy / (self.input * LN2)


@register(
    "log10",
    gradient="twice",
    forward="y = log10 x",
    backward="gx = gy / (x ln 10)",
    samples=unary_samples(lambda x: log10(x), math.log10, low=0.3, high=4.0),
)
class Log10(Function):
    """Logarithm to base 10."""

    def forward(self, x: np.ndarray) -> np.ndarray:
        return np.log10(x)

    def backward(self, gy: np.ndarray) -> np.ndarray:
        return gy / (self.inputs[0].data * LN10)

    def backward_graph(self, gy: Variable) -> Variable:
        return gy / (self.input * LN10)


@register(
    "sqrt",
    gradient="twice",
    forward="y = sqrt x",
    backward="gx = gy / (2 y)",
    samples=unary_samples(lambda x: sqrt(x), math.sqrt, low=0.3, high=4.0),
)
class Sqrt(Function):
    """Square root; the gradient at 0 is infinite, NaN below."""

    def forward(self, x: np.ndarray) -> np.ndarray:
        return np.sqrt(x)

    def backward(self, gy: np.ndarray) -> np.ndarray:
        return gy / (2 * self.output.data)

    def backward_graph(self, gy: Variable) -> Variable:
        return gy / (2 * self.output)


@register(
    "sin",
    gradient="twice",
    forward="y = sin x",
    backward="gx = cos(x) gy",
    samples=unary_samples(lambda x: sin(x), math.sin),
)
class Sin(Function):
    """Sine of an angle in radians."""

    def forward(self, x: np.ndarray) -> np.ndarray:
        return np.sin(x)

    def backward(self, gy: np.ndarray) -> np.ndarray:
        return gy * np.cos(self.inputs[0].data)

    def backward_graph(self, gy: Variable) -> Variable:
        return gy * cos(self.input)


@register(
    "cos",
    gradient="twice",
    forward="y = cos x",
    backward="gx = -sin(x) gy",
    samples=unary_samples(lambda x: cos(x), math.cos),
)
class Cos(Function):
    """Cosine of an angle in radians."""

    def forward(self, x: np.ndarray) -> np.ndarray:
        return np.cos(x)

    def backward(self, gy: np.ndarray) -> np.ndarray:
        return -gy * np.sin(self.inputs[0].data)

    def backward_graph(self, gy: Variable) -> Variable:
        return -gy * sin(self.input)


@register(
    "tan",
    gradient="twice",
    forward="y = tan x",
    backward="gx = (1 + y^2) gy",
    samples=unary_samples(lambda x: tan(x), math.tan, low=-1.2, high=1.2),
)
class Tan(Function):
    """Tangent of an angle in radians."""

    def forward(self, x: np.ndarray) -> np.ndarray:
        return np.tan(x)

    def backward(self, gy: np.ndarray) -> np.ndarray:
        y = self.output.data
        return gy * (1 + y * y)

    def backward_graph(self, gy: Variable) -> Variable:
        return gy * (1 + self.output**2)


@register(
    "arcsin",
    gradient="twice",
    forward="y = arcsin x, in [-pi/2, pi/2]",
    backward="gx = gy / sqrt(1 - x^2)",
    samples=unary_samples(lambda x: arcsin(x), math.asin, low=-0.9, high=0.9),
)
class Arcsin(Function):
    """Inverse of the sine, for x in [-1, 1]."""

    def forward(self, x: np.ndarray) -> np.ndarray:
        return np.arcsin(x)

    def backward(self, gy: np.ndarray) -> np.ndarray:
        x = self.inputs[0].data
        return gy / np.sqrt((1 - x) * (1 + x))

    def backward_graph(self, gy: Variable) -> Variable:
        x = self.input
        return gy / sqrt((1 - x) * (1 + x))


@register(
    "arccos",
    gradient="twice",
    forward="y = arccos x, in [0, pi]",
    backward="gx = -gy / sqrt(1 - x^2)",
    samples=unary_samples(lambda x: arccos(x), math.acos, low=-0.9, high=0.9),
)
class Arccos(Function):
    """Inverse of the cosine, for x in [-1, 1]."""

    def forward(self, x: np.ndarray) -> np.ndarray:
        return np.arccos(x)

    def backward(self, gy: np.ndarray) -> np.ndarray:
        x = self.inputs[0].data
        return -gy / np.sqrt((1 - x) * (1 + x))

    def backward_graph(self, gy: Variable) -> Variable:
        x = self.input
        return -gy / sqrt((1 - x) * (1 + x))


@register(
    "arctan",
    gradient="twice",
    forward="y = arctan x, in (-pi/2, pi/2)",
    backward="gx = gy / (1 + x^2)",
    samples=unary_samples(lambda x: arctan(x), math.atan),
)
class Arctan(Function):
    """Inverse of the tangent."""

    def forward(self, x: np.ndarray) -> np.ndarray:
        return np.arctan(x)

    def backward(self, gy: np.ndarray) -> np.ndarray:
        x = self.inputs[0].data
        return gy / (1 + x * x)

    def backward_graph(self, gy: Variable) -> Variable:
        return gy / (1 + self.input**2)


@register(
    "sinh",
    gradient="twice",
    forward="y = sinh x",
    backward="gx = cosh(x) gy",
    samples=unary_samples(lambda x: sinh(x), math.sinh),
)
class Sinh(Function):
    """Hyperbolic sine, (e^x - e^-x) / 2."""

    def forward(self, x: np.ndarray) -> np.ndarray:
        return np.sinh(x)

    def backward(self, gy: np.ndarray) -> np.ndarray:
        return gy * np.cosh(self.inputs[0].data)

    def backward_graph(self, gy: Variable) -> Variable:
        return gy * cosh(self.input)


@register(
    "cosh",
    gradient="twice",
    forward="y = cosh x",
    backward="gx = sinh(x) gy",
    samples=unary_samples(lambda x: cosh(x), math.cosh),
)
class Cosh(Function):
    """Hyperbolic cosine, (e^x + e^-x) / 2."""

    def forward(self, x: np.ndarray) -> np.ndarray:
        return np.cosh(x)

    def backward(self, gy: np.ndarray) -> np.ndarray:
        return gy * np.sinh(self.inputs[0].data)

    def backward_graph(self, gy: Variable) -> Variable:
        return gy * sinh(self.input)


@register(
    "tanh",
    gradient="twice",
    forward="y = tanh x",
    backward="gx = (1 - y^2) gy",
    samples=unary_samples(lambda x: tanh(x), math.tanh),
)
class Tanh(Function):
    """Hyperbolic tangent, in (-1, 1)."""

    def forward(self, x: np.ndarray) -> np.ndarray:
        return np.tanh(x)

    def backward(self, gy: np.ndarray) -> np.ndarray:
        y = self.output.data
        return gy * (1 - y * y)

    def backward_graph(self, gy: Variable) -> Variable:
        return gy * (1 - self.output**2)


def exp(x: Operand) -> Variable:
    """e to the power x."""
    return Exp()(x)


def expm1(x: Operand) -> Variable:
    """e to the power x, less 1, without cancellation near 0."""
    return Expm1()(x)


def log(x: Operand) -> Variable:
    """Natural logarithm; -inf at 0, NaN below."""
    return Log()(x)


def log1p(x: Operand) -> Variable:
    """Natural logarithm of 1 + x, without losing small x."""
    return Log1p()(x)


def log2(x: Operand) -> Variable:
    """Logarithm to base 2."""
    return Log2()(x)


def log10(x: Operand) -> Variable:
    """Logarithm to base 10."""
    return Log10()(x)


def sqrt(x: Operand) -> Variable:
    """Square root; its gradient at 0 is infinite."""
    return Sqrt()(x)


def sin(x: Operand) -> Variable:
    """Sine of an angle in radians."""
    return Sin()(x)


def cos(x: Operand) -> Variable:
    """Cosine of an angle in radians."""
    return Cos()(x)


def tan(x: Operand) -> Variable:
    """Tangent of an angle in radians."""
    return Tan()(x)


def arcsin(x: Operand) -> Variable:
    """Inverse of the sine, for x in [-1, 1]; NaN outside."""
    return Arcsin()(x)


def arccos(x: Operand) -> Variable:
    """Inverse of the cosine, for x in [-1, 1]; NaN outside."""
    return Arccos()(x)


def arctan(x: Operand) -> Variable:
    """Inverse of the tangent."""
    return Arctan()(x)


def sinh(x: Operand) -> Variable:
    """Hyperbolic sine."""
    return Sinh()(x)


def cosh(x: Operand) -> Variable:
    """Hyperbolic cosine."""
    return Cosh()(x)


def tanh(x: Operand) -> Variable:
    """Hyperbolic tangent, in (-1, 1)."""
    return Tanh()(x)
