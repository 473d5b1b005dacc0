"""Updates of parameters, in place, and what is asked about them before."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def all_finite(x: Array) -> bool:
    """Whether no value is NaN or infinite; one pass without a mask in the usual case."""
    flat = x.reshape(-1)
    with np.errstate(over="ignore", invalid="ignore"):
        # A sum of finite values may still overflow: then the slow way decides.
        return bool(np.isfinite(flat.sum())) or bool(np.isfinite(flat).all())


def darknet_accumulate(updates: Array, gradient: Array, factor: float = 1.0) -> None:
    """updates -= factor * gradient."""
    updates -= gradient if factor == 1.0 else factor * gradient


def momentum_update(
    values: Array, gradient: Array, velocity: Array, scale: float, decay: float, rate: float, momentum: float
) -> None:
    """velocity = momentum velocity + (scale gradient + decay values);  values -= rate velocity."""
    velocity *= momentum
    scaled = gradient if scale == 1.0 else gradient * scale
    velocity += scaled + decay * values if decay else scaled
    values -= rate * velocity


def caffe_update(
    values: Array, gradient: Array, history: Array, scale: float, decay: float, rate: float, momentum: float
) -> None:
    """history = momentum history + rate (scale gradient + decay values);  gradient = history;  values -= history."""
    if scale != 1.0:
        gradient *= scale
    if decay:
        gradient += decay * values
    gradient *= rate
    history *= momentum
    history += gradient
    gradient[...] = history
    values -= gradient


def darknet_update(values: Array, updates: Array, decay: float, rate: float, momentum: float) -> None:
    """updates -= decay * values;  values += rate * updates;  updates *= momentum."""
    if decay:
        updates -= decay * values
    values += rate * updates
    updates *= momentum
