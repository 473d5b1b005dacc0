"""Updates of parameters in place, on C-contiguous float32 arrays."""

from __future__ import annotations

import numpy as np

from undertow.errors import ShapeError
from undertow.kernels.cpu.raw import plan_update as raw
from undertow.kernels.cpu.raw.tensor import scratch

Array = np.ndarray


def fits(*arrays: Array) -> bool:
    """Whether the kernels can work on these arrays where they lie."""
    return all(a.flags.c_contiguous and a.flags.writeable and a.dtype == np.float32 for a in arrays)


def darknet_accumulate(updates: Array, gradient: Array, factor: float = 1.0) -> None:
    """`reference.darknet_accumulate`."""
    _check(updates, gradient)
    raw.accumulate(updates.ctypes.data, gradient.ctypes.data, updates.size, factor)


def darknet_update(values: Array, updates: Array, decay: float, rate: float, momentum: float) -> None:
    """`reference.darknet_update`."""
    _check(updates, values)
    raw.darknet(values.ctypes.data, updates.ctypes.data, updates.size, decay, rate, momentum)


def momentum_update(
    values: Array, gradient: Array, velocity: Array, scale: float, decay: float, rate: float, momentum: float
) -> None:
    """`reference.momentum_update`."""
    _check(velocity, values)
    _check(velocity, gradient)
    addresses = (values.ctypes.data, gradient.ctypes.data, velocity.ctypes.data)
    raw.momentum(*addresses, velocity.size, scale, decay, rate, momentum)


def caffe_update(
    values: Array, gradient: Array, history: Array, scale: float, decay: float, rate: float, momentum: float
) -> None:
    """`reference.caffe_update`."""
    _check(history, values)
    _check(history, gradient)
    addresses = (values.ctypes.data, gradient.ctypes.data, history.ctypes.data)
    raw.caffe(*addresses, history.size, scale, decay, rate, momentum)


def all_finite(x: Array) -> bool:
    """`reference.all_finite`."""
    return raw.all_finite(x.ctypes.data, x.size, scratch())


def _check(updates: Array, other: Array) -> None:
    if updates.shape != other.shape:
        raise ShapeError(f"an accumulator of shape {updates.shape} does not belong to a parameter of {other.shape}")
