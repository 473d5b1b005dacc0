"""Copies between NumPy arrays and slots."""

from __future__ import annotations

import numpy as np

from undertow.kernels.cpu import memory
from undertow.kernels.cpu.raw import packing
from undertow.plans.arena import Slot


def copy_in(array: np.ndarray, slot: Slot, *, accumulate: bool = False) -> None:
    """The slot takes, or adds, the values of a float32 array (N, C, H, W) or (N, C), which may lie there already."""
    target = slot.tensor
    array = array if array.ndim == 4 else array[:, :, None, None]
    if memory.is_nhwc(array):
        source = memory.view(array)
        if source != target or accumulate:
            packing.copy(source, target, accumulate=accumulate)
    elif accumulate:
        array = memory.as_nhwc(array)
        packing.copy(memory.view(array), target, accumulate=True)
    else:
        array = np.ascontiguousarray(array)
        packing.to_nhwc(array.ctypes.data, target)


def copy_out(array: np.ndarray) -> np.ndarray:
    """A C-contiguous copy."""
    if array.flags.c_contiguous or array.ndim != 4:
        return np.array(array, order="C")
    return memory.as_nchw(array)
