"""Operations that only Darknet's networks need."""

from __future__ import annotations

from typing import Any

import numpy as np

from undertow.core.function import Function
from undertow.core.registry import Sample, register
from undertow.core.variable import Operand, Variable
from undertow.kernels import select
from undertow.kernels.geometry import ConvGeometry
from undertow.kernels.reference.darknet_blas import shortcut

Array = np.ndarray[Any, Any]


def _mask_samples(rng: np.random.Generator) -> list[Sample]:
    mask = np.array([[1.0, 0.0, 1.0]])
    return [Sample((rng.standard_normal((2, 3)),), lambda x: mask_gradient(x, mask), lambda x: x)]


@register(
    "mask_gradient",
    gradient="estimate",
    forward="y = x",
    backward="gx = gy mask",
    samples=_mask_samples,
    whole=True,
)
class MaskGradient(Function):
    """x forward; backward only where the mask is 1."""

    def __init__(self, mask: Array) -> None:
        self.mask = mask

    def forward(self, x: Array) -> Array:
        return x

    def backward(self, gy: Array) -> Array:
        return gy * self.mask.astype(gy.dtype)


def mask_gradient(x: Operand, mask: Array) -> Variable:
    """x, whose gradient is multiplied by the mask (broadcast to its shape)."""
    return MaskGradient(mask)(x)


def _shortcut_samples(rng: np.random.Generator) -> list[Sample]:
    def sample(x: tuple[int, ...], source: tuple[int, ...], alpha: float, beta: float) -> Sample:
        arrays = rng.standard_normal(x), rng.standard_normal(source)
        return Sample(arrays, lambda x, s: shortcut_sum(x, s, alpha, beta), note=f"{x} and {source}")

    return [
        sample((2, 3, 4, 4), (2, 3, 4, 4), 0.7, -0.4),
        sample((1, 4, 3, 3), (1, 2, 3, 3), 1.0, 1.0),
        sample((1, 2, 2, 2), (1, 3, 4, 4), 0.5, 2.0),
        sample((1, 2, 4, 4), (1, 2, 2, 2), 0.5, 2.0),
    ]


@register(
    "shortcut_sum",
    gradient="once",
    forward="y = x; y = alpha y + beta source where the two overlap (common channels, integer ratio of the sides)",
    backward="gx = alpha gy where they overlap, else gy; gsource = beta gy there",
    samples=_shortcut_samples,
)
class ShortcutSum(Function):
    """Darknet's weighted shortcut, also between unlike shapes (shortcut_layer.c, blas.c shortcut_cpu)."""

    def __init__(self, alpha: float, beta: float, alpha_everywhere: bool = False) -> None:
        self.alpha, self.beta, self.alpha_everywhere = alpha, beta, alpha_everywhere

    def forward(self, x: Array, source: Array) -> Array:
        out = np.array(x, order="C")
        shortcut(source, out, self.alpha, self.beta)
        return out

    def backward(self, gy: Array) -> tuple[Array, Array]:
        if self.alpha_everywhere:
            gx = self.alpha * gy
        else:
            gx = np.array(gy, order="C")
            shortcut(np.zeros(self.inputs[1].shape, gy.dtype), gx, self.alpha, 0.0)
        gsource = np.zeros(self.inputs[1].shape, gy.dtype)
        shortcut(np.ascontiguousarray(gy), gsource, 1.0, self.beta)
        return gx, gsource


def shortcut_sum(x: Operand, source: Operand, alpha: float, beta: float, alpha_everywhere: bool = False) -> Variable:
    """alpha x + beta source, as `ShortcutSum` says; (batch, c, h, w) each. Returns the shape of x.

    alpha_everywhere: see `Dialect.shortcut_alpha_everywhere`. ShapeError where height and width have unlike ratios.
    """
    return ShortcutSum(alpha, beta, alpha_everywhere)(x, source)


def _xnor_samples(rng: np.random.Generator) -> list[Sample]:
    arrays = rng.standard_normal((2, 3, 4, 4)), rng.standard_normal((2, 3, 3, 3))
    geometry = ConvGeometry(pad=(1, 1, 1, 1))

    def expected(x: Array, w: Array) -> Array:
        signs = np.pad(np.sign(x), ((0, 0), (0, 0), (1, 1), (1, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(signs, (3, 3), (2, 3))
        scaled = np.sign(w) * np.abs(w).mean((1, 2, 3), keepdims=True)
        return np.einsum("ncpquv,fcuv->nfpq", windows, scaled)

    return [Sample(arrays, lambda x, w: xnor_conv2d(x, w, geometry), expected)]


@register(
    "xnor_conv2d",
    gradient="estimate",
    forward="y = conv2d(sign(x), s sign(w)), s = mean |w| of each filter, sign(0) = -1",
    backward="gx, gw = those of y = conv2d(x, w): the straight-through estimate",
    samples=_xnor_samples,
)
class XnorConv2d(Function):
    """Convolution of signs (XNOR-Net), trained through the real values (convolutional_layer.c, xnor)."""

    def __init__(self, geometry: ConvGeometry) -> None:
        self.geometry = geometry

    def forward(self, x: Array, w: Array) -> Array:
        scale = np.abs(w).mean(axis=(1, 2, 3), keepdims=True)
        one = np.asarray(1, x.dtype)
        return select.conv2d(np.where(x > 0, one, -one), np.where(w > 0, scale, -scale), None, self.geometry)

    def backward(self, gy: Array) -> tuple[Array | None, Array]:
        x, w = self.inputs[0].data, self.inputs[1].data
        gx = select.conv2d_backward_data(gy, w, x.shape, self.geometry) if self.needs_input_grad[0] else None
        return gx, select.conv2d_backward_weights(gy, x, w.shape, self.geometry)


def xnor_conv2d(x: Operand, w: Operand, geometry: ConvGeometry) -> Variable:
    """Convolution of the signs of x with the scaled signs of w; see `XnorConv2d`."""
    return XnorConv2d(geometry)(x, w)
