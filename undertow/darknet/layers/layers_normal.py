"""Layers that normalise: batchnorm of its own, response normalisation, l2norm."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from undertow.core.variable import Variable
from undertow.darknet.files.layer_shape import LayerShape
from undertow.darknet.files.options_layers import LayerOptions, NormalizationOptions
from undertow.darknet.layers.layer import BuildContext, Layer, Pass, as_image, computed
from undertow.darknet.layers.layers_weighted import NormalizedLayer
from undertow.darknet.layers.normal_functions import DarknetLrn, L2Norm
from undertow.functions.tap import tap

Array = np.ndarray[Any, Any]


class Batchnorm(NormalizedLayer):
    """y = scales * x_norm + biases (batchnorm_layer.c). The biases stay 0 where no weights file holds them."""

    type = "batchnorm"
    overwrites = True

    def __init__(self, options: LayerOptions, shape: LayerShape, context: BuildContext) -> None:
        super().__init__(options, shape, context)
        self.batch_normalize = True
        self._add_biases(self.c, context)

    def forward(self, x: Variable, run: Pass) -> Variable:
        self._delta_at = tap(as_image(x, self))
        return self._normalise(self._delta_at, run)

    def learns(self, name: str) -> bool:
        return self.dialect.batchnorm_layer_learns and (name == "scales" or self.dialect.fork)


class Normalization(Layer):
    """Local response normalisation over neighbouring channels (normalization_layer.c).

    norms: what the input was divided by, before the power beta.
    """

    type = "normalization"
    overwrites = True

    def __init__(self, options: LayerOptions, shape: LayerShape, context: BuildContext) -> None:
        super().__init__(options, shape, context)
        given = cast(NormalizationOptions, options)
        self.size, self.alpha, self.beta, self.kappa = given.size, given.alpha, given.beta, given.kappa
        self._function: DarknetLrn | None = None

    def forward(self, x: Variable, run: Pass) -> Variable:
        self._function = DarknetLrn(self.size, self.alpha, self.beta, self.kappa, self.dialect.lrn_approximate)
        return self._function(as_image(x, self))

    def release(self) -> None:
        super().release()
        self._function = None

    @property
    def norms(self) -> Array:
        return computed(self._function, self).norms


class L2norm(Layer):
    """Each place divided by the length of its channels (l2norm_layer.c); values that form no image pass unchanged.

    scales_buffer: (1 - output) / length, which the original keeps and does not use.
    """

    type = "l2norm"

    def __init__(self, options: LayerOptions, shape: LayerShape, context: BuildContext) -> None:
        super().__init__(options, shape, context)
        self._function: L2Norm | None = None

    def forward(self, x: Variable, run: Pass) -> Variable:
        if not self.c:
            return tap(x)
        self._function = L2Norm(self.dialect.l2norm_identity)
        return self._function(as_image(x, self))

    def release(self) -> None:
        super().release()
        self._function = None

    @property
    def scales_buffer(self) -> Array:
        return (1 - self.output) / computed(self._function, self).lengths
