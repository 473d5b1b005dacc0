"""Convolution at inference: batch norm folded into its weights, activation in its epilogue, a sum after it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, cast

import numpy as np

from undertow.functions.norm_batch import BatchNorm
from undertow.kernels.cpu.raw import batchnorm as raw
from undertow.kernels.cpu.raw.parts import Epilogue
from undertow.kernels.cpu.raw.plan_hash import fingerprint
from undertow.kernels.cpu.raw.tensor import aligned_bytes
from undertow.kernels.reference.darknet_blas import deviation
from undertow.plans.unit import Unit
from undertow.plans.unit_conv import Chain, kernel_of

if TYPE_CHECKING:
    from undertow.plans.program import Program

Array = np.ndarray


class FoldedUnit(Unit):
    """z = activation(conv(x, w') + b') + residual, w' = w gamma / s, b' = beta + (b - mean) gamma / s.

    The folded weights are kept, packed for the kernel, from replay to replay; a fingerprint of what they were made
    from tells when that was edited. in_place: the weights are so large beside z that reading them once more for the
    fingerprint would take longer than a pass over z; then they are read where they lie, and z is scaled.
    """

    def __init__(self, program: Program, chain: Chain) -> None:
        super().__init__(program, chain.calls)
        self.chain = chain
        conv = program.calls[chain.conv]
        self.x, self.w = conv.inputs[0], conv.inputs[1]
        self.b = conv.inputs[2] if len(conv.inputs) == 3 else None
        self.z = program.calls[chain.calls[-1]].outputs[0]
        self.kernel = kernel_of(program, conv)
        self.norm: BatchNorm | None = None
        if chain.norm is not None:
            self.norm = cast(BatchNorm, program.calls[chain.norm].function)
            _, self.gamma, self.beta = program.calls[chain.norm].inputs
        channels = program.shape(self.z)[1]
        self._bias = np.zeros(channels, np.float32)
        self._ones, self._zeros = np.ones(channels, np.float32), np.zeros(channels, np.float32)
        self._scale, self._scale32 = np.ones(channels), np.ones(channels, np.float32)
        self._packed: Array | None = None
        self._printed = b""
        self._made_from: tuple[bytes, ...] | None = None
        self.in_place = not self.kernel.depthwise and _size(program, self.w) >= _size(program, self.z)

    def prepare(self) -> None:
        program = self.program
        self.x_slot = program.read_slot(self.x)
        self.z_slot = program.make_slot(self.z)
        self.residual_slot = None if self.chain.residual is None else program.read_slot(self.chain.residual)

    def bind(self) -> None:
        self.tx, self.tz = self.x_slot.tensor, self.z_slot.tensor
        self.tr = None if self.residual_slot is None else self.residual_slot.tensor

    def forward(self) -> None:
        self.program.ready(self.x)
        if self.chain.residual is not None:
            self.program.ready(self.chain.residual)
        if self.in_place:
            weights = np.ascontiguousarray(self.program.array(self.w))
            self._take_parameters()
            self.play("forward", (weights.ctypes.data,), lambda: self._compute_in_place(weights))
        else:
            packed = self._weights()
            self.play("forward", (packed.ctypes.data,), lambda: self._compute(packed.ctypes.data))

    def _compute_in_place(self, weights: Array) -> None:
        """z = activation(conv(x, w) scale + bias) + residual."""
        if self.norm is None and self.tr is None:
            then = Epilogue(bias=self._bias.ctypes.data, slope=self.chain.slope)
            self.kernel.forward(self.tx, weights.ctypes.data, self.tz, then)
            return
        self.kernel.forward(self.tx, weights.ctypes.data, self.tz)
        scale, bias = self._scale32.ctypes.data, self._bias.ctypes.data
        raw.affine(self.tz, self.tz, scale, bias, self.chain.slope, self.tr)

    def _compute(self, packed: int) -> None:
        then = Epilogue(bias=self._bias.ctypes.data, slope=self.chain.slope)
        self.kernel.forward_packed(self.tx, packed, self.tz, then)
        if self.tr is not None:
            raw.affine(self.tz, self.tz, self._ones.ctypes.data, self._zeros.ctypes.data, 1.0, self.tr)

    def _small(self) -> list[Array]:
        """All but the weights that z depends on."""
        program = self.program
        arrays = [] if self.b is None else [program.array(self.b)]
        if self.norm is not None:
            arrays += [program.array(self.gamma), program.array(self.beta), self.norm.mean, self.norm.variance]
        return [np.ascontiguousarray(array) for array in arrays]

    def _take_parameters(self) -> bool:
        """Scale and bias for the present parameters and statistics; whether they are other ones than last time."""
        made_from = tuple(fingerprint(array) for array in self._small())
        if made_from == self._made_from:
            return False
        self._made_from = made_from
        bias = 0.0 if self.b is None else self.program.array(self.b).astype(np.float64)
        if self.norm is not None:
            rule = self.norm.rule.forward
            spread = self.norm.variance.astype(np.float64)
            self._scale[:] = scale = self.program.array(self.gamma) / deviation(spread, rule.epsilon, rule.placement)
            bias = self.program.array(self.beta) + (bias - self.norm.mean) * scale
        self._bias[:], self._scale32[:] = bias, self._scale
        return True

    def _weights(self) -> Array:
        """Packed weights for the present parameters and statistics."""
        w = np.ascontiguousarray(self.program.array(self.w))
        changed, printed = self._take_parameters(), fingerprint(w)
        if self._packed is None or changed or printed != self._printed:
            self._printed = printed
            if self.norm is not None:
                w = (w * self._scale.reshape(-1, *(1,) * (w.ndim - 1))).astype(np.float32)
            packed = aligned_bytes(self.kernel.packed_bytes) if self._packed is None else self._packed
            self.kernel.pack(w, packed.ctypes.data)
            self._packed = packed
        return self._packed


def _size(program: Program, number: int) -> int:
    return math.prod(program.values[number].shape)
