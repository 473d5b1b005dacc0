"""What AlexeyAB's fork computes and the 2018 program does not: activations, blur, weighted sums, rearrangements."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from undertow.core.function import Function
from undertow.core.registry import Sample, register
from undertow.core.variable import Operand, Variable, as_variable
from undertow.darknet.layers.functions import shortcut_sum
from undertow.functions.activations import gelu, mish, swish
from undertow.functions.compare import where
from undertow.functions.conv import Conv
from undertow.functions.darknet_activations import leaky
from undertow.functions.elementary import exp
from undertow.functions.join import pad
from undertow.functions.rectifiers import relu, relu6
from undertow.functions.reduce import max as largest
from undertow.functions.sampling import unary_samples
from undertow.kernels.geometry import ConvGeometry, PoolGeometry

Array = np.ndarray[Any, Any]

# Added to sums that are divided by (blas.c, activations.c).
_EPSILON = 0.0001
_LOWEST = -3.4028234663852886e38


def _hard_mish(x: float) -> float:
    return x if x > 0 else x * x / 2 + x if x > -2 else 0.0


@register(
    "hard_mish",
    gradient="twice",
    forward="y = x where x > 0, x^2/2 + x where -2 < x <= 0, else 0",
    backward="gx = gy where x > 0, (x + 1) gy where -2 < x <= 0, else 0",
    samples=unary_samples(lambda x: hard_mish(x), _hard_mish),
)
class HardMish(Function):
    """mish made of a line and a parabola; kink at -2."""

    def forward(self, x: Array) -> Array:
        return np.where(x > 0, x, np.where(x > -2, x * x / 2 + x, x.dtype.type(0)))

    def backward(self, gy: Array) -> Array:
        x = self.inputs[0].data
        return gy * np.where(x > 0, x.dtype.type(1), np.where(x > -2, x + 1, x.dtype.type(0)))

    def backward_graph(self, gy: Variable) -> Variable:
        x = self.input
        return where(x.data > 0, gy, where(x.data > -2, gy * (x + 1), gy * 0))


def hard_mish(x: Operand) -> Variable:
    """x where positive, x^2/2 + x down to -2, 0 below."""
    return HardMish()(x)


def normalize_channels(x: Variable) -> Variable:
    """max(x, 0) divided by .0001 plus its sum over the channels (axis 1)."""
    positive = relu(x)
    return positive / (positive.sum(axis=1, keepdims=True) + _EPSILON)


def normalize_channels_softmax(x: Variable, shifted: bool = False) -> Variable:
    """e^x divided by .0001 plus its sum over the channels (axis 1); shifted: x minus the largest of them."""
    powers = exp(x - largest(x, axis=1, keepdims=True) if shifted else x)
    return powers / (powers.sum(axis=1, keepdims=True) + _EPSILON)


_ACTIVATIONS: dict[str, Callable[[Variable], Variable]] = {
    "mish": mish,
    "hard_mish": hard_mish,
    "swish": swish,
    "gelu": lambda x: gelu(x, approximate=True),
    "revleaky": leaky,
    "relu6": relu6,
    "normalize_channels": normalize_channels,
    "normalize_channels_softmax": normalize_channels_softmax,
    "normalize_channels_softmax_maxval": lambda x: normalize_channels_softmax(x, shifted=True),
}


def fork_activation(x: Variable, name: str) -> Variable | None:
    """The fork's activation of that name; None for one of the 2018 program."""
    chosen = _ACTIVATIONS.get(name)
    return None if chosen is None else chosen(x)


def blur(x: Variable, kind: int, strides: tuple[int, int]) -> Variable:
    """The fixed filter of `antialiasing`, channel by channel: for kind 2 the 2x2 mean, unpadded, else the 3x3 binomial.

    x: (batch, channels, height, width). strides: (vertical, horizontal).
    """
    row = np.ones(2) / 2 if kind == 2 else np.array([0.25, 0.5, 0.25])
    channels = x.shape[1]
    kernel = np.broadcast_to(np.outer(row, row), (channels, 1, row.size, row.size)).astype(x.dtype)
    border = 0 if kind == 2 else 1
    geometry = ConvGeometry(strides, (border,) * 4, groups=channels)
    return Conv(geometry)(x, Variable(np.ascontiguousarray(kernel), requires_grad=False))


