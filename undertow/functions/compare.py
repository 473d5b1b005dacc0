"""Comparing and choosing: abs, sign, clip, maximum, minimum, where. At kinks each states the rule it follows."""

from __future__ import annotations

import numpy as np

from undertow.core.function import Function, NonDifferentiable
from undertow.core.registry import Sample, register
from undertow.core.variable import Operand, Variable, as_array, as_variable
from undertow.functions.sampling import Samples, distinct, elementwise, unary_samples
from undertow.functions.shape import sum_to, sum_to_array

__all__ = [
    "Abs",
    "Clip",
    "Maximum",
    "Minimum",
    "Sign",
    "Where",
    "abs",
    "clip",
    "maximum",
    "minimum",
    "sign",
    "where",
]


@register(
    "abs",
    gradient="twice",
    forward="y = |x|",
    backward="gx = sign(x) gy, 0 at x = 0",
    samples=unary_samples(lambda x: abs(x), lambda x: x if x > 0 else -x),
    whole=True,
)
class Abs(Function):
    """Absolute value; the gradient at the kink x = 0 is 0."""

    def forward(self, x: np.ndarray) -> np.ndarray:
        return np.abs(x)

    def backward(self, gy: np.ndarray) -> np.ndarray:
        return gy * np.sign(self.inputs[0].data)

    def backward_graph(self, gy: Variable) -> Variable:
        return gy * as_array(np.sign(self.input.data))


@register(
    "sign",
    gradient="none",
    forward="y = -1, 0 or 1",
    samples=unary_samples(lambda x: sign(x), lambda x: float((x > 0) - (x < 0))),
    whole=True,
)
class Sign(NonDifferentiable):
    """The sign of x: -1, 0 or 1."""

    def forward(self, x: np.ndarray) -> np.ndarray:
        return np.sign(x)


def _clip_samples(rng: np.random.Generator) -> list[Sample]:
    limits: list[tuple[float | None, float | None]] = [(-0.5, 0.7), (None, 0.3), (-0.2, None)]

    def by_hand(low: float | None, high: float | None, x: float) -> float:
        if low is not None and x < low:
            return low
        return high if high is not None and x > high else x

    return [
        Sample(
            (rng.uniform(-2, 2, (4, 5)),),
            lambda x, a=a, b=b: clip(x, a, b),
            elementwise(lambda x, a=a, b=b: by_hand(a, b, x)),
            note=f"limits {a}, {b}",
        )
        for a, b in limits
    ]


@register(
    "clip",
    gradient="twice",
    forward="y = x limited to low..high",
    backward="gx = gy where low <= x <= high, else 0",
    samples=_clip_samples,
    whole=True,
)
class Clip(Function):
    """x limited to low..high; at the limits themselves the gradient passes."""

    def __init__(self, low: float | None, high: float | None) -> None:
        self.low, self.high = low, high

    def forward(self, x: np.ndarray) -> np.ndarray:
        return np.clip(x, self.low, self.high)

    def backward(self, gy: np.ndarray) -> np.ndarray:
        return gy * self._inside()

    def backward_graph(self, gy: Variable) -> Variable:
        return gy * self._inside()

    def _inside(self) -> np.ndarray:
        x = self.inputs[0].data
        inside = np.ones(x.shape, bool)
        if self.low is not None:
            inside &= x >= self.low
        if self.high is not None:
            inside &= x <= self.high
        return inside


def _choice_samples(name: str) -> Samples:
    """Operands that never meet, so that no sample lies on a kink."""

    def samples(rng: np.random.Generator) -> list[Sample]:
        call = {"maximum": maximum, "minimum": minimum}[name]
        pick = elementwise(lambda a, b: sorted([a, b])[1 if name == "maximum" else 0])
        shapes: list[tuple[tuple[int, ...], tuple[int, ...]]] = [((3, 4), (3, 4)), ((2, 1, 3), (4, 1)), ((), (5,))]
        return [Sample((distinct(rng, a), distinct(rng, b) + 0.025), call, pick) for a, b in shapes]

    return samples


