"""Which layers of two unlike lists are the same step: a Darknet cfg beside its Caffe prototxt, for example.

One format says in one layer what the other says in several (a convolution with its normalisation and activation), and
some layers only hand on. So lists are first gathered into steps, each told by its last layer, whose output is what the
next step reads; then steps are matched in order, where kind and shape are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from undertow.inspect.trace import LayerTrace

_KINDS = {
    "convolution": ("convolutional", "Convolution", "ConvolutionDepthwise", "DepthwiseConvolution", "conv2d"),
    "transposed convolution": ("deconvolutional", "Deconvolution", "deconv2d"),
    "product": ("connected", "InnerProduct", "linear"),
    "pooling": ("maxpool", "avgpool", "local_avgpool", "Pooling", "max_pool2d", "avg_pool2d"),
    "sum": ("shortcut", "Eltwise", "add"),
    "joining": ("route", "Concat", "concat"),
    "growing": ("upsample", "Upsample", "Interp"),
    "regrouping": ("reorg", "reorg3d", "ShuffleChannel"),
    "softmax": ("softmax", "Softmax", "SoftmaxWithLoss", "softmax_cross_entropy"),
    "boxes": ("yolo", "region", "detection", "Yolov3DetectionOutput", "DetectionOutput"),
    # What follows a step and belongs to it:
    "": (
        "batchnorm", "BatchNorm", "Scale", "Bias", "BN", "batch_norm", "activation", "ReLU", "ReLU6", "PReLU", "ELU",
        "Sigmoid", "TanH", "Swish", "Mish", "HardSwish", "logistic", "relu", "leaky_relu", "sigmoid", "tanh",
    ),
}  # fmt: skip
_KIND_OF = {name: kind for kind, names in _KINDS.items() for name in names}
_PASSED_OVER = (
    "Input",
    "Data",
    "DummyData",
    "ImageData",
    "HDF5Data",
    "MemoryData",
    "AnnotatedData",
    "VideoData",
    "Split",
    "Dropout",
    "dropout",
    "Flatten",
    "Reshape",
    "reshape",
    "Silence",
    "Accuracy",
    "cost",
)


@dataclass(frozen=True)
class Step:
    """first: the layer that has the weights. last: the one whose output the step gives."""

    kind: str
    first: LayerTrace
    last: LayerTrace

    @property
    def sign(self) -> tuple[str, tuple[int, ...]]:
        """Steps with the same one can be the same. Lengths of 1 do not count: 2x10 and 2x10x1x1 hold the same."""
        shape = self.last.shape
        return self.kind, (*shape[:1], *(length for length in shape[1:] if length != 1))


def alike(one: Sequence[LayerTrace], other: Sequence[LayerTrace]) -> bool:
    """Whether two lists are of the same network, layer by layer."""
    return [layer.type for layer in one] == [layer.type for layer in other]


def matched(one: Sequence[LayerTrace], other: Sequence[LayerTrace]) -> list[tuple[Step, Step]]:
    """Pairs of steps in order; those without a counterpart are left out."""
    a, b = steps_of(one), steps_of(other)
    matcher = SequenceMatcher(None, [step.sign for step in a], [step.sign for step in b], autojunk=False)
    blocks = matcher.get_matching_blocks()
    return [(a[block.a + i], b[block.b + i]) for block in blocks for i in range(block.size)]


def steps_of(layers: Sequence[LayerTrace]) -> list[Step]:
    """Layers gathered into steps."""
    steps: list[Step] = []
    for layer in layers:
        kind = _KIND_OF.get(layer.type, layer.type)
        if layer.type in _PASSED_OVER:
            continue
        if kind == "" and steps and steps[-1].last.shape == layer.shape:
            steps[-1] = Step(steps[-1].kind, steps[-1].first, layer)
        else:
            steps.append(Step(kind, layer, layer))
    return steps
