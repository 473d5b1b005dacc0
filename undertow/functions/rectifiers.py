"""Activations made of pieces: relu, leaky_relu, prelu, elu, selu, relu6, hard_sigmoid, hard_swish.

Where the pieces meet at an angle, the gradient is that of the left piece.
"""

from __future__ import annotations

import math

import numpy as np

from undertow.core.function import Function
from undertow.core.registry import Sample, register
from undertow.core.variable import Operand, Variable, as_variable
from undertow.errors import ShapeError
from undertow.functions.compare import where
from undertow.functions.sampling import elementwise, unary_samples
from undertow.functions.shape import reshape, sum_to, sum_to_array
from undertow.kernels import select

__all__ = [
    "Elu",
    "HardSigmoid",
    "HardSwish",
    "LeakyRelu",
    "PRelu",
    "Relu",
    "Relu6",
    "elu",
    "hard_sigmoid",
    "hard_swish",
    "leaky_relu",
    "prelu",
    "relu",
    "relu6",
    "selu",
]

SELU_ALPHA = 1.6732632423543772
SELU_SCALE = 1.0507009873554805


@register(
    "relu",
    gradient="twice",
    forward="y = max(x, 0)",
    backward="gx = gy where x > 0, else 0",
    samples=unary_samples(lambda x: relu(x), lambda x: x if x > 0 else 0.0),
)
class Relu(Function):
    """x where positive, else 0; the gradient at the kink x = 0 is 0."""

    def forward(self, x: np.ndarray) -> np.ndarray:
        return select.activate(x, "relu")

    def backward(self, gy: np.ndarray) -> np.ndarray:
        return select.activate_backward(gy, self.inputs[0].data, "relu")

    def backward_graph(self, gy: Variable) -> Variable:
        return gy * (self.input.data > 0)


def _leaky_samples(rng: np.random.Generator) -> list[Sample]:
    return [
        Sample(
            (rng.standard_normal((3, 5)),),
            lambda x, s=s: leaky_relu(x, s),
            elementwise(lambda x, s=s: x if x > 0 else s * x),
            note=f"slope {s}",
        )
        for s in (0.01, 0.1, 0.0, -0.5, 1.5)
    ]


@register(
    "leaky_relu",
    gradient="twice",
    forward="y = x where x > 0, else a x",
    backward="gx = gy where x > 0, else a gy",
    samples=_leaky_samples,
)
class LeakyRelu(Function):
    """x where positive, else a small slope times x; the gradient at the kink x = 0 is the slope."""

    def __init__(self, slope: float) -> None:
        self.slope = slope

    def forward(self, x: np.ndarray) -> np.ndarray:
        return select.broken_line(x, 1.0, self.slope)

    def backward(self, gy: np.ndarray) -> np.ndarray:
        return select.broken_line_backward(gy, self.inputs[0].data, 1.0, self.slope)

    def backward_graph(self, gy: Variable) -> Variable:
        return where(self.input.data > 0, gy, gy * self.slope)


def _prelu_samples(rng: np.random.Generator) -> list[Sample]:
    def reference(x: np.ndarray, slope: np.ndarray) -> np.ndarray:
        per_channel = slope.reshape(-1, *[1] * (x.ndim - 2)) if slope.size > 1 else slope.reshape(())
        return elementwise(lambda x, a: x if x > 0 else a * x)(x, per_channel)

    shapes: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
        ((4, 3), (3,)),
        ((2, 3, 4, 5), (3,)),
        ((2, 3, 2), (1,)),
        ((5,), ()),
    ]
    return [
        Sample((rng.standard_normal(x), rng.uniform(0.1, 0.5, a)), lambda x, a: prelu(x, a), reference)
        for x, a in shapes
    ]


@register(
    "prelu",
    gradient="twice",
    forward="y = x where x > 0, else a x, with a learned slope a for each channel (axis 1)",
    backward="gx = gy where x > 0, else a gy; ga = sum of x gy where x <= 0",
    samples=_prelu_samples,
)
class PRelu(Function):
    """leaky_relu with learned slopes: inputs x and slopes of a shape that broadcasts to x's."""

    def forward(self, x: np.ndarray, slope: np.ndarray) -> np.ndarray:
        return np.where(x > 0, x, x * slope)

    def backward(self, gy: np.ndarray) -> tuple[np.ndarray, ...]:
        x, slope = (v.data for v in self.inputs)
        positive = x > 0
        return np.where(positive, gy, gy * slope), sum_to_array(gy * x * ~positive, slope.shape)

    def backward_graph(self, gy: Variable) -> tuple[Variable, ...]:
        x, slope = self.inputs
        positive = x.data > 0
        return where(positive, gy, gy * slope), sum_to(gy * x * ~positive, slope.shape)


def _elu(x: float, alpha: float, scale: float) -> float:
    return scale * (x if x > 0 else alpha * (math.exp(x) - 1))


def _elu_samples(rng: np.random.Generator) -> list[Sample]:
    plain = [
        Sample(
            (rng.uniform(-3, 3, (3, 4)),),
            lambda x, a=a: elu(x, a),
            elementwise(lambda x, a=a: _elu(x, a, 1.0)),
            note=f"alpha {a}",
        )
        for a in (1.0, 0.3)
    ]
    alpha, scale = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
    scaled = Sample(
        (rng.uniform(-3, 3, (5,)),), lambda x: selu(x), elementwise(lambda x: _elu(x, alpha, scale)), note="selu"
    )
    return [*plain, scaled]


