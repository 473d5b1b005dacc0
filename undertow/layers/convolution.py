"""Convolutions and their transposes, over pictures and over any number of spatial dimensions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from undertow import functions as F
from undertow.core import Parameter, Variable, as_variable
from undertow.core.variable import Operand
from undertow.errors import ShapeError
from undertow.functions.windows import Sizes, per_dimension
from undertow.layers.initializers import Fans, Initializer, LeCun, as_generator
from undertow.layers.module import Module

Seed = np.random.Generator | int | None


class ConvNd(Module):
    """A convolution over `dims` spatial dimensions: the filters slide over the input, a cross-correlation.

    x: (batch, in_channels, *spatial). Returns (batch, out_channels, *out) with, per dimension,
    out = floor((in + pads - dilation*(k-1) - 1) / stride) + 1.
    size: of the window, k. stride, pad, dilation, groups: see `undertow.convnd`.
    in_channels: taken from the first input when None. init: of the weight; the bias starts at 0.
    """

    out_channels: int
    weight: Parameter  # (out_channels, in_channels / groups, *size)
    bias: Parameter | None  # (out_channels,)

    def __init__(
        self,
        dims: int,
        out_channels: int,
        size: Sizes,
        in_channels: int | None = None,
        *,
        stride: Sizes = 1,
        pad: Sizes = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        init: Initializer = LeCun(),  # noqa: B008  (frozen)
        rng: Seed = None,
    ) -> None:
        if groups < 1 or out_channels % groups:
            raise ShapeError(f"{out_channels} output channels cannot be split into {groups} groups")
        self.dims, self.out_channels, self.groups = dims, out_channels, groups
        self.size = per_dimension(size, dims, "size")
        self.window: dict[str, Any] = {"stride": stride, "pad": pad, "dilation": dilation, "groups": groups}
        self.init, self.rng = init, as_generator(rng)
        self.weight = Parameter(None)
        self.bias = Parameter(np.zeros(out_channels, self.dtype)) if bias else None
        if in_channels is not None:
            self._make_weight(in_channels)

    def _make_weight(self, in_channels: int) -> None:
        if in_channels % self.groups:
            raise ShapeError(f"{in_channels} input channels cannot be split into {self.groups} groups")
        shape, fans = self._weight_shape(in_channels)
        self.weight.data = self.init(shape, self.rng, self.dtype, fans)

    def _weight_shape(self, in_channels: int) -> tuple[tuple[int, ...], Fans | None]:
        return (self.out_channels, in_channels // self.groups, *self.size), None

    def forward(self, x: Operand) -> Variable:
        x = as_variable(x)
        if x.ndim != self.dims + 2:
            raise ShapeError(f"this layer takes (batch, channels, {self.dims} spatial dimensions), got {x.shape}")
        if self.weight.data is None:
            self._make_weight(x.shape[1])
        return self._apply(x)

    def _apply(self, x: Variable) -> Variable:
        function = F.conv2d if self.dims == 2 else F.convnd
        return function(x, self.weight, self.bias, **self.window)

    def options(self) -> str:
        size = "x".join(map(str, self.size))
        changed = [f"{name}={value}" for name, value in self.window.items() if value != _USUAL.get(name)]
        return ", ".join([f"{self._in_channels()} -> {self.out_channels}, {size}", *changed])

    def _in_channels(self) -> int | str:
        return "?" if self.weight.data is None else self.weight.shape[1] * self.groups


_USUAL = {"stride": 1, "pad": 0, "dilation": 1, "groups": 1, "output_padding": 0}


class Conv2d(ConvNd):
    """A convolution over pictures: x (batch, in_channels, height, width), size k or (kh, kw); see ConvNd."""

    def __init__(self, out_channels: int, size: Sizes, in_channels: int | None = None, **options: Any) -> None:
        super().__init__(2, out_channels, size, in_channels, **options)


class DeconvNd(ConvNd):
    """The transpose of a convolution: spreads every input value over a window, and so enlarges with a stride.

    x: (batch, in_channels, *spatial). Returns (batch, out_channels, *out) with, per dimension,
    out = (in - 1) * stride + dilation*(k-1) + 1 - pads + output_padding. Other options as in ConvNd.
    The initialiser counts as fan_in the inputs that one output sees on average: in_channels / groups times the
    window's cells, divided by the product of the strides.
    """

    weight: Parameter  # (in_channels, out_channels / groups, *size)

    def __init__(
        self,
        dims: int,
        out_channels: int,
        size: Sizes,
        in_channels: int | None = None,
        *,
        output_padding: Sizes = 0,
        **options: Any,
    ) -> None:
        super().__init__(dims, out_channels, size, in_channels, **options)
        self.window["output_padding"] = output_padding

    def _weight_shape(self, in_channels: int) -> tuple[tuple[int, ...], Fans | None]:
        field = math.prod(self.size)
        spread = math.prod(per_dimension(self.window["stride"], self.dims, "stride"))
        fans = (in_channels / self.groups * field / spread, float(self.out_channels // self.groups * field))
        return (in_channels, self.out_channels // self.groups, *self.size), fans

    def _apply(self, x: Variable) -> Variable:
        function = F.deconv2d if self.dims == 2 else F.deconvnd
        return function(x, self.weight, self.bias, **self.window)

    def _in_channels(self) -> int | str:
        return "?" if self.weight.data is None else self.weight.shape[0]


class Deconv2d(DeconvNd):
    """The transpose of a convolution over pictures; see DeconvNd."""

    def __init__(self, out_channels: int, size: Sizes, in_channels: int | None = None, **options: Any) -> None:
        super().__init__(2, out_channels, size, in_channels, **options)
