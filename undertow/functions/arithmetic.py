"""Arithmetic with broadcasting: + - * / ** and what Python writes with them."""

from __future__ import annotations

import numpy as np

from undertow.core.function import Function
from undertow.core.registry import Sample, register
from undertow.core.variable import Operand, Variable
from undertow.functions.elementary import log
from undertow.functions.sampling import binary_samples, elementwise, unary_samples
from undertow.functions.shape import sum_to, sum_to_array

__all__ = [
    "Add",
    "Div",
    "Mul",
    "Neg",
    "Pow",
    "Power",
    "Square",
    "Sub",
    "add",
    "div",
    "mul",
    "neg",
    "pow",
    "square",
    "sub",
]


@register(
    "add",
    gradient="twice",
    forward="y = a + b",
    backward="ga = gy, gb = gy, each summed over broadcast axes",
    samples=binary_samples(lambda a, b: a + b, lambda a, b: a + b),
    whole=True,
)
class Add(Function):
    """Sum of two broadcast operands."""

    def forward(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a + b

    def backward(self, gy: np.ndarray) -> tuple[np.ndarray | None, ...]:
        (a, b), (wants_a, wants_b) = self.inputs, self.needs_input_grad
        return (
            sum_to_array(gy, a.data.shape) if wants_a else None,
            sum_to_array(gy, b.data.shape) if wants_b else None,
        )

    def backward_graph(self, gy: Variable) -> tuple[Variable, ...]:
        a, b = self.inputs
        return sum_to(gy, a.shape), sum_to(gy, b.shape)


@register(
    "sub",
    gradient="twice",
    forward="y = a - b",
    backward="ga = gy, gb = -gy, each summed over broadcast axes",
    samples=binary_samples(lambda a, b: a - b, lambda a, b: a - b),
    whole=True,
)
class Sub(Function):
    """Difference of two broadcast operands."""

    def forward(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a - b

    def backward(self, gy: np.ndarray) -> tuple[np.ndarray | None, ...]:
        (a, b), (wants_a, wants_b) = self.inputs, self.needs_input_grad
        return (
            sum_to_array(gy, a.data.shape) if wants_a else None,
            -sum_to_array(gy, b.data.shape) if wants_b else None,
        )

    def backward_graph(self, gy: Variable) -> tuple[Variable, ...]:
        a, b = self.inputs
        return sum_to(gy, a.shape), -sum_to(gy, b.shape)


@register(
    "mul",
    gradient="twice",
    forward="y = a b, element by element",
    backward="ga = gy b, gb = gy a, each summed over broadcast axes",
    samples=binary_samples(lambda a, b: a * b, lambda a, b: a * b),
    whole=True,
)
class Mul(Function):
    """Product of two broadcast operands, element by element."""

    def forward(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a * b

    def backward(self, gy: np.ndarray) -> tuple[np.ndarray | None, ...]:
        (a, b), (wants_a, wants_b) = self.inputs, self.needs_input_grad
        return (
            sum_to_array(gy * b.data, a.data.shape) if wants_a else None,
            sum_to_array(gy * a.data, b.data.shape) if wants_b else None,
        )

    def backward_graph(self, gy: Variable) -> tuple[Variable | None, ...]:
        (a, b), (wants_a, wants_b) = self.inputs, self.needs_input_grad
        return sum_to(gy * b, a.shape) if wants_a else None, sum_to(gy * a, b.shape) if wants_b else None


@register(
    "div",
    gradient="twice",
    forward="y = a / b",
    backward="ga = gy / b, gb = -gy a / b^2, each summed over broadcast axes",
    samples=binary_samples(lambda a, b: a / b, lambda a, b: a / b, low=0.5, high=2.0),
    whole=True,
)
class Div(Function):
    """Quotient of two broadcast operands, element by element."""

    def forward(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a / b

    def backward(self, gy: np.ndarray) -> tuple[np.ndarray | None, ...]:
        (a, b), (wants_a, wants_b) = self.inputs, self.needs_input_grad
        ga = gy / b.data
        return (
            sum_to_array(ga, a.data.shape) if wants_a else None,
            sum_to_array(-ga * (a.data / b.data), b.data.shape) if wants_b else None,
        )

    def backward_graph(self, gy: Variable) -> tuple[Variable | None, ...]:
        (a, b), (wants_a, wants_b) = self.inputs, self.needs_input_grad
        ga = gy / b
        return sum_to(ga, a.shape) if wants_a else None, sum_to(-ga * (a / b), b.shape) if wants_b else None


@register(
    "neg",
    gradient="twice",
    forward="y = -x",
    backward="gx = -gy",
    samples=unary_samples(lambda x: -x, lambda x: 0.0 - x),
    whole=True,
)
class Neg(Function):
    """The opposite."""

    def forward(self, x: np.ndarray) -> np.ndarray:
        return -x

    def backward(self, gy: np.ndarray) -> np.ndarray:
        return -gy

    def backward_graph(self, gy: Variable) -> Variable:
        return -gy


@register(
    "square",
    gradient="twice",
    forward="y = x^2",
    backward="gx = 2 x gy",
    samples=unary_samples(lambda x: square(x), lambda x: x**2),
    whole=True,
)
class Square(Function):
    """x times x."""

    def forward(self, x: np.ndarray) -> np.ndarray:
        return x * x

    def backward(self, gy: np.ndarray) -> np.ndarray:
        return gy * self.inputs[0].data * 2

    def backward_graph(self, gy: Variable) -> Variable:
        return gy * self.input * 2


def _power_samples(rng: np.random.Generator) -> list[Sample]:
    cases = [(3, -2.0), (2, -2.0), (1, -2.0), (0, -2.0), (-1, 0.5), (-2, 0.5), (0.5, 0.3), (2.5, 0.3), (-0.5, 0.3)]
    samples = [
        Sample(
            (rng.uniform(low, 2.0, (2, 3)),),
            lambda x, c=c: x**c,
            elementwise(lambda x, c=c: x**c),
            note=f"exponent {c}",
        )
        for c, low in cases
    ]
    at_zero = np.array([-1.0, 0.0, 2.0])
    samples += [
        Sample((at_zero,), lambda x, c=c: x**c, elementwise(lambda x, c=c: x**c), note=f"exponent {c} at 0")
        for c in (0, 1, 2, 3)
    ]
    return samples


@register(
    "power",
    gradient="twice",
    forward="y = x^c with a constant number c",
    backward="gx = c x^(c-1) gy, and 0 for c = 0",
    samples=_power_samples,
    whole=True,
)
class Power(Function):
    """x to a constant power c; an integer c is exact for negative x too, and x^0 = 1 everywhere."""

    def __init__(self, exponent: float) -> None:
        self.exponent = exponent

    def forward(self, x: np.ndarray) -> np.ndarray:
        return x**self.exponent

    def backward(self, gy: np.ndarray) -> np.ndarray:
        x, c = self.inputs[0].data, self.exponent
        return gy * (c * x ** (c - 1)) if c != 0 else np.zeros_like(gy)

    def backward_graph(self, gy: Variable) -> Variable:
        c = self.exponent
        return gy * (c * self.input ** (c - 1)) if c != 0 else gy * 0


def _pow_samples(rng: np.random.Generator) -> list[Sample]:
    whole = np.array([2.0, 3.0, 0.0])
    return [
        *binary_samples(lambda a, b: a**b, lambda a, b: a**b, low=0.2, high=2.0)(rng),
        Sample(
            (np.array([-2.0, -0.5, 1.5]),),
            lambda a: a ** whole.astype(a.dtype),
            lambda a: np.array([a[0] * a[0], a[1] * a[1] * a[1], 1.0]),
            note="negative bases, whole exponents",
        ),
        Sample((np.array([0.5, 1.0, 3.0]),), lambda b: 2**b, elementwise(lambda b: 2**b), note="number to a power"),
    ]


@register(
    "pow",
    gradient="twice",
    forward="y = a^b",
    backward="ga = b a^(b-1) gy, gb = a^b ln(a) gy, each summed over broadcast axes",
    samples=_pow_samples,
    whole=True,
)
class Pow(Function):
    """Power of two broadcast operands, differentiable in both; 0^0 is 1.

    At a = b = 0, ga is 0. Where a = 0 and b >= 0, gb is 0. Where a < 0 the power is real for whole b only, so
    there is no derivative by b: gb is NaN.
    """

    def forward(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a**b

    def backward_graph(self, gy: Variable) -> tuple[Variable | None, ...]:
        (a, b), (wants_a, wants_b) = self.inputs, self.needs_input_grad
        ga = gb = None
        if wants_a:
            flat = (a.data == 0) & (b.data == 0)
            ga = sum_to(gy * b * a ** (b - 1 + flat.astype(b.dtype)), a.shape)
        if wants_b:
            zero = (a.data == 0) & (b.data >= 0)
            gb = sum_to(gy * a**b * log(a + zero.astype(a.dtype)), b.shape)
        return ga, gb


def add(a: Operand, b: Operand) -> Variable:
    """a + b, broadcast."""
    return Add()(a, b)


def sub(a: Operand, b: Operand) -> Variable:
    """a - b, broadcast."""
    return Sub()(a, b)


def mul(a: Operand, b: Operand) -> Variable:
    """a times b, element by element, broadcast."""
    return Mul()(a, b)


def div(a: Operand, b: Operand) -> Variable:
    """a / b, element by element, broadcast."""
    return Div()(a, b)


def neg(x: Operand) -> Variable:
    """-x."""
    return Neg()(x)


def square(x: Operand) -> Variable:
    """x times x."""
    return Square()(x)


def pow(base: Operand, exponent: Operand) -> Variable:  # noqa: A001
    """base to the power exponent, broadcast; 0 to the power 0 is 1.

    A number as exponent is a constant: whole ones are exact and take negative bases. Otherwise both operands
    get gradients, see `Pow` for bases of 0 and below.
    """
    if isinstance(exponent, np.generic):
        exponent = exponent.item()
    if isinstance(exponent, (int, float)):
        return Square()(base) if exponent == 2 else Power(exponent)(base)
    return Pow()(base, exponent)
