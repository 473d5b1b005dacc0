"""A call cut down to a corner of its own values: few enough to read, with its own settings and in its own variant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from inspect import signature
from typing import Any

import numpy as np

from undertow.core.function import Function
from undertow.functions.conv import Conv, Deconv
from undertow.functions.linalg import Linear
from undertow.functions.norm_batch import BatchNorm
from undertow.functions.norm_response import Lrn
from undertow.functions.pooling import AvgPool2d, MaxPool2d
from undertow.functions.regularization import Dropout
from undertow.inspect.record import Array, Call

Cut = tuple[list[Array], Function]
# Windows up to this long are shown at two places along each axis, longer ones at one.
_LONG = 5
# Of more groups so many are shown.
_GROUPS = 2
# Calls with no more values than this are shown whole.
_FEW = 24
# Operations that take every place of their operands, and what broadcasts to it, for itself.
_APART = ("add", "sub", "mul", "div", "maximum", "minimum", "where")
_ALONG = {"softmax": 6, "log_softmax": 6, "cumsum": 6, "concat": 3}
_OVER = ("sum", "mean", "max", "min", "prod", "logsumexp")
# These have a result of their input's shape, of which no value stands for itself.
_COUPLED = ("max_pool2d", "avg_pool2d", "darknet_softmax", "layer_norm")


def cut(call: Call) -> Cut | None:
    """Operands cut to a corner and a function with this call's settings for them; None where it has no such corner."""
    function, xs = call.function, [np.asarray(x.data) for x in call.operands]
    for kind, recipe in _RECIPES.items():
        if isinstance(function, kind):
            return recipe(function, xs)
    parts = xs if sum(x.size for x in xs) <= _FEW else _by_name(call, xs)
    return None if parts is None else (_doubled(parts), function._fresh())


def _by_name(call: Call, xs: list[Array]) -> list[Array] | None:
    """Corners of operations that need no other settings for them."""
    name, x = call.name, xs[0]
    if name in _APART or name in _OVER:
        return [a[_corner(a, 3)] for a in xs]
    if name in _ALONG:
        return [a[_slices(_along(a, getattr(call.function, "axis", 0), _ALONG[name]))] for a in xs]
    if name == "mean_variance_normalize":
        return [x[:1, :6]]
    if name in ("l2norm", "darknet_lrn"):
        return [x[_slices([1, 7, 1, 1][: x.ndim])]]
    if name == "prelu":
        return [x[_slices([1, 2, 3, 3][: x.ndim])], xs[1][_slices([2][: xs[1].ndim])]]
    same = x.ndim > 0 and len({a.shape for a in xs}) == 1 and call.out_shapes == (x.shape,)
    if same and all(a.dtype.kind == "f" for a in xs) and name not in _COUPLED:
        return [a[(*(slice(0, 1) for _ in x.shape[:-1]), slice(0, 5))] for a in xs]
    return None


def own_function(function: Function) -> Function:
    """A copy with the same settings that has not run, and moves no running statistics."""
    if isinstance(function, BatchNorm):
        if not function.given:
            return BatchNorm(function.rule)
        mean, variance = _doubled([function.mean, function.variance])
        return BatchNorm(function.rule, mean, variance)
    return function._fresh()


def fitted_to(function: Function, xs: list[Array]) -> Cut:
    """A function with these settings for other operands: a pooling counts its windows for their size."""
    whole = _pool(function, xs) if isinstance(function, MaxPool2d | AvgPool2d) else None
    return whole or (xs, own_function(function))


def _slices(lengths: Sequence[int]) -> tuple[slice, ...]:
    return tuple(slice(0, length) for length in lengths)


def _corner(x: Array, most: int) -> tuple[slice, ...]:
    """Of the last two axes up to `most` places, of the others one."""
    return _slices([1] * max(x.ndim - 2, 0) + [most] * min(x.ndim, 2))


def _along(x: Array, axis: int, most: int) -> list[int]:
    """`most` places along an axis, two along the last one, one along the others."""
    return [most if i == axis % x.ndim else 2 if i == x.ndim - 1 else 1 for i in range(x.ndim)]


def _doubled(xs: Sequence[Array]) -> list[Array]:
    return [np.array(x, np.float64) if x.dtype.kind == "f" else x.copy() for x in xs]


def _length(stride: int, kernel: int, dilation: int, pads: int, whole: int) -> int:
    """Of one axis as many places as two windows reach over, or one that is long."""
    places = 1 if kernel > _LONG else 2
    wanted = (places - 1) * stride + (kernel - 1) * dilation + 1 - pads
    return min(max(wanted, 2), whole)


