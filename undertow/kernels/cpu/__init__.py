"""Fast kernels for float32 on the CPU, compiled by Numba once per machine.

The functions take and return NumPy arrays that are logically NCHW; what they return lies in memory as NHWC, so
that the next kernel need not rearrange it. `supports` tells the selection which calls they can serve. The level
below, `raw`, works on addresses and pixel strides and is what plans are made of.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np

from undertow.kernels.cpu.activation import activate, activate_backward, broken_line, broken_line_backward, knows
from undertow.kernels.cpu.convolution import conv2d, conv2d_backward_data, conv2d_backward_weights
from undertow.kernels.cpu.normalization import (
    batch_norm,
    batch_norm_backward,
    batch_norm_inference,
    batch_norm_inference_backward,
)
from undertow.kernels.cpu.pooling import (
    downsample2d,
    downsample2d_backward,
    pool2d,
    pool2d_backward,
    upsample2d,
    upsample2d_backward,
)
from undertow.kernels.cpu.threads import begin, get_threads, set_threads
from undertow.kernels.cpu.update import (
    AllFinite,
    Together,
    all_finite,
    caffe_update,
    darknet_accumulate,
    darknet_update,
    momentum_update,
)
from undertow.kernels.cpu.update import fits as fits_update
from undertow.kernels.cpu.yolo import YoloHead

if find_spec("numba") is None:
    raise ImportError("the package 'numba' is not installed")

_IMAGES = frozenset(
    {
        "conv2d",
        "conv2d_backward_data",
        "conv2d_backward_weights",
        "pool2d",
        "pool2d_backward",
        "upsample2d",
        "upsample2d_backward",
        "downsample2d",
        "downsample2d_backward",
    }
)
_NORMS = frozenset({"batch_norm", "batch_norm_backward", "batch_norm_inference", "batch_norm_inference_backward"})
_LINES = frozenset({"broken_line", "broken_line_backward"})
_UPDATES = frozenset({"caffe_update", "darknet_accumulate", "darknet_update", "momentum_update"})
_ELEMENTWISE = _LINES | {"activate", "activate_backward"}
_WORTH_A_CALL = 4096  # elements; below that NumPy is as quick


def supports(name: str, *args: Any) -> bool:
    """Whether kernel `name` can serve these arguments: float32 arrays, not empty, of a shape it knows."""
    arrays = [arg for arg in args if isinstance(arg, np.ndarray)]
    if not arrays or any(a.size == 0 or (a.dtype != np.float32 and a.dtype.kind != "i") for a in arrays):
        return False
    if name in _IMAGES:
        return arrays[0].ndim == 4
    if name in _NORMS:
        return arrays[0].ndim in (2, 4)
    if name in _ELEMENTWISE and arrays[0].size < _WORTH_A_CALL:
        return False
    if name in _UPDATES:
        return fits_update(*arrays)
    if name == "all_finite":
        return arrays[0].flags.c_contiguous and arrays[0].size >= _WORTH_A_CALL
    if name == "activate":
        return knows(args[1])
    if name == "activate_backward":
        return knows(args[2], bool(args[3]) if len(args) > 3 else False)
    return name in _LINES


__all__ = [
    "AllFinite",
    "Together",
    "YoloHead",
    "activate",
    "activate_backward",
    "all_finite",
    "batch_norm",
    "batch_norm_backward",
    "batch_norm_inference",
    "batch_norm_inference_backward",
    "begin",
    "broken_line",
    "broken_line_backward",
    "caffe_update",
    "conv2d",
    "conv2d_backward_data",
    "conv2d_backward_weights",
    "darknet_accumulate",
    "darknet_update",
    "downsample2d",
    "downsample2d_backward",
    "get_threads",
    "momentum_update",
    "pool2d",
    "pool2d_backward",
    "set_threads",
    "supports",
    "upsample2d",
    "upsample2d_backward",
]
