"""Options of windowed operations as users write them, turned into the geometry kernels want."""

from __future__ import annotations

from collections.abc import Sequence

from undertow.errors import ShapeError
from undertow.kernels.geometry import ConvGeometry, ConvNdGeometry, Windows, by

Sizes = int | Sequence[int]


def per_dimension(value: Sizes, dims: int, name: str) -> tuple[int, ...]:
    """One number for each spatial dimension: `3` is `(3, 3)` in two dimensions."""
    if isinstance(value, int):
        return (value,) * dims
    sizes = tuple(int(n) for n in value)
    if len(sizes) != dims:
        raise ShapeError(f"{name} needs one number, or {dims} (one per spatial dimension), got {sizes}")
    return sizes


def pair(value: Sizes, name: str) -> tuple[int, int]:
    """`per_dimension` in two dimensions: (vertical, horizontal)."""
    vertical, horizontal = per_dimension(value, 2, name)
    return vertical, horizontal


def per_side(value: Sizes, dims: int) -> tuple[int, ...]:
    """Padding (before, after) of each dimension in turn, from one number, one per dimension, or one per side."""
    if isinstance(value, int):
        return (value,) * (2 * dims)
    sizes = tuple(int(n) for n in value)
    if len(sizes) == dims:
        return tuple(n for n in sizes for _ in range(2))
    if len(sizes) == 2 * dims:
        return sizes
    raise ShapeError(f"pad needs one number, {dims} (one per dimension) or {2 * dims} (one per side), got {sizes}")


def sides(value: Sizes) -> tuple[int, int, int, int]:
    """`per_side` in two dimensions: (top, bottom, left, right)."""
    top, bottom, left, right = per_side(value, 2)
    return top, bottom, left, right


def geometry_2d(stride: Sizes = 1, pad: Sizes = 0, dilation: Sizes = 1, groups: int = 1) -> ConvGeometry:
    """The geometry of a 2-D convolution from its options."""
    return ConvGeometry(pair(stride, "stride"), sides(pad), pair(dilation, "dilation"), groups)


def geometry_nd(dims: int, stride: Sizes = 1, pad: Sizes = 0, dilation: Sizes = 1, groups: int = 1) -> ConvNdGeometry:
    """The geometry of a convolution over any number of spatial dimensions."""
    return ConvNdGeometry(
        per_dimension(stride, dims, "stride"),
        per_side(pad, dims),
        per_dimension(dilation, dims, "dilation"),
        groups,
    )


def transposed_shape(
    spatial: Sequence[int], kernel: Sequence[int], geometry: Windows, output_padding: Sizes = 0
) -> tuple[int, ...]:
    """Size of what a transposed convolution makes: (in - 1)*stride + dilation*(k - 1) + 1 - pads + output_padding.

    Several input sizes of a strided convolution give the same output size; output_padding, smaller than the
    stride, says which of them is meant. ShapeError where it is not, or where nothing is left.
    """
    extra = per_dimension(output_padding, len(spatial), "output_padding")
    if any(not 0 <= e < s for e, s in zip(extra, geometry.stride, strict=True)):
        raise ShapeError(f"output_padding must lie from 0 to stride - 1, got {extra} with stride {geometry.stride}")
    size = tuple(
        (n - 1) * geometry.stride[i]
        + geometry.dilation[i] * (kernel[i] - 1)
        + 1
        - geometry.pad[2 * i]
        - geometry.pad[2 * i + 1]
        + extra[i]
        for i, n in enumerate(spatial)
    )
    if min(size) < 1:
        raise ShapeError(
            f"padding {geometry.pad} leaves nothing of a transposed {by(kernel)} window over {by(spatial)}"
        )
    return size
