"""A convolution of a plan: three passes from and to weights as users keep them (OIHW), any groups, depthwise."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from undertow.kernels.cpu.raw import depthwise, plan_update, sparse
from undertow.kernels.cpu.raw.convolution import convolution
from undertow.kernels.cpu.raw.direct import Make
from undertow.kernels.cpu.raw.parts import PLAIN, SLOTS, Epilogue
from undertow.kernels.cpu.raw.tensor import Tensor, align, scratch
from undertow.kernels.geometry import ConvGeometry


class ConvKernel:
    """x_shape -> outputs for weights of shape w_shape.

    sums: whether the epilogue can take the sums for batch norm.
    """

    def __init__(self, x_shape: Sequence[int], w_shape: Sequence[int], geometry: ConvGeometry, precision: str) -> None:
        n, _, h, w = x_shape
        self.groups = geometry.groups
        fast = precision == "fast"
        kernel = (w_shape[2], w_shape[3])
        self.layer = convolution(n, h, w, w_shape[1], w_shape[0] // self.groups, kernel, geometry, fast)
        self.depthwise = depthwise.fits(w_shape, geometry)
        self.sums = not self.depthwise
        self._step = 4 * self.layer.outputs * self.layer.inputs * self.layer.taps

    def forward(self, x: Tensor, w: int, y: Tensor, then: Epilogue = PLAIN) -> None:
        """y = conv(x, w); w: address of OIHW weights."""
        layer, memory = self.layer, scratch()
        if self.depthwise:
            depthwise.forward(x, w, y, layer.window, memory, then)
            return
        for g in range(self.groups):
            xs, ys = self._inputs(x, g), self._outputs(y, g)
            layer.forward_oihw(xs, w + g * self._step, ys, memory, self._epilogue(then, g))

    def _epilogue(self, then: Epilogue, g: int) -> Epilogue:
        """That of a group; its sums lie one after the other, [SLOTS][2][channels of the group]."""
        first = g * self.layer.outputs
        return then.channels(first)._replace(sums=then.sums and then.sums + 16 * SLOTS * first)

    @property
    def packed_bytes(self) -> int:
        """Room that `pack` needs."""
        taps = self.layer.taps
        return 4 * taps * self.groups if self.depthwise else self.groups * align(self.layer.packed_size)

    def pack(self, w: np.ndarray, packed: int) -> None:
        """C-contiguous OIHW weights for `forward_packed`."""
        if self.depthwise:
            ctypes.memmove(packed, w.ctypes.data, w.nbytes)
            return
        for g in range(self.groups):
            at = packed + g * align(self.layer.packed_size)
            self.layer.pack(w.ctypes.data + g * self._step, at, scratch())

    def forward_packed(self, x: Tensor, packed: int, y: Tensor, then: Epilogue) -> None:
        """y = conv(x, w) with weights from `pack`."""
        layer, memory = self.layer, scratch()
        if self.depthwise:
            depthwise.forward(x, packed, y, layer.window, memory, then)
            return
        for g in range(self.groups):
            at = packed + g * align(layer.packed_size)
            layer.forward(self._inputs(x, g), at, self._outputs(y, g), memory, then.channels(g * layer.outputs))

    def backward_data(self, gy: Tensor, w: int, gx: Tensor, *, accumulate: bool, share: float = 1.0) -> None:
        """gx = or += the gradient of the input. share: of gy's values that are expected to be other than 0."""
        layer, memory = self.layer, scratch()
        if share < 1 and self.groups == 1 and not self.depthwise and sparse.pays(layer, gy, gx, share):
            sparse.backward_data(gy, w, gx, layer.window, memory, accumulate=accumulate)
            return
        if self.depthwise:
            depthwise.backward_data(gy, w, gx, layer.window, memory, accumulate=accumulate)
            return
        for g in range(self.groups):
            gys, gxs = self._outputs(gy, g), self._inputs(gx, g)
            layer.backward_data_oihw(gys, w + g * self._step, gxs, memory, accumulate=accumulate)

    @property
    def by_rows(self) -> bool:
        """Whether `backward_weights` takes `make`."""
        return self.groups == 1 and self.layer.kind == "rows"

    def backward_weights(
        self, x: Tensor, gy: Tensor, gw: int, *, subtract: bool = False, make: Make | None = None
    ) -> None:
        """gw = the OIHW gradient of the weights, at this address; or gw -= it.

        make: makes gy row by row, see `direct.rows_backward_weights`.
        """
        layer, memory = self.layer, scratch()
        if self.depthwise:
            with memory.frame():
                found = memory.take(self.packed_bytes) if subtract else gw
                depthwise.backward_weights(x, gy, found, layer.window, memory)
                if subtract:
                    plan_update.accumulate(gw, found, self.packed_bytes // 4, 1.0)
            return
        for g in range(self.groups):
            xs, gys = self._inputs(x, g), self._outputs(gy, g)
            layer.backward_weights_oihw(xs, gys, gw + g * self._step, memory, subtract=subtract, make=make)

    def _inputs(self, x: Tensor, g: int) -> Tensor:
        return x if self.groups == 1 else x.channels(g * self.layer.inputs, self.layer.inputs)

    def _outputs(self, y: Tensor, g: int) -> Tensor:
        return y if self.groups == 1 else y.channels(g * self.layer.outputs, self.layer.outputs)
