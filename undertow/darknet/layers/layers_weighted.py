"""Layers that learn: convolutional, deconvolutional and connected, with or without batch normalisation."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from undertow.core.variable import Variable
from undertow.darknet.files.layer_shape import LayerShape
from undertow.darknet.files.options_layers import (
    ConnectedOptions,
    ConvolutionalOptions,
    DeconvolutionalOptions,
    LayerOptions,
)
from undertow.darknet.layers.functions import xnor_conv2d
from undertow.darknet.layers.functions_fork import blur
from undertow.darknet.layers.layer import BuildContext, Layer, Pass, as_image, as_rows
from undertow.darknet.layers.layers_plain import activate
from undertow.errors import GraphError
from undertow.functions import linear
from undertow.functions.conv import Conv, Deconv
from undertow.functions.norm_batch import BatchNorm, RunningStatistics
from undertow.kernels.geometry import ConvGeometry
from undertow.kernels.reference import darknet_blas

Array = np.ndarray[Any, Any]
_Weighted = ConvolutionalOptions | ConnectedOptions | DeconvolutionalOptions


class NormalizedLayer(Layer):
    """A layer with batch normalisation, perhaps.

    x, x_norm, mean, variance, mean_delta, variance_delta: of the last training pass, as in Darknet.
    """

    def __init__(self, options: LayerOptions, shape: LayerShape, context: BuildContext) -> None:
        super().__init__(options, shape, context)
        self._before: Variable | None = None
        self._normalised: Variable | None = None
        self._function: BatchNorm | None = None

    def _add_biases(self, n: int, context: BuildContext) -> None:
        self.add_parameter("biases", np.zeros(n, context.dtype))
        if self.batch_normalize:
            self.add_parameter("scales", np.ones(n, context.dtype))
            self.buffers["rolling_mean"] = np.zeros(n, context.dtype)
            self.buffers["rolling_variance"] = np.zeros(n, context.dtype)

    def release(self) -> None:
        super().release()
        self._before = self._normalised = self._function = None

    def _normalise(self, x: Variable, run: Pass) -> Variable:
        rule = self.dialect.batch_norm
        scales, biases = self.parameters["scales"], self.parameters["biases"]
        rolling = self.buffers["rolling_mean"], self.buffers["rolling_variance"]
        if not run.training:
            return BatchNorm(rule, *rolling)(x, scales, biases)
        moved = RunningStatistics(*rolling, self.dialect.batch_norm_momentum, rule.forward.divisor)
        self._function = BatchNorm(rule, running=moved)
        y = self._function(x, scales, biases)
        if run.keep:
            self._before, self._normalised = x, y
            y.retain_grad()
        return y

    # --- Darknet's arrays of batch normalisation --------------------------------------------------------

    @property
    def x(self) -> Array:
        """The values before normalisation."""
        return self._kept(self._before).data

    @property
    def mean(self) -> Array:
        """Mean of each channel in the last training pass."""
        return self._batch_statistics()[0]

    @property
    def variance(self) -> Array:
        """Variance of each channel in the last training pass."""
        return self._batch_statistics()[1]

    @property
    def x_norm(self) -> Array:
        """The normalised values, before scales and biases."""
        mean, variance = self._batch_statistics()
        scaling = self.dialect.batch_norm.forward
        x_norm = np.array(self.x, order="C")
        darknet_blas.normalize(x_norm, mean, variance, scaling.epsilon, scaling.placement)
        return x_norm

    @property
    def mean_delta(self) -> Array:
        """Minus the gradient with respect to the mean (blas.c mean_delta_cpu)."""
        return darknet_blas.mean_delta(self._scaled_delta(), self.variance)

    @property
    def variance_delta(self) -> Array:
        """Minus the gradient with respect to the variance (blas.c variance_delta_cpu)."""
        mean, variance = self._batch_statistics()
        return darknet_blas.variance_delta(self.x, self._scaled_delta(), mean, variance)

    def _scaled_delta(self) -> Array:
        delta = -np.array(self._kept(self._normalised).grad, order="C")
        darknet_blas.scale_bias(delta, self.scales)
        return delta

    def _kept(self, variable: Variable | None) -> Variable:
        if variable is None:
            raise GraphError("nothing was kept", layer=self.index, remedy="set net.keep_deltas and run a training pass")
        return variable

    def _batch_statistics(self) -> tuple[Array, Array]:
        if self._function is None:
            raise GraphError("there are no batch statistics: no training pass went through", layer=self.index)
        return self._function.mean, self._function.variance


class WeightedLayer(NormalizedLayer):
    """Weights, biases and perhaps batch normalisation, then an activation.

    Without batch_normalize: y = activation(W x + b). With it: y = activation(scales * x_norm + b), where x_norm is
    W x normalised over batch and pixels in training, with the rolling statistics otherwise.
    """

    def __init__(self, options: LayerOptions, shape: LayerShape, context: BuildContext) -> None:
        super().__init__(options, shape, context)
        given = cast(_Weighted, options)
        self.activation = given.activation
        self.batch_normalize = given.batch_normalize

    def _finish(self, x: Variable, run: Pass) -> Variable:
        """Normalise, then activate; x already holds the bias when there is no normalisation."""
        y = x
        if self.batch_normalize:
            y = self._normalise(x, run)
        self._delta_at = x
        return activate(y, self.activation, self.dialect.gradient_from_output)


class Convolutional(WeightedLayer):
    """W x is a convolution (convolutional_layer.c)."""

    type = "convolutional"

    def __init__(self, options: LayerOptions, shape: LayerShape, context: BuildContext) -> None:
        super().__init__(options, shape, context)
        given = cast(ConvolutionalOptions, options)
        self.n, self.size, self.stride = given.filters, given.size, given.stride
        self.pad, self.groups, self.xnor = given.border, given.groups, given.xnor
        self.overwrites = self.size == 1
        self._misread = self.size == 1 and self.stride > 1 and self.dialect.pointwise_ignores_stride
        self.antialiasing, self.strides, self.dilation = given.antialiasing, given.strides, given.dilation
        steps = (1, 1) if self._misread or self.antialiasing else self.strides
        border = (self.pad * self.dilation,) * 4
        self.geometry = ConvGeometry(steps, border, (self.dilation, self.dilation), self.groups)
        if given.share_index is not None:
            self.share(context.built[shape.sources[0]])
            return
        kernel = (self.n, self.c // self.groups, self.size, self.size)
        scale = np.sqrt(2 / (kernel[1] * self.size * self.size))
        self.add_parameter("weights", scaled(context.rng.standard_normal(kernel), scale, context))
        self._add_biases(self.n, context)

    def forward(self, x: Variable, run: Pass) -> Variable:
        x = as_image(x, self)
        if self._misread:
            x = self._misread_input(x)
        weights, biases = self.parameters["weights"], self.parameters["biases"]
        if self.xnor:
            y = xnor_conv2d(x, weights, self.geometry)
            y = y if self.batch_normalize else y + biases.reshape((1, -1, 1, 1))
        elif self.batch_normalize:
            y = Conv(self.geometry)(x, weights)
        else:
            y = Conv(self.geometry)(x, weights, biases)
        y = self._finish(y, run)
        return blur(y, self.antialiasing, self.strides) if self.antialiasing else y

    def overwritten(self) -> Array | None:
        """Where the delta of the layer before survives: None for nowhere, else a mask (1, c, h, w)."""
        if not self._misread:
            return None
        mask = np.ones((1, self.groups, self.c // self.groups * self.h * self.w), bool)
        mask[:, :, : self.c // self.groups * self.out_h * self.out_w] = False
        return mask.reshape(1, self.c, self.h, self.w)

    def _misread_input(self, x: Variable) -> Variable:
        """The first values of each image (and group) taken for a picture of the output's size."""
        batch, channels = x.shape[0], self.c // self.groups
        rows = x.reshape((batch, self.groups, channels * self.h * self.w))
        return rows[:, :, : channels * self.out_h * self.out_w].reshape((batch, self.c, self.out_h, self.out_w))


