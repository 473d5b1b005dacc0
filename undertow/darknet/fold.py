"""Batch normalisation put into the weights of the convolutions, for inference only (network.c fuse_conv_batchnorm)."""

from __future__ import annotations

import numpy as np

from undertow.darknet.layers.functions_fork import normalized_weights
from undertow.darknet.layers.layers_plain import Shortcut
from undertow.darknet.layers.layers_weighted import Convolutional
from undertow.darknet.network import Network


def fold_batch_norm(net: Network) -> None:
    """Let every convolution compute with weights and biases that hold its batch norm, in place.

    The network's output stays the same but for rounding. It can no longer be trained, nor its weights saved: there are
    no scales and rolling statistics any more. Weights of shortcuts are replaced by their normalised values.
    """
    for layer in net.layers:
        if isinstance(layer, Convolutional) and layer.batch_normalize and not layer.xnor:
            if layer.owner is None:
                _fold(layer)
            layer.batch_normalize = False
        elif isinstance(layer, Shortcut) and layer.parameters:
            weights = layer.parameters["weights"]
            weights.data[...] = normalized_weights(weights, layer.weights_normalization).data
            layer.weights_normalization = "none"
    net.replan()


def _fold(layer: Convolutional) -> None:
    scaling = layer.dialect.batch_norm.forward
    mean, variance = (layer.buffers[name].astype(np.float64) for name in ("rolling_mean", "rolling_variance"))
    if scaling.placement == "inside":
        deviation = np.sqrt(variance + scaling.epsilon)
    else:
        deviation = np.sqrt(variance) + scaling.epsilon
    factor = layer.parameters["scales"].data / deviation
    layer.parameters["biases"].data[...] -= factor * mean
    layer.parameters["weights"].data[...] *= factor.reshape(-1, 1, 1, 1)
    del layer.parameters["scales"], layer.buffers["rolling_mean"], layer.buffers["rolling_variance"]
