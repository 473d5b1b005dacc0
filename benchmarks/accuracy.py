"""How far outputs and gradients of whole networks lie from float64, with every precision."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

import undertow as ut
from benchmarks.nets import config_of
from benchmarks.train import make_batch
from undertow.core.modes import precision
from undertow.darknet.network import Network

Array = np.ndarray[Any, Any]
SIDES = ("reference", "precise", "fast")


@dataclass(frozen=True)
class Distance:
    """Norm of the difference to float64 over the norm in float64. outputs: of the heads, the worst of them.

    median, worst: of the gradients of the convolutions' weights, over the layers.
    """

    side: str
    outputs: float
    median: float
    worst: float

    def line(self) -> str:
        return f"{self.side:10} outputs {self.outputs:.1e}, gradients {self.median:.1e} (worst layer {self.worst:.1e})"


def compare(name: str, batch: int, size: int, threads: int) -> list[Distance]:
    """One training pass without an update, from the same parameters, on every side."""
    ut.set_threads(threads)
    config = config_of(name, batch, size)
    exact = Network(config, dtype=np.float64)
    images, truth = make_batch(exact, 0)
    source = Network(config)
    for to, values in zip(_arrays(exact), _arrays(source), strict=True):
        to[...] = values
    expected = _outcome(exact, images, truth)
    found = []
    for side in SIDES:
        net = Network(config)
        with precision(cast(Any, side)):
            found.append(_distance(side, _outcome(net, images, truth), expected))
    return found


def _arrays(net: Network) -> Iterator[Array]:
    for layer in cast(Any, net.layers):
        if layer.type == "convolutional":
            yield layer.weights
            yield layer.biases


def _outcome(net: Network, images: Array, truth: Array) -> tuple[list[Array], list[Array]]:
    """Outputs of the heads, and gradients of the weights."""
    net.forward(images, truth)
    net.backward()
    layers: list[Any] = list(net.layers)
    heads = [layer for i, layer in enumerate(layers) if layer.type in ("yolo", "softmax")]
    return (
        [np.array(layer.output, np.float64) for layer in heads],
        [np.array(layer.weight_updates, np.float64) for layer in layers if layer.type == "convolutional"],
    )


def _distance(side: str, found: Any, expected: Any) -> Distance:
    outputs, gradients = (
        [float(np.linalg.norm(a - b) / np.linalg.norm(b)) for a, b in zip(mine, theirs, strict=True)]
        for mine, theirs in zip(found, expected, strict=True)
    )
    return Distance(side, max(outputs), float(np.median(gradients)), max(gradients))
