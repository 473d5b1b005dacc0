"""Gradient of a convolution's input from one that is zero nearly everywhere, all threads; see source/sparse.py."""

from __future__ import annotations

from undertow.kernels.cpu.library import Kernels
from undertow.kernels.cpu.raw import winograd
from undertow.kernels.cpu.raw.convolution import Convolution
from undertow.kernels.cpu.raw.direct import Window
from undertow.kernels.cpu.raw.parts import ceil_div
from undertow.kernels.cpu.raw.tensor import Scratch, Tensor, align
from undertow.kernels.cpu.threads import team

_sparse = Kernels("sparse")
_STRIP = 8 * 64  # the most bytes of a strip
_CACHE = 32 * 1024  # of the first level, for the weights that a strip reads over and over
_LISTS = 1 << 20  # the most bytes of one image's lists, were no value 0
_FEW = 8  # images


def _row(window: Window, inputs: int) -> int:
    """Bytes of a row of weights."""
    return align(4 * window.kw * inputs)


def pays(layer: Convolution, gy: Tensor, gx: Tensor, share: float) -> bool:
    """Whether this is faster than `layer.backward_data`. share: of gy's values that are not 0.

    One of its products takes longer than one of the others, and threads get whole images.
    """
    win = layer.window
    strips_stay_in_cache = gy.c * _STRIP <= _CACHE
    lists = 8 * gy.h * gy.w * gy.c
    if win[2:6] != (1, 1, 1, 1) or layer.kind == "pointwise" or not strips_stay_in_cache:
        return False
    if gy.n < _FEW or lists > _LISTS:
        return False
    dense = win.taps * gx.pixels
    if layer.kind == "winograd":
        before = win.kh - 1 - win.top, win.kw - 1 - win.left
        dense = winograd.products(gy.n, (gy.h, gy.w), (gx.h, gx.w), before, layer.form)
    sparse = gy.pixels * share * win.kh * _row(win, gx.c) // 4
    return sparse * 3 < dense * ceil_div(gx.c, 16) * 16 * 2


def backward_data(gy: Tensor, w: int, gx: Tensor, window: Window, memory: Scratch, *, accumulate: bool) -> None:
    """gx = the gradient of the input, or gx += it; w: address of OIHW weights."""
    row, rows = _row(window, gx.c), window.kh * gy.c
    padded = (gy.h + window.kh - 1) * (gy.w + window.kw - 1) * gx.c
    step = align(8 * gy.h * gy.w + 8) + align(8 * gy.h * gy.w * gy.c + 8) + align(4 * padded) + 2 * _STRIP
    with memory.frame():
        packed = memory.take(rows * row)
        tmp, step = memory.take_each(step, team().size)
        team().run(
            rows, lambda t, a, b: _sparse.pack(w, gx.c, window.taps, window.kw, gy.c, row, packed, a, b)
        )
        team().run(
            gy.n,
            lambda t, a, b: _sparse.backward_data(
                gy.address, gy.stride, gy.h, gy.w, packed, row, gx.address, gx.stride, gx.h, gx.w, window.kh,
                window.kw, window.top, window.left, gx.c, gy.c, a, b, tmp + t * step, accumulate,
            ),
        )  # fmt: skip
