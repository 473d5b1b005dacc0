"""A convolution of a plan: three passes from and to weights as users keep them (OIHW), any groups, depthwise."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from undertow.kernels.cpu.raw import depthwise, plan_depthwise, plan_update, sparse
from undertow.kernels.cpu.raw.convolution import convolution
from undertow.kernels.cpu.raw.direct import Make
from undertow.kernels.cpu.raw.parts import PLAIN, SLOTS, Epilogue, Front
from undertow.kernels.cpu.raw.plan_depthwise import Ahead
from undertow.kernels.cpu.raw.tensor import Tensor, align, scratch
from undertow.kernels.geometry import ConvGeometry


class ConvKernel:
    """x_shape -> outputs for weights of shape w_shape.

    groups: of the convolution, and of the sums that its epilogue takes for batch norm; 1 where it is depthwise.
    """

    def __init__(self, x_shape: Sequence[int], w_shape: Sequence[int], geometry: ConvGeometry, precision: str) -> None:
        n, _, h, w = x_shape
        self.depthwise = depthwise.fits(w_shape, geometry)
        self.groups = 1 if self.depthwise else geometry.groups
        fast = precision == "fast"
        kernel = (w_shape[2], w_shape[3])
        self.layer = convolution(n, h, w, w_shape[1], w_shape[0] // geometry.groups, kernel, geometry, fast)
        self._weights_bytes = 4 * w_shape[0] * w_shape[1] * self.layer.taps
        self._step = 4 * self.layer.outputs * self.layer.inputs * self.layer.taps

    def forward(self, x: Tensor, w: int, y: Tensor, then: Epilogue = PLAIN, front: Front | None = None) -> None:
        """y = conv(x, w); w: address of OIHW weights. front: of x, for depthwise convolutions only."""
        layer, memory = self.layer, scratch()
        if self.depthwise:
            depthwise.forward(x, w, y, layer.window, memory, then, front)
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
        return self._weights_bytes if self.depthwise else self.groups * align(self.layer.packed_size)

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
    def data_first(self) -> bool:
        """Whether the gradient of the input is better made before that of the weights, which reads the input.

        Then the input is in cache for the batch norm below, which reads it next. With 1x1 windows, whose gradients of
        the input are mostly added to others, that gains nothing.
        """
        return self.layer.kind != "pointwise"

    @property
    def by_rows(self) -> bool:
        """Whether kernels that read whole rows convolve all channels at once: `backward_weights` takes `make`."""
        return self.groups == 1 and not self.depthwise and self.layer.kind == "rows"

    def backward_weights(
        self, x: Tensor, gy: Tensor, gw: int, *, subtract: bool = False, ruined: int = 0, make: Make | None = None
    ) -> None:
        """gw = the OIHW gradient of the weights, at this address; or gw -= it.

        ruined: 0, or, when it is subtracted, the address of an int64 that becomes 1 where gw is then not finite.
        make: makes gy row by row, see `direct.rows_backward_weights`.
        """
        assert make is None or self.by_rows, "gy stands nowhere as a whole, and these kernels want it so"
        layer, memory = self.layer, scratch()
        if self.depthwise:
            with memory.frame():
                found = memory.take(self.packed_bytes) if subtract else gw
                depthwise.backward_weights(x, gy, found, layer.window, memory)
                if subtract:
                    self._subtract(found, gw, ruined)
            return
        for g in range(self.groups):
            xs, gys = self._inputs(x, g), self._outputs(gy, g)
            at = gw + g * self._step
            layer.backward_weights_oihw(xs, gys, at, memory, subtract=subtract, ruined=ruined, make=make)

    def backward_both(
        self, gy: Tensor, x: Tensor, ahead: Ahead | None, w: int, gx: Tensor, gw: int, *, accumulate: bool,
        subtract: bool, ruined: int,
    ) -> None:  # fmt: skip
        """`backward_data` and `backward_weights` of a depthwise convolution at once."""
        memory = scratch()
        with memory.frame():
            found = memory.take(self.packed_bytes) if subtract else gw
            plan_depthwise.backward(
                gy, x, ahead, w, gx, found, self.layer.window, memory, accumulate=accumulate
            )
            if subtract:
                self._subtract(found, gw, ruined)

    def _subtract(self, gradient: int, gw: int, ruined: int) -> None:
        """Depthwise weights at gw -= gradient."""
        count = self.packed_bytes // 4
        plan_update.accumulate(gw, gradient, count, 1.0)
        if ruined:
            plan_update.find_infinite(gw, count, ruined)

    def _inputs(self, x: Tensor, g: int) -> Tensor:
        return x if self.groups == 1 else x.channels(g * self.layer.inputs, self.layer.inputs)

    def _outputs(self, y: Tensor, g: int) -> Tensor:
        return y if self.groups == 1 else y.channels(g * self.layer.outputs, self.layer.outputs)
