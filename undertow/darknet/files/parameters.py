"""Which parameters a layer keeps in a .weights file, in file order (src/parser.c save_weights_upto).

Convolutional and deconvolutional: biases, [scales, rolling_mean, rolling_variance], weights. Connected: biases,
weights, [scales, rolling_mean, rolling_variance]. Batchnorm: scales, rolling_mean, rolling_variance, in AlexeyAB's fork
after biases. Local: biases, weights. Shortcut with weights and implicit: weights. Recurrent layers: their inner layers
one after another.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

STATISTICS = ("scales", "rolling_mean", "rolling_variance")


@dataclass(frozen=True)
class ParameterSpec:
    """One array of a weights file.

    layer: index of the layer. name: `weights`, or `input_layer/weights` for one of an inner layer. shape: of the
    array as the engine holds it. Convolution weights are (filters, channels/groups, size, size), deconvolution
    (channels, filters, size, size), connected (outputs, inputs), local (places, filters, channels*size*size).
    """

    layer: int
    name: str
    shape: tuple[int, ...]

    @property
    def count(self) -> int:
        """Number of values."""
        return math.prod(self.shape)

    @property
    def kind(self) -> str:
        """The last part of the name: biases, weights, scales, rolling_mean or rolling_variance."""
        return self.name.rpartition("/")[2]


def convolutional_specs(
    layer: int, filters: int, weights: tuple[int, ...], normalized: bool, prefix: str = ""
) -> list[ParameterSpec]:
    """Of a convolution or deconvolution with these weights."""
    names = ("biases", *STATISTICS) if normalized else ("biases",)
    specs = [ParameterSpec(layer, prefix + name, (filters,)) for name in names]
    return [*specs, ParameterSpec(layer, f"{prefix}weights", weights)]


def connected_specs(layer: int, inputs: int, outputs: int, normalized: bool, prefix: str = "") -> list[ParameterSpec]:
    """Of a connected layer; the weights come before the statistics."""
    specs = [
        ParameterSpec(layer, f"{prefix}biases", (outputs,)),
        ParameterSpec(layer, f"{prefix}weights", (outputs, inputs)),
    ]
    names = STATISTICS if normalized else ()
    return specs + [ParameterSpec(layer, prefix + name, (outputs,)) for name in names]


def batchnorm_specs(layer: int, channels: int, biases: bool = False) -> list[ParameterSpec]:
    """Of a batchnorm layer; the 2018 program keeps its biases out of the file, AlexeyAB's fork does not."""
    names = ("biases", *STATISTICS) if biases else STATISTICS
    return [ParameterSpec(layer, name, (channels,)) for name in names]


def local_specs(layer: int, outputs: int, weights: tuple[int, ...]) -> list[ParameterSpec]:
    """Of a local layer: one bias for each output."""
    return [ParameterSpec(layer, "biases", (outputs,)), ParameterSpec(layer, "weights", weights)]


def recurrent_specs(
    layer: int, inputs: int, outputs: int, normalized: bool, from_state: str, from_input: str
) -> list[ParameterSpec]:
    """Of gru and lstm: connected layers named by their letters, first those that read the state."""
    widths = [(f"w{gate}", outputs) for gate in from_state] + [(f"u{gate}", inputs) for gate in from_input]
    return [spec for name, width in widths for spec in connected_specs(layer, width, outputs, normalized, f"{name}/")]
