"""Layers that treat every value on its own: activations, powers, dropout."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import undertow.functions as F
from undertow.caffe.blob import Blob
from undertow.caffe.functions import ExpAffine, LogAffine, PowerAffine, SwishBeta
from undertow.caffe.layer import Layer, NoGradient, Results, Shapes
from undertow.caffe.proto.message import Message, new_message
from undertow.core.variable import Variable

Array = np.ndarray[Any, Any]
Variables = Sequence[Variable]


class ReLU(Layer):
    """y = max(x, 0), or negative_slope x below 0."""

    def compute(self, bottom: Variables, params: Variables) -> Results:
        slope = self.message.relu_param.negative_slope
        return F.leaky_relu(bottom[0], slope) if slope else F.relu(bottom[0])


class PReLU(Layer):
    """y = x where positive, else a x, with a learned slope a per channel, or one for all (channel_shared)."""

    keeps_bottom = True

    def setup(self, bottom: Shapes, tops: int) -> None:
        options = self.message.prelu_param
        if len(bottom[0]) < 2:
            raise self.error(
                f"the bottom needs at least 2 axes, (batch, channels), it has shape {bottom[0]}",
                remedy="put a Reshape before it",
            )
        self.add_parameter(() if options.channel_shared else bottom[0][1:2], filler_or(options, "filler", 0.25))

    def top_shapes(self, bottom: Shapes) -> Shapes:
        slopes = self.blobs[0].shape
        if slopes and bottom[0][1] != slopes[0]:
            raise self.error(
                f"{slopes[0]} slopes for {bottom[0][1]} channels",
                remedy=f"the weights are for {slopes[0]} channels: take those of this net, or channel_shared: true",
            )
        return [bottom[0]]

    def compute(self, bottom: Variables, params: Variables) -> Results:
        return F.prelu(bottom[0], params[0])


class ELU(Layer):
    """y = x where positive, else alpha (e^x - 1)."""

    def compute(self, bottom: Variables, params: Variables) -> Results:
        return F.elu(bottom[0], self.message.elu_param.alpha)


class Sigmoid(Layer):
    """y = 1 / (1 + e^-x)."""

    def compute(self, bottom: Variables, params: Variables) -> Results:
        return F.sigmoid(bottom[0])


class TanH(Layer):
    """y = tanh x."""

    def compute(self, bottom: Variables, params: Variables) -> Results:
        return F.tanh(bottom[0])


class BNLL(Layer):
    """y = log(1 + e^x)."""

    def compute(self, bottom: Variables, params: Variables) -> Results:
        return F.softplus(bottom[0])


class AbsVal(Layer):
    """y = |x|; the slope at 0 is 0."""

    in_place = False

    def compute(self, bottom: Variables, params: Variables) -> Results:
        return F.abs(bottom[0])


class Swish(Layer):
    """y = x sigmoid(beta x)."""

    def compute(self, bottom: Variables, params: Variables) -> Results:
        return SwishBeta(self.message.swish_param.beta)(bottom[0])


class Clip(Layer):
    """y = x limited to min..max; at the limits themselves the gradient passes."""

    def setup(self, bottom: Shapes, tops: int) -> None:
        options = self.message.clip_param
        if not options.has_field("min") or not options.has_field("max"):
            raise self.refusal("clip_param needs both min and max", "write clip_param { min: -1 max: 1 }", "clip_param")
        if not options.min <= options.max:
            raise self.refusal(
                f"min {options.min:g} must not be above max {options.max:g}",
                field="clip_param",
                remedy="exchange min and max",
            )

    def compute(self, bottom: Variables, params: Variables) -> Results:
        options = self.message.clip_param
        return F.clip(bottom[0], options.min, options.max)


class SlopeFirst(Layer):
    """A layer whose original writes its slope into the bottom's diff before it reads the top's.

    In place these are one array: the arriving gradient is lost, and the slope is multiplied with itself.
    """

    def backward(self, top: Sequence[Blob], bottom: Sequence[Blob]) -> None:
        lost = self.dialect.in_place_squares_slope and top[0] is bottom[0] and self._needs(1)[0]
        if lost:
            top[0].diff[...] = 1
        super().backward(top, bottom)
        if lost:
            diff = bottom[0].diff
            diff *= diff


class Power(SlopeFirst):
    """y = (shift + scale x)^power."""

    def compute(self, bottom: Variables, params: Variables) -> Results:
        o = self.message.power_param
        if o.power * o.scale == 0:
            value = 1.0 if o.power == 0 else o.shift**o.power
            return bottom[0] * 0 + value if bottom[0].requires_grad else np.full(bottom[0].shape, value)
        return PowerAffine(o.power, o.scale, o.shift, self.dialect.division_gradients)(bottom[0])


class Exp(Layer):
    """y = base^(shift + scale x); base is e when not set (-1)."""

    def setup(self, bottom: Shapes, tops: int) -> None:
        _log_base(self, self.message.exp_param, "exp_param")

    def compute(self, bottom: Variables, params: Variables) -> Results:
        o = self.message.exp_param
        log_base = _log_base(self, o, "exp_param")
        return ExpAffine(log_base * o.scale, math.exp(log_base * o.shift))(bottom[0])


class Log(SlopeFirst):
    """y = log(shift + scale x) to the base; base is e when not set (-1)."""

    def setup(self, bottom: Shapes, tops: int) -> None:
        if _log_base(self, self.message.log_param, "log_param") == 0:
            raise self.refusal(
                "a logarithm to base 1 does not exist", field="log_param", remedy="write another base, or none for e"
            )

    def compute(self, bottom: Variables, params: Variables) -> Results:
        o = self.message.log_param
        return LogAffine(1 / _log_base(self, o, "log_param"), o.scale, o.shift)(bottom[0])


def _log_base(layer: Layer, options: Message, field: str) -> float:
    if options.base == -1:
        return 1.0
    if not 0 < options.base < math.inf:
        raise layer.refusal(f"base must be above 0, got {options.base:g}", "leave base out for e", field)
    return math.log(options.base)


class Threshold(NoGradient):
    """y = 1 where x > threshold, else 0."""

    def compute(self, bottom: Variables, params: Variables) -> Results:
        x = bottom[0].data
        return (x > self.message.threshold_param.threshold).astype(x.dtype)


class Dropout(Layer):
    """In TRAIN: y = 0 with probability dropout_ratio, else x / (1 - ratio). In TEST: y = x.

    With `scale_train: false`, a field of the Fast R-CNN fork, y is 0 or x in TRAIN, and x (1 - ratio) in TEST.
    draw: from a shape to uniform numbers from 0 to 1; values below the ratio drop. It may be replaced.
    """

    def setup(self, bottom: Shapes, tops: int) -> None:
        ratio = self.message.dropout_param.dropout_ratio
        if not 0 <= ratio <= 1:
            raise self.refusal(
                f"dropout_ratio lies from 0 to 1, got {ratio:g}",
                field="dropout_param",
                remedy="write dropout_ratio: 0.5",
            )

    def draw(self, shape: tuple[int, ...]) -> Array:
        """Fresh uniform numbers."""
        return self.rng.random(shape, dtype=np.float32)

    def compute(self, bottom: Variables, params: Variables) -> Results:
        ratio = self.message.dropout_param.dropout_ratio
        kept = 1.0 if getattr(self.message.dropout_param, "scale_train", True) else 1 - ratio
        if ratio == 0 or (self.phase == "TEST" and kept == 1):
            return F.Reshape(bottom[0].shape)(bottom[0])
        if self.phase == "TEST":
            return bottom[0] * kept
        if ratio == 1:
            return bottom[0] * 0
        y = F.Dropout(ratio, self.draw(bottom[0].shape))(bottom[0])
        return y if kept == 1 else y * kept


def filler_or(options: Message, field: str, value: float) -> Message:
    """The filler in a field, or a constant when it is not set."""
    if options.has_field(field):
        return getattr(options, field)
    return new_message("FillerParameter", type="constant", value=value)
