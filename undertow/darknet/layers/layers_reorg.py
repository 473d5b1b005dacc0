"""Reorg: blocks of pixels become channels, or the other way round."""

from __future__ import annotations

from typing import cast

from undertow.core.variable import Variable
from undertow.darknet.files.layer_shape import LayerShape
from undertow.darknet.files.options_layers import LayerOptions, ReorgOptions
from undertow.darknet.layers.layer import BuildContext, Layer, Pass, as_image, as_rows
from undertow.functions.join import pad
from undertow.functions.tap import tap


class Reorg(Layer):
    """Values in another order (reorg_layer.c, blas.c reorg_cpu and flatten).

    With `reverse`, blocks of stride x stride are filled from stride*stride groups of channels. Without it, the original
    reads with the same arithmetic where `reverse` would write, over the shape of the input; every value comes through
    once, but not from where the output's shape suggests. flatten: channels become the fastest axis (`reverse`: the
    slowest again), in an array that keeps the shape of a reorg. extra: zeros after the values.
    """

    type = "reorg"
    overwrites = True

    def __init__(self, options: LayerOptions, shape: LayerShape, context: BuildContext) -> None:
        super().__init__(options, shape, context)
        given = cast(ReorgOptions, options)
        self.stride, self.reverse, self.flatten, self.extra = given.stride, given.reverse, given.flatten, given.extra

    def forward(self, x: Variable, run: Pass) -> Variable:
        self._delta_at = None
        if self.extra:
            return pad(as_rows(x), ((0, 0), (0, self.extra)))
        x = as_image(x, self)
        y = self._flattened(x) if self.flatten else self._moved(x)
        return tap(y.reshape((x.shape[0], self.out_c, self.out_h, self.out_w)))

    def _flattened(self, x: Variable) -> Variable:
        batch, pixels = x.shape[0], self.h * self.w
        shape = (batch, pixels, self.c) if self.reverse else (batch, self.c, pixels)
        return x.reshape(shape).transpose(0, 2, 1)

    def _moved(self, x: Variable) -> Variable:
        batch, s = x.shape[0], self.stride
        few = self.c // (s * s)
        if self.reverse:
            return x.reshape((batch, s, s, few, self.h, self.w)).transpose(0, 3, 4, 1, 5, 2)
        return x.reshape((batch, few, self.h, s, self.w, s)).transpose(0, 3, 5, 1, 2, 4)
