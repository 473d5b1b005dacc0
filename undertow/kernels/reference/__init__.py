"""Kernels in NumPy, for any float type: readable, and the measure for all faster ones.

All arrays are (batch, channels, *spatial); all functions return new arrays of the inputs' type, except those in
`darknet_blas` and `gemm`, which write in place as the C functions whose names they carry, and in `update`.
"""

from undertow.kernels.reference.activations import activate, activate_backward, broken_line, broken_line_backward
from undertow.kernels.reference.batchnorm import (
    batch_norm,
    batch_norm_backward,
    batch_norm_inference,
    batch_norm_inference_backward,
)
from undertow.kernels.reference.convolution import (
    conv2d,
    conv2d_backward_data,
    conv2d_backward_weights,
    convnd,
    convnd_backward_data,
    convnd_backward_weights,
)
from undertow.kernels.reference.im2col import col2im, im2col
from undertow.kernels.reference.layernorm import layer_norm, layer_norm_backward
from undertow.kernels.reference.lrn import lrn, lrn_backward
from undertow.kernels.reference.pooling import max_pool2d_gather, pool2d, pool2d_backward
from undertow.kernels.reference.softmax import (
    log_softmax,
    log_softmax_backward,
    softmax,
    softmax_backward,
)
from undertow.kernels.reference.update import (
    all_finite,
    caffe_update,
    darknet_accumulate,
    darknet_update,
    momentum_update,
)
from undertow.kernels.reference.upsample import (
    downsample2d,
    downsample2d_backward,
    upsample2d,
    upsample2d_backward,
)

__all__ = [
    "activate",
    "activate_backward",
    "all_finite",
    "batch_norm",
    "batch_norm_backward",
    "batch_norm_inference",
    "batch_norm_inference_backward",
    "broken_line",
    "broken_line_backward",
    "caffe_update",
    "col2im",
    "conv2d",
    "conv2d_backward_data",
    "conv2d_backward_weights",
    "convnd",
    "convnd_backward_data",
    "convnd_backward_weights",
    "darknet_accumulate",
    "darknet_update",
    "downsample2d",
    "downsample2d_backward",
    "im2col",
    "layer_norm",
    "layer_norm_backward",
    "log_softmax",
    "log_softmax_backward",
    "lrn",
    "lrn_backward",
    "max_pool2d_gather",
    "momentum_update",
    "pool2d",
    "pool2d_backward",
    "softmax",
    "softmax_backward",
    "upsample2d",
    "upsample2d_backward",
]
