"""Small networks in float64, and the check that `exact` gives derivatives of the loss."""

from __future__ import annotations

from typing import Any

import numpy as np

from undertow.core import Variable, check_gradients
from undertow.darknet.dialect import EXACT, Dialect
from undertow.darknet.files.cfg import make_config
from undertow.darknet.network import Network

Section = tuple[str, dict[str, Any]]
Array = np.ndarray[Any, Any]


def net(**values: Any) -> Section:
    return "net", {"batch": 2, "width": 6, "height": 5, "channels": 3, "momentum": 0.9, "decay": 0.01, **values}


def conv(filters: int, **values: Any) -> Section:
    return "convolutional", {"filters": filters, "size": 3, "pad": 1, "activation": "tanh", **values}


COST: Section = ("cost", {"type": "sse"})


def build(sections: list[Section], dialect: Dialect = EXACT, dtype: Any = np.float64) -> Network:
    """With parameters and statistics that are neither 0 nor 1."""
    network = Network(make_config(sections), dialect, seed=3, dtype=dtype)
    rng = np.random.default_rng(5)
    for layer in network.layers:
        for name, array in layer.arrays().items():
            if name.endswith("weights"):
                array[...] = rng.standard_normal(array.shape) * np.sqrt(1 / max(array[0].size, 1))
            else:
                array[...] = rng.uniform(0.5, 1.5, array.shape)
    return network


def samples(network: Network, seed: int = 9) -> tuple[Array, Array]:
    """Input and truth for one pass."""
    rng = np.random.default_rng(seed)
    shape = (network.c, network.h, network.w) if network.c else (network.inputs,)
    return rng.uniform(0, 1, (network.batch, *shape)), rng.uniform(-1, 1, (network.batch, network.truths))


def check_network(network: Network, images: Array, truth: Array, training: bool = True, rtol: float = 1e-5) -> None:
    """The gradients of input and parameters against differences of the loss."""
    places = [(layer, name) for layer in network.layers if layer.owner is None for name in layer.parameters]
    arrays = [layer.parameters[name].data.copy() for layer, name in places]

    def loss(x: Variable, *parameters: Variable) -> Variable:
        network.reset_state()
        for (layer, name), parameter in zip(places, parameters, strict=True):
            layer.parameters[name] = parameter  # type: ignore[assignment]
        network.forward(x, truth)
        assert network.loss is not None
        return network.loss

    check_gradients(loss, [images, *arrays], rtol=rtol)
