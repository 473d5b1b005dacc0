"""Fillers: the values that parameters start from."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from undertow.caffe.blob import Shape
from undertow.caffe.proto.message import Message
from undertow.errors import FormatError, ShapeError

Array = np.ndarray[Any, Any]
Filler = Callable[[Message, Shape, np.random.Generator], Any]


def fill(filler: Message, shape: Shape, rng: np.random.Generator) -> Array:
    """A float64 array of this shape as a FillerParameter says.

    constant value; uniform from min to max; gaussian with mean and std, of which `sparse` non-zero inputs per output
    are kept; positive_unitball: uniform, every row sums to 1; xavier: uniform in +-sqrt(3/n) and msra: normal with
    deviation sqrt(2/n), n by `variance_norm`; bilinear: the kernel of an interpolation.
    Raises FormatError for an unknown type or an option that the type does not have.
    """
    if filler.type not in FILLERS:
        raise FormatError(f"unknown filler '{filler.type}'", line=filler.line_of("type"), remedy=_known())
    if filler.sparse != -1 and filler.type != "gaussian":
        raise FormatError(
            f"the filler '{filler.type}' has no `sparse`", line=filler.line_of("sparse"), remedy='use type: "gaussian"'
        )
    if not math.prod(shape):
        raise ShapeError(
            f"a filler has nothing to fill in a blob of shape {shape}",
            line=filler.line_of(),
            remedy="give the layer outputs and inputs: num_output of at least 1",
        )
    return np.broadcast_to(np.asarray(FILLERS[filler.type](filler, shape, rng), np.float64), shape)


def _constant(filler: Message, shape: Shape, rng: np.random.Generator) -> float:
    return filler.value


def _uniform(filler: Message, shape: Shape, rng: np.random.Generator) -> Array:
    if not -np.inf < filler.min <= filler.max < np.inf:
        raise FormatError(
            f"uniform from {filler.min:g} to {filler.max:g}: min must not exceed max",
            line=filler.line_of(),
            remedy="exchange min and max",
        )
    return rng.uniform(filler.min, filler.max, shape)


def _gaussian(filler: Message, shape: Shape, rng: np.random.Generator) -> Array:
    if not filler.std >= 0:
        raise FormatError(
            f"a deviation (std) is 0 or more, got {filler.std:g}", line=filler.line_of("std"), remedy="write std: 0.01"
        )
    values = rng.normal(filler.mean, filler.std, shape)
    if filler.sparse >= 0:
        kept = filler.sparse / shape[0]
        if not shape or kept > 1:
            raise FormatError(
                f"sparse: {filler.sparse} of {shape[0]} outputs cannot be kept",
                line=filler.line_of("sparse"),
                remedy=f"write sparse: 0 to {shape[0]}, or remove it",
            )
        values *= rng.random(shape) < kept
    return values


def _positive_unitball(filler: Message, shape: Shape, rng: np.random.Generator) -> Array:
    rows = rng.uniform(0, 1, (shape[0], -1 if 0 in shape else math.prod(shape[1:])))
    return (rows / rows.sum(1, keepdims=True)).reshape(shape)


def _fan(filler: Message, shape: Shape) -> float:
    """How many values meet in one output (FAN_IN), go out from one input (FAN_OUT), or the mean of both."""
    count = math.prod(shape)
    fan_in = count // shape[0] if shape else 1
    fan_out = count // shape[1] if len(shape) > 1 else count
    return {"FAN_IN": fan_in, "FAN_OUT": fan_out, "AVERAGE": (fan_in + fan_out) / 2}[filler.variance_norm]


def _xavier(filler: Message, shape: Shape, rng: np.random.Generator) -> Array:
    bound = math.sqrt(3 / _fan(filler, shape))
    return rng.uniform(-bound, bound, shape)


def _msra(filler: Message, shape: Shape, rng: np.random.Generator) -> Array:
    return rng.normal(0, math.sqrt(2 / _fan(filler, shape)), shape)


def _bilinear(filler: Message, shape: Shape, rng: np.random.Generator) -> Array:
    if len(shape) != 4 or shape[2] != shape[3]:
        raise ShapeError(
            f"a bilinear filler needs four axes and a square window, got {shape}",
            line=filler.line_of(),
            remedy="use it in a Deconvolution with a square kernel_size; elsewhere xavier",
        )
    factor = math.ceil(shape[3] / 2)
    centre = (shape[3] - 1) / (2 * factor)
    profile = 1 - np.abs(np.arange(shape[3]) / factor - centre)
    return np.outer(profile, profile)


FILLERS: dict[str, Filler] = {
    "constant": _constant,
    "uniform": _uniform,
    "gaussian": _gaussian,
    "positive_unitball": _positive_unitball,
    "xavier": _xavier,
    "msra": _msra,
    "bilinear": _bilinear,
}


def _known() -> str:
    return f"use one of {', '.join(FILLERS)}"
