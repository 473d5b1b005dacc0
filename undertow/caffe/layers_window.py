"""Layers that look through windows: convolution, its transpose, pooling, im2col, pyramids, LRN."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import undertow.functions as F
from undertow.caffe.blob import Shape
from undertow.caffe.layer import Layer, Result, Results, Shapes
from undertow.caffe.proto.message import Message
from undertow.core.variable import Variable
from undertow.kernels.geometry import ConvGeometry, ConvNdGeometry, PoolGeometry, Windows, caffe_pooling, output_shape

Variables = Sequence[Variable]

# Beyond it the kernels for images, which keep a table per step of the stride, give way to those for any dimensions.
LARGEST_STRIDE = 64


def window_sizes(layer: Layer, options: Message, dims: int, name: str, plain: str, default: int | None) -> Shape:
    """One of kernel, stride, pad or dilation of a ConvolutionParameter, one number per spatial dimension.

    plain: the repeated field, given once for all dimensions or once for each; `<name>_h` and `<name>_w` are the other
    way to say it in two dimensions. default: where nothing is given; None where something must be.
    """
    fields = (f"{name}_h", f"{name}_w")
    sizes = list(getattr(options, plain))
    if name != "dilation" and any(options.has_field(field) for field in fields):
        if dims != 2:
            raise layer.refusal(f"{fields[0]} and {fields[1]} are for 2 spatial axes, here are {dims}", f"use {plain}")
        if sizes:
            raise layer.refusal(
                f"either {plain} or {fields[0]} and {fields[1]} can be given, not both",
                remedy=f"keep {plain}, or the two others",
            )
        return getattr(options, fields[0]), getattr(options, fields[1])
    if not sizes and default is not None:
        return (default,) * dims
    if len(sizes) not in (1, dims):
        raise layer.refusal(
            f"{plain} must be given once, or once for each of the {dims} spatial axes; it is given {len(sizes)} times",
            remedy=f"write {plain}: 3" if not sizes else f"give {plain} 1 or {dims} times",
            field="convolution_param",
        )
    return tuple(sizes * dims if len(sizes) == 1 else sizes)


class _Windowed(Layer):
    """What Convolution, Deconvolution and Im2col share: axes and windows from convolution_param."""

    def setup(self, bottom: Shapes, tops: int) -> None:
        options = self.message.convolution_param
        self.channel_axis = self.axis(options.axis, len(bottom[0]), "convolution_param")
        self.dims = len(bottom[0]) - self.channel_axis - 1
        self.channels = bottom[0][self.channel_axis]
        self.kernel = window_sizes(self, options, self.dims, "kernel", "kernel_size", None)
        self.stride = window_sizes(self, options, self.dims, "stride", "stride", 1)
        self.pad = window_sizes(self, options, self.dims, "pad", "pad", 0)
        self.dilation = window_sizes(self, options, self.dims, "dilation", "dilation", 1)
        for name in ("kernel", "stride", "dilation"):
            if any(size < 1 for size in getattr(self, name)):
                raise self.refusal(
                    f"every {name} must be at least 1, got {getattr(self, name)}", remedy=f"write {name}: 1 or more"
                )

    def geometry(self, groups: int = 1, size: Shape = ()) -> Windows:
        """The windows; a layer without spatial axes has one axis of length 1.

        size: of the image they lie in, where it is known: strides beyond it all mean one window, the least is taken.
        """
        stride, pad, dilation = self.stride or (1,), self.pad or (0,), self.dilation or (1,)
        if size:
            rooms = zip(size, pad, dilation, self.kernel, stride, strict=True)
            stride = tuple(min(s, max(n + 2 * p - d * (k - 1), 1)) for n, p, d, k, s in rooms)
        sides = tuple(size for size in pad for _ in range(2))
        if self.dims == 2 and max(stride) <= LARGEST_STRIDE:
            return ConvGeometry((stride[0], stride[1]), (sides[0], sides[1], sides[2], sides[3]),
                                (dilation[0], dilation[1]), groups)  # fmt: skip
        return ConvNdGeometry(stride, sides, dilation, groups)

    def check_channels(self, shape: Shape) -> None:
        """ShapeError unless a bottom still has the axes and channels that the layer was made for."""
        if len(shape) != self.channel_axis + 1 + self.dims or shape[self.channel_axis] != self.channels:
            raise self.error(
                f"a bottom of shape {shape} does not have {self.channels} channels on axis {self.channel_axis} "
                f"and {self.dims} spatial axes",
                remedy="the layer's weights are for another bottom: build the net for this one",
            )

    def as_batch(self, x: Variable) -> Variable:
        """(everything before the channels, channels, *spatial), with one spatial axis at least."""
        if self.channel_axis == 1 and self.dims:
            return x
        return x.reshape((-1, self.channels, *(x.shape[self.channel_axis + 1 :] or (1,))))


class Convolution(_Windowed):
    """Filters slid over the bottoms. blobs: weights (num_output, channels / group, *kernel), biases (num_output,)."""

    transposed = False

    def setup(self, bottom: Shapes, tops: int) -> None:
        super().setup(bottom, tops)
        options = self.message.convolution_param
        self.filters, self.groups = options.num_output, options.group
        if tops != len(bottom):
            raise self.refusal(
                f"{len(bottom)} bottoms but {tops} tops: each bottom has one top", remedy="name as many tops as bottoms"
            )
        if self.filters < 1:
            raise self.refusal("num_output must be at least 1", "write num_output: 20", "convolution_param")
        for count, what in ((self.channels, "channels"), (self.filters, "outputs (num_output)")):
            if self.groups < 1 or count % self.groups:
                raise self.error(
                    f"group: {self.groups} does not divide the {count} {what}",
                    remedy="use a group that divides channels and num_output",
                    field="convolution_param",
                )
        outer, inner = (self.channels, self.filters) if self.transposed else (self.filters, self.channels)
        self.add_parameter((outer, inner // self.groups, *self.kernel), options.weight_filler)
        if options.bias_term:
            self.add_parameter((self.filters,), options.bias_filler)

    def top_shapes(self, bottom: Shapes) -> Shapes:
        shapes = []
        for shape in bottom:
            self.check_channels(shape)
            if shape != bottom[0]:
                raise self.error(
                    f"all bottoms must have one shape, got {bottom[0]} and {shape}",
                    remedy="give one layer for each shape",
                )
            spatial = self.spatial(shape[self.channel_axis + 1 :])
            shapes.append((*shape[: self.channel_axis], self.filters, *spatial))
        return shapes

    def spatial(self, size: Shape) -> Shape:
        """The spatial size of the result."""
        return output_shape(size, self.kernel, self.geometry()) if self.dims else ()

    def compute(self, bottom: Variables, params: Variables) -> Results:
        w = params[0] if self.dims else params[0].reshape((*params[0].shape, 1))
        found = []
        for x in bottom:
            batch = self.as_batch(x)
            y = self.function(batch)(batch, w, *params[1:])
            outer, spatial = x.shape[: self.channel_axis], y.shape[2:] if self.dims else ()
            shape = (*outer, self.filters, *spatial)
            found.append(y if y.shape == shape else y.reshape(shape))
        return found

    def function(self, batch: Variable) -> Any:
        """The operation on (batch, channels, *spatial)."""
        return F.Conv(self.geometry(self.groups, batch.shape[2:] if self.dims else ()))


class Deconvolution(Convolution):
    """The transpose of Convolution. blobs: weights (channels, num_output / group, *kernel), biases (num_output,)."""

    transposed = True

    def spatial(self, size: Shape) -> Shape:
        sizes = zip(size, self.kernel, self.stride, self.pad, self.dilation, strict=True)
        out = tuple((n - 1) * s + d * (k - 1) + 1 - 2 * p for n, k, s, p, d in sizes)
        if any(length < 1 for length in out):
            raise self.error(
                f"padding {self.pad} leaves nothing of the result {out}",
                field="convolution_param",
                remedy="use a smaller pad, or a larger bottom",
            )
        return out

    def function(self, batch: Variable) -> Any:
        if not self.dims:
            return F.Deconv(self.geometry(self.groups), (1,))
        out = self.spatial(batch.shape[2:])
        return F.Deconv(self.geometry(self.groups, out), out)


class Im2col(_Windowed):
    """The windows of a convolution laid out: (..., channels * window, *places)."""

    def top_shapes(self, bottom: Shapes) -> Shapes:
        self.check_channels(bottom[0])
        axis = self.channel_axis
        if not self.dims:
            raise self.error(
                f"a bottom of shape {bottom[0]} has no spatial axes after axis {axis}",
                remedy="give axis: 1 and a bottom (batch, channels, height, width)",
            )
        places = output_shape(bottom[0][axis + 1 :], self.kernel, self.geometry())
        return [(*bottom[0][:axis], self.channels * math.prod(self.kernel), *places)]

    def compute(self, bottom: Variables, params: Variables) -> Results:
        x = bottom[0]
        function: Any = F.Im2Col
        columns = function(self.kernel, self.geometry())(self.as_batch(x))
        return columns.reshape(tuple(self.top_shapes([x.shape])[0]))


def pool(x: Variable, kind: str, geometry: PoolGeometry) -> tuple[Variable, Any]:
    """Max or average pooling; with MAX also where each maximum was found, -1 where a window saw nothing."""
    if kind == "AVE":
        return F.AvgPool2d(geometry)(x), None
    function = F.MaxPool2d(geometry)
    y = function(x)
    return y, function.indexes


class Pooling(Layer):
    """The maximum or mean of windows; a second top holds the places of the maxima, h*W + w."""

    def setup(self, bottom: Shapes, tops: int) -> None:
        o = self.message.pooling_param
        both = o.has_field("kernel_h") and o.has_field("kernel_w")
        if o.global_pooling:
            if any(o.has_field(f) for f in ("kernel_size", "kernel_h", "kernel_w")):
                raise self._bad("global_pooling: true takes the whole image, so no kernel can be given",
                                "remove kernel_size, or global_pooling")  # fmt: skip
        elif o.has_field("kernel_size") == both:
            raise self._bad("the window is given by kernel_size, or by kernel_h and kernel_w", "write kernel_size: 2")
        self.pad, self.stride = self._pair(o, "pad"), self._pair(o, "stride")
        self.kernel = (o.kernel_size, o.kernel_size) if o.has_field("kernel_size") else (o.kernel_h, o.kernel_w)
        if o.global_pooling:
            if self.pad != (0, 0) or self.stride != (1, 1):
                raise self._bad("global_pooling: true goes with pad: 0 and stride: 1 only")
        elif min(self.kernel) < 1 or min(self.stride) < 1:
            field = "stride: 1" if min(self.kernel) >= 1 else "kernel_size: 2"
            reason = f"window and stride must be at least 1, got {self.kernel} and {self.stride}"
            raise self._bad(reason, f"write {field}")
        elif self.pad[0] >= self.kernel[0] or self.pad[1] >= self.kernel[1]:
            raise self._bad(
                f"pad {self.pad} must be smaller than the window {self.kernel}", "make the pad smaller than kernel_size"
            )
        if tops > 1 and o.pool != "MAX":
            raise self._bad(f"a second top, the places of the maxima, goes with pool: MAX only, not with {o.pool}")

    def _bad(self, reason: str, remedy: str | None = None) -> Exception:
        return self.refusal(reason, remedy, "pooling_param")

    def _pair(self, o: Message, name: str) -> tuple[int, int]:
        fields = (f"{name}_h", f"{name}_w")
        given = [o.has_field(field) for field in fields]
        if not any(given):
            size = getattr(o, name)
            return size, size
        if not all(given) or o.has_field(name):
            raise self._bad(f"{name} is given by {name}, or by both {fields[0]} and {fields[1]}")
        return getattr(o, fields[0]), getattr(o, fields[1])

    def geometry(self, shape: Shape) -> PoolGeometry:
        """The windows over an image of this shape. Raises ShapeError unless it has four axes."""
        if len(shape) != 4:
            raise self.error(
                f"the bottom must have 4 axes, (batch, channels, height, width), it has {len(shape)}: {shape}",
                remedy="reshape it to four axes first",
            )
        o = self.message.pooling_param
        kernel = (shape[2], shape[3]) if o.global_pooling else self.kernel
        return caffe_pooling(shape[2], shape[3], kernel, self.stride, self.pad, self._rounds_up(o))

    def _rounds_up(self, o: Message) -> bool:
        """By `round_mode`, or by `ceil_mode`, as forks call it."""
        forked = "ceil_mode" in o.descriptor.by_name and o.has_field("ceil_mode")
        return bool(o.ceil_mode) if forked and not o.has_field("round_mode") else o.round_mode == "CEIL"

    def top_shapes(self, bottom: Shapes) -> Shapes:
        shape = (*bottom[0][:2], *self.geometry(bottom[0]).out)
        return [shape] * max(len(self.message.top), 1)

    def compute(self, bottom: Variables, params: Variables) -> Results:
        kind = self.message.pooling_param.pool
        if kind == "STOCHASTIC":
            raise self._bad(
                "Caffe has no STOCHASTIC pooling on the CPU, and neither is it here", "use pool: MAX or AVE"
            )
        y, places = pool(bottom[0], kind, self.geometry(bottom[0].shape))
        found: list[Result] = [y]
        if len(self.message.top) > 1:
            found.append(np.asarray(places).astype(y.dtype))
        return found


class SPP(Layer):
    """Pooling over 1, 4, 16... windows that cover the image, one row of values per image."""

    def setup(self, bottom: Shapes, tops: int) -> None:
        o = self.message.spp_param
        if not 1 <= o.pyramid_height <= 16:
            raise self.refusal(
                f"pyramid_height lies from 1 to 16, got {o.pyramid_height}", "write pyramid_height: 3", "spp_param"
            )

    def levels(self, shape: Shape) -> list[PoolGeometry]:
        """The windows of every level."""
        if len(shape) != 4 or min(shape) < 1:
            raise self.error(
                f"the bottom must have 4 axes, (batch, channels, height, width), got {shape}",
                remedy="put a Reshape before it",
            )
        found = []
        for level in range(self.message.spp_param.pyramid_height):
            bins = 2**level
            size = [math.ceil(length / bins) for length in shape[2:]]
            pad = [(k * bins - length + 1) // 2 for k, length in zip(size, shape[2:], strict=True)]
            kernel, border = (size[0], size[1]), (pad[0], pad[1])
            found.append(caffe_pooling(shape[2], shape[3], kernel, kernel, border))
        return found

    def top_shapes(self, bottom: Shapes) -> Shapes:
        levels = self.levels(bottom[0])
        if len(levels) == 1:
            return [(*bottom[0][:2], *levels[0].out)]
        return [(bottom[0][0], bottom[0][1] * sum(math.prod(level.out) for level in levels))]

    def compute(self, bottom: Variables, params: Variables) -> Results:
        kind = self.message.spp_param.pool
        if kind == "STOCHASTIC":
            raise self.refusal("Caffe has no STOCHASTIC pooling on the CPU", "use pool: MAX or AVE", "spp_param")
        parts = [pool(bottom[0], kind, level)[0] for level in self.levels(bottom[0].shape)]
        if len(parts) == 1:
            return parts[0]
        return F.concat([part.reshape((part.shape[0], -1)) for part in parts], 1)


class LRN(Layer):
    """x / (k + alpha/n sum of x^2 over n neighbours)^beta, across channels or within one (k is then 1)."""

    def setup(self, bottom: Shapes, tops: int) -> None:
        size = self.message.lrn_param.local_size
        if size % 2 == 0:
            raise self.refusal(
                f"local_size must be odd, so that the window has a middle; it is {size}",
                remedy=f"use local_size: {size + 1} or {max(size - 1, 1)}",
                field="lrn_param",
            )

    def top_shapes(self, bottom: Shapes) -> Shapes:
        if len(bottom[0]) != 4:
            raise self.error(
                f"the bottom must have 4 axes, (batch, channels, height, width), it has shape {bottom[0]}",
                remedy="put a Reshape before it",
            )
        return [bottom[0]]

    def compute(self, bottom: Variables, params: Variables) -> Results:
        o = self.message.lrn_param
        if o.norm_region == "WITHIN_CHANNEL":
            return F.lrn(bottom[0], o.local_size, o.alpha, o.beta, 1.0, "within")
        return F.lrn(bottom[0], o.local_size, o.alpha, o.beta, o.k, "across")
