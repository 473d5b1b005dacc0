"""Layers without parameters: pooling, routes, shortcuts, upsampling, activations."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from undertow.core.variable import Variable
from undertow.darknet.functions import shortcut_sum, tap
from undertow.darknet.layer import BuildContext, Layer, Pass, as_image, as_rows
from undertow.darknet.layer_shape import LayerShape
from undertow.darknet.options_layers import (
    ActivationOptions,
    LayerOptions,
    MaxpoolOptions,
    RouteOptions,
    ShortcutOptions,
    UpsampleOptions,
)
from undertow.errors import GraphError
from undertow.functions import concat, darknet_activation, mean
from undertow.functions.pooling import MaxPool2d
from undertow.functions.resample import downsample, upsample
from undertow.kernels.geometry import darknet_pooling

Array = np.ndarray[Any, Any]


def activate(x: Variable, name: str, gradient_from_output: bool) -> Variable:
    """Darknet's activation; a linear one adds nothing to the graph."""
    if name == "linear":
        return x
    return darknet_activation(x, name, gradient="darknet" if gradient_from_output else "true")


class Maxpool(Layer):
    """y = largest value in each window; what lies outside the image is never the largest (maxpool_layer.c)."""

    type = "maxpool"

    def __init__(self, options: LayerOptions, shape: LayerShape, context: BuildContext) -> None:
        super().__init__(options, shape, context)
        given = cast(MaxpoolOptions, options)
        self.size, self.stride, self.pad = given.size, given.stride, given.padding
        self._geometry = darknet_pooling(self.h, self.w, self.size, self.stride, self.pad)
        self._function: MaxPool2d | None = None

    def forward(self, x: Variable, run: Pass) -> Variable:
        self._function = MaxPool2d(self._geometry)
        return self._function(as_image(x, self))

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
    """The outputs of other layers, joined along the channels (route_layer.c)."""

    type = "route"

    def __init__(self, options: LayerOptions, shape: LayerShape, context: BuildContext) -> None:
        super().__init__(options, shape, context)
        self.input_layers = tuple(i if i >= 0 else self.index + i for i in cast(RouteOptions, options).layers)
        self.n = len(self.input_layers)

    def forward(self, x: Variable, run: Pass) -> Variable:
        parts = [run.read(i, self.index) for i in self.input_layers]
        if any(part.ndim != parts[0].ndim for part in parts):
            parts = [as_rows(part) for part in parts]
        # A route of its own even with one input, so that its delta can be told from its source's.
        return concat(parts, axis=1) if len(parts) > 1 else tap(parts[0])


class Shortcut(Layer):
    """y = activation(alpha x + beta source) (shortcut_layer.c)."""

    type = "shortcut"

    def __init__(self, options: LayerOptions, shape: LayerShape, context: BuildContext) -> None:
        super().__init__(options, shape, context)
        given = cast(ShortcutOptions, options)
        self.activation = given.activation
        self.alpha, self.beta = given.alpha, given.beta
        self.source = given.source if given.source >= 0 else self.index + given.source
        self._plain = self.alpha == self.beta == 1 and context.shapes[self.source].out_shape == shape.out_shape

    def forward(self, x: Variable, run: Pass) -> Variable:
        source = run.read(self.source, self.index)
        if self._plain:
            y = x + source
        else:
            y = shortcut_sum(x, source, self.alpha, self.beta, self.dialect.shortcut_alpha_everywhere)
        self._delta_at = y
        return activate(y, self.activation, self.dialect.gradient_from_output)


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
