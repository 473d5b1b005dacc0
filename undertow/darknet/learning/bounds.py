"""How large the values of a forward pass can get, from the parameters alone: what proves that none overflows unseen.

A ReLU turns minus infinity (and, in fast kernels, NaN) into 0, max pooling passes it over, a logistic makes 0 or 1 of
infinity: the loss may never hear of it. Where values are normalised, the statistics of the batch show it. Elsewhere
|W x + b| <= sum|W| max|x| + max|b|, and sum|W| <= sqrt(K) |W| with K weights to a value; as long as such bounds stay
far below what a float holds, finite pictures and parameters make finite values.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.darknet.layers.layer import Layer
from undertow.darknet.layers.layers_fork import Empty, Implicit, LocalAvgpool, Reorg3d, ScaleChannels
from undertow.darknet.layers.layers_fork_recurrent import ConvLstm, History
from undertow.darknet.layers.layers_local import Local
from undertow.darknet.layers.layers_loss import LossLayer
from undertow.darknet.layers.layers_normal import L2norm, Normalization
from undertow.darknet.layers.layers_plain import Activation, Avgpool, Maxpool, Route, Shortcut, Upsample
from undertow.darknet.layers.layers_random import Crop, Dropout
from undertow.darknet.layers.layers_recurrent import Gru, Lstm, Rnn
from undertow.darknet.layers.layers_reorg import Reorg
from undertow.darknet.layers.layers_weighted import Connected, Convolutional, Deconvolutional, NormalizedLayer

if TYPE_CHECKING:
    from undertow.darknet.network import Network

Array = np.ndarray[Any, Any]

# From rows of weights to what |x| is multiplied by at most.
Factor = Callable[[Array], float]
# Far enough below the largest float (3e38) for what fast kernels add up on the way to a result.
SAFE = 1e35
# Activations whose values stay within -2 and 2 whatever goes in.
_BOUNDED = frozenset({"logistic", "tanh", "hardtan", "loggy", "normalize_channels"})
_PASSES_ON = (Maxpool, Avgpool, LocalAvgpool, Reorg, Reorg3d, Empty)


def largest(array: Array) -> float:
    """max |value|; NaN where one is NaN."""
    return max(float(array.max()), -float(array.min())) if array.size else 0.0


def doubtful_layer(net: Network, pictures: Callable[[], float]) -> int | None:
    """The first layer of which it is not certain that finite input gives finite values; None when all are proven.

    pictures: asked for max |value| of the input, where a bound depends on it.
    """
    return None if _first_doubtful(net, pictures, _by_length) is None else _first_doubtful(net, pictures, _by_sum)


def _first_doubtful(net: Network, pictures: Callable[[], float], factor: Factor) -> int | None:
    bounds: list[float] = []
    for layer in net.layers:
        raw, out = _bounds(layer, pictures if not bounds else lambda: bounds[-1], bounds, factor)
        if not (raw < SAFE and out < SAFE):  # NaN is doubtful too
            return layer.index
        bounds.append(out)
    return None


def _bounds(layer: Layer, before: Callable[[], float], all_before: list[float], factor: Factor) -> tuple[float, float]:
    """(of what is computed on the way and shown by no statistics, of the output).

    before: the bound of its input, asked for where it counts: most nets never need that of the pictures.
    factor: how weights are bounded.
    """
    if isinstance(layer, NormalizedLayer) and layer.batch_normalize:
        return 0.0, _activated(layer.activation, _normalised(layer, layer.batch * layer.out_h * layer.out_w))
    if isinstance(layer, Implicit):
        return 0.0, largest(layer.parameters["weights"].data)
    if isinstance(layer, Route):
        return 0.0, max(all_before[index] for index in layer.input_layers)
    x = before()
    if isinstance(layer, Convolutional | Connected | Deconvolutional | Local):
        return _weighted(layer, x, factor)
    if isinstance(layer, Shortcut | ScaleChannels):
        return _joined(layer, x, all_before)
    if isinstance(layer, Rnn | Gru | Lstm | ConvLstm | History):
        return _recurrent(layer, x, factor)
    return _plain(layer, x)


def _plain(layer: Layer, x: float) -> tuple[float, float]:
    """Of a layer with one input and no parameters."""
    if isinstance(layer, _PASSES_ON):
        return 0.0, x
    if isinstance(layer, LossLayer):  # what it reads, and its loss, are looked at in each pass
        return 0.0, max(x, 2.0)
    if isinstance(layer, Activation):
        return 0.0, _activated(layer.activation, x)
    if isinstance(layer, Upsample):
        return 0.0, x * abs(layer.scale) * (layer.stride**2 if layer.reverse else 1)
    if isinstance(layer, Dropout):
        return 0.0, x / (1 - layer.probability) if layer.probability < 1 else x
    if isinstance(layer, Crop):
        return 0.0, 2 * x + 1
    if isinstance(layer, Normalization):
        norm = layer.kappa + layer.size * layer.alpha * x * x
        # The original's running sum takes a square away that it never added: roots of less than 0 are NaN.
        certain = 2 * layer.alpha * x * x < layer.kappa
        return norm if certain else math.inf, x * max(layer.kappa, 1e-9) ** -layer.beta
    if isinstance(layer, L2norm):
        return x * x * max(layer.c, 1), max(x, 1.0) if not layer.c else 1.0
    return math.inf, math.inf


def _joined(layer: Shortcut | ScaleChannels, x: float, before: list[float]) -> tuple[float, float]:
    if isinstance(layer, ScaleChannels):
        raw = x * before[layer.source]
    else:
        weights = layer.parameters.get("weights")
        most = 1 + abs(layer.alpha) + abs(layer.beta) + (0.0 if weights is None else largest(weights.data))
        raw = most * (x + sum(before[index] for index in layer.sources))
    return raw, _activated(layer.activation, raw)


def _recurrent(layer: Rnn | Gru | Lstm | ConvLstm | History, x: float, factor: Factor) -> tuple[float, float]:
    """Of all inner layers and of the states, for all steps."""
    carried = sum(largest(array) for array in layer.carried().values())
    if isinstance(layer, History):
        return 0.0, x + carried
    if isinstance(layer, Rnn):
        return _states(layer, x, carried, factor)
    # Gates are within 0 and 1, what is new within -1 and 1; a cell grows by 1 in a step.
    h, cell = 1 + carried, carried + layer.steps
    sides = {"u": x, "w": h, "v": cell}
    return sum(_weighted(part.layer, sides[name[0]], factor)[0] for name, part in layer.inner.items()), h


def _states(layer: Rnn, x: float, state: float, factor: Factor) -> tuple[float, float]:
    given, past, out = (layer.inner[name].layer for name in ("input_layer", "self_layer", "output_layer"))
    raw, made = _weighted(given, x, factor)
    slope, offset = _line(past, factor)
    for _ in range(layer.steps):
        before = slope * state + offset
        raw, state = raw + before, made + _activated(past.activation, before) + (state if layer.shortcut else 0.0)
    raw_out, y = _weighted(out, state, factor)
    return raw + raw_out, y


def _weighted(layer: Layer, x: float, factor: Factor) -> tuple[float, float]:
    """Of an inner layer, or one without batch normalisation: before and after the activation."""
    slope, offset = _line(layer, factor)
    raw = slope * x + offset
    return raw, _activated(layer.activation, raw)


def _line(layer: Layer, factor: Factor) -> tuple[float, float]:
    """(slope, offset): |y| <= slope * |x| + offset, before the activation."""
    if layer.batch_normalize:
        return 0.0, _normalised(layer, layer.batch * max(layer.out_h * layer.out_w, 1))
    weights, biases = layer.parameters["weights"].data, layer.parameters["biases"].data
    rows = weights.reshape(1 if isinstance(layer, Deconvolutional) else -1, _fan_in(layer, weights))
    slope = factor(rows)
    # The input of an xnor convolution becomes 1 and -1.
    return slope, largest(biases) + (slope if getattr(layer, "xnor", False) else 0.0)


def _by_length(rows: Array) -> float:
    """At least the largest sum of |w| in a row: sqrt(K) times its length. One pass without another array."""
    return math.sqrt(rows.shape[1] * float(np.einsum("ij,ij->i", rows, rows).max()))


def _by_sum(rows: Array) -> float:
    """The largest sum of |w| in a row, which is smaller by a fifth in each layer."""
    return max(float(np.abs(row).sum()) for row in rows) if np.isfinite(rows.sum()) else math.inf


def _fan_in(layer: Layer, weights: Array) -> int:
    """Weights to a value; of a deconvolution, where windows overlap, all of them."""
    if isinstance(layer, Deconvolutional):
        return int(weights.size)
    return int(weights.shape[-1]) if isinstance(layer, Local) else int(weights[0].size)


def _normalised(layer: Layer, values: int) -> float:
    """A value is at most sqrt(values) deviations from the mean of so many."""
    scales, biases = layer.parameters["scales"].data, layer.parameters["biases"].data
    return largest(scales) * math.sqrt(max(values, 1)) + largest(biases)


def _activated(name: str, x: float) -> float:
    if name in _BOUNDED and x < math.inf:
        return 2.0
    return x if name == "linear" else 1.2 * x + 2.0
