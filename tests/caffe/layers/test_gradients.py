"""Every layer type in `exact`: forward and backward on blobs against central differences, in float64."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from tests.caffe.net.texts import NetCall, inputs, layer, net
from undertow.caffe.layers_neuron import Dropout
from undertow.caffe.proto import blob_from_array, write_binary
from undertow.caffe.table import LAYER_TYPES
from undertow.core.gradcheck import check_gradients

Shape = tuple[int, ...]


@dataclass
class Try:
    """One layer on some bottoms.

    rest: its options. bottoms: shapes of bottoms with a gradient. fixed: values of the bottoms after them.
    low: values begin here, not around 0. first_fixed: the fixed bottoms come first.
    """

    kind: str
    rest: str = ""
    bottoms: tuple[Shape, ...] = ((2, 3, 4, 5),)
    fixed: tuple[np.ndarray, ...] = ()
    tops: int = 1
    low: float | None = None
    phase: str = "TRAIN"
    first_fixed: bool = False
    checked_tops: tuple[int, ...] | None = None
    gap: bool = False
    options: dict[str, object] = field(default_factory=dict)


LABELS = np.array([1.0, 0.0, 2.0])
IMAGE_LABELS = np.array([[[1.0, 0], [2, 255]], [[2, 2], [0, 1]]])
CONT = np.array([[0.0, 1], [1, 1], [1, 0], [1, 0.4]])
REGIONS = np.array([[0.0, 1, 1, 7, 6], [1, 4, 0, 4, 0], [0, 6, 4, 30, 30], [1, 0, 2, 9, 5]])
BOXES = np.array(
    [[0.1, 0.1, 0.4, 0.4], [0.5, 0.4, 0.9, 0.9], [0.15, 0.1, 0.5, 0.5], [0.6, 0.5, 1.1, 0.9], [0, 0.7, 0.2, 1]]
)
PRIORS = np.stack([BOXES.reshape(-1), np.tile([0.1, 0.1, 0.2, 0.2], 5)])[None]
OBJECTS = np.array(
    [[0, 1, 0, 0.12, 0.1, 0.45, 0.5, 0], [0, 2, 0, 0.5, 0.5, 0.9, 0.8, 0], [1, 1, 0, 0.55, 0.4, 0.9, 0.95, 0]]
)[None, None]
MULTIBOX = "multibox_loss_param {{ num_classes: 3 code_type: CENTER_SIZE {} }}"

TRIES = [
    Try("AbsVal"),
    Try("BNLL"),
    Try("BatchNorm"),
    Try("BatchNorm", "batch_norm_param { eps: 0.1 }", ((4, 3),)),
    Try("BatchNorm", phase="TEST"),
    Try("BatchReindex", fixed=(np.array([1.0, 0, 1]),)),
    Try("Bias", "bias_param { axis: 1 num_axes: 2 }"),
    Try("Bias", "bias_param { axis: 0 }", ((2, 3, 4), (2, 3))),
    Try("Clip", "clip_param { min: -0.5 max: 0.7 }"),
    Try("Concat", "concat_param { axis: 2 }", ((2, 3, 1), (2, 3, 4))),
    Try("Concat", "", ((2, 3),)),
    Try("ContrastiveLoss", "contrastive_loss_param { margin: 3 }", ((4, 3), (4, 3)), (np.array([1.0, 0, 0, 1]),)),
    Try("ContrastiveLoss", "contrastive_loss_param { margin: 9 legacy_version: true }", ((4, 3), (4, 3)),
        (np.array([1.0, 0, 0, 1]),)),
    Try("Convolution", "convolution_param { num_output: 4 kernel_size: 3 pad: 1 stride: 2 }"),
    Try("Convolution", "convolution_param { num_output: 4 kernel_size: 2 group: 2 dilation: 2 }", ((1, 2, 4, 5),)),
    Try("Convolution", "convolution_param { num_output: 2 kernel_size: 2 }", ((1, 2, 3, 3, 3),)),
    Try("Convolution", "convolution_param { num_output: 2 kernel_size: 1 }", ((3, 2),)),
    Try("Convolution", "convolution_param { num_output: 2 kernel_size: 3 }", ((1, 2, 4, 4), (1, 2, 4, 4)), tops=2),
    Try("Crop", "crop_param { axis: 1 offset: 1 offset: 0 offset: 2 }", fixed=(np.zeros((9, 2, 3, 2)),)),
    Try("Deconvolution", "convolution_param { num_output: 4 kernel_size: 3 stride: 2 pad: 1 group: 2 }",
        ((1, 2, 3, 4),)),
    Try("Deconvolution", "convolution_param { num_output: 2 kernel_size: 2 }", ((1, 2, 3),)),
    Try("Dropout", "dropout_param { dropout_ratio: 0.3 }"),
    Try("Dropout", phase="TEST"),
    Try("Dropout", "dropout_param { dropout_ratio: 0.3 scale_train: false }"),
    Try("Dropout", "dropout_param { dropout_ratio: 0.3 scale_train: false }", phase="TEST"),
    Try("ELU", "elu_param { alpha: 0.4 }"),
    Try("Eltwise", "eltwise_param { operation: SUM coeff: 0.5 coeff: -2 coeff: 1 }", ((2, 3),) * 3),
    Try("Eltwise", "eltwise_param { operation: PROD }", ((2, 3),) * 3),
    Try("Eltwise", "eltwise_param { operation: PROD stable_prod_grad: false }", ((2, 3),) * 3),
    Try("Eltwise", "eltwise_param { operation: MAX }", ((2, 3),) * 3),
    Try("Embed", "embed_param { num_output: 3 input_dim: 4 }", (), (np.array([[1.0, 3], [1, 0]]),)),
    Try("EuclideanLoss", "", ((3, 4), (3, 2, 2))),
    Try("Exp", "exp_param { base: 2 scale: 0.5 shift: -1 }"),
    Try("Filter", "", ((3, 2), (3, 4)), (np.array([1.0, 0, 1]),), tops=2),
    Try("Flatten", "flatten_param { axis: -3 end_axis: -2 }"),
    Try("HingeLoss", "", ((3, 4),), (LABELS,), gap=True),
    Try("HingeLoss", "hinge_loss_param { norm: L2 }", ((3, 4),), (LABELS,)),
    Try("Im2col", "convolution_param { kernel_size: 2 stride: 2 pad: 1 }"),
    Try("Im2col", "convolution_param { kernel_size: 2 }", ((1, 2, 3, 3, 3),)),
    Try("InfogainLoss", "", ((3, 3),), (LABELS, np.arange(9.0).reshape(3, 3) / 9)),
    Try("InfogainLoss", "infogain_loss_param { source: \"H\" } loss_weight: 1 loss_weight: 0.5", ((3, 3),), (LABELS,),
        tops=2),
    Try("InnerProduct", "inner_product_param { num_output: 3 axis: 2 }"),
    Try("InnerProduct", "inner_product_param { num_output: 3 transpose: true }"),
    Try("LRN", "lrn_param { local_size: 3 alpha: 0.7 k: 2 }"),
    Try("LRN", "lrn_param { local_size: 3 alpha: 0.7 norm_region: WITHIN_CHANNEL }"),
    Try("LSTM", "recurrent_param { num_output: 3 weight_filler { type: \"xavier\" } }", ((4, 2, 3),), (CONT,)),
    Try("LSTMUnit", "", ((1, 2, 3), (1, 2, 12)), (np.array([[0.3, 1.0]]),), tops=2),
    Try("Log", "log_param { base: 3 scale: 2 shift: 1 }", low=0.5),
    Try("MVN", "mvn_param { eps: 0.3 }"),
    Try("MVN", "mvn_param { across_channels: true }"),
    Try("MVN", "mvn_param { normalize_variance: false }", ((2, 3),)),
    Try("MultinomialLogisticLoss", "", ((3, 4),), (LABELS,), low=0.2),
    Try("PReLU"),
    Try("PReLU", "prelu_param { channel_shared: true }"),
    Try("Parameter", "parameter_param { shape { dim: 2 dim: 3 } }", ()),
    Try("Pooling", "pooling_param { pool: MAX kernel_size: 3 stride: 2 pad: 1 }", gap=True),
    Try("Pooling", "pooling_param { pool: MAX kernel_size: 2 }", tops=2, checked_tops=(0,), gap=True),
    Try("Pooling", "pooling_param { pool: AVE kernel_size: 3 stride: 2 pad: 1 }"),
    Try("Power", "power_param { power: 3 scale: -0.5 shift: 0.3 }"),
    Try("Power", "power_param { power: -1.5 scale: 0.5 shift: 1 }", low=0.5),
    Try("Power", "power_param { power: 2 scale: 3 }"),
    Try("Power", "power_param { scale: 0 shift: 2 }"),
    Try("Python", "python_param { module: \"m\" layer: \"Cube\" param_str: \"0.5\" }"),
    Try("RNN", "recurrent_param { num_output: 3 weight_filler { type: \"xavier\" } }", ((4, 2, 3),), (CONT,)),
    Try("ReLU"),
    Try("ReLU", "relu_param { negative_slope: -0.3 }"),
    Try("Reduction", "reduction_param { operation: ASUM axis: 2 coeff: 0.5 }"),
    Try("Reduction", "reduction_param { operation: SUMSQ axis: 1 }"),
    Try("Reduction", "reduction_param { operation: MEAN }"),
    Try("Reduction", "reduction_param { axis: -1 }"),
    Try("Reshape", "reshape_param { shape { dim: 0 dim: -1 dim: 2 } axis: 0 num_axes: 3 }"),
    Try("SPP", "spp_param { pyramid_height: 2 }", gap=True),
    Try("SPP", "spp_param { pyramid_height: 1 pool: AVE }"),
    Try("Scale", "scale_param { bias_term: true num_axes: 2 }"),
    Try("Scale", "scale_param { axis: 0 }", ((2, 3, 4), (2, 3))),
    Try("Sigmoid"),
    Try("SigmoidCrossEntropyLoss", "loss_param { ignore_label: 2 normalization: VALID }", ((3, 2),),
        (np.array([[0.2, 1], [2.3, 0], [1, 0.9]]),)),
    Try("Slice", "slice_param { axis: 2 slice_point: 1 slice_point: 3 }", tops=3),
    Try("Slice", "", tops=1),
    Try("Softmax", "softmax_param { axis: 2 }"),
    Try("SoftmaxWithLoss", "loss_param { ignore_label: 255 normalization: BATCH_SIZE }", ((2, 3, 2, 2),),
        (IMAGE_LABELS,)),
    Try("SoftmaxWithLoss", "softmax_param { axis: -1 }", ((3, 4),), (LABELS,)),
    Try("Split", "", tops=3),
    Try("Swish", "swish_param { beta: 0.7 }"),
    Try("TanH"),
    Try("Tile", "tile_param { axis: 1 tiles: 3 }"),
    Try("Axpy", "", ((2, 3, 1, 1), (2, 3, 2, 2), (2, 3, 2, 2))),
    Try("ConvolutionDepthwise", "convolution_param { num_output: 6 kernel_size: 3 }"),
    Try("DepthwiseConvolution", "convolution_param { num_output: 3 group: 3 kernel_size: 2 }"),
    Try("Interp", "interp_param { height: 7 width: 3 }"),
    Try("Interp", "interp_param { shrink_factor: 2 pad_beg: -1 zoom_factor: 3 }"),
    Try("Normalize", "norm_param { across_spatial: false channel_shared: false eps: 0.01 }"),
    Try("MultiBoxLoss", MULTIBOX.format("conf_loss_type: LOGISTIC mining_type: NONE"), ((2, 20), (2, 15)),
        (PRIORS, OBJECTS)),
    Try("MultiBoxLoss", MULTIBOX.format("mining_type: NONE loc_weight: 2"), ((2, 20), (2, 15)), (PRIORS, OBJECTS)),
    Try("MultiBoxLoss", MULTIBOX.format("loc_loss_type: L2 encode_variance_in_target: true bp_inside: true"),
        ((2, 20), (2, 15)), (PRIORS, OBJECTS)),
    Try("MultiBoxLoss", MULTIBOX.format("mining_type: NONE share_location: false"), ((2, 60), (2, 15)),
        (PRIORS, OBJECTS)),
    Try("Normalize"),
    Try("PSROIPooling", "psroi_pooling_param { spatial_scale: 0.5 output_dim: 2 group_size: 2 }", ((2, 8, 4, 5),),
        (REGIONS,)),
    Try("Permute", "permute_param { order: 0 order: 2 order: 3 order: 1 }"),
    Try("ROIPooling", "roi_pooling_param { spatial_scale: 0.5 pooled_h: 2 pooled_w: 3 }", fixed=(REGIONS,), gap=True),
    Try("ReLU6", low=5.3),
    Try("ReLU6", "relu6_param { negative_slope: 0.2 }"),
    Try("ShuffleChannel", "shuffle_channel_param { group: 2 }", ((2, 6, 2, 3),)),
    Try("SmoothL1Loss", "", ((3, 4), (3, 4))),
    Try("SmoothL1Loss", "smooth_l1_loss_param { sigma: 2 }", ((3, 4), (3, 4)),
        (np.arange(12.0).reshape(3, 4) / 6,) * 2),
    Try("Upsample", "upsample_param { scale: 2 }"),
    Try("Upsample", "upsample_param { scale: 2 pad_out_w: true }", ((1, 1, 2, 2),),
        (np.array([[[[0.0, 8], [8, 3]]]]),)),
]  # fmt: skip

STATIC = [
    Try("LSTM", "recurrent_param { num_output: 2 weight_filler { type: \"xavier\" } }", ((3, 2, 2), (2, 4))),
    Try("RNN", "recurrent_param { num_output: 2 weight_filler { type: \"xavier\" } }", ((3, 2, 2), (2, 4))),
    Try("LSTM", "recurrent_param { num_output: 2 expose_hidden: true weight_filler { type: \"xavier\" } }",
        ((3, 2, 2), (1, 2, 2), (1, 2, 2)), tops=3),
    Try("RNN", "recurrent_param { num_output: 2 expose_hidden: true weight_filler { type: \"xavier\" } }",
        ((3, 2, 2), (1, 2, 2)), tops=2),
]  # fmt: skip

# No gradient: no backward in the original, no bottoms, or no tops.
WITHOUT = {"Accuracy", "ArgMax", "Threshold", "Input", "DummyData", "MemoryData", "Silence",
           "PriorBox", "DetectionOutput", "DetectionEvaluate"}  # fmt: skip


class Cube:
    """A user's layer: k x^3."""

    def __init__(self, message: object) -> None:
        self.param_str = message.python_param.param_str  # type: ignore[attr-defined]

    def setup(self, bottom, top):  # type: ignore[no-untyped-def]
        self.k = float(self.param_str)

    def reshape(self, bottom, top):  # type: ignore[no-untyped-def]
        top[0].reshape(*bottom[0].shape)

    def forward(self, bottom, top):  # type: ignore[no-untyped-def]
        top[0].data[...] = self.k * bottom[0].data ** 3

    def backward(self, top, propagate_down, bottom):  # type: ignore[no-untyped-def]
        if propagate_down[0]:
            bottom[0].diff[...] = 3 * self.k * bottom[0].data ** 2 * top[0].diff