def depth_max(x: Variable, out_channels: int) -> Variable:
    """Channel k of the result is the largest of the channels k, k + out_channels, ... of x (maxpool_depth)."""
    batch, channels, height, width = x.shape
    rounds = -(-channels // out_channels)
    missing = rounds * out_channels - channels
    whole = pad(x, ((0, 0), (0, missing), (0, 0), (0, 0)), _LOWEST) if missing else x
    return largest(whole.reshape((batch, rounds, out_channels, height, width)), axis=1)


def space_to_depth(x: Variable, stride: int) -> Variable:
    """y[k, j, i] = x[k % c, j stride + (k / c) / stride, i stride + (k / c) % stride] (reorg3d)."""
    batch, channels, height, width = x.shape
    blocks = x.reshape((batch, channels, height // stride, stride, width // stride, stride))
    moved = blocks.transpose((0, 3, 5, 1, 2, 4))
    return moved.reshape((batch, channels * stride * stride, height // stride, width // stride))


def normalized_weights(weights: Variable, kind: str) -> Variable:
    """Weights (inputs, columns), made to sum to 1 over the inputs. kind: relu (avg_relu), softmax or none."""
    if kind in ("relu", "avg_relu"):
        shares = relu(weights)
    elif kind == "softmax":
        shares = exp(weights - largest(weights, axis=0, keepdims=True))
    else:
        return weights
    return shares / (shares.sum(axis=0, keepdims=True) + _EPSILON)


def weighted_sum(x: Variable, sources: Sequence[Variable], weights: Variable | None) -> Variable:
    """x plus the channels that the sources have in common with it, each input times its weights.

    x and sources: (batch, channels, height, width) of one height and width. weights: (1 + sources, 1 or channels of x),
    x first; None for a plain sum.
    """
    parts = [x, *sources]
    if weights is not None:
        channels = x.shape[1]
        parts = [_fitted(part, channels) * weights[i : i + 1].reshape((1, -1, 1, 1)) for i, part in enumerate(parts)]
    y = parts[0]
    for part in parts[1:]:
        y = y + part if part.shape == y.shape else shortcut_sum(y, part, 1.0, 1.0)
    return y


def _fitted(x: Variable, channels: int) -> Variable:
    """The first channels of x, with zeros where it has fewer."""
    if x.shape[1] >= channels:
        return x if x.shape[1] == channels else x[:, :channels]
    return pad(x, ((0, 0), (0, channels - x.shape[1]), (0, 0), (0, 0)))


def fork_pooling(
    height: int, width: int, size: int, strides: tuple[int, int], padding: int, out: tuple[int, int]
) -> PoolGeometry:
    """Darknet's pooling windows with a stride for each axis; averages divide by the cells inside the image."""
    before = padding // 2
    after = padding - before
    return PoolGeometry((size, size), strides, (before, before), out, (after, after), count_include_pad=False)


def _gaussian_samples(rng: np.random.Generator) -> list[Sample]:
    def expected(x: Array) -> Array:
        maps = x.reshape(2, 2, 11, 2, 3)
        y = np.empty_like(maps)
        for place, value in np.ndenumerate(maps):
            entry = place[2]
            s = value if entry in (4, 6) else 1 / (1 + math.exp(-value))
            y[place] = 1.2 * s - 0.1 if entry in (0, 2) else s
        return y.reshape(x.shape)

    return [Sample((rng.standard_normal((2, 22, 2, 3)),), lambda x: gaussian_output(x, 2, 2, 1.2), expected)]


@register(
    "gaussian_output",
    gradient="twice",
    forward="per anchor the maps x, sx, y, sy, w, sw, h, sh, objectness, classes: logistic(v), but w, h = v; "
    "x, y = scale logistic(v) - (scale - 1)/2",
    backward="gv = s (1 - s) gy with s the logistic, scale s (1 - s) gy for x and y; gy for w and h",
    samples=_gaussian_samples,
)
class GaussianOutput(Function):
    """The output of a Gaussian_yolo layer with n anchors, without its loss (gaussian_yolo_layer.c)."""

    _SIZES, _PLACES = [4, 6], [0, 2]

    def __init__(self, n: int, classes: int, scale_x_y: float) -> None:
        self.n, self.entries, self.scale = n, classes + 9, scale_x_y

    def forward(self, x: Array) -> Array:
        with np.errstate(over="ignore"):
            y = 1 / (1 + np.exp(-self._maps(x)))
        y[:, :, self._SIZES] = self._maps(x)[:, :, self._SIZES]
        places = y[:, :, self._PLACES]
        y[:, :, self._PLACES] = places * x.dtype.type(self.scale) - x.dtype.type((self.scale - 1) / 2)
        return y.reshape(x.shape).astype(x.dtype, copy=False)

    def backward_graph(self, gy: Variable) -> Variable:
        """s = (y + shift)/factor, so that the slope is factor s (1 - s) = (y + shift)(1 - (y + shift)/factor)."""
        factor = np.ones(self.entries, gy.dtype)
        factor[self._PLACES] = self.scale
        straight = np.zeros(self.entries, gy.dtype)
        straight[self._SIZES] = 1
        factor, straight = (np.tile(values, self.n).reshape(1, -1, 1, 1) for values in (factor, straight))
        shifted = self.output + (factor - 1) / 2
        slope = shifted * (1 - shifted / factor)
        return gy * (slope * (1 - straight) + straight)

    def _maps(self, x: Array) -> Array:
        batch, _, height, width = x.shape
        return x.reshape(batch, self.n, self.entries, height, width)


def gaussian_output(x: Operand, n: int, classes: int, scale_x_y: float = 1.0) -> Variable:
    """Output of a Gaussian_yolo layer; x: (batch, n*(9 + classes), h, w)."""
    return GaussianOutput(n, classes, scale_x_y)(as_variable(x))
