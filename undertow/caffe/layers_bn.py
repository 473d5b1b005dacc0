"""BN: batch normalisation with learned scale and shift in one layer, as the forks of SegNet and PSPNet have it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

import undertow.functions as F
from undertow.caffe.layer import Layer, Results, Shapes
from undertow.caffe.layers_forks import image_shape
from undertow.caffe.proto.message import Message, new_message
from undertow.core.variable import Variable

Array = np.ndarray[Any, Any]
Variables = Sequence[Variable]
_SEGNET_EPSILON = 1e-9


class BN(Layer):
    """Every channel brought to mean 0 and variance 1, times a scale, plus a shift. Two forks call it BN.

    SegNet (fork="segnet"): blobs are scale and shift. bn_mode LEARN takes the batch's statistics in both phases, which
    tops 1 and 2 give as (1, channels, 1, 1); INFERENCE is y = scale x + shift, with statistics worked in beforehand.
    PSPNet (fork="pspnet"): blobs are slope, bias, and running mean and variance, used in TEST and with frozen; else the
    batch's are used, and running = momentum running + (1 - momentum) batch. With frozen nothing is learned.
    All blobs have shape (1, channels, 1, 1), and gradients are those of what was computed forward.
    """

    keeps_bottom = True

    def setup(self, bottom: Shapes, tops: int) -> None:
        o, shape = self.message.bn_param, (1, image_shape(self, bottom[0])[1], 1, 1)
        self.segnet = "bn_mode" in o.descriptor.by_name
        names = ("scale_filler", "shift_filler") if self.segnet else ("slope_filler", "bias_filler")
        for name in names:
            self.add_parameter(shape, getattr(o, name))
        if self.segnet:
            if tops > 1 and o.bn_mode != "LEARN":
                raise self.refusal(
                    "bn_mode INFERENCE has no statistics of a batch to give", "name one top, or write bn_mode: LEARN",
                    "bn_param",
                )  # fmt: skip
            return
        if tops > 1:
            raise self.refusal(f"BN of PSPNet has one top, not {tops}", "name one top", "top")
        self.add_parameter(shape)
        self.add_parameter(shape, new_message("FillerParameter", value=float(o.frozen)))
        self._hold(range(4) if o.frozen else (2, 3))

    def _hold(self, indexes: Sequence[int]) -> None:
        """Parameters that are not learned, whatever the prototxt says, as in the fork."""
        while len(self.message.param) < 4:
            self.message.add("param")
        for index in indexes:
            self.message.param[index].lr_mult = self.message.param[index].decay_mult = 0.0

    def top_shapes(self, bottom: Shapes) -> Shapes:
        channels = self.blobs[0].shape[1]
        if image_shape(self, bottom[0])[1] != channels or 0 in bottom[0]:
            raise self.error(
                f"the bottom {bottom[0]} must have {channels} channels on axis 1, and at least one value",
                remedy="the weights are for another number of channels: take those of this net",
            )
        return [bottom[0], *[(1, channels, 1, 1)] * (len(self.message.top) - 1)]

    def compute(self, bottom: Variables, params: Variables) -> Results:
        x, (scale, shift) = bottom[0], (param.reshape((-1,)) for param in params[:2])
        if self.segnet and self.message.bn_param.bn_mode == "INFERENCE":
            return x * params[0] + params[1]
        function = self.function()
        y = function(x, scale, shift)
        extra = [array.reshape(1, -1, 1, 1) for array in (function.mean, function.variance)]
        return [y, *extra[: len(self.message.top) - 1]]

    def function(self) -> F.BatchNorm:
        """The operation on an input, a scale and a shift, with the present statistics or those of the batch."""
        o: Message = self.message.bn_param
        rule = F.BatchNormRule(F.Scaling(_SEGNET_EPSILON if self.segnet else o.eps, "inside", "N"))
        if self.segnet:
            return F.BatchNorm(rule)
        if o.frozen or self.phase == "TEST":
            mean, variance = (blob.data.reshape(-1) for blob in self.blobs[2:])
            return F.BatchNorm(rule, mean, variance)
        return F.BatchNorm(rule, running=cast(Any, self))

    def take(self, mean: Array, variance: Array, count: int, divisor: str = "N") -> None:
        """Move the running statistics towards those of a batch."""
        momentum = self.message.bn_param.momentum
        for blob, new in zip(self.blobs[2:], (mean, variance), strict=True):
            kind = blob.dtype.type
            blob.data[...] = blob.data * kind(momentum) + new.reshape(blob.shape) * kind(1 - momentum)