def build(case: Try, bottoms: list[str], fixed: list[str], order: list[str]):  # type: ignore[no-untyped-def]
    """The net of one layer; bottoms without gradient are marked so."""
    flags = " ".join(f"propagate_down: {str(name in bottoms).lower()}" for name in order)
    shapes = dict(zip(bottoms, case.bottoms, strict=True)) | dict(
        zip(fixed, [array.shape for array in case.fixed], strict=True)
    )
    tops = " ".join(f"y{i}" for i in range(case.tops))
    body = layer("op", case.kind, " ".join(order), tops, f"{case.rest} {flags}")
    whole = net(inputs(**shapes), body, phase=case.phase, python=lambda module, name: Cube)
    # Labels and indexes have no gradient, also where force_backward asks for one.
    made = whole.layer_dict["op"]
    made.bottom_need_backward = [name in bottoms for name in order]
    return whole


def check(case: Try, bottoms: list[str], fixed: list[str], order: list[str]) -> None:
    rng = np.random.default_rng(3)
    whole = build(case, bottoms, fixed, order)
    for part in whole.layers:
        if isinstance(part, Dropout):
            part.draw = lambda shape: np.linspace(0, 0.999, int(np.prod(shape))).reshape(shape)  # type: ignore
    for name, array in zip(fixed, case.fixed, strict=True):
        whole.blobs[name].data[...] = array
    values = [values_for(case, rng, whole.blobs[name].shape) for name in bottoms]
    values += [rng.uniform(0.3, 1, blob.shape) * rng.choice([-1, 1], blob.shape) for blob in whole.learnable_params]
    if case.kind == "BatchNorm":
        values[-3:] = [rng.standard_normal(3), rng.uniform(1, 2, 3), np.array([1.5])]
    tops = whole.top_names["op"]
    outputs = tops if case.checked_tops is None else [tops[i] for i in case.checked_tops]
    call = NetCall(whole, bottoms, outputs)
    count = len(values) - 3 if case.kind == "BatchNorm" else len(values)

    def function(*variables):  # type: ignore[no-untyped-def]
        return NetCall(call.net, call.names, call.outputs_)(*variables, *values[count:])

    assert check_gradients(function, values[:count], rtol=1e-5).checked > 0