class _Choice(Function):
    """Base of maximum and minimum: the gradient goes to the operand chosen, half to each where they are equal."""

    def backward(self, gy: np.ndarray) -> tuple[np.ndarray, ...]:
        (a, b), share = self.inputs, self._share_of_a()
        return sum_to_array(gy * share, a.data.shape), sum_to_array(gy * (1 - share), b.data.shape)

    def backward_graph(self, gy: Variable) -> tuple[Variable, ...]:
        (a, b), share = self.inputs, self._share_of_a()
        return sum_to(gy * share, a.shape), sum_to(gy * (1 - share), b.shape)

    def _share_of_a(self) -> np.ndarray:
        a, b = (x.data for x in self.inputs)
        chosen = self._prefers_a(a, b)
        return as_array(np.where(a == b, 0.5, chosen).astype(np.result_type(a, b)))

    def _prefers_a(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        raise NotImplementedError


@register(
    "maximum",
    gradient="twice",
    forward="y = the larger of a and b",
    backward="ga = gy where a > b, gb = gy where b > a, gy / 2 each where equal; summed over broadcast axes",
    samples=_choice_samples("maximum"),
    whole=True,
)
class Maximum(_Choice):
    """The larger of two broadcast operands, element by element."""

    def forward(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.maximum(a, b)

    def _prefers_a(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a > b


@register(
    "minimum",
    gradient="twice",
    forward="y = the smaller of a and b",
    backward="ga = gy where a < b, gb = gy where b < a, gy / 2 each where equal; summed over broadcast axes",
    samples=_choice_samples("minimum"),
    whole=True,
)
class Minimum(_Choice):
    """The smaller of two broadcast operands, element by element."""

    def forward(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.minimum(a, b)

    def _prefers_a(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a < b


def _where_samples(rng: np.random.Generator) -> list[Sample]:
    Shape = tuple[int, ...]
    cases: list[tuple[Shape, Shape, Shape]] = [((3, 4), (3, 4), (3, 4)), ((4,), (2, 1), (1, 4)), ((2, 3), (), (3,))]
    samples = []
    for c, a, b in cases:
        condition = rng.random(c) < 0.5
        samples.append(
            Sample(
                (rng.standard_normal(a), rng.standard_normal(b)),
                lambda x, y, m=condition: where(m, x, y),
                lambda x, y, m=condition: elementwise(lambda m, x, y: x if m else y)(m, x, y),
            )
        )
    return samples


@register(
    "where",
    gradient="twice",
    forward="y = a where the condition holds, else b",
    backward="ga = gy where the condition holds, gb = gy elsewhere; summed over broadcast axes",
    samples=_where_samples,
    whole=True,
)
class Where(Function):
    """a where a condition (an array of booleans, a constant) holds, b elsewhere; all three broadcast."""

    def __init__(self, condition: np.ndarray) -> None:
        self.condition = condition

    def forward(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.where(self.condition, a, b)

    def backward(self, gy: np.ndarray) -> tuple[np.ndarray | None, ...]:
        (a, b), (wants_a, wants_b) = self.inputs, self.needs_input_grad
        zero = gy.dtype.type(0)
        return (
            sum_to_array(np.where(self.condition, gy, zero), a.data.shape) if wants_a else None,
            sum_to_array(np.where(self.condition, zero, gy), b.data.shape) if wants_b else None,
        )

    def backward_graph(self, gy: Variable) -> tuple[Variable, ...]:
        a, b = self.inputs
        return sum_to(where(self.condition, gy, 0), a.shape), sum_to(where(self.condition, 0, gy), b.shape)


def abs(x: Operand) -> Variable:  # noqa: A001
    """Absolute value; its gradient at 0 is 0."""
    return Abs()(x)


def sign(x: Operand) -> Variable:
    """-1, 0 or 1: a constant without a gradient."""
    return Sign()(x)


def clip(x: Operand, low: float | None = None, high: float | None = None) -> Variable:
    """x limited to low..high, either of which may be None. The gradient passes where x lies within or on them."""
    if low is not None and high is not None and low > high:
        raise ValueError(f"clip: low {low} is above high {high}")
    return Clip(low, high)(x)


def maximum(a: Operand, b: Operand) -> Variable:
    """The larger of a and b, broadcast; where they are equal each gets half of the gradient."""
    return Maximum()(a, b)


def minimum(a: Operand, b: Operand) -> Variable:
    """The smaller of a and b, broadcast; where they are equal each gets half of the gradient."""
    return Minimum()(a, b)


def where(condition: Operand, a: Operand, b: Operand) -> Variable:
    """a where the condition holds, else b; all three broadcast. The condition is a constant."""
    return Where(as_variable(condition).data.astype(bool))(a, b)
