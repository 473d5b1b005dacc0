"""Fast kernels for float32 on the CPU, compiled by Numba once per machine.

The functions take and return NumPy arrays that are logically NCHW; what they return lies in memory as NHWC, so
that the next kernel need not rearrange it. `supports` tells the selection which calls they can serve. The level
below, `raw`, works on addresses and pixel strides and is what plans are made of.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np

from undertow.kernels.cpu.convolution import conv2d, conv2d_backward_data, conv2d_backward_weights
from undertow.kernels.cpu.threads import get_threads, set_threads

if find_spec("numba") is None:
    raise ImportError("the package 'numba' is not installed")

_FLOAT32 = np.dtype(np.float32)
_OFFERED = frozenset({"conv2d", "conv2d_backward_data", "conv2d_backward_weights"})


def supports(name: str, *args: Any) -> bool:
    """Whether this package has kernel `name` for these arguments: float32 arrays that are not empty."""
    return name in _OFFERED and all(
        arg.dtype == _FLOAT32 and arg.size > 0 for arg in args if isinstance(arg, np.ndarray)
    )


__all__ = [
    "conv2d",
    "conv2d_backward_data",
    "conv2d_backward_weights",
    "get_threads",
    "set_threads",
    "supports",
]