@register(
    "elu",
    gradient="twice",
    forward="y = s x where x > 0, else s a (e^x - 1); selu: s = 1.0507..., a = 1.6732...",
    backward="gx = s gy where x > 0, else s a e^x gy",
    samples=_elu_samples,
)
class Elu(Function):
    """Exponential linear unit, scaled for selu; for a other than 1 there is a kink at 0: gradient s a."""

    def __init__(self, alpha: float = 1.0, scale: float = 1.0) -> None:
        self.alpha, self.scale = alpha, scale

    def forward(self, x: np.ndarray) -> np.ndarray:
        return np.where(x > 0, x, self.alpha * np.expm1(np.minimum(x, 0))) * self.scale

    def backward(self, gy: np.ndarray) -> np.ndarray:
        x, y = self.inputs[0].data, self.output.data
        # For x <= 0 the derivative s a e^x is y + s a: no second exponential.
        return gy * np.where(x > 0, x.dtype.type(self.scale), y + self.scale * self.alpha)

    def backward_graph(self, gy: Variable) -> Variable:
        return gy * where(self.input.data > 0, self.scale, self.output + self.scale * self.alpha)


@register(
    "relu6",
    gradient="twice",
    forward="y = min(max(x, 0), 6)",
    backward="gx = gy where 0 < x <= 6, else 0",
    samples=unary_samples(lambda x: relu6(x), lambda x: sorted([0.0, x, 6.0])[1], low=-2.0, high=8.0),
)
class Relu6(Function):
    """x limited to 0..6."""

    def forward(self, x: np.ndarray) -> np.ndarray:
        return np.clip(x, 0, 6)

    def backward(self, gy: np.ndarray) -> np.ndarray:
        return gy * self._inside()

    def backward_graph(self, gy: Variable) -> Variable:
        return gy * self._inside()

    def _inside(self) -> np.ndarray:
        x = self.inputs[0].data
        return (x > 0) & (x <= 6)


@register(
    "hard_sigmoid",
    gradient="twice",
    forward="y = min(max(x / 6 + 1 / 2, 0), 1)",
    backward="gx = gy / 6 where -3 < x <= 3, else 0",
    samples=unary_samples(lambda x: hard_sigmoid(x), lambda x: sorted([0.0, x / 6 + 0.5, 1.0])[1], low=-5.0, high=5.0),
)
class HardSigmoid(Function):
    """The sigmoid made of three straight pieces."""

    def forward(self, x: np.ndarray) -> np.ndarray:
        return np.clip(x / 6 + 0.5, 0, 1)

    def backward(self, gy: np.ndarray) -> np.ndarray:
        return gy / 6 * self._inside()

    def backward_graph(self, gy: Variable) -> Variable:
        return gy / 6 * self._inside()

    def _inside(self) -> np.ndarray:
        x = self.inputs[0].data
        return (x > -3) & (x <= 3)


@register(
    "hard_swish",
    gradient="twice",
    forward="y = x min(max(x / 6 + 1 / 2, 0), 1)",
    backward="gx = 0 where x <= -3, gy where x > 3, else (x / 3 + 1 / 2) gy",
    samples=unary_samples(
        lambda x: hard_swish(x), lambda x: x * sorted([0.0, x / 6 + 0.5, 1.0])[1], low=-5.0, high=5.0
    ),
)
class HardSwish(Function):
    """x times its hard_sigmoid."""

    def forward(self, x: np.ndarray) -> np.ndarray:
        return x * np.clip(x / 6 + 0.5, 0, 1)

    def backward(self, gy: np.ndarray) -> np.ndarray:
        x = self.inputs[0].data
        zero, one = x.dtype.type(0), x.dtype.type(1)
        return gy * np.where(x > 3, one, np.where(x > -3, x / 3 + 0.5, zero))

    def backward_graph(self, gy: Variable) -> Variable:
        x = self.input
        return gy * where(x.data > 3, 1, where(x.data > -3, x / 3 + 0.5, 0))


def relu(x: Operand) -> Variable:
    """max(x, 0); the gradient at 0 is 0."""
    return Relu()(x)


def leaky_relu(x: Operand, slope: float = 0.01) -> Variable:
    """x where positive, else slope times x. Darknet's `leaky` has slope 0.1."""
    return LeakyRelu(slope)(x)


def prelu(x: Operand, slope: Operand) -> Variable:
    """leaky_relu with learned slopes: one for all (shape () or (1,)), or one per channel (axis 1) of x.

    Raises ShapeError when the number of slopes is neither 1 nor x's number of channels.
    """
    x, slope = as_variable(x), as_variable(slope)
    if slope.size == 1:
        return PRelu()(x, reshape(slope, ()))
    if slope.ndim != 1 or x.ndim < 2 or x.shape[1] != slope.size:
        raise ShapeError(f"prelu: slopes of shape {slope.shape} do not fit the channels (axis 1) of shape {x.shape}")
    return PRelu()(x, reshape(slope, (-1, *[1] * (x.ndim - 2))))


def elu(x: Operand, alpha: float = 1.0) -> Variable:
    """x where positive, else alpha (e^x - 1)."""
    return Elu(alpha)(x)


def selu(x: Operand) -> Variable:
    """elu with the two constants that keep mean 0 and variance 1 from layer to layer."""
    return Elu(SELU_ALPHA, SELU_SCALE)(x)


def relu6(x: Operand) -> Variable:
    """x limited to 0..6; the gradient is 0 at 0 and passes at 6."""
    return Relu6()(x)


def hard_sigmoid(x: Operand) -> Variable:
    """x / 6 + 1 / 2 limited to 0..1."""
    return HardSigmoid()(x)


def hard_swish(x: Operand) -> Variable:
    """x hard_sigmoid(x)."""
    return HardSwish()(x)
