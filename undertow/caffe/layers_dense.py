"""Layers with weights that every value meets, or that scale and shift: InnerProduct, Embed, Scale, Bias, Parameter."""

from __future__ import annotations

import math
from collections.abc import Sequence

import undertow.functions as F
from undertow.caffe.blob import Blob, Shape
from undertow.caffe.indexes import whole_numbers
from undertow.caffe.layer import IndexBottom, Layer, Results, Shapes
from undertow.caffe.layers_neuron import filler_or
from undertow.caffe.proto.message import Message
from undertow.core.variable import Variable

Variables = Sequence[Variable]


class InnerProduct(Layer):
    """y = x w^T + b over all axes from `axis` on. blobs: weights (num_output, inputs), turned with `transpose`."""

    def setup(self, bottom: Shapes, tops: int) -> None:
        o = self.message.inner_product_param
        if o.num_output < 1:
            raise self.refusal("num_output must be at least 1", "write num_output: 10", "inner_product_param")
        self.from_axis = self.axis(o.axis, len(bottom[0]), "inner_product_param")
        self.inputs = math.prod(bottom[0][self.from_axis :])
        self.add_parameter((self.inputs, o.num_output) if o.transpose else (o.num_output, self.inputs), o.weight_filler)
        if o.bias_term:
            self.add_parameter((o.num_output,), o.bias_filler)

    def top_shapes(self, bottom: Shapes) -> Shapes:
        axis = self.axis(self.message.inner_product_param.axis, len(bottom[0]), "inner_product_param")
        inputs = math.prod(bottom[0][axis:])
        if inputs != self.inputs:
            raise self.error(
                f"the bottom {bottom[0]} has {inputs} values from axis {axis} on, the weights are made for "
                f"{self.inputs}",
                remedy="give it the input size that the net was made for",
            )
        return [(*bottom[0][:axis], self.message.inner_product_param.num_output)]

    def compute(self, bottom: Variables, params: Variables) -> Results:
        x = bottom[0]
        rows = x if x.ndim == 2 and x.shape[1] == self.inputs else x.reshape((-1, self.inputs))
        w = params[0].T if self.message.inner_product_param.transpose else params[0]
        y = F.linear(rows, w, *params[1:])
        shape = tuple(self.top_shapes([x.shape])[0])
        return y if y.shape == shape else y.reshape(shape)


class Embed(IndexBottom):
    """Rows of a table by their number. blobs: table (input_dim, num_output), biases (num_output,)."""

    index_bottoms = (0,)
    forced = True

    def setup(self, bottom: Shapes, tops: int) -> None:
        o = self.message.embed_param
        if o.num_output < 1 or o.input_dim < 1:
            raise self.refusal(
                "num_output and input_dim must be at least 1",
                field="embed_param",
                remedy="write input_dim: the number of words, num_output: the length of a row",
            )
        self.add_parameter((o.input_dim, o.num_output), o.weight_filler)
        if o.bias_term:
            self.add_parameter((o.num_output,), o.bias_filler)

    def top_shapes(self, bottom: Shapes) -> Shapes:
        return [(*bottom[0], self.message.embed_param.num_output)]

    def compute(self, bottom: Variables, params: Variables) -> Results:
        indexes = whole_numbers(self, bottom[0].data, "an index")
        rows = self.message.embed_param.input_dim
        if indexes.size and not (indexes.min() >= 0 and indexes.max() < rows):
            bad = int(indexes[(indexes < 0) | (indexes >= rows)][0])
            raise self.error(f"index {bad} is not one of the {rows} rows of the table", f"use indexes 0 to {rows - 1}")
        y = F.embedding(indexes, params[0])
        return y + params[1] if len(params) > 1 else y


