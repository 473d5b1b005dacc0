"""Dialects: where the programs that read these files differ from each other and from the true derivative.

Each field is one difference, with its meaning and its place in the original (paths are those of the 2018
Darknet). Layers are built from these values; no backward asks for a dialect by name.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from undertow.kernels.reference.batchnorm import DARKNET_CPU as DARKNET_BATCH_NORM
from undertow.kernels.reference.batchnorm import BatchNormRule, Scaling

EXACT_BATCH_NORM = BatchNormRule(Scaling(1e-6, "outside", "N-1"))


@dataclass(frozen=True)
class Dialect:
    """One reading of Darknet's networks; see `DIALECTS` for the ones there are.

    name: how `-dialect` and the logs call it.
    overwrite_deltas: a 1x1 convolution, and an activation, batchnorm, normalization, reorg or shrinking
        upsample layer, stores its input gradient over what later layers had added there
        (convolutional_layer.c, gemm with beta 0; activation_layer.c, batchnorm_layer.c: copy instead of axpy).
        Residual gradients are lost by it.
    pointwise_ignores_stride: a 1x1 convolution with a stride reads the input as if it had the output's size
        (convolutional_layer.c: `if (l.size == 1) b = im`).
    gradient_from_output: the activation's slope is taken from its output, as activations.h does, which differs
        from the derivative for loggy, lhtan, hardtan, ramp and others at some points.
    batch_norm: how a batch is normalised. Darknet on the CPU: sqrt(variance) + 1e-6 with the variance over N-1
        (blas.c normalize_cpu, variance_cpu), and a backward for sqrt(variance + 1e-5) and N whatever the forward
        did (batchnorm_layer.c); on the GPU 1e-5 under the root forward too.
    batch_norm_momentum: share of the new batch in the rolling statistics (batchnorm_layer.c: .01).
    straight_through_heads: gradients that later layers send into a softmax or yolo layer pass to its input
        unchanged (softmax_layer.c and yolo_layer.c: axpy); otherwise through the derivative of the activation.
    temperature_in_gradient: whether softmax divides its gradient by the temperature.
    softmax_spatial: whether `spatial=1` gives one softmax per pixel (GPU builds) or is ignored.
    shortcut_alpha_everywhere: shortcut scales the whole gradient by alpha, although its forward scales only
        the part where the two inputs overlap (shortcut_layer.c: axpy).
    class_reset_by_zero_delta: whether a cell already has a class is read off its first class delta being
        non-zero (yolo_layer.c delta_yolo_class), which fails when that delta is exactly 0.
    cost_kinds: whether cost layers of type smooth, seg, wgan and masked behave as on the GPU; on the CPU seg and
        wgan are plain squares and smooth has the wrong sign beyond 1 (cost_layer.c, blas.c smooth_l1_cpu).
    letterbox: pictures are fitted with grey bars (True) or stretched.
    """

    name: str
    overwrite_deltas: bool = False
    pointwise_ignores_stride: bool = False
    gradient_from_output: bool = False
    batch_norm: BatchNormRule = EXACT_BATCH_NORM
    batch_norm_momentum: float = 0.01
    straight_through_heads: bool = False
    temperature_in_gradient: bool = True
    softmax_spatial: bool = True
    shortcut_alpha_everywhere: bool = False
    class_reset_by_zero_delta: bool = False
    cost_kinds: bool = True
    letterbox: bool = True


EXACT = Dialect("exact")

DARKNET_CPU = Dialect(
    "darknet-cpu",
    overwrite_deltas=True,
    pointwise_ignores_stride=True,
    gradient_from_output=True,
    batch_norm=DARKNET_BATCH_NORM,
    straight_through_heads=True,
    temperature_in_gradient=False,
    softmax_spatial=False,
    shortcut_alpha_everywhere=True,
    class_reset_by_zero_delta=True,
    cost_kinds=False,
)

DARKNET_GPU = replace(
    DARKNET_CPU,
    name="darknet-gpu",
    overwrite_deltas=False,
    pointwise_ignores_stride=False,
    batch_norm=BatchNormRule(Scaling(1e-5, "inside", "N-1"), Scaling(1e-5, "inside", "N")),
    softmax_spatial=True,
    cost_kinds=True,
)

DIALECTS: dict[str, Dialect] = {dialect.name: dialect for dialect in (EXACT, DARKNET_CPU, DARKNET_GPU)}


def dialect_named(name: str) -> Dialect:
    """The dialect of that name. Raises ValueError that lists the names."""
    if name not in DIALECTS:
        raise ValueError(f"there is no dialect '{name}'; there are {', '.join(DIALECTS)}")
    return DIALECTS[name]
