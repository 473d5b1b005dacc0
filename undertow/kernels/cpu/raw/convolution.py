"""One convolution at fixed shapes: which kernels it uses, and its three passes on packed weights."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from undertow.kernels.cpu.raw import direct, packing, plan_unpack, plan_update, pointwise, strips, winograd
from undertow.kernels.cpu.raw.direct import Make, Walk, Window
from undertow.kernels.cpu.raw.parts import PLAIN, Epilogue
from undertow.kernels.cpu.raw.tensor import Scratch, Tensor
from undertow.kernels.geometry import ConvGeometry, Pair

_FEW_CHANNELS = 16  # below, whole rows are read at once; from here on Winograd pays


class Convolution:
    """N x H x W pixels, inputs -> outputs channels, one group.

    kind: "pointwise", "winograd", "rows" (few input channels) or "direct".
    packed_size, transposed_size: bytes of the weights for `forward` and for `backward_data`.
    """

    def __init__(
        self, n: int, h: int, w: int, inputs: int, outputs: int, kernel: Pair, geometry: ConvGeometry, fast: bool
    ) -> None:
        """geometry.groups is ignored: the caller cuts groups apart. fast: F(4x4), F(5x5) where they pay."""
        self.inputs, self.outputs = inputs, outputs
        (sy, sx), (dy, dx) = geometry.stride, geometry.dilation
        self.window = Window(*kernel, sy, sx, dy, dx, geometry.pad[0], geometry.pad[2])
        self.taps = self.window.taps
        self.out_h, self.out_w = geometry.output_size(h, w, kernel)
        self.form = 43
        if kernel == (1, 1) and geometry.stride == (1, 1) and not any(geometry.pad):
            self.kind = "pointwise"
        elif self._winograd_pays(n, (h, w), kernel, geometry, fast):
            self.kind = "winograd"
        elif inputs < _FEW_CHANNELS and dx == 1:
            self.kind = "rows"
        else:
            self.kind = "direct"
        self.packed_size = packing.packed_size(inputs, outputs, self.taps)
        self.transposed_size = packing.packed_size(outputs, inputs, self.taps)
        self._zeros = np.zeros(max(inputs, outputs) + 16, np.float32)
        self._tables = _Tables(self.window, h, w, self.out_h, self.out_w, self.kind == "winograd")

    def _winograd_pays(self, n: int, size: Pair, kernel: Pair, geometry: ConvGeometry, fast: bool) -> bool:
        """Sets form. Tiles that stick out of the images are lost work."""
        forms = {(3, 3): (43, 23) if fast else (23,), (5, 5): (45,) if fast else ()}.get(kernel, ())
        if not forms or geometry.dilation != (1, 1) or min(self.inputs, self.outputs) < _FEW_CHANNELS:
            return False
        out, before = (self.out_h, self.out_w), (self.window.top, self.window.left)
        if fast and kernel == (3, 3) and geometry.stride == (2, 2) and before == (1, 1):
            self.form = winograd.STRIDED
            return winograd.strided_pays(n, out, self.inputs, self.outputs)
        if geometry.stride != (1, 1):
            return False
        images = n, size, out, before
        self.form = min(forms, key=lambda form: winograd.products(*images, form))
        if self.form == 43 and winograd.larger_tiles_pay(*images, self.inputs, self.outputs):
            self.form = 53
        return winograd.products(*images, self.form) * 3 <= self.taps * n * self.out_h * self.out_w * 2

    @property
    def _opposite(self) -> tuple[int, int, int]:
        """Padding (top, left) and form of the convolution from gy to gx."""
        if self.form == winograd.STRIDED:
            return 0, 0, winograd.STRIDED_BACK
        return self.window.kh - 1 - self.window.top, self.window.kw - 1 - self.window.left, self.form

    # ---- weights ------------------------------------------------------------------------------------
    def pack(self, w: int, packed: int, memory: Scratch) -> None:
        """OIHW weights at w for `forward`."""
        packing.pack(w, self.inputs, self.outputs, self.taps, packed, memory)

    def pack_transposed(self, w: int, packed: int, memory: Scratch) -> None:
        """OIHW weights at w for `backward_data`."""
        place = self._tables.place.ctypes.data
        packing.pack_transposed(w, self.inputs, self.outputs, self.taps, place, packed, memory)

    def transpose(self, packed: int, transposed: int) -> None:
        """Weights packed for `forward` to weights for `backward_data`."""
        place = self._tables.place.ctypes.data
        packing.transpose_packed(packed, self.inputs, self.outputs, self.taps, place, transposed)

    def unpack(self, packed: int, w: int, memory: Scratch) -> None:
        """Packed weights or their gradient to OIHW at w."""
        packing.unpack(packed, self.inputs, self.outputs, self.taps, w, memory)

    # ---- the three passes ---------------------------------------------------------------------------
    def forward(self, x: Tensor, w: int, y: Tensor, memory: Scratch, then: Epilogue = PLAIN) -> None:
        """y = conv(x, w); w from `pack`."""
        win = self.window
        if self.kind == "pointwise":
            pointwise.product(x, w, 64, x.c * 64, y, memory, then)
        elif self.kind == "winograd":
            winograd.forward(x, w, y, win.top, win.left, self.form, memory, then)
        elif self.kind == "rows":
            direct.rows_forward(x, w, y, win, memory, then)
        else:
            direct.convolve(x, w, self.taps, y, self._tables.forward, self._zeros.ctypes.data, memory, then)

    def backward_data(self, gy: Tensor, w: int, gx: Tensor, memory: Scratch, *, accumulate: bool = False) -> None:
        """gx = gradient of the input, or gx += it; w from `pack_transposed` or `transpose`."""
        then = Epilogue(accumulate=accumulate)
        if self.kind == "pointwise":
            pointwise.product(gy, w, 64, gy.c * 64, gx, memory, then)
        elif self.kind == "winograd":
            winograd.forward(gy, w, gx, *self._opposite, memory, then)
        else:
            for walk in self._tables.backward:
                if accumulate and not walk.taps:  # zeros
                    continue
                direct.convolve(gy, w, self.taps, gx, walk, self._zeros.ctypes.data, memory, then)

    def backward_data_from(self, gy: Tensor, w: int, gx: Tensor, memory: Scratch, *, accumulate: bool = False) -> None:
        """`backward_data` with weights from `pack`: for a plan, which keeps its weights in that form only."""
        if self.kind == "winograd":
            then = Epilogue(accumulate=accumulate)
            winograd.forward(gy, w, gx, *self._opposite, memory, then, winograd.PACKED_OPPOSITE)
            return
        with memory.frame():
            transposed = memory.take(self.transposed_size)
            self.transpose(w, transposed)
            self.backward_data(gy, transposed, gx, memory, accumulate=accumulate)

    def backward_weights(self, x: Tensor, gy: Tensor, gw: int, memory: Scratch, make: Make | None = None) -> None:
        """gw = gradient of the weights, packed as by `pack`. make: see `direct.rows_backward_weights`; kind "rows"."""
        if self.kind == "winograd":
            winograd.backward_weights(x, gy, gw, self.window.top, self.window.left, self.form, memory)
        elif self.kind == "rows":
            direct.rows_backward_weights(x, gy, gw, self.window, memory, make)
        else:
            direct.backward_weights(x, gy, gw, self.window, memory)

    # ---- the three passes on weights as users keep them -----------------------------------------------
    def forward_oihw(self, x: Tensor, w: int, y: Tensor, memory: Scratch, then: Epilogue = PLAIN) -> None:
        """`forward` with OIHW weights at w."""
        if self.kind == "winograd":
            win = self.window
            winograd.forward(x, w, y, win.top, win.left, self.form, memory, then, winograd.OIHW)
            return
        if self.kind == "pointwise":
            pointwise.forward(x, w, y, memory, then)
            return
        with memory.frame():
            packed = memory.take(self.packed_size)
            self.pack(w, packed, memory)
            self.forward(x, packed, y, memory, then)

    def backward_data_oihw(self, gy: Tensor, w: int, gx: Tensor, memory: Scratch, *, accumulate: bool = False) -> None:
        """`backward_data` with OIHW weights at w."""
        if self.kind == "winograd":
            then = Epilogue(accumulate=accumulate)
            winograd.forward(gy, w, gx, *self._opposite, memory, then, winograd.OIHW_OPPOSITE)
            return
        if self.kind == "pointwise":
            pointwise.backward_data(gy, w, gx, memory, accumulate=accumulate)
            return
        with memory.frame():
            packed = memory.take(self.transposed_size)
            self.pack_transposed(w, packed, memory)
            self.backward_data(gy, packed, gx, memory, accumulate=accumulate)

    def backward_weights_oihw(
        self,
        x: Tensor,
        gy: Tensor,
        gw: int,
        memory: Scratch,
        *,
        subtract: bool = False,
        ruined: int = 0,
        make: Make | None = None,
    ) -> None:
        """gw = gradient of the weights as OIHW, or gw -= it. make: as for `backward_weights`.

        ruined: 0, or, when it is subtracted, the address of an int64 that becomes 1 where gw is then not finite.
        """
        if self.kind == "winograd":
            win, form = self.window, winograd.OIHW_MINUS if subtract else winograd.OIHW
            winograd.backward_weights(x, gy, gw, win.top, win.left, self.form, memory, form, ruined)
            return
        if make is None and pointwise.takes(x, gy, self.window):  # those kernels need gy as a whole
            pointwise.backward_weights(x, gy, gw, self.window, memory, subtract=subtract, ruined=ruined)
            return
        if self.kind == "direct" and strips.takes(x, gy, self.window):
            strips.backward_weights(x, gy, gw, self.window, memory, subtract=subtract, ruined=ruined)
            return
        with memory.frame():
            packed = memory.take(self.packed_size)
            self.backward_weights(x, gy, packed, memory, make)
            if subtract:
                plan_unpack.subtract(packed, self.inputs, self.outputs, self.taps, gw, memory)
                if ruined:
                    plan_update.find_infinite(gw, self.outputs * self.inputs * self.taps, ruined)
            else:
                self.unpack(packed, gw, memory)


class _Tables:
    """The walks of `direct.convolve` for both directions, and where each tap stands in transposed weights."""

    def __init__(self, win: Window, h: int, w: int, out_h: int, out_w: int, flip: bool) -> None:
        taps = [(a, b) for a in range(win.kh) for b in range(win.kw)]
        self._keep = [np.array([(a * win.dy - win.top, b * win.dx - win.left) for a, b in taps], np.int64)]
        address = self._keep[0].ctypes.data
        self.forward = Walk(out_h, out_w, win.sy, win.sx, 0, 0, 1, 1, win.taps, 0, address)
        self.place = np.arange(win.taps, dtype=np.int64)
        self.backward: list[Walk] = []
        if flip:
            self.place = self.place[::-1].copy()
            return
        # Pixels of gx fall into sy * sx classes; taps reach at most one class each, in the others gx is 0.
        reached: dict[Pair, list[Pair]] = {}
        for a, b in taps:
            reached.setdefault(((a * win.dy - win.top) % win.sy, (b * win.dx - win.left) % win.sx), []).append((a, b))
        if len(reached) < win.sy * win.sx:
            self.backward.append(Walk(h, w, 1, 1, 0, 0, 1, 1, 0, 0, address))
        first = 0
        for (cy, cx), hits in sorted(reached.items()):
            for k, (a, b) in enumerate(hits):
                self.place[a * win.kw + b] = first + k
            offsets = np.array(
                [((cy + win.top - a * win.dy) // win.sy, (cx + win.left - b * win.dx) // win.sx) for a, b in hits],
                np.int64,
            )
            self._keep.append(offsets)
            ny, nx = len(range(cy, h, win.sy)), len(range(cx, w, win.sx))
            self.backward.append(Walk(ny, nx, 1, 1, cy, cx, win.sy, win.sx, len(hits), first, offsets.ctypes.data))
            first += len(hits)


@lru_cache(maxsize=1024)
def convolution(
    n: int, h: int, w: int, inputs: int, outputs: int, kernel: Pair, geometry: ConvGeometry, fast: bool
) -> Convolution:
    """The `Convolution` for these shapes; made once."""
    return Convolution(n, h, w, inputs, outputs, kernel, geometry, fast)
