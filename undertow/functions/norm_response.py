"""Local response normalisation, and vectors brought to length 1."""

from __future__ import annotations

from typing import Any

import numpy as np

from undertow.core.function import Function
from undertow.core.registry import Sample, register
from undertow.core.variable import Operand, Variable, as_variable
from undertow.functions.elementary import sqrt
from undertow.functions.pooling import avg_pool2d
from undertow.kernels import select
from undertow.kernels.reference.lrn import LrnOptions

__all__ = ["Lrn", "LrnOptions", "cosine_similarity", "l2_normalize", "lrn"]

Array = np.ndarray[Any, Any]


def _samples(rng: np.random.Generator) -> list[Sample]:
    def by_hand(x: Array, options: LrnOptions) -> Array:
        y, half = np.empty_like(x), options.size // 2
        for i, c, p, q in np.ndindex(*x.shape):
            if options.region == "across":
                window = x[i, max(c - half, 0) : c + half + 1, p, q]
            else:
                window = x[i, c, max(p - half, 0) : p + half + 1, max(q - half, 0) : q + half + 1]
            cells = options.size if options.region == "across" else options.size**2
            y[i, c, p, q] = x[i, c, p, q] / (options.k + options.alpha / cells * (window**2).sum()) ** options.beta
        return y

    def sample(shape: tuple[int, ...], note: str, **options: Any) -> Sample:
        chosen = LrnOptions(**options)
        return Sample((rng.standard_normal(shape),), lambda x: lrn(x, **options), lambda x: by_hand(x, chosen), note)

    return [
        sample((2, 7, 2, 2), "across channels"),
        sample((1, 2, 3, 2), "window wider than the channels", size=5, alpha=2.0, beta=0.5, k=2.0),
        sample((1, 1, 2, 2), "one channel", size=3),
        sample((1, 2, 4, 5), "within a channel", size=3, region="within"),
    ]


@register(
    "lrn",
    gradient="twice",
    forward="y = x / scale^beta, scale = k + alpha/n (sum of x^2 over the window centred here), n = cells of a window",
    backward="gx = gy / scale^beta - (2 alpha beta / n) x (sum of gy y / scale over the window)",
    samples=_samples,
)
class Lrn(Function):
    """`lrn` with given options."""

    def __init__(self, options: LrnOptions) -> None:
        self.options = options

    def forward(self, x: Array) -> Array:
        y, self._scale = select.lrn(x, self.options)
        return y

    def backward(self, gy: Array) -> Array:
        return select.lrn_backward(gy, self.input.data, self.output.data, self._scale, self.options)

    def backward_graph(self, gy: Variable) -> Variable:
        x, options = self.input, self.options
        scale = _window_mean(x * x, options) * options.alpha + options.k
        power = scale**-options.beta
        coupled = _window_mean(gy * x * power / scale, options)
        return gy * power - x * coupled * (2 * options.beta * options.alpha)


def lrn(
    x: Operand, size: int = 5, alpha: float = 1.0, beta: float = 0.75, k: float = 1.0, region: Any = "across"
) -> Variable:
    """Divide every value by a power of what its neighbours hold together.

    x: (batch, channels, height, width). size: how many neighbouring channels (region "across"), or the side of the
    square of neighbouring pixels in the same channel ("within"); odd, centred, 0 outside the image.
    Returns an array of x's shape. Source: Krizhevsky, Sutskever and Hinton 2012; Caffe's LRN, whose defaults these are.
    """
    return Lrn(LrnOptions(size, alpha, beta, k, region))(x)


def _window_mean(x: Variable, options: LrnOptions) -> Variable:
    """The mean over the window centred at each element, 0 outside: what scale adds up, divided by its cells."""
    half = options.size // 2
    if options.region == "within":
        return avg_pool2d(x, options.size, 1, half)
    planes = x.reshape(x.shape[0], 1, x.shape[1], -1)
    return avg_pool2d(planes, (options.size, 1), 1, (half, 0)).reshape(x.shape)


def l2_normalize(x: Operand, axis: int | tuple[int, ...] = 1, eps: float = 1e-10) -> Variable:
    """x / sqrt(sum of x^2 along the axes + eps): vectors of length 1, and 0 where x is 0."""
    x = as_variable(x)
    return x / sqrt((x * x).sum(axis, keepdims=True) + eps)


def cosine_similarity(a: Operand, b: Operand, axis: int = 1, eps: float = 1e-10) -> Variable:
    """The cosine of the angle between a and b along an axis, from -1 to 1: the product of their `l2_normalize`."""
    return (l2_normalize(a, axis, eps) * l2_normalize(b, axis, eps)).sum(axis)
