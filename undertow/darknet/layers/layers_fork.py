"""Layers of AlexeyAB's fork: pooling by averages, products of layers, learned constants, the Gaussian head."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from undertow.core.variable import Variable
from undertow.darknet.detection.decode_gaussian import GaussianHead
from undertow.darknet.files.layer_shape import LayerShape
from undertow.darknet.files.options_fork import (
    GaussianYoloOptions,
    ImplicitOptions,
    LocalAvgpoolOptions,
    Reorg3dOptions,
    SamOptions,
    ScaleChannelsOptions,
)
from undertow.darknet.files.options_layers import LayerOptions
from undertow.darknet.layers.functions_fork import fork_pooling, gaussian_output, space_to_depth
from undertow.darknet.layers.layer import BuildContext, Layer, Pass, as_image, as_shape
from undertow.darknet.layers.layers_loss import Yolo
from undertow.darknet.layers.layers_plain import activate
from undertow.functions.pooling import AvgPool2d
from undertow.functions.shape import broadcast_to
from undertow.functions.tap import tap

Array = np.ndarray[Any, Any]


class LocalAvgpool(Layer):
    """y = mean of what each window covers of the image (maxpool_layer.c, forward_local_avgpool_layer)."""

    type = "local_avgpool"

    def __init__(self, options: LayerOptions, shape: LayerShape, context: BuildContext) -> None:
        super().__init__(options, shape, context)
        given = cast(LocalAvgpoolOptions, options)
        self.size, self.stride, self.pad = given.size, given.stride_x, given.padding
        self._geometry = fork_pooling(self.h, self.w, self.size, given.strides, self.pad, (self.out_h, self.out_w))

    def forward(self, x: Variable, run: Pass) -> Variable:
        return AvgPool2d(self._geometry)(as_image(x, self))


class Reorg3d(Layer):
    """Blocks of stride x stride pixels become channels (reorg_layer.c)."""

    type = "reorg3d"
    overwrites = True

    def __init__(self, options: LayerOptions, shape: LayerShape, context: BuildContext) -> None:
        super().__init__(options, shape, context)
        self.stride = cast(Reorg3dOptions, options).stride

    def forward(self, x: Variable, run: Pass) -> Variable:
        return space_to_depth(as_image(x, self), self.stride)


class ScaleChannels(Layer):
    """y = activation(source * x), with x one number for each channel, or for each place (scale_channels_layer.c)."""

    type = "scale_channels"

    def __init__(self, options: LayerOptions, shape: LayerShape, context: BuildContext) -> None:
        super().__init__(options, shape, context)
        self.activation = cast("ScaleChannelsOptions | SamOptions", options).activation
        (self.source,) = shape.sources
        self._shape = context.shapes[self.source].out_shape

    def forward(self, x: Variable, run: Pass) -> Variable:
        self._delta_at = as_shape(run.read(self.source, self.index), self._shape) * as_image(x, self)
        return activate(self._delta_at, self.activation, self.dialect.gradient_from_output)


class Sam(ScaleChannels):
    """y = activation(source * x), element by element (sam_layer.c)."""

    type = "sam"


class Implicit(Layer):
    """Learned numbers, the same for every picture of the batch (representation_layer.c). The input is not read."""

    type = "implicit"

    def __init__(self, options: LayerOptions, shape: LayerShape, context: BuildContext) -> None:
        super().__init__(options, shape, context)
        given = cast(ImplicitOptions, options)
        spread = given.std * context.rng.uniform(-1, 1, (given.filters, given.atoms))
        self.add_parameter("weights", (given.mean + spread).astype(context.dtype))

    def forward(self, x: Variable, run: Pass) -> Variable:
        weights = self.parameters["weights"].reshape((1, self.out_c, self.out_h, self.out_w))
        return broadcast_to(weights, (x.shape[0], self.out_c, self.out_h, self.out_w))


class Empty(Layer):
    """y = x."""

    type = "empty"

    def forward(self, x: Variable, run: Pass) -> Variable:
        return tap(x)


class GaussianYolo(Yolo):
    """Boxes with an uncertainty for each value (gaussian_yolo_layer.c). Its loss is not here yet: `check_trainable`."""

    type = "Gaussian_yolo"

    def forward(self, x: Variable, run: Pass) -> Variable:
        return gaussian_output(as_image(x, self), self.n, self.classes, self.given.scale_x_y)

    def head(self) -> GaussianHead:
        """The last output, ready for `get_network_boxes`."""
        point = cast(GaussianYoloOptions, self.options).yolo_point
        return GaussianHead(self.output, self.anchors, self.mask, self.classes, point)