def _conv(function: Conv, xs: list[Array]) -> Cut | None:
    geometry, (x, w) = function.geometry, xs[:2]
    corner = []
    for axis, (stride, dilation) in enumerate(zip(geometry.stride, geometry.dilation, strict=True)):
        pads = sum(geometry.pad[2 * axis : 2 * axis + 2])
        corner.append(_length(stride, w.shape[2 + axis], dilation, pads, x.shape[2 + axis]))
    groups = min(geometry.groups, _GROUPS)
    channels = np.arange(groups) * (x.shape[1] // geometry.groups)
    filters = np.arange(groups) * (w.shape[0] // geometry.groups)
    parts = [x[:1, channels][_slices([1, groups, *corner])], w[filters, :1], *[b[filters] for b in xs[2:]]]
    return _doubled(parts), Conv(replace(geometry, groups=groups))


def _deconv(function: Deconv, xs: list[Array]) -> Cut | None:
    geometry, (x, w) = function.geometry, xs[:2]
    groups = min(geometry.groups, _GROUPS)
    filters = np.arange(groups) * (x.shape[1] // geometry.groups)
    corner = [min(2, length) for length in x.shape[2:]]
    out = []
    for axis, (stride, dilation) in enumerate(zip(geometry.stride, geometry.dilation, strict=True)):
        pads = sum(geometry.pad[2 * axis : 2 * axis + 2])
        out.append((corner[axis] - 1) * stride + dilation * (w.shape[2 + axis] - 1) + 1 - pads)
    if min(out) < 1:
        return None
    biases = [b[np.arange(groups) * (len(b) // geometry.groups)] for b in xs[2:]]
    parts = [x[:1, filters][_slices([1, groups, *corner])], w[filters, :1], *biases]
    return _doubled(parts), Deconv(replace(geometry, groups=groups), tuple(out))


def _linear(function: Linear, xs: list[Array]) -> Cut | None:
    if xs[0].ndim != 2:
        return None
    return _doubled([xs[0][:2, :3], xs[1][:2, :3], *[b[:2] for b in xs[2:]]]), function._fresh()


def _pool(function: MaxPool2d | AvgPool2d, xs: list[Array]) -> Cut | None:
    """Two windows along each axis, with the padding before the first; that behind the last only where it is reached."""
    geometry, x = function.geometry, xs[0]
    lengths, out = [], []
    for axis in (0, 1):
        size, stride, pad = geometry.size[axis], geometry.stride[axis], geometry.pad[axis]
        places = min(2 if size <= _LONG else 1, geometry.out[axis])
        lengths.append(min((places - 1) * stride + size - pad, x.shape[2 + axis]))
        out.append(places)
    # Where the corner is not the whole picture, nothing behind it is padding.
    end = tuple(e if lengths[i] == x.shape[2 + i] else 0 for i, e in enumerate(geometry.end_pad))
    smaller = replace(geometry, out=(out[0], out[1]), end_pad=(end[0], end[1]))
    return _doubled([x[:1, :1, : lengths[0], : lengths[1]]]), type(function)(smaller)


def _batch_norm(function: BatchNorm, xs: list[Array]) -> Cut | None:
    x, channels = xs[0], min(2, xs[0].shape[1])
    x = x[_slices([3 if x.ndim == 2 else 2, channels, *[2, 3, 1][: x.ndim - 2]])]
    if not function.given and x.size // channels < 2:
        return None
    own = own_function(function)
    if isinstance(own, BatchNorm) and function.given:
        own.mean, own.variance = own.mean[:channels], own.variance[:channels]
    return _doubled([x, *[a[:channels] for a in xs[1:]]]), own


def _lrn(function: Lrn, xs: list[Array]) -> Cut | None:
    size = function.options.size
    sides = (size + 1, 1, 1) if function.options.region == "across" else (1, size + 1, size + 1)
    return _doubled([xs[0][_slices([1, *sides])]]), function._fresh()


def _dropout(function: Dropout, xs: list[Array]) -> Cut:
    """The same values fall out as in the run: drawn anew they would not be the same twice."""
    corner = (*(slice(0, 1) for _ in xs[0].shape[:-1]), slice(0, 5))
    drawn = np.where(function._factors[corner] == 0, 0.0, 1.0)
    return _doubled([xs[0][corner]]), Dropout(function.ratio, drawn)


_RECIPES: dict[type | tuple[type, ...], Callable[[Any, list[Array]], Cut | None]] = {
    Conv: _conv,
    Deconv: _deconv,
    Linear: _linear,
    (MaxPool2d, AvgPool2d): _pool,
    BatchNorm: _batch_norm,
    Lrn: _lrn,
    Dropout: _dropout,
}
# Of a geometry or a constructor: sizes that follow from the operands.
_FOLLOWING = {
    "out",
    "out_shape",
    "x_shape",
    "w_shape",
    "image_shape",
    "shape",
    "end_pad",
    "name",
    "widths",
    "keepdims",
    "seed",
    "layer",
}


def settings_of(function: Function) -> str:
    """The settings of an operation that its operands do not show, as `stride 2, pad 1`; "" where it has none."""
    if isinstance(function, BatchNorm):
        return "given mean and variance" if function.given else "mean and variance of the batch"
    found: dict[str, Any] = {}
    for name in signature(type(function).__init__).parameters:
        value = getattr(function, name, None)
        if is_dataclass(value) and not isinstance(value, type):
            found.update({part.name: getattr(value, part.name) for part in fields(value)})
        else:
            found[name] = value
    if isinstance(function, MaxPool2d):
        del found["count_include_pad"]  # its padding never wins
    if found.get("axis", 0) is None:
        found["axis"] = "all"
    told = {name: _told(value, name) for name, value in found.items() if name not in _FOLLOWING}
    return ", ".join(f"{name.replace('_', ' ')} {text}" for name, text in told.items() if text)


def _told(value: Any, name: str) -> str:
    """A number, a word, or numbers, of which equal ones are told once; "" for anything else."""
    if name == "mask" and value:
        return " ".join(map(str, value))
    if isinstance(value, tuple) and value and all(isinstance(part, int) for part in value):
        return str(value[0]) if len(set(value)) == 1 else "x".join(map(str, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, np.integer)):
        return str(value)
    if isinstance(value, (float, np.floating)):
        return f"{value:g}"
    return value.replace("_", " ") if isinstance(value, str) else ""
