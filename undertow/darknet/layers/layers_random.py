"""Layers that draw random numbers in training: dropout and crop."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from undertow.core.variable import Variable
from undertow.darknet.files.layer_shape import LayerShape
from undertow.darknet.files.options_layers import CropOptions, DropoutOptions, LayerOptions
from undertow.darknet.layers.layer import BuildContext, Layer, Pass, as_image, computed
from undertow.darknet.layers.random_functions import Crop as CropFunction
from undertow.darknet.layers.random_functions import CropRule, DarknetDropout
from undertow.functions.darknet_activations import DarknetActivation
from undertow.functions.tap import tap

Array = np.ndarray[Any, Any]


class Dropout(Layer):
    """In training, 0 with the given probability, other values divided by 1 - probability (dropout_layer.c).

    rand: the uniform numbers of the last training pass; r < probability drops. Where the dialect says so, it changes
    the output of the layer before in place, and owns neither output nor delta.
    """

    type = "dropout"

    def __init__(self, options: LayerOptions, shape: LayerShape, context: BuildContext) -> None:
        super().__init__(options, shape, context)
        self.probability = cast(DropoutOptions, options).probability
        self._draws = context.draws.of(self.index)
        self._function: DarknetDropout | None = None
        self._before = context.built[-1] if context.built and self.dialect.dropout_in_place else None
        self.in_place = self._before is not None

    def forward(self, x: Variable, run: Pass) -> Variable:
        if not run.training:
            return tap(x)
        if self._before is None or not run.outputs:
            self._function = DarknetDropout(self.probability, self._draws)
            return self._function(x)
        y = self._in_place(x)
        run.replace_last(y)
        self._before.take_output(y)
        return y

    def _in_place(self, x: Variable) -> Variable:
        """Dropout on the array that the layer before calls its output: its activation sees what is left."""
        before = x.creator
        if self.dialect.gradient_from_output and isinstance(before, DarknetActivation):
            self._function = DarknetDropout(self.probability, self._draws, before.name)
            return self._function(before.input)
        self._function = DarknetDropout(self.probability, self._draws)
        return self._function(x)

    def release(self) -> None:
        super().release()
        self._function = None

    @property
    def delta(self) -> Array:
        return super().delta if self._before is None else self._before.delta

    @property
    def rand(self) -> Array:
        return computed(self._function, self).uniform


class Crop(Layer):
    """A part of the picture: a random one, perhaps mirrored, in training, the middle otherwise (crop_layer.c).

    angle, saturation, exposure and shift do nothing on a CPU.
    """

    type = "crop"

    def __init__(self, options: LayerOptions, shape: LayerShape, context: BuildContext) -> None:
        super().__init__(options, shape, context)
        given = cast(CropOptions, options)
        self.flip, self.noadjust = given.flip, given.noadjust
        self._draws = context.draws.of(self.index)

    def forward(self, x: Variable, run: Pass) -> Variable:
        if not self.dialect.crop_gradient:
            x = Variable(x.data, requires_grad=False)
        rule = CropRule((self.out_h, self.out_w), self.flip, not self.noadjust)
        return CropFunction(rule, self._draws if run.training else None)(as_image(x, self))