def values_for(case: Try, rng: np.random.Generator, shape: Shape) -> np.ndarray:
    """Values around 0, from `low` on, or all far from each other (where order matters)."""
    if case.low is not None:
        return rng.uniform(case.low, case.low + 1, shape)
    if case.gap:
        size = int(np.prod(shape))
        return (rng.permutation(size).reshape(shape) - size / 2 + 0.25) * 0.11
    return rng.standard_normal(shape)


def name_of(case: Try) -> str:
    return f"{case.kind}-{case.rest}"[:60]


@pytest.mark.parametrize("case", TRIES, ids=name_of)
def test_gradients(case: Try, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_binary(blob_from_array(np.arange(9.0).reshape(3, 3) / 9), "H")
    bottoms = [f"x{i}" for i in range(len(case.bottoms))]
    fixed = [f"f{i}" for i in range(len(case.fixed))]
    check(case, bottoms, fixed, bottoms + fixed)


@pytest.mark.parametrize("case", STATIC, ids=name_of)
def test_static_inputs_and_exposed_states(case: Try) -> None:
    case.fixed = (np.array([[0.0, 1], [1, 1], [1, 0]]),)
    bottoms = [f"x{i}" for i in range(len(case.bottoms))]
    check(case, bottoms, ["cont"], ["x0", "cont", *bottoms[1:]])


def test_every_type_is_checked() -> None:
    sources = {name for name, kind in LAYER_TYPES.items() if kind.build.__module__.endswith("layers_data")}
    elsewhere = {"BN"}  # its options belong to two other forks: test_bn
    assert {case.kind for case in TRIES} | WITHOUT | sources | elsewhere == set(LAYER_TYPES)


# In place: what the layer writes over is kept, so these are the derivatives too.
IN_PLACE = [
    "ReLU", "PReLU", "ELU", "Sigmoid", "TanH", "BNLL", "Swish", "Exp", "Softmax", "BatchNorm", "Scale", "Dropout",
    "Power:power_param { power: 3 shift: 0.5 }", "Log:log_param { shift: 9 }", "Clip:clip_param { min: -1 max: 1 }",
    "Bias", "MVN", "LRN",
]  # fmt: skip


@pytest.mark.parametrize("text", IN_PLACE)
def test_in_place_behind_a_layer_that_reads_its_own_top(text: str) -> None:
    """Sigmoid takes its slope from its result, which the layer in place writes over; another one follows."""
    kind, _, rest = text.partition(":")
    whole = net(
        inputs(x=(2, 3, 4, 4)),
        layer("ip", "Convolution", "x", "h", "convolution_param { num_output: 3 kernel_size: 1 }"),
        layer("before", "Sigmoid", "h", "h"),
        layer("op", kind, "h", "h", rest),
        layer("after", "TanH", "h", "h"),
        layer("y", "InnerProduct", "h", "y", "inner_product_param { num_output: 2 }"),
    )
    rng = np.random.default_rng(0)
    for part in whole.layers:
        if isinstance(part, Dropout):
            part.draw = lambda shape: np.linspace(0, 0.999, int(np.prod(shape))).reshape(shape)  # type: ignore
    shapes = [whole.blobs["x"].shape, *(blob.shape for blob in whole.learnable_params)]
    values = [rng.standard_normal(shape) for shape in shapes]
    kept = [i for i, blob in enumerate(whole.learnable_params, 1) if blob not in whole.params.get("op", ())
            or kind != "BatchNorm"]  # fmt: skip

    def function(*variables):  # type: ignore[no-untyped-def]
        everything = list(values)
        for i, variable in zip([0, *kept], variables, strict=True):
            everything[i] = variable
        return NetCall(whole, ["x"], ["y"])(*everything)

    check_gradients(function, [values[i] for i in [0, *kept]], rtol=1e-5)