def spread(layer: Layer, shape: Shape, small: Shape, axis: int, what: str) -> Shape:
    """The shape with which a scale or bias of shape `small`, beginning at an axis, meets an array of `shape`."""
    start = layer.axis(axis, len(shape)) if small else 0
    if start + len(small) > len(shape):
        raise layer.error(
            f"the {what} of shape {small} reaches past the axes of the bottom {shape} from axis {start}",
            remedy="use a smaller axis, or a bottom with more axes",
        )
    for i, length in enumerate(small):
        if shape[start + i] != length:
            raise layer.error(
                f"axis {start + i} of the bottom {shape} has length {shape[start + i]}, axis {i} of the {what} "
                f"{small} has {length}",
                remedy=f"make them equal, or choose another axis in {layer.type.lower()}_param",
            )
    return (1,) * start + small + (1,) * (len(shape) - start - len(small))


def covered(layer: Layer, shape: Shape, axis: int, count: int) -> Shape:
    """The shape of a learned scale or bias: `count` axes of the bottom from an axis on, -1 for all of them."""
    start = layer.axis(axis, len(shape))
    if count < -1 or (count > 0 and start + count > len(shape)):
        raise layer.error(
            f"num_axes: {count} from axis {start} does not fit a bottom of shape {shape}",
            remedy="write num_axes: 1, or another axis",
        )
    return shape[start:] if count == -1 else shape[start : start + count]


class Bias(Layer):
    """y = x + b, b a learned parameter or the second bottom, beginning at `axis`."""

    def setup(self, bottom: Shapes, tops: int) -> None:
        o = self.message.bias_param
        if len(bottom) == 1:
            self.add_parameter(covered(self, bottom[0], o.axis, o.num_axes), o.filler)

    def top_shapes(self, bottom: Shapes) -> Shapes:
        small = bottom[1] if len(bottom) > 1 else self.blobs[0].shape
        spread(self, bottom[0], small, self.message.bias_param.axis, "bias")
        return [bottom[0]]

    def compute(self, bottom: Variables, params: Variables) -> Results:
        x, b = bottom[0], (bottom[1] if len(bottom) > 1 else params[0])
        return x + b.reshape(spread(self, x.shape, b.shape, self.message.bias_param.axis, "bias"))


class Scale(Layer):
    """y = x s (+ b), s a learned parameter or the second bottom, beginning at `axis`; b has the shape of s."""

    keeps_bottom = True

    def setup(self, bottom: Shapes, tops: int) -> None:
        o = self.message.scale_param
        if len(bottom) == 1:
            shape = covered(self, bottom[0], o.axis, o.num_axes)
            self.add_parameter(shape, filler_or(o, "filler", 1.0))
        else:
            shape = bottom[1]
        if o.bias_term:
            self.add_parameter(shape, o.bias_filler)

    def top_shapes(self, bottom: Shapes) -> Shapes:
        small = bottom[1] if len(bottom) > 1 else self.blobs[0].shape
        spread(self, bottom[0], small, self.message.scale_param.axis, "scale")
        return [bottom[0]]

    def compute(self, bottom: Variables, params: Variables) -> Results:
        o: Message = self.message.scale_param
        x, s = bottom[0], (bottom[1] if len(bottom) > 1 else params[0])
        shape = spread(self, x.shape, s.shape, o.axis, "scale")
        y = x * s.reshape(shape)
        return y + params[-1].reshape(shape) if o.bias_term else y


class Parameter(Layer):
    """A learned array as a top."""

    def setup(self, bottom: Shapes, tops: int) -> None:
        self.add_parameter(tuple(self.message.parameter_param.shape.dim))

    def top_shapes(self, bottom: Shapes) -> Shapes:
        return [self.blobs[0].shape]

    def compute(self, bottom: Variables, params: Variables) -> Results:
        return params[0]

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(bottom, top)
        top[0].share_data(self.blobs[0])
        if self.dialect.parameter_shares_diff:
            top[0].share_diff(self.blobs[0])

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> float:
        self.reshape(bottom, top)
        return self.loss_of(top)

    def backward(self, top: Sequence[Blob], bottom: Sequence[Blob]) -> None:
        if not self.dialect.parameter_shares_diff and self.param_propagate_down[0]:
            diff = self.blobs[0].diff
            diff += top[0].diff
