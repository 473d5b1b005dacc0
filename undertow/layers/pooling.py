"""Pooling layers; which windows they look at is decided by `rule`, see `undertow.functions.pooling`."""

from __future__ import annotations

from typing import Any

from undertow import functions as F
from undertow.core import Variable
from undertow.core.variable import Operand
from undertow.functions.windows import Sizes
from undertow.layers.module import Module


class _Pool2d(Module):
    """x: (batch, channels, height, width). Returns (batch, channels, out_h, out_w)."""

    def __init__(
        self, size: Sizes, stride: Sizes | None = None, pad: Sizes | None = None, *, rule: Any = "floor"
    ) -> None:
        self.size, self.stride, self.pad, self.rule = size, stride, pad, rule

    def options(self) -> str:
        given = {"stride": self.stride, "pad": self.pad}
        parts = [f"{name}={value}" for name, value in given.items() if value is not None]
        parts += [] if self.rule == "floor" else [f"rule={self.rule}"]
        return ", ".join([f"size={self.size}", *parts])


class MaxPool2d(_Pool2d):
    """The largest element of each window. stride: the size when None. pad and rule: see `undertow.max_pool2d`."""

    def forward(self, x: Operand) -> Variable:
        return F.max_pool2d(x, self.size, self.stride, self.pad, self.rule)


class AvgPool2d(_Pool2d):
    """The mean of each window. count_include_pad, pad and rule: see `undertow.avg_pool2d`."""

    def __init__(
        self,
        size: Sizes,
        stride: Sizes | None = None,
        pad: Sizes | None = None,
        *,
        rule: Any = "floor",
        count_include_pad: bool = True,
    ) -> None:
        super().__init__(size, stride, pad, rule=rule)
        self.count_include_pad = count_include_pad

    def forward(self, x: Operand) -> Variable:
        return F.avg_pool2d(x, self.size, self.stride, self.pad, self.rule, self.count_include_pad)


class GlobalAvgPool2d(Module):
    """The mean of each channel's plane: (batch, channels, height, width) to (batch, channels, 1, 1)."""

    def forward(self, x: Operand) -> Variable:
        return F.global_average_pool2d(x)
