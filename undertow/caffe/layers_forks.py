"""Layers of widespread forks: Permute, Normalize, Upsample, ReLU6, Axpy, ShuffleChannel, Interp, depthwise ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import undertow.functions as F
from undertow.caffe.blob import Shape
from undertow.caffe.indexes import whole_numbers
from undertow.caffe.layer import Layer, Results, Shapes
from undertow.caffe.layers_neuron import filler_or
from undertow.caffe.layers_window import Convolution
from undertow.core.variable import Variable

Array = np.ndarray[Any, Any]
Variables = Sequence[Variable]


def image_shape(layer: Layer, shape: Shape) -> Shape:
    """The shape, if it has four axes; else a ShapeError."""
    if len(shape) != 4:
        raise layer.error(
            f"the bottom must have 4 axes, (batch, channels, height, width), it has shape {tuple(shape)}",
            remedy="put a Reshape before it",
        )
    return tuple(shape)


class Permute(Layer):
    """The axes in another order; those that `order` leaves out follow in their old one. From SSD."""

    def _order(self, ndim: int) -> tuple[int, ...]:
        order = list(self.message.permute_param.order)
        if len(set(order)) != len(order) or any(axis >= ndim for axis in order):
            raise self.error(
                f"order {order} must name different axes from 0 to {ndim - 1}",
                field="permute_param",
                remedy=f"name each of 0 to {ndim - 1} once, such as order: 0 order: 2 order: 3 order: 1",
            )
        return (*order, *(axis for axis in range(ndim) if axis not in order))

    def top_shapes(self, bottom: Shapes) -> Shapes:
        return [tuple(bottom[0][axis] for axis in self._order(len(bottom[0])))]

    def compute(self, bottom: Variables, params: Variables) -> Results:
        return F.transpose(bottom[0], self._order(bottom[0].ndim))


class Normalize(Layer):
    """Each image (across_spatial), or the channels at each place, brought to length 1, times a learned scale. From SSD.

    blobs: the scale, () with channel_shared, else (channels,); 1 at first.
    """

    keeps_bottom = True

    def setup(self, bottom: Shapes, tops: int) -> None:
        if len(bottom[0]) < 2:
            raise self.error(
                f"the bottom needs at least 2 axes, it has shape {bottom[0]}", remedy="put a Reshape before it"
            )
        options = self.message.norm_param
        shape = () if options.channel_shared else bottom[0][1:2]
        self.add_parameter(tuple(shape), filler_or(options, "scale_filler", 1.0))

    def top_shapes(self, bottom: Shapes) -> Shapes:
        scale = self.blobs[0].shape
        if scale and scale != tuple(bottom[0][1:2]):
            raise self.error(
                f"{scale[0]} scales for {bottom[0][1]} channels",
                remedy=f"the weights are for {scale[0]} channels: take those of this net, or channel_shared",
            )
        return [bottom[0]]

    def compute(self, bottom: Variables, params: Variables) -> Results:
        x, options = bottom[0], self.message.norm_param
        axes = tuple(range(1, x.ndim)) if options.across_spatial else 1
        scale = params[0]
        if scale.ndim:
            scale = scale.reshape((-1,) + (1,) * (x.ndim - 2))
        return F.l2_normalize(x, axes, options.eps) * scale


class Upsample(Layer):
    """One bottom: every pixel repeated `scale` times in both directions (YOLO conversions).

    Two bottoms: every value put where the second one, the mask of a MAX pooling, says (SegNet); 0 elsewhere. Of values
    that belong to one place the last one stays.
    """

    def _scales(self) -> tuple[int, int]:
        o = self.message.upsample_param
        pair = (o.scale_h or o.scale, o.scale_w or o.scale)
        if min(pair) < 1:
            raise self.refusal(f"scale must be at least 1, got {pair}", field="upsample_param", remedy="write scale: 2")
        return pair

    def top_shapes(self, bottom: Shapes) -> Shapes:
        n, c, h, w = image_shape(self, bottom[0])
        o, (sy, sx) = self.message.upsample_param, self._scales()
        if len(bottom) == 1:
            return [(n, c, h * sy, w * sx)]
        if bottom[1] != bottom[0]:
            raise self.error(
                f"the mask of shape {bottom[1]} must have the shape of the values, {bottom[0]}",
                remedy="give the second top of the Pooling as bottom 1",
            )
        size = (o.upsample_h or h * sy - o.pad_out_h, o.upsample_w or w * sx - o.pad_out_w)
        return [(n, c, *size)]

    def compute(self, bottom: Variables, params: Variables) -> Results:
        x = bottom[0]
        if len(bottom) == 1:
            sy, sx = self._scales()
            return F.repeat(F.repeat(x, sy, 2), sx, 3)
        shape = tuple(self.top_shapes([v.shape for v in bottom])[0])
        plane = shape[2] * shape[3]
        places = whole_numbers(self, bottom[1].data, "the place of a maximum")
        if places.size and not (places.min() >= 0 and places.max() < plane):
            raise self.error(
                f"the mask points at {places.max()}, outside a plane of {plane} values",
                remedy="raise upsample_h and upsample_w (or scale) to the size that was pooled",
            )
        starts = np.arange(shape[0] * shape[1]).reshape(shape[0], shape[1], 1, 1) * plane
        targets = (places + starts).reshape(-1)
        last = np.full(math.prod(shape), -1)
        last[targets] = np.arange(targets.size)
        filled = np.flatnonzero(last >= 0)
        return F.scatter(x.reshape((-1,))[last[filled]], filled, (math.prod(shape),)).reshape(shape)


class ReLU6(Layer):
    """x limited to 0..6; below 0 negative_slope x."""

    def compute(self, bottom: Variables, params: Variables) -> Results:
        slope = self.message.relu6_param.negative_slope
        y = F.relu6(bottom[0])
        return y + F.minimum(bottom[0], 0.0) * slope if slope else y


class Axpy(Layer):
    """a x + y, with one a per image and channel: bottoms (n, c, 1, 1), x and y (n, c, h, w). From SENet."""

    def top_shapes(self, bottom: Shapes) -> Shapes:
        a, x, y = (tuple(shape) for shape in bottom)
        if x != y or len(x) < 2 or a[:2] != x[:2] or math.prod(a[2:]) != 1:
            raise self.error(
                f"the bottoms must be (n, c, 1, 1), (n, c, h, w) and (n, c, h, w), got {a}, {x} and {y}",
                remedy="give the scales first, then both maps",
            )
        return [x]

    def compute(self, bottom: Variables, params: Variables) -> Results:
        a, x, y = bottom
        return a.reshape((*x.shape[:2], *(1,) * (x.ndim - 2))) * x + y


class ShuffleChannel(Layer):
    """Channels dealt out of `group` groups in turn. From ShuffleNet."""

    def top_shapes(self, bottom: Shapes) -> Shapes:
        channels, group = image_shape(self, bottom[0])[1], self.message.shuffle_channel_param.group
        if group < 1 or channels % group:
            raise self.error(
                f"group: {group} does not divide {channels} channels",
                field="shuffle_channel_param",
                remedy=f"use a group that divides {channels}",
            )
        return [bottom[0]]

    def compute(self, bottom: Variables, params: Variables) -> Results:
        x, group = bottom[0], self.message.shuffle_channel_param.group
        n, c, h, w = x.shape
        return F.transpose(x.reshape((n, group, c // group, h, w)), (0, 2, 1, 3, 4)).reshape(x.shape)


class Interp(Layer):
    """Bilinear resizing in which the corner pixels stay corners. From DeepLab.

    Size: height and width; or shrunk, (n - 1) / shrink_factor + 1, then zoomed, n + (n - 1)(zoom_factor - 1).
    pad_beg and pad_end, 0 or below, cut off that much at first.
    """

    def _size(self, length: int, fixed: int) -> int:
        o = self.message.interp_param
        kept = length + o.pad_beg + o.pad_end
        if o.pad_beg > 0 or o.pad_end > 0 or kept < 1:
            raise self.error(
                f"pad_beg and pad_end cut off, so they are 0 or below, and leave something of {length}",
                remedy="write 0 or a small negative number",
            )
        if fixed:
            return fixed
        if o.shrink_factor < 1 or o.zoom_factor < 1:
            raise self.refusal(
                "shrink_factor and zoom_factor must be at least 1",
                field="interp_param",
                remedy="write 1, or leave them out",
            )
        kept = (kept - 1) // o.shrink_factor + 1
        return kept + (kept - 1) * (o.zoom_factor - 1)

    def top_shapes(self, bottom: Shapes) -> Shapes:
        n, c, h, w = image_shape(self, bottom[0])
        if len(bottom) > 1:
            return [(n, c, *image_shape(self, bottom[1])[2:])]
        o = self.message.interp_param
        return [(n, c, self._size(h, o.height), self._size(w, o.width))]

    def compute(self, bottom: Variables, params: Variables) -> Results:
        x, o = bottom[0], self.message.interp_param
        out = self.top_shapes([v.shape for v in bottom])[0]
        rows, columns = (
            weights(length, size, -o.pad_beg, -o.pad_end, x.dtype)
            for length, size in zip(x.shape[2:], out[2:], strict=True)
        )
        return F.einsum("ncow,pw->ncop", F.einsum("nchw,oh->ncow", x, rows), columns)


def weights(length: int, size: int, cut_before: int, cut_after: int, dtype: Any) -> Array:
    """The matrix (size, length) of linear interpolation along one axis, corners on corners."""
    kept = length - cut_before - cut_after
    places = np.arange(size) * ((kept - 1) / (size - 1) if size > 1 else 0.0)
    low = np.minimum(np.floor(places).astype(int), kept - 1)
    high = np.minimum(low + 1, kept - 1)
    found = np.zeros((size, length), dtype)
    np.add.at(found, (np.arange(size), low + cut_before), 1 - (places - low))
    np.add.at(found, (np.arange(size), high + cut_before), places - low)
    return found


class ConvolutionDepthwise(Convolution):
    """Convolution whose `group` is the number of channels, as its name says."""

    def setup(self, bottom: Shapes, tops: int) -> None:
        axis = self.axis(self.message.convolution_param.axis, len(bottom[0]), "convolution_param")
        self.message.mutable("convolution_param").group = bottom[0][axis]
        super().setup(bottom, tops)
