"""Activations as modules. A Sequential also takes the functions themselves: `Sequential(Linear(8), ut.relu)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from undertow import functions as F
from undertow.core import Parameter, Variable
from undertow.core.variable import Operand
from undertow.layers.module import Module


class Activation(Module):
    """y = function(x, **given): any function of one input with its options held fast; the shape stays."""

    def __init__(self, function: Callable[..., Variable], **given: Any) -> None:
        self.function, self.given = function, given

    def forward(self, x: Operand) -> Variable:
        return self.function(x, **self.given)

    def options(self) -> str:
        shown = [self.function.__name__] if type(self) is Activation else []
        return ", ".join(shown + [f"{key}={value}" for key, value in self.given.items()])


class ReLU(Activation):
    """max(x, 0)."""

    def __init__(self) -> None:
        super().__init__(F.relu)


class LeakyReLU(Activation):
    """x where positive, else slope x. Darknet's slope is 0.1."""

    def __init__(self, slope: float = 0.01) -> None:
        super().__init__(F.leaky_relu, slope=slope)


class ELU(Activation):
    """x where positive, else alpha (e^x - 1)."""

    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__(F.elu, alpha=alpha)


class SELU(Activation):
    """ELU with the two constants that keep mean 0 and variance 1 from layer to layer."""

    def __init__(self) -> None:
        super().__init__(F.selu)


class GELU(Activation):
    """x times the probability that a normal variable lies below x. approximate: by a tanh."""

    def __init__(self, approximate: bool = False) -> None:
        super().__init__(F.gelu, approximate=approximate)


class Swish(Activation):
    """x sigmoid(x), also called SiLU."""

    def __init__(self) -> None:
        super().__init__(F.swish)


class Mish(Activation):
    """x tanh(softplus(x))."""

    def __init__(self) -> None:
        super().__init__(F.mish)


class Sigmoid(Activation):
    """1 / (1 + e^-x)."""

    def __init__(self) -> None:
        super().__init__(F.sigmoid)


class Tanh(Activation):
    """(e^x - e^-x) / (e^x + e^-x)."""

    def __init__(self) -> None:
        super().__init__(F.tanh)


class Softplus(Activation):
    """log(1 + e^(beta x)) / beta."""

    def __init__(self, beta: float = 1.0) -> None:
        super().__init__(F.softplus, beta=beta)


class Softmax(Activation):
    """e^x divided by its sum along an axis."""

    def __init__(self, axis: int = 1) -> None:
        super().__init__(F.softmax, axis=axis)


class PReLU(Module):
    """x where positive, else a learned slope times x: one slope for all, or one for each channel (axis 1)."""

    slope: Parameter  # (1,) or (channels,)

    def __init__(self, channels: int = 1, start: float = 0.25) -> None:
        self.slope = Parameter(np.full(channels, start, self.dtype))

    def forward(self, x: Operand) -> Variable:
        return F.prelu(x, self.slope)
