"""Changing memory layouts with all threads."""

from __future__ import annotations

from undertow.kernels.cpu.library import Kernels
from undertow.kernels.cpu.raw.parts import ceil_div
from undertow.kernels.cpu.raw.tensor import Scratch, Tensor
from undertow.kernels.cpu.threads import team

_packing = Kernels("packing")


def packed_size(inputs: int, outputs: int, taps: int) -> int:
    """Bytes of packed weights [ceil(outputs/16)][taps][inputs][16]."""
    return ceil_div(outputs, 16) * taps * inputs * 64


def _tmp(memory: Scratch) -> tuple[int, int]:
    return memory.take_each(512, team().size)


def pack(w: int, inputs: int, outputs: int, taps: int, packed: int, memory: Scratch) -> None:
    """OIHW weights at w to panels of output channels."""
    with memory.frame():
        tmp, step = _tmp(memory)
        team().run(
            ceil_div(outputs, 16),
            lambda t, a, b: _packing.pack(w, inputs, taps, outputs, packed, a, b, tmp + t * step),
        )


def unpack(packed: int, inputs: int, outputs: int, taps: int, w: int, memory: Scratch) -> None:
    """Panels of output channels to OIHW weights at w."""
    with memory.frame():
        tmp, step = _tmp(memory)
        team().run(
            ceil_div(outputs, 16),
            lambda t, a, b: _packing.unpack(packed, inputs, taps, outputs, w, a, b, tmp + t * step),
        )


def pack_transposed(w: int, inputs: int, outputs: int, taps: int, place: int, packed: int, memory: Scratch) -> None:
    """OIHW weights to panels of input channels; tap t goes to place[t]."""
    with memory.frame():
        tmp, step = _tmp(memory)
        team().run(
            ceil_div(inputs, 16),
            lambda t, a, b: _packing.pack_transposed(w, inputs, taps, outputs, place, packed, a, b, tmp + t * step),
        )


def transpose_packed(packed: int, inputs: int, outputs: int, taps: int, place: int, transposed: int) -> None:
    """Panels of output channels to panels of input channels; tap t goes to place[t]."""
    team().run(
        ceil_div(inputs, 16),
        lambda t, a, b: _packing.transpose_packed(packed, inputs, taps, outputs, place, transposed, a, b),
    )


def to_nhwc(x: int, y: Tensor) -> None:
    """C-contiguous NCHW at x to the tensor y."""
    pixels = y.h * y.w
    if y.n >= team().size:
        image = pixels * y.stride
        team().run(y.n, lambda t, a, b: _packing.to_nhwc(x, y.c, pixels, pixels, y.address, y.stride, image, a, b))
        return
    for i in range(y.n):
        _image_to_nhwc(x + 4 * i * y.c * pixels, y.address + i * pixels * y.stride, y.stride, y.c, pixels)


def _image_to_nhwc(x: int, y: int, stride: int, channels: int, pixels: int) -> None:
    def part(t: int, a: int, b: int) -> None:
        first, last = 8 * a, min(pixels, 8 * b)
        _packing.to_nhwc(x + 4 * first, channels, last - first, pixels, y + first * stride, stride, 0, 0, 1)

    team().run(ceil_div(pixels, 8), part)


def to_nchw(x: Tensor, y: int) -> None:
    """The tensor x to C-contiguous NCHW at y."""
    pixels = x.h * x.w
    image = pixels * x.stride
    team().run(x.n, lambda t, a, b: _packing.to_nchw(x.address, x.stride, image, x.c, pixels, y, a, b))


def add_parts(total: int, parts: int, step: int, count: int, floats: int) -> None:
    """total += parts[0], then parts[1], ... count of them, each of `floats` numbers, step bytes apart."""
    if count:
        team().run(
            ceil_div(floats, 1024),
            lambda t, a, b: _packing.add_parts(total, parts, step, count, 1024 * a, min(floats, 1024 * b)),
        )


def copy(x: Tensor, y: Tensor, *, accumulate: bool = False) -> None:
    """y = x, or y += x, for tensors of the same shape."""
    if x.stride == y.stride == 4 * x.c:  # no gaps: pixels of few channels need not be told apart
        floats = x.pixels * x.c

        def part(t: int, a: int, b: int) -> None:
            n = min(floats, 1024 * b) - 1024 * a
            _packing.copy_rows(x.address + 4096 * a, 0, y.address + 4096 * a, 0, n, 0, 1, accumulate)

        team().run(ceil_div(floats, 1024), part)
        return
    team().run(
        x.pixels,
        lambda t, a, b: _packing.copy_rows(x.address, x.stride, y.address, y.stride, x.c, a, b, accumulate),
    )
