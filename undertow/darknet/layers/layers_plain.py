"""Layers without parameters: pooling, routes, shortcuts, upsampling, activations."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from undertow.core.variable import Variable
from undertow.darknet.files.layer_shape import LayerShape
from undertow.darknet.files.options_layers import (
    ActivationOptions,
    LayerOptions,
    MaxpoolOptions,
    RouteOptions,
    ShortcutOptions,
    UpsampleOptions,
)
from undertow.darknet.layers.functions import shortcut_sum
from undertow.darknet.layers.functions_fork import (
    blur,
    depth_max,
    fork_activation,
    fork_pooling,
    normalized_weights,
    weighted_sum,
)
from undertow.darknet.layers.layer import BuildContext, Layer, Pass, as_image, as_rows, as_shape
from undertow.errors import GraphError
from undertow.functions import concat, darknet_activation, mean
from undertow.functions.pooling import MaxPool2d
from undertow.functions.resample import downsample, upsample
from undertow.functions.tap import tap
from undertow.kernels.geometry import PoolGeometry, darknet_pooling

Array = np.ndarray[Any, Any]


def activate(x: Variable, name: str, gradient_from_output: bool) -> Variable:
    """Darknet's activation, or one of AlexeyAB's fork; a linear one adds nothing to the graph."""
    if name == "linear":
        return x
    y = fork_activation(x, name)
    if y is not None:
        return y
    return darknet_activation(x, name, gradient="darknet" if gradient_from_output else "true")


class Maxpool(Layer):
    """y = largest value in each window; what lies outside the image is never the largest (maxpool_layer.c)."""

    type = "maxpool"

    def __init__(self, options: LayerOptions, shape: LayerShape, context: BuildContext) -> None:
        super().__init__(options, shape, context)
        given = cast(MaxpoolOptions, options)
        self.size, self.stride, self.pad = given.size, given.stride, given.padding
        self.antialiasing, self.strides = given.antialiasing, given.strides
        self.out_channels = given.out_channels if given.maxpool_depth else 0
        self._geometry = self._windows()
        self._function: MaxPool2d | None = None

    def _windows(self) -> PoolGeometry:
        """Darknet's rule, with a stride for each axis; before a blur all windows count."""
        steps = (1, 1) if self.antialiasing else self.strides
        if steps[0] == steps[1]:
            return darknet_pooling(self.h, self.w, self.size, steps[0], self.pad)
        return fork_pooling(self.h, self.w, self.size, steps, self.pad, (self.out_h, self.out_w))

    def forward(self, x: Variable, run: Pass) -> Variable:
        self._function = None
        if self.out_channels:
            return depth_max(as_image(x, self), self.out_channels)
        self._function = MaxPool2d(self._geometry)
        y = self._function(as_image(x, self))
        return blur(y, self.antialiasing, self.strides) if self.antialiasing else y

    def release(self) -> None:
        super().release()
        self._function = None

    @property
    def indexes(self) -> Array:
        """For each output, the flat index of its source in the previous layer's output, over the whole batch."""
        if self._function is None:
            raise GraphError("there are no indexes: nothing went through the layer yet", layer=self.index)
        planes = self._function.indexes
        offsets = np.arange(planes.shape[0] * planes.shape[1]).reshape(*planes.shape[:2], 1, 1)
        return (planes + offsets * (self.h * self.w)).astype(np.int32)


class Avgpool(Layer):
    """y = mean of each channel (avgpool_layer.c)."""

    type = "avgpool"

    def forward(self, x: Variable, run: Pass) -> Variable:
        return mean(as_image(x, self), axis=(2, 3), keepdims=True)


class Route(Layer):
    """The outputs of other layers, joined along the channels (route_layer.c).

    groups, group_id: of AlexeyAB's fork, only one of so many equal parts of each.
    """

    type = "route"

    def __init__(self, options: LayerOptions, shape: LayerShape, context: BuildContext) -> None:
        super().__init__(options, shape, context)
        self.input_layers = tuple(i if i >= 0 else self.index + i for i in cast(RouteOptions, options).layers)
        self.n = len(self.input_layers)
        self.groups, self.group_id = cast(RouteOptions, options).groups, cast(RouteOptions, options).group_id

    def forward(self, x: Variable, run: Pass) -> Variable:
        parts = [run.read(i, self.index) for i in self.input_layers]
        if self.groups > 1:
            parts = [self._part(part) for part in parts]
        if any(part.ndim != parts[0].ndim for part in parts):
            parts = [as_rows(part) for part in parts]
        # A route of its own even with one input, so that its delta can be told from its source's.
        return concat(parts, axis=1) if len(parts) > 1 else tap(parts[0])

    def _part(self, source: Variable) -> Variable:
        size = source.shape[1] // self.groups
        return source[:, self.group_id * size : (self.group_id + 1) * size]


class Shortcut(Layer):
    """y = activation(alpha x + beta source) (shortcut_layer.c).

    In AlexeyAB's fork y = activation(w0 x + w1 source1 + ...), the weights normalised, or without them.
    """

    type = "shortcut"

    def __init__(self, options: LayerOptions, shape: LayerShape, context: BuildContext) -> None:
        super().__init__(options, shape, context)
        given = cast(ShortcutOptions, options)
        self.activation = given.activation
        self.alpha, self.beta = given.alpha, given.beta
        self.sources, self.source = shape.sources, shape.sources[0]
        self.weights_normalization = given.weights_normalization
        self._shapes = [context.shapes[i].out_shape for i in self.sources]
        self._plain = self.alpha == self.beta == 1 and self._shapes[0] == shape.out_shape
        for spec in shape.parameters:
            self.add_parameter(spec.name, np.ones(spec.shape, context.dtype))

    def forward(self, x: Variable, run: Pass) -> Variable:
        # Rows of a connected layer are images of one pixel to the original.
        x = as_image(x, self)
        sources = [
            as_shape(run.read(i, self.index), shape) for i, shape in zip(self.sources, self._shapes, strict=True)
        ]
        if len(self.sources) > 1 or self.parameters:
            y = weighted_sum(x, sources, self._input_weights())
        elif self._plain:
            y = x + sources[0]
        else:
            y = shortcut_sum(x, sources[0], self.alpha, self.beta, self.dialect.shortcut_alpha_everywhere)
        self._delta_at = y
        return activate(y, self.activation, self.dialect.gradient_from_output)

    def _input_weights(self) -> Variable | None:
        if "weights" not in self.parameters:
            return None
        return normalized_weights(self.parameters["weights"], self.weights_normalization)


class Upsample(Layer):
    """Each value repeated stride x stride times, times scale; a negative stride adds up blocks (upsample_layer.c)."""

    type = "upsample"

    def __init__(self, options: LayerOptions, shape: LayerShape, context: BuildContext) -> None:
        super().__init__(options, shape, context)
        given = cast(UpsampleOptions, options)
        self.stride, self.scale, self.reverse = abs(given.stride), given.scale, given.stride < 0
        self.overwrites = self.reverse

    def forward(self, x: Variable, run: Pass) -> Variable:
        resample = downsample if self.reverse else upsample
        return resample(as_image(x, self), self.stride, self.scale)


class Activation(Layer):
    """y = activation(x) (activation_layer.c)."""

    type = "activation"
    overwrites = True

    def __init__(self, options: LayerOptions, shape: LayerShape, context: BuildContext) -> None:
        super().__init__(options, shape, context)
        self.activation = cast(ActivationOptions, options).activation

    def forward(self, x: Variable, run: Pass) -> Variable:
        self._delta_at = tap(x)
        return activate(self._delta_at, self.activation, self.dialect.gradient_from_output)
