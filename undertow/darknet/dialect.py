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
    batch_norm_momentum: share of the new batch in the rolling statistics (batchnorm_layer.c: .01; the fork's: .1 on
        the CPU, .01 on the GPU).
    straight_through_heads: gradients that later layers send into a softmax or yolo layer pass to its input
        unchanged (softmax_layer.c and yolo_layer.c: axpy); otherwise through the derivative of the activation.
    temperature_in_gradient: whether softmax divides its gradient by the temperature.
    softmax_spatial: whether `spatial=1` gives one softmax per pixel (GPU builds) or is ignored.
    shortcut_alpha_everywhere: shortcut scales the whole gradient by alpha, although its forward scales only
        the part where the two inputs overlap (shortcut_layer.c: axpy).
    class_reset_by_zero_delta: whether a cell already has a class is read off its first class delta being
        non-zero (yolo_layer.c delta_yolo_class), which fails when that delta is exactly 0.
    cost_kinds: whether cost layers behave as on the GPU; on the CPU seg and wgan are plain squares, smooth has the
        wrong sign beyond 1, masked writes -1234 over its input, and `noobj`, `thresh` and `smooth` do nothing
        (cost_layer.c, blas.c smooth_l1_cpu).
    letterbox: pictures are fitted with grey bars (True) or stretched.
    mirror_misread: `detector valid2` takes minus x for an x seen from the other side, in the first maps instead of each
        anchor's (yolo_layer.c avg_flipped_yolo, region_layer.c get_region_detections); otherwise 1 - x.
    dropout_in_place: dropout changes the output and the delta of the layer before it (dropout_layer.c), so an
        activation there takes its slope from values that were dropped or scaled, and later readers see them.
    softmax_tree_mask: with `tree=`, entries whose truth is -1234 do not count (softmax_layer.c, mask_gpu: GPU only).
    lrn_approximate: normalization sends back delta / norms^beta, without what the neighbours owe
        (normalization_layer.c: "This is approximate").
    l2norm_identity: l2norm sends its delta back unchanged (l2norm_layer.c: axpy).
    batchnorm_layer_learns: whether the scales of a [batchnorm] of its own are updated; in the original it has no
        update, so its accumulators grow for ever (batchnorm_layer.c). Its biases move only where files hold them.
    crop_gradient: whether [crop] sends a gradient back (crop_layer.c has an empty backward).
    region_backward: whether region sends its gradient back (region_layer.c: commented out on the CPU).
    region_joint_background: with `background=1`, one cross entropy over background and classes for each cell; otherwise
        each entry on its own, and no class delta where there is no object (region_layer.c).
    region_logistic_masks: mask coefficients (coords > 4) pass the logistic (forward_region_layer_gpu).
    region_masks_misread: mask coefficients of the truth are read one place late and `mask_scale` is cut to a whole
        number (region_layer.c: `+ 5`, `int scale`).
    iseg_fixed_means: the mean embedding of an instance counts as a constant (iseg_layer.c).
    recurrent_backward: rnn, crnn and lstm go back as the C program does: the input layer of rnn gets the delta that
        already went through the self layer's activation; lstm keeps its cell delta from pass to pass (rnn_layer.c,
        crnn_layer.c, lstm_layer.c). gru goes nowhere (gru_layer.c: empty).
    recurrent_rates: whether `learning_rate=` of a recurrent layer reaches its inner layers; otherwise their factor is
        1, and 0 in crnn (make_convolutional_layer leaves learning_rate_scale at 0).
    carried_states: types whose state goes on from one training pass to the next (rnn_layer.c, crnn_layer.c: the state
        starts from 0; gru_layer.c, lstm_layer.c: it goes on; on the GPU that of rnn too). At inference all go on.
    weights_version: what weights files say they were written by (parser.c save_weights_upto).
    fork: files are laid out as AlexeyAB's fork does it (batchnorm layers keep their biases there).
    adam: whether `adam=1` is followed (update_convolutional_layer_gpu) or ignored (CPU).
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
    mirror_misread: bool = False
    dropout_in_place: bool = False
    softmax_tree_mask: bool = True
    lrn_approximate: bool = False
    l2norm_identity: bool = False
    batchnorm_layer_learns: bool = True
    crop_gradient: bool = True
    region_backward: bool = True
    region_joint_background: bool = True
    region_logistic_masks: bool = True
    region_masks_misread: bool = False
    iseg_fixed_means: bool = False
    recurrent_backward: bool = False
    recurrent_rates: bool = True
    carried_states: tuple[str, ...] = ()
    adam: bool = True
    weights_version: tuple[int, int, int] = (0, 2, 0)
    fork: bool = False


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
    mirror_misread=True,
    dropout_in_place=True,
    softmax_tree_mask=False,
    lrn_approximate=True,
    l2norm_identity=True,
    batchnorm_layer_learns=False,
    crop_gradient=False,
    region_backward=False,
    region_joint_background=False,
    region_logistic_masks=False,
    region_masks_misread=True,
    iseg_fixed_means=True,
    recurrent_backward=True,
    recurrent_rates=False,
    carried_states=("gru", "lstm"),
    adam=False,
)

DARKNET_GPU = replace(
    DARKNET_CPU,
    name="darknet-gpu",
    overwrite_deltas=False,
    pointwise_ignores_stride=False,
    batch_norm=BatchNormRule(Scaling(1e-5, "inside", "N-1"), Scaling(1e-5, "inside", "N")),
    softmax_spatial=True,
    cost_kinds=True,
    softmax_tree_mask=True,
    region_backward=True,
    region_logistic_masks=True,
    recurrent_backward=False,
    carried_states=("rnn", "gru", "lstm"),
    adam=True,
)

# AlexeyAB's fork (YOLOv4), forward on the CPU, with true derivatives: its own way back loses residual gradients too.
ALEXEYAB = Dialect(
    "alexeyab",
    batch_norm=BatchNormRule(Scaling(1e-5, "inside", "N-1")),
    batch_norm_momentum=0.1,
    letterbox=False,
    weights_version=(0, 2, 5),
    fork=True,
)

DIALECTS: dict[str, Dialect] = {dialect.name: dialect for dialect in (EXACT, DARKNET_CPU, DARKNET_GPU, ALEXEYAB)}


def dialect_named(name: str) -> Dialect:
    """The dialect of that name. Raises ValueError that lists the names."""
    if name not in DIALECTS:
        raise ValueError(f"there is no dialect '{name}'; there are {', '.join(DIALECTS)}")
    return DIALECTS[name]
