"""Initialisers: first values for parameters, every random draw from a NumPy Generator.

An initialiser is a small frozen dataclass; `initializer(shape, rng)` gives an array. Weights have the shape
(out, in / groups, *kernel), matrices (out, in), so with the receptive field r = product of the kernel sizes:

    fan_in  = shape[1] * r    inputs that one output sees
    fan_out = shape[0] * r    outputs that one input reaches (within its group)

as in Caffe (count / num and count / channels) and PyTorch. Layers whose weights lie the other way round, such as
transposed convolutions, pass their own fans.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike

from undertow.errors import ShapeError

Shape = tuple[int, ...]
Fans = tuple[float, float]
Fan = Literal["in", "out", "average"]
Distribution = Literal["uniform", "normal"]


@dataclass(frozen=True)
class Initializer:
    """Base: write `fill(shape, rng, fans)`, which returns float64 values."""

    def __call__(
        self, shape: Shape, rng: np.random.Generator, dtype: DTypeLike = np.float32, fans: Fans | None = None
    ) -> np.ndarray:
        """An array of that shape. fans: (fan_in, fan_out), from the shape when None."""
        return np.array(self.fill(shape, rng, fans), dtype=dtype, order="C")

    def fill(self, shape: Shape, rng: np.random.Generator, fans: Fans | None) -> np.ndarray:
        """Values of this shape; fans: (inputs, outputs) of one unit, None to take them from the shape."""
        raise NotImplementedError(f"{type(self).__name__} has no values: write fill(self, shape, rng, fans)")


@dataclass(frozen=True)
class Constant(Initializer):
    """The same value everywhere."""

    value: float = 0.0

    def fill(self, shape: Shape, rng: np.random.Generator, fans: Fans | None) -> np.ndarray:
        return np.full(shape, self.value)


@dataclass(frozen=True)
class Gaussian(Initializer):
    """Normal with this mean and standard deviation."""

    std: float = 0.01
    mean: float = 0.0

    def fill(self, shape: Shape, rng: np.random.Generator, fans: Fans | None) -> np.ndarray:
        return rng.normal(self.mean, self.std, shape)


@dataclass(frozen=True)
class Uniform(Initializer):
    """Uniform between low and high."""

    low: float = -0.05
    high: float = 0.05

    def fill(self, shape: Shape, rng: np.random.Generator, fans: Fans | None) -> np.ndarray:
        return rng.uniform(self.low, self.high, shape)


@dataclass(frozen=True)
class VarianceScaling(Initializer):
    """Mean 0 and variance scale / n, with n the fan named: "in", "out" or their "average".

    distribution: "normal", or "uniform" between -sqrt(3 scale / n) and sqrt(3 scale / n).
    Caffe's filler `xavier` is scale 1, uniform; `msra` scale 2, normal; `variance_norm` names the fan.
    """

    scale: float = 1.0
    fan: Fan = "in"
    distribution: Distribution = "normal"

    def __post_init__(self) -> None:
        if self.fan not in ("in", "out", "average"):
            raise ValueError(f"fan must be 'in', 'out' or 'average', got {self.fan!r}")
        if self.distribution not in ("uniform", "normal"):
            raise ValueError(f"distribution must be 'uniform' or 'normal', got {self.distribution!r}")

    def fill(self, shape: Shape, rng: np.random.Generator, fans: Fans | None) -> np.ndarray:
        fan_in, fan_out = fans_of(shape) if fans is None else fans
        n = {"in": fan_in, "out": fan_out, "average": (fan_in + fan_out) / 2}[self.fan]
        std = math.sqrt(self.scale / max(n, 1))
        if self.distribution == "normal":
            return rng.normal(0.0, std, shape)
        limit = math.sqrt(3) * std
        return rng.uniform(-limit, limit, shape)


@dataclass(frozen=True)
class Xavier(VarianceScaling):
    """Variance 2 / (fan_in + fan_out), keeps the scale both ways through tanh (Glorot and Bengio 2010)."""

    scale: float = 1.0
    fan: Fan = "average"
    distribution: Distribution = "uniform"


@dataclass(frozen=True)
class MSRA(VarianceScaling):
    """Variance 2 / fan_in, keeps the scale through ReLU (He, Zhang, Ren, Sun 2015).

    For a leaky ReLU of slope a, scale is 2 / (1 + a^2).
    """

    scale: float = 2.0


@dataclass(frozen=True)
class LeCun(VarianceScaling):
    """Variance 1 / fan_in, keeps the scale through linear units and SELU (LeCun, Bottou, Orr, Muller 1998)."""


Glorot = Xavier
He = Kaiming = MSRA


@dataclass(frozen=True)
class Orthogonal(Initializer):
    """Rows (or columns, where there are fewer) are orthonormal, times gain (Saxe, McClelland, Ganguli 2013).

    A weight of more than two axes counts as a matrix of shape[0] rows.
    """

    gain: float = 1.0

    def fill(self, shape: Shape, rng: np.random.Generator, fans: Fans | None) -> np.ndarray:
        rows, columns = _as_matrix(shape, "Orthogonal")
        q, r = np.linalg.qr(rng.normal(size=(max(rows, columns), min(rows, columns))))
        q *= np.sign(np.diag(r))  # without it the draw would not be uniform over all such matrices
        return self.gain * (q if rows >= columns else q.T).reshape(shape)


@dataclass(frozen=True)
class Identity(Initializer):
    """y = gain x: ones on the diagonal of a matrix, or at the centre of filter i for channel i."""

    gain: float = 1.0

    def fill(self, shape: Shape, rng: np.random.Generator, fans: Fans | None) -> np.ndarray:
        _as_matrix(shape, "Identity")
        values = np.zeros(shape)
        centre = tuple(size // 2 for size in shape[2:])
        for i in range(min(shape[:2])):
            values[(i, i, *centre)] = self.gain
        return values


@dataclass(frozen=True)
class Bilinear(Initializer):
    """Bilinear upsampling for a transposed convolution (Caffe's filler): stride s takes kernel 2s - s%2, pad (k-s)/2.

    Every (channel, filter) pair gets the same kernel, so use it with one group per channel.
    """

    def fill(self, shape: Shape, rng: np.random.Generator, fans: Fans | None) -> np.ndarray:
        if len(shape) != 4 or shape[2] != shape[3]:
            raise ShapeError(f"Bilinear fills weights (channels, filters, k, k), got {shape}")
        factor = math.ceil(shape[3] / 2)
        centre = (shape[3] - 1) / (2 * factor)
        ramp = 1 - np.abs(np.arange(shape[3]) / factor - centre)
        return np.broadcast_to(ramp[:, None] * ramp, shape)


def fans_of(shape: Shape) -> Fans:
    """(fan_in, fan_out) of weights (out, in / groups, *kernel); a vector counts as one output per element."""
    if len(shape) < 2:
        return (1.0, float(shape[0])) if shape else (1.0, 1.0)
    field = math.prod(shape[2:])
    return float(shape[1] * field), float(shape[0] * field)


def as_generator(rng: np.random.Generator | int | None) -> np.random.Generator:
    """A Generator itself, one seeded with an integer, or a fresh one (not reproducible) for None."""
    return rng if isinstance(rng, np.random.Generator) else np.random.default_rng(rng)


def as_initializer(value: Initializer | float) -> Initializer:
    """A number as a constant initialiser."""
    return value if isinstance(value, Initializer) else Constant(float(value))


def _as_matrix(shape: Any, name: str) -> tuple[int, int]:
    if len(shape) < 2:
        raise ShapeError(f"{name} needs at least two axes, got {shape}")
    return shape[0], math.prod(shape[1:])
