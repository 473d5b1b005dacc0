"""Layers that bring values to a common scale: BatchNorm, MVN, Softmax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

import undertow.functions as F
from undertow.caffe.blob import legacy_length
from undertow.caffe.functions import MeanVariance
from undertow.caffe.layer import Layer, Results, Shapes
from undertow.caffe.proto.message import new_message
from undertow.core.variable import Variable

Array = np.ndarray[Any, Any]
Variables = Sequence[Variable]


class BatchNorm(Layer):
    """Every channel brought to mean 0 and variance 1, without learned scale (that is a Scale layer's work).

    blobs: sums of means and of (corrected) variances, and of the factors that both are divided by when read. In TRAIN,
    unless use_global_stats, every forward pass adds this batch to them, after multiplying by moving_average_fraction.
    """

    keeps_bottom = True

    def setup(self, bottom: Shapes, tops: int) -> None:
        o = self.message.batch_norm_param
        self.global_stats = o.use_global_stats if o.has_field("use_global_stats") else self.phase == "TEST"
        self.axis(1, len(bottom[0]))
        for shape in (bottom[0][1:2], bottom[0][1:2], (1,)):
            self.add_parameter(shape)
        for index, spec in enumerate(self.message.param[:3]):
            if spec.lr_mult != 0:
                raise self.refusal(
                    f"param {index} has lr_mult: {spec.lr_mult:g}, but statistics are not learned",
                    remedy="write param { lr_mult: 0 } three times, or leave param out",
                    field="param",
                )
        missing = 3 - len(self.message.param)
        for _ in range(missing):
            self.message.param.append(new_message("ParamSpec", lr_mult=0.0))

    def top_shapes(self, bottom: Shapes) -> Shapes:
        if bottom[0][1:2] != self.blobs[0].shape:
            raise self.error(
                f"the bottom {bottom[0]} must have {self.blobs[0].shape[0]} channels on axis 1",
                remedy="the weights are for another number of channels: take those of this net",
            )
        if 0 in bottom[0]:
            raise self.error(
                f"there is nothing to normalise in a bottom of shape {bottom[0]}",
                remedy="give a bottom with at least one value",
            )
        return [bottom[0]]

    def compute(self, bottom: Variables, params: Variables) -> Results:
        x = bottom[0]
        ones, zeros = np.ones(x.shape[1], x.dtype), np.zeros(x.shape[1], x.dtype)
        return self.function()(x, ones, zeros)

    def function(self) -> F.BatchNorm:
        """The operation on an input, a scale and a shift, with the present statistics or those of the batch."""
        rule = F.BatchNormRule(F.Scaling(self.message.batch_norm_param.eps, "inside", "N"))
        if self.global_stats:
            return F.BatchNorm(rule, *self.statistics())
        return F.BatchNorm(rule, running=cast(Any, self))

    def statistics(self) -> tuple[Array, Array]:
        """Mean and variance, (channels,) each, that the layer has gathered."""
        mean, variance, total = (blob.data for blob in self.blobs)
        factor = mean.dtype.type(1 / total[0] if total[0] != 0 else 0.0)
        return mean * factor, variance * factor

    def take(self, mean: Array, variance: Array, count: int, divisor: str = "N") -> None:
        """Gather a batch of `count` values per channel; its variance was divided by their number."""
        fraction = self.message.batch_norm_param.moving_average_fraction
        correction = count / (count - 1) if count > 1 else 1.0
        for blob, new in zip(self.blobs, (mean, variance * correction, 1.0), strict=True):
            blob.data[...] = blob.data * blob.dtype.type(fraction) + new


class MVN(Layer):
    """(x - mean) / (deviation + eps) over each channel's plane, or over each image (across_channels)."""

    def top_shapes(self, bottom: Shapes) -> Shapes:
        if len(bottom[0]) > 4:
            raise self.error(
                f"the bottom must have at most 4 axes, it has shape {bottom[0]}", remedy="put a Reshape before it"
            )
        return [tuple(legacy_length(tuple(bottom[0]), axis) for axis in range(4))]

    def compute(self, bottom: Variables, params: Variables) -> Results:
        o = self.message.mvn_param
        shape = tuple(self.top_shapes([bottom[0].shape])[0])
        rows = shape[0] if o.across_channels else shape[0] * shape[1]
        function = MeanVariance(o.normalize_variance, o.eps, self.dialect.mvn_ignores_eps)
        return function(bottom[0].reshape((rows, -1))).reshape(shape)


class Softmax(Layer):
    """e^x divided by its sum along an axis."""

    def top_shapes(self, bottom: Shapes) -> Shapes:
        axis = self.axis(self.message.softmax_param.axis, len(bottom[0]), "softmax_param")
        if not bottom[0][axis]:
            raise self.error(
                f"there are no values along axis {axis} of a bottom of shape {bottom[0]}",
                remedy="use an axis with at least one value",
            )
        return [bottom[0]]

    def compute(self, bottom: Variables, params: Variables) -> Results:
        return F.softmax(bottom[0], self.axis(self.message.softmax_param.axis, bottom[0].ndim))