class Deconvolutional(WeightedLayer):
    """W x is a transposed convolution (deconvolutional_layer.c)."""

    type = "deconvolutional"

    def __init__(self, options: LayerOptions, shape: LayerShape, context: BuildContext) -> None:
        super().__init__(options, shape, context)
        given = cast(DeconvolutionalOptions, options)
        self.n, self.size, self.stride, self.pad = given.filters, given.size, given.stride, given.border
        self.geometry = ConvGeometry((self.stride, self.stride), (self.pad,) * 4)
        scale = 0.02 * self.out_w * self.out_h / (self.w * self.h)
        weights = context.rng.standard_normal((self.c, self.n, self.size, self.size))
        self.add_parameter("weights", scaled(weights, scale, context))
        self._add_biases(self.n, context)

    def forward(self, x: Variable, run: Pass) -> Variable:
        operands = [as_image(x, self), self.parameters["weights"]]
        if not self.batch_normalize:
            operands.append(self.parameters["biases"])
        return self._finish(Deconv(self.geometry, (self.out_h, self.out_w))(*operands), run)


class Connected(WeightedLayer):
    """W x is a matrix product (connected_layer.c)."""

    type = "connected"

    def __init__(self, options: LayerOptions, shape: LayerShape, context: BuildContext) -> None:
        super().__init__(options, shape, context)
        scale = np.sqrt(2 / self.inputs)
        weights = context.rng.uniform(-1, 1, (self.outputs, self.inputs))
        self.add_parameter("weights", scaled(weights, scale, context))
        self._add_biases(self.outputs, context)

    def forward(self, x: Variable, run: Pass) -> Variable:
        x = as_rows(x)
        weights, biases = self.parameters["weights"], self.parameters["biases"]
        return self._finish(linear(x, weights) if self.batch_normalize else linear(x, weights, biases), run)


def scaled(drawn: Array, scale: float, context: BuildContext) -> Array:
    """What was drawn, times scale, as parameters; in place, since a large layer would need its memory twice."""
    drawn *= scale
    return drawn.astype(context.dtype)
