"""Numbers that tell how an array is: mean, deviation, extremes, shares of zeros and saturated units, norm."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import astuple, dataclass, replace

import numpy as np

from undertow.inspect.record import Array

# A unit is saturated where its slope is below this share of the activation's largest slope.
SATURATED_SLOPE = 0.01
# A channel is called dead by at least so many values; with fewer, only a whole array that is 0.
VALUES_TO_TELL = 16


@dataclass(frozen=True)
class Statistics:
    """Of one array, over its finite values; nan where there are none.

    zeros: share of values that are exactly 0. saturated: share of units whose activation is flat there; nan for arrays
    that no saturating activation made. dead: share of channels (axis 1) that are 0 throughout the batch. norm: the
    root of the sum of squares. rms: the same of the mean. bad: how many values are not finite.
    """

    mean: float
    deviation: float
    minimum: float
    maximum: float
    zeros: float
    saturated: float
    dead: float
    norm: float
    rms: float
    bad: float

    def as_row(self) -> tuple[float, ...]:
        return astuple(self)


FIELDS = tuple(Statistics.__dataclass_fields__)
NOTHING = Statistics(**dict.fromkeys(FIELDS, math.nan))


@np.errstate(over="ignore", invalid="ignore")  # what is not finite is counted
def statistics_of(array: Array, activation: str = "") -> Statistics:
    """The statistics of an array of any shape; activation: what made it, see `saturated_share`."""
    if array.size == 0 or array.dtype.kind not in "fiu":
        return NOTHING
    # One pass: the sum of squares is finite exactly where all values are, short of an overflow of float64.
    flat = array.reshape(-1)
    values = flat if array.dtype.kind == "f" else flat.astype(np.float64)
    square = float(np.einsum("i,i->", values, values, dtype=np.float64))
    bad = 0
    if not math.isfinite(square):
        finite = np.isfinite(values)
        bad = int(values.size - np.count_nonzero(finite))
        values = values[finite]
        if values.size == 0:
            return replace(NOTHING, bad=float(bad))
        square = float(np.square(values, dtype=np.float64).sum())
    mean = float(values.mean(dtype=np.float64))
    minimum, maximum = float(values.min()), float(values.max())
    zeros = 1 - float(np.count_nonzero(values)) / values.size
    # Around a mean that is far from 0 the short formula would lose all digits.
    spread = square / values.size - mean * mean
    if spread < 1e-3 * mean * mean:
        spread = float(np.square(values - mean, dtype=np.float64).mean())
    return Statistics(
        mean,
        math.sqrt(max(spread, 0.0)),
        minimum,
        maximum,
        zeros,
        saturated_share(values, activation),
        _dead(array) if zeros else 0.0,
        math.sqrt(square),
        math.sqrt(square / values.size),
        float(bad),
    )


def _dead(array: Array) -> float:
    """Share of channels that are 0 everywhere (of the array as a whole where a channel has too few values to tell)."""
    if array.ndim < 2 or array.size // array.shape[1] < VALUES_TO_TELL:
        return 0.0 if array.any() else 1.0
    axes = tuple(axis for axis in range(array.ndim) if axis != 1)
    return 1 - float(np.count_nonzero(array.any(axis=axes))) / array.shape[1]


def _limits(low: float, high: float) -> Callable[[Array], Array]:
    return lambda y: (y <= low) | (y >= high)


def _logistic(y: Array) -> Array:
    return y * (1 - y) < SATURATED_SLOPE / 4


def _tanh(y: Array) -> Array:
    return 1 - y * y < SATURATED_SLOPE


# From an activation's name (an operation's, Darknet's or Caffe's) to where its result says that it is flat.
_FLAT: dict[str, Callable[[Array], Array]] = {
    "sigmoid": _logistic,
    "logistic": _logistic,
    "tanh": _tanh,
    "loggy": _tanh,  # 2 logistic - 1: the slope is (1 - y^2) / 2
    "hardtan": _limits(-1, 1),
    "hard_sigmoid": _limits(0, 1),
    "relu": lambda y: y <= 0,
    "relu6": _limits(0, 6),
}


def saturated_share(y: Array, activation: str) -> float:
    """Share of the results of an activation at which its slope is nearly 0; nan for those that are never flat.

    activation: relu, relu6, sigmoid (logistic), tanh, loggy, hardtan, hard_sigmoid; case does not count.
    """
    flat = _FLAT.get(activation.lower())
    return math.nan if flat is None else float(np.count_nonzero(flat(y)) / y.size)
