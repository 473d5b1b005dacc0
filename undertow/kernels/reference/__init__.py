"""Kernels in NumPy, for any float type: readable, and the measure for all faster ones.

All arrays are (batch, channels, *spatial); all functions return new arrays of the inputs' type, except those in
`darknet_blas` and `gemm`, which write in place as the C functions whose names they carry.
"""

from undertow.kernels.reference.convolution import (
    conv2d,
    conv2d_backward_data,
    conv2d_backward_weights,
    convnd,
    convnd_backward_data,
    convnd_backward_weights,
)
from undertow.kernels.reference.im2col import col2im, im2col
from undertow.kernels.reference.pooling import max_pool2d_gather, pool2d, pool2d_backward

__all__ = [
    "col2im",
    "conv2d",
    "conv2d_backward_data",
    "conv2d_backward_weights",
    "convnd",
    "convnd_backward_data",
    "convnd_backward_weights",
    "im2col",
    "max_pool2d_gather",
    "pool2d",
    "pool2d_backward",
]
