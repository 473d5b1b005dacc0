"""Layers that learn a filter for each place."""

from __future__ import annotations

from typing import cast

import numpy as np

from undertow.core.variable import Variable
from undertow.darknet.files.layer_shape import LayerShape
from undertow.darknet.files.options_layers import LayerOptions, LocalOptions
from undertow.darknet.layers.layer import BuildContext, Layer, Pass, as_image
from undertow.darknet.layers.layers_plain import activate
from undertow.darknet.layers.layers_weighted import scaled
from undertow.darknet.layers.local_function import LocallyConnected, LocalWindows


class Local(Layer):
    """y = activation(W x + b), W another convolution kernel at each place (local_layer.c).

    With `pad=1` there is half the size of zeros on each side. (The original pads by one pixel whatever the size,
    while its output has the size that half the window gives, so other sizes than 3 read memory of other layers.)
    """

    type = "local"

    def __init__(self, options: LayerOptions, shape: LayerShape, context: BuildContext) -> None:
        super().__init__(options, shape, context)
        given = cast(LocalOptions, options)
        self.n, self.size, self.stride, self.activation = given.filters, given.size, given.stride, given.activation
        self.pad = self.size // 2 if given.pad else 0
        self._windows = LocalWindows(self.size, self.stride, self.pad, (self.out_h, self.out_w))
        fan_in = self.c * self.size * self.size
        weights = context.rng.uniform(-1, 1, (self.out_h * self.out_w, self.n, fan_in))
        self.add_parameter("weights", scaled(weights, np.sqrt(2 / fan_in), context))
        self.add_parameter("biases", np.zeros(self.outputs, context.dtype))

    def forward(self, x: Variable, run: Pass) -> Variable:
        biases = self.parameters["biases"].reshape((self.n, self.out_h, self.out_w))
        y = LocallyConnected(self._windows)(as_image(x, self), self.parameters["weights"], biases)
        self._delta_at = y
        return activate(y, self.activation, self.dialect.gradient_from_output)
