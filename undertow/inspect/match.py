"""Which layers of two unlike lists are the same step: a Darknet cfg beside its Caffe prototxt, for example.

One format says in one layer what the other says in several (a convolution with its normalisation and activation), and
some layers only hand on. So lists are first gathered into steps, each told by its last layer, whose output is what the
next step reads; then steps are matched in order, where kind, shape and number of weights are the same, as a `diff` does
with lines: so that most are matched, and rather those that have weights and names alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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

    @property
    def weights(self) -> int:
        """How many values its largest parameter has; 0 where there is none, or that is not known."""
        return max((parameter.size for parameter in self.first.parameters.values()), default=0)


def alike(one: Sequence[LayerTrace], other: Sequence[LayerTrace]) -> bool:
    """Whether two lists are of the same kinds of layers, one by one."""
    return [layer.type for layer in one] == [layer.type for layer in other]


def same_sizes(a: LayerTrace, b: LayerTrace) -> bool:
    """Whether outputs and parameters have the same sizes, as far as they are known."""
    pairs = [(p.size, b.parameters[name].size) for name, p in a.parameters.items() if name in b.parameters]
    return a.shape == b.shape and all(x == y or not x or not y for x, y in pairs)


def matched(one: Sequence[LayerTrace], other: Sequence[LayerTrace]) -> list[tuple[Step | None, Step | None]]:
    """All steps in order, those that are the same in pairs; None stands where a step has no counterpart.

    Between two pairs, those of the first list come before those of the second.
    """
    a, b = steps_of(one), steps_of(other)
    # best[i][j]: the largest sum of likenesses of a[i:] and b[j:].
    best = [[0.0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i in range(len(a) - 1, -1, -1):
        row, below = best[i], best[i + 1]
        for j in range(len(b) - 1, -1, -1):
            likeness = _likeness(a[i], b[j])
            row[j] = max(below[j], row[j + 1], likeness + below[j + 1] if likeness else 0.0)
    found: list[tuple[Step | None, Step | None]] = []
    i = j = 0
    while i < len(a) and j < len(b):
        likeness = _likeness(a[i], b[j])
        if likeness and best[i][j] == likeness + best[i + 1][j + 1]:
            found.append((a[i], b[j]))
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            found.append((a[i], None))
            i += 1
        else:
            found.append((None, b[j]))
            j += 1
    return [*found, *((step, None) for step in a[i:]), *((None, step) for step in b[j:])]


def _likeness(a: Step, b: Step) -> float:
    """0 for steps that cannot be the same. Whole numbers and halves, so that sums of them are exact."""
    if a.sign != b.sign or (a.weights and b.weights and a.weights != b.weights):
        return 0.0
    return 2.0 + (a.weights == b.weights) + 0.5 * _named_alike(a, b)


def _named_alike(a: Step, b: Step) -> bool:
    """Whether both have one name. A number is no name: it is another one behind every inserted layer."""
    names = [{layer.name for layer in (step.first, step.last) if not layer.name.isdigit()} for step in (a, b)]
    return bool(names[0] & names[1])


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
