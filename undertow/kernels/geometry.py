"""The geometry of windowed operations: what a kernel needs to know besides its arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from undertow.errors import ShapeError

Pair = tuple[int, int]


@dataclass(frozen=True)
class ConvGeometry:
    """Stride, padding, dilation and groups of a 2-D convolution.

    stride, dilation: (vertical, horizontal), 1 and up. pad: (top, bottom, left, right), 0 and up.
    groups: input and output channels are cut into this many independent parts.
    """

    stride: Pair = (1, 1)
    pad: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1

    def __post_init__(self) -> None:
        if min(self.stride) < 1 or min(self.dilation) < 1 or min(self.pad) < 0 or self.groups < 1:
            raise ShapeError(f"stride, dilation and groups must be at least 1 and padding at least 0, got {self}")

    def output_size(self, height: int, width: int, kernel: Pair) -> Pair:
        """Height and width of the output: floor((in + pads - dilation*(k-1) - 1) / stride) + 1."""
        out_h, out_w = output_shape((height, width), kernel, self)
        return out_h, out_w

    def input_size(self, out_h: int, out_w: int, kernel: Pair) -> Pair:
        """The smallest input that gives this output: what a transposed convolution makes."""
        top, bottom, left, right = self.pad
        height = (out_h - 1) * self.stride[0] + self.dilation[0] * (kernel[0] - 1) + 1 - top - bottom
        width = (out_w - 1) * self.stride[1] + self.dilation[1] * (kernel[1] - 1) + 1 - left - right
        if height < 1 or width < 1:
            raise ShapeError(f"padding {self.pad} leaves nothing of a transposed {kernel[0]}x{kernel[1]} window")
        return height, width


@dataclass(frozen=True)
class ConvNdGeometry:
    """Stride, padding, dilation and groups of a convolution over any number of spatial dimensions.

    stride, dilation: one number per spatial dimension, 1 and up. pad: (before, after) of the first dimension,
    then of the second, and so on, 0 and up (for two dimensions: top, bottom, left, right).
    """

    stride: tuple[int, ...]
    pad: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int = 1

    def __post_init__(self) -> None:
        dims = len(self.stride)
        if not dims or len(self.dilation) != dims or len(self.pad) != 2 * dims:
            raise ShapeError(f"stride and dilation need one number per dimension and padding two, got {self}")
        if min(self.stride) < 1 or min(self.dilation) < 1 or min(self.pad) < 0 or self.groups < 1:
            raise ShapeError(f"stride, dilation and groups must be at least 1 and padding at least 0, got {self}")


Windows = ConvGeometry | ConvNdGeometry


def output_shape(spatial: Sequence[int], kernel: Sequence[int], geometry: Windows) -> tuple[int, ...]:
    """Number of windows along each dimension: floor((in + pads - dilation*(k-1) - 1) / stride) + 1."""
    dims = len(geometry.stride)
    if len(spatial) != dims or len(kernel) != dims:
        raise ShapeError(f"the geometry has {dims} spatial dimensions, input {len(spatial)}, kernel {len(kernel)}")
    reach = [d * (k - 1) + 1 for d, k in zip(geometry.dilation, kernel, strict=True)]
    padded = [n + geometry.pad[2 * i] + geometry.pad[2 * i + 1] for i, n in enumerate(spatial)]
    if min(kernel) < 1 or any(r > p for r, p in zip(reach, padded, strict=True)):
        raise ShapeError(
            f"a window of {by(kernel)} with dilation {geometry.dilation} does not fit into {by(spatial)} "
            f"with padding {geometry.pad}",
            remedy="use a smaller window or more padding, or a larger input",
        )
    return tuple((p - r) // s + 1 for p, r, s in zip(padded, reach, geometry.stride, strict=True))


@dataclass(frozen=True)
class PoolGeometry:
    """Window, stride, padding and output size of a 2-D pooling.

    size, stride: (vertical, horizontal). pad: (top, left): where the first window starts, at -pad.
    out: (height, width) of the output, fixed by the rule in use (`floor_pooling`, `caffe_pooling`,
    `darknet_pooling`); windows may hang over the bottom and right edge, what lies outside is never read.
    end_pad: (bottom, right): how much of what lies outside still counts as padding. Only averages ask.
    count_include_pad: an average divides by the cells of its window that lie inside image plus padding
    (Caffe, and PyTorch by default); False: by those inside the image.
    """

    size: Pair
    stride: Pair
    pad: Pair
    out: Pair
    end_pad: Pair = (0, 0)
    count_include_pad: bool = True

    def __post_init__(self) -> None:
        if min(self.size) < 1 or min(self.stride) < 1 or min(self.out) < 1:
            raise ShapeError(f"window, stride and output of a pooling must be at least 1, got {self}")
        if min(self.pad) < 0 or min(self.end_pad) < 0:
            raise ShapeError(f"the padding of a pooling must be at least 0, got {self}")


def floor_pooling(
    height: int,
    width: int,
    size: Pair,
    stride: Pair,
    pad: tuple[int, int, int, int] = (0, 0, 0, 0),
    count_include_pad: bool = True,
) -> PoolGeometry:
    """The rule of PyTorch and most others: out = floor((in + pads - size) / stride) + 1.

    pad: (top, bottom, left, right). ShapeError where no window fits.
    """
    windows = ConvGeometry(stride=stride, pad=pad)
    out = windows.output_size(height, width, size)
    return PoolGeometry(size, stride, (pad[0], pad[2]), out, (pad[1], pad[3]), count_include_pad)


def caffe_pooling(
    height: int, width: int, size: Pair, stride: Pair, pad: Pair = (0, 0), round_up: bool = True
) -> PoolGeometry:
    """Caffe's rule (pooling_layer.cpp): out = ceil((in + 2*pad - size) / stride) + 1.

    With any padding, a last window that would start at or after in + pad is dropped, so that each one starts
    inside the image or the padding before it. Without padding nothing is dropped: a stride larger than the
    window may leave a last window that sees nothing. round_up=False: `round_mode: FLOOR`.
    ShapeError where no window fits and, as in Caffe, where the padding is not smaller than the window.
    """
    if pad[0] >= size[0] or pad[1] >= size[1]:
        raise ShapeError(f"the padding {by(pad)} of a pooling must be smaller than its window {by(size)}")
    out = []
    for length, k, s, p in zip((height, width), size, stride, pad, strict=True):
        room = length + 2 * p - k
        count = (-(-room // s) if round_up else room // s) + 1
        if any(pad) and (count - 1) * s >= length + p:
            count -= 1
        if count < 1:
            raise ShapeError(f"a {by(size)} window does not fit into {height}x{width} with padding {by(pad)}")
        out.append(count)
    return PoolGeometry(size, stride, pad, (out[0], out[1]), pad)


def darknet_pooling(height: int, width: int, size: int, stride: int, padding: int | None = None) -> PoolGeometry:
    """Darknet's rule (maxpool_layer.c): out = (in + padding - size) / stride + 1, as C divides.

    padding: the sum of both sides, `size - 1` when None, as in a cfg without `padding=`. The first window
    starts at -(padding/2): a 2x2 window with stride 1 keeps the size and looks right and down.
    ShapeError where no window fits.
    """
    total = size - 1 if padding is None else padding
    if total < 0:
        raise ShapeError(f"the padding of a maxpool must be at least 0, got {total}")
    before, after = total // 2, total - total // 2
    out_h, out_w = (int((length + total - size) / stride) + 1 for length in (height, width))
    if out_h < 1 or out_w < 1:
        raise ShapeError(f"a {size}x{size} window does not fit into {height}x{width} with padding {total}")
    return PoolGeometry((size, size), (stride, stride), (before, before), (out_h, out_w), (after, after))


def by(sizes: Sequence[int]) -> str:
    """(3, 5) as "3x5"."""
    return "x".join(str(n) for n in sizes)
