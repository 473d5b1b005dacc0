"""How positions in one blob of a NetSpec relate to positions in another, and Crop layers that line them up.

A map (axis, scale, shift) says that position p of the blob below lies at scale * p + shift in the blob above, on the
spatial axes after `axis` (the first of them is axis + 1 for a crop); axis is None for layers that leave positions as
they are. A convolution of stride s, padding p and reach r = (kernel - 1) * dilation + 1 has scale 1/s and shift
(p - (r - 1) / 2) / s; a deconvolution is its inverse.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from undertow.caffe.net_spec import Function, Top, layers

Array = np.ndarray[Any, Any]
CoordMap = tuple[int | None, Any, Any]

L = layers  # under this name in the original

PASS_THROUGH_LAYERS = [
    "AbsVal", "BatchNorm", "Bias", "BNLL", "Dropout", "Eltwise", "ELU", "Log", "LRN", "Exp", "MVN", "Power", "ReLU",
    "PReLU", "Scale", "Sigmoid", "Split", "TanH", "Threshold",
]  # fmt: skip
IDENTITY: CoordMap = (None, 1, 0)


class UndefinedMapException(Exception):
    """A layer through which positions cannot be followed."""


class AxisMismatchException(Exception):
    """Two maps on different axes."""


def conv_params(fn: Function) -> tuple[int, Array, Array, Array]:
    """Axis, stride, reach and padding of a convolution, deconvolution or pooling; one value or one per axis."""
    given = fn.params.get("convolution_param", fn.params)
    legacy = {"pad_h", "pad_w", "kernel_h", "kernel_w", "stride_h", "stride_w"} & (set(fn.params) | set(given))
    assert not legacy, f"cropping does not know {', '.join(sorted(legacy))}; give lists of two values"
    kernel, dilation = np.array(given["kernel_size"], ndmin=1), np.array(given.get("dilation", 1), ndmin=1)
    reach = (kernel - 1) * dilation + 1
    return (
        given.get("axis", 1),
        np.array(given.get("stride", 1), ndmin=1),
        reach,
        np.array(given.get("pad", 0), ndmin=1),
    )


def crop_params(fn: Function) -> tuple[int, Array]:
    """Axis and offset of a Crop."""
    given = fn.params.get("crop_param", fn.params)
    return given.get("axis", 2), np.array(given.get("offset", 0), ndmin=1)


def coord_map(fn: Function) -> CoordMap:
    """The map of one layer. Raises UndefinedMapException where there is none."""
    if fn.type_name in ("Convolution", "Pooling", "Im2col"):
        axis, stride, reach, pad = conv_params(fn)
        return axis, 1 / stride, (pad - (reach - 1) / 2) / stride
    if fn.type_name == "Deconvolution":
        axis, stride, reach, pad = conv_params(fn)
        return axis, stride, (reach - 1) / 2 - pad
    if fn.type_name in PASS_THROUGH_LAYERS:
        return IDENTITY
    if fn.type_name == "Crop":
        axis, offset = crop_params(fn)
        return axis - 1, 1, -offset
    raise UndefinedMapException(f"positions cannot be followed through a {fn.type_name} layer")


def compose(base_map: CoordMap, next_map: CoordMap) -> CoordMap:
    """The map that applies next_map first and base_map to its result. Raises AxisMismatchException."""
    (axis, scale, shift), (other_axis, other_scale, other_shift) = base_map, next_map
    if axis is not None and other_axis is not None and axis != other_axis:
        raise AxisMismatchException(f"axis {axis} against axis {other_axis}")
    return other_axis if axis is None else axis, scale * other_scale, scale * other_shift + shift


def inverse(coord_map: CoordMap) -> CoordMap:
    """The map in the other direction."""
    axis, scale, shift = coord_map
    return axis, 1 / scale, -shift / scale


def coord_map_from_to(top_from: Top, top_to: Top) -> CoordMap:
    """From positions of one blob to those of another, by way of a blob that both come from.

    Raises RuntimeError where no such blob can be reached.
    """
    from_maps = {top_from: IDENTITY}
    waiting = [top_from]
    while waiting:
        top = waiting.pop()
        for bottom, mapped in _below(top, from_maps[top]):
            from_maps[bottom] = mapped
            waiting.append(bottom)
    to_maps = {top_to: IDENTITY}
    waiting = [top_to]
    while waiting:
        top = waiting.pop()
        if top in from_maps:
            return compose(to_maps[top], inverse(from_maps[top]))
        for bottom, mapped in _below(top, to_maps[top]):
            to_maps[bottom] = mapped
            waiting.append(bottom)
    raise RuntimeError("Could not compute map between tops; are they connected by spatial layers?")


def _below(top: Top, above: CoordMap) -> list[tuple[Top, CoordMap]]:
    """The bottoms of a blob's layer, with the map from each; the second bottom of a Crop only gives its size."""
    try:
        step = coord_map(top.fn)
    except UndefinedMapException:
        return []
    bottoms = top.fn.inputs[:1] if top.fn.type_name == "Crop" else top.fn.inputs
    return [(bottom, compose(above, step)) for bottom in bottoms]


def crop(top_from: Top, top_to: Top) -> Top:
    """A Crop layer that cuts one blob so that it lies on another.

    Raises AssertionError where the scales differ or the offset is negative or not whole.
    """
    axis, scale, shift = coord_map_from_to(top_from, top_to)
    assert np.all(np.asarray(scale) == 1), f"scale mismatch on crop (a = {scale})"
    assert np.all(np.asarray(shift) <= 0), f"cannot crop negative offset (b = {shift})"
    assert np.all(np.round(shift) == shift), f"cannot crop noninteger offset (b = {shift})"
    offset = [int(-value) for value in np.atleast_1d(np.round(shift))]
    made: Top = layers.Crop(top_from, top_to, crop_param={"axis": (1 if axis is None else axis) + 1, "offset": offset})
    return made
