"""The options of all layers but the heads, with the original's defaults (src/parser.c parse_*)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from undertow.darknet.files.option_fields import UNSET, Options, Problem, option

ACTIVATIONS = (
    "logistic", "loggy", "relu", "elu", "selu", "relie", "plse", "hardtan", "lhtan", "linear", "ramp", "leaky",
    "tanh", "stair",
)  # fmt: skip

# Those that AlexeyAB's fork added.
FORK_ACTIVATIONS = (
    "mish", "hard_mish", "swish", "gelu", "revleaky", "relu6", "normalize_channels", "normalize_channels_softmax",
    "normalize_channels_softmax_maxval",
)  # fmt: skip

COST_TYPES = ("seg", "sse", "masked", "smooth", "L1", "wgan")


def activation(default: str) -> Any:
    """An `activation=` option; the original falls back to relu for a name it does not know."""
    return option(default, choices=ACTIVATIONS, fallback="relu", fork_choices=FORK_ACTIVATIONS)


@dataclass(frozen=True, kw_only=True)
class LayerOptions(Options):
    """Keys that every layer understands.

    truth: its output becomes the truth of the layers after it. stopbackward: the backward pass ends here.
    dontsave, dontload: left out of weights files. numload: read only so many filters. dontloadscales: the file
    holds no scales and rolling statistics for it. learning_rate: factor on the net's rate.
    """

    truth: bool = option(False)
    onlyforward: bool = option(False)
    stopbackward: bool = option(False)
    dontsave: bool = option(False)
    dontload: bool = option(False)
    numload: int = option(0, least=0)
    dontloadscales: bool = option(False)
    learning_rate_scale: float = option(1.0, key="learning_rate")
    smooth: float = option(0.0)


@dataclass(frozen=True, kw_only=True)
class _PaddedOptions(LayerOptions):
    """`pad=1` asks for size/2 on each side, whatever `padding` says."""

    filters: int = option(1, least=1)
    size: int = option(1, least=1)
    stride: int = option(1, least=1)
    pad: bool = option(False)
    padding: int = option(0, least=0)
    activation: str = activation("logistic")
    batch_normalize: bool = option(False)

    @property
    def border(self) -> int:
        """Zeros added on each side."""
        return self.size // 2 if self.pad else self.padding


@dataclass(frozen=True, kw_only=True)
class ConvolutionalOptions(_PaddedOptions):
    """[convolutional] or [conv].

    Of AlexeyAB's fork: stride_x, stride_y: instead of stride. dilation: steps between the kernel's cells, and a factor
    on the padding; a 1x1 kernel has none. antialiasing: the convolution keeps the size, then a fixed blur takes the
    strides, 1 for 3x3, 2 for 2x2. share_index: the layer whose parameters this one uses. cbn: batch statistics of
    several passes together.
    """

    groups: int = option(1, least=1)
    binary: bool = option(False)
    xnor: bool = option(False)
    flipped: bool = option(False)
    dot: float = option(0.0)
    stride_x: int = option(UNSET, fork=True)
    stride_y: int = option(UNSET, fork=True)
    dilation: int = option(1, least=1, fork=True)
    antialiasing: int = option(0, least=0, fork=True)
    share_index: int | None = option(None, fork=True)
    cbn: bool = option(False, fork=True)

    def __post_init__(self) -> None:
        self._resolve(stride_x=self.stride, stride_y=self.stride)
        if self.size == 1:
            object.__setattr__(self, "dilation", 1)
        if self.cbn:
            object.__setattr__(self, "batch_normalize", True)

    @property
    def strides(self) -> tuple[int, int]:
        """(vertical, horizontal); the fork takes `stride` for those below 1."""
        return tuple(step if step > 0 else self.stride for step in (self.stride_y, self.stride_x))  # type: ignore[return-value]


@dataclass(frozen=True, kw_only=True)
class DeconvolutionalOptions(_PaddedOptions):
    """[deconvolutional] or [deconv]."""


@dataclass(frozen=True, kw_only=True)
class LocalOptions(LayerOptions):
    """[local]: a convolution with its own weights at each place. `pad` is a flag: half the size on each side."""

    filters: int = option(1, least=1)
    size: int = option(1, least=1)
    stride: int = option(1, least=1)
    pad: bool = option(False)
    activation: str = activation("logistic")


@dataclass(frozen=True, kw_only=True)
class ConnectedOptions(LayerOptions):
    """[connected] or [conn]."""

    output: int = option(1, least=1)
    activation: str = activation("logistic")
    batch_normalize: bool = option(False)


_LARGEST_WINDOW = 4096


def window_problems(size: int) -> Iterator[Problem]:
    """What is wrong with a pooling window: the time it takes grows with its area, whatever the picture is."""
    if size > _LARGEST_WINDOW:
        yield Problem(("size", "stride"), f"a window of {size}x{size} would never be done", "correct size=")


@dataclass(frozen=True, kw_only=True)
class MaxpoolOptions(LayerOptions):
    """[maxpool] or [max]. padding: in total, for both sides together; size-1 unless given.

    Of AlexeyAB's fork: stride_x, stride_y: instead of stride. maxpool_depth: the largest of every out_channels-th
    channel instead of a window. antialiasing: as in [convolutional].
    """

    stride: int = option(1, least=1)
    size: int = option(UNSET, least=1)
    padding: int = option(UNSET, least=0)
    stride_x: int = option(UNSET, least=1, fork=True)
    stride_y: int = option(UNSET, least=1, fork=True)
    maxpool_depth: bool = option(False, fork=True)
    out_channels: int = option(1, least=1, fork=True)
    antialiasing: int = option(0, least=0, fork=True)

    def __post_init__(self) -> None:
        self._resolve(size=self.stride, stride_x=self.stride, stride_y=self.stride)
        self._resolve(padding=self.size - 1)

    def problems(self) -> Iterator[Problem]:
        yield from super().problems()
        yield from window_problems(self.size)

    @property
    def strides(self) -> tuple[int, int]:
        """(vertical, horizontal)."""
        return self.stride_y, self.stride_x


@dataclass(frozen=True, kw_only=True)
class AvgpoolOptions(LayerOptions):
    """[avgpool] or [avg]: the mean over each channel."""


@dataclass(frozen=True, kw_only=True)
class ShortcutOptions(LayerOptions):
    """[shortcut]. sources: the layer that is added (`from=`), relative when negative; in AlexeyAB's fork several.

    weights_type (of the fork): a learned weight for each input (per_feature, per_layer) or for each of its channels.
    weights_normalization: what makes the weights of the inputs sum to 1, relu or softmax.
    """

    sources: tuple[int, ...] = option((), key="from")
    activation: str = activation("linear")
    alpha: float = option(1.0)
    beta: float = option(1.0)
    weights_type: str = option("none", choices=("none", "per_feature", "per_layer", "per_channel"), fork=True)
    weights_normalization: str = option("none", choices=("none", "relu", "avg_relu", "softmax"), fork=True)

    @property
    def source(self) -> int:
        """The first of the sources, all that the 2018 program knows."""
        return self.sources[0]

    @property
    def weighted(self) -> bool:
        """Whether the inputs have learned weights."""
        return self.weights_type != "none"

    def problems(self) -> Iterator[Problem]:
        if not self.sources:
            yield Problem((), "[shortcut] does not say which layer to add", "give from=, for example from=-3")
        if self.weighted and self.weights_normalization == "none":
            reason = f"weights_type={self.weights_type} without weights_normalization"
            yield Problem(("weights_type",), reason, "give weights_normalization=relu or softmax")


@dataclass(frozen=True, kw_only=True)
class RouteOptions(LayerOptions):
    """[route]. layers: what is joined along the channels, relative when negative.

    groups, group_id (of AlexeyAB's fork): of every layer only part group_id of `groups` equal ones.
    """

    layers: tuple[int, ...] = option(())
    groups: int = option(1, least=1, fork=True)
    group_id: int = option(0, least=0, fork=True)

    def problems(self) -> Iterator[Problem]:
        if self.group_id >= self.groups:
            reason = f"group_id={self.group_id}, but groups={self.groups} are counted from 0"
            yield Problem(("group_id",), reason, f"give 0 to {self.groups - 1}")
        if not self.layers:
            yield Problem((), "[route] does not say which layers to join", "give layers=, for example layers=-1,61")


@dataclass(frozen=True, kw_only=True)
class UpsampleOptions(LayerOptions):
    """[upsample]. A negative stride shrinks: blocks are added up. scale: factor on the result."""

    stride: int = option(2)
    scale: float = option(1.0)

    def problems(self) -> Iterator[Problem]:
        if self.stride == 0:
            yield Problem(("stride",), "stride=0 in [upsample]", "give 2 to double the size, -2 to halve it")


@dataclass(frozen=True, kw_only=True)
class ReorgOptions(LayerOptions):
    """[reorg]. extra: so many zeros are added to a flat copy of the input."""

    stride: int = option(1, least=1)
    reverse: bool = option(False)
    flatten: bool = option(False)
    extra: int = option(0, least=0)


@dataclass(frozen=True, kw_only=True)
class ActivationOptions(LayerOptions):
    """[activation]."""

    activation: str = activation("linear")


@dataclass(frozen=True, kw_only=True)
class BatchnormOptions(LayerOptions):
    """[batchnorm]."""


@dataclass(frozen=True, kw_only=True)
class NormalizationOptions(LayerOptions):
    """[normalization] or [lrn]: local response normalisation over `size` channels."""

    alpha: float = option(0.0001)
    beta: float = option(0.75)
    kappa: float = option(1.0)
    size: int = option(5, least=1)


@dataclass(frozen=True, kw_only=True)
class L2normOptions(LayerOptions):
    """[l2norm]: each place divided by the length of its channels."""


@dataclass(frozen=True, kw_only=True)
class DropoutOptions(LayerOptions):
    """[dropout]. probability: of a value to be dropped."""

    probability: float = option(0.5)

    def problems(self) -> Iterator[Problem]:
        if not 0 <= self.probability < 1:
            yield Problem(("probability",), f"probability={self.probability} is not in 0..1", "give 0 to below 1")


@dataclass(frozen=True, kw_only=True)
class CropOptions(LayerOptions):
    """[crop]: a random part of the picture in training, its middle otherwise; values become 2x-1 unless `noadjust`."""

    crop_height: int = option(1, least=1)
    crop_width: int = option(1, least=1)
    flip: bool = option(False)
    angle: float = option(0.0)
    saturation: float = option(1.0)
    exposure: float = option(1.0)
    shift: float = option(0.0)
    noadjust: bool = option(False)


@dataclass(frozen=True, kw_only=True)
class SoftmaxOptions(LayerOptions):
    """[softmax] or [soft]. tree: file of a class hierarchy. noloss: no cost of its own."""

    groups: int = option(1, least=1)
    temperature: float = option(1.0)
    tree: str | None = option(None, file_name=True)
    spatial: bool = option(False)
    noloss: bool = option(False)


@dataclass(frozen=True, kw_only=True)
class LogisticOptions(LayerOptions):
    """[logistic]: sigmoid with cross entropy."""


@dataclass(frozen=True, kw_only=True)
class CostOptions(LayerOptions):
    """[cost]. kind: which cost (`type=`). scale: factor on the delta that is passed on."""

    kind: str = option("sse", key="type", choices=COST_TYPES, fallback="sse")
    scale: float = option(1.0)
    ratio: float = option(0.0)
    noobject_scale: float = option(1.0, key="noobj")
    thresh: float = option(0.0)


@dataclass(frozen=True, kw_only=True)
class RnnOptions(LayerOptions):
    """[rnn]: three connected layers; the state is fed back."""

    output: int = option(1, least=1)
    activation: str = activation("logistic")
    batch_normalize: bool = option(False)
    shortcut: bool = option(False)


@dataclass(frozen=True, kw_only=True)
class GruOptions(LayerOptions):
    """[gru]. tanh: tanh instead of logistic for the candidate state."""

    output: int = option(1, least=1)
    batch_normalize: bool = option(False)
    tanh: bool = option(False)


@dataclass(frozen=True, kw_only=True)
class LstmOptions(LayerOptions):
    """[lstm]."""

    output: int = option(1, least=1)
    batch_normalize: bool = option(False)


@dataclass(frozen=True, kw_only=True)
class CrnnOptions(LayerOptions):
    """[crnn]: three 3x3 convolutions; the state is fed back.

    In AlexeyAB's fork output and hidden count the filters, and the convolutions have size, dilation and groups.
    """

    output_filters: int = option(1, least=1)
    hidden_filters: int = option(1, least=1)
    activation: str = activation("logistic")
    batch_normalize: bool = option(False)
    shortcut: bool = option(False)
    output: int | None = option(None, least=1, fork=True)
    hidden: int | None = option(None, least=1, fork=True)
    size: int = option(3, least=1, fork=True)
    stride: int = option(1, least=1, fork=True)
    dilation: int = option(1, least=1, fork=True)
    pad: bool = option(False, fork=True)
    padding: int = option(0, least=0, fork=True)
    groups: int = option(1, least=1, fork=True)

    @property
    def of_fork(self) -> bool:
        """Whether the section is written as AlexeyAB's fork reads it."""
        return self.output is not None or self.hidden is not None

    @property
    def border(self) -> int:
        """Zeros added on each side."""
        return self.size // 2 if self.pad else self.padding

    def problems(self) -> Iterator[Problem]:
        if not self.of_fork and (self.size, self.stride, self.dilation, self.groups) != (3, 1, 1, 1):
            reason = "size, stride, dilation and groups of [crnn] are followed only with output= or hidden="
            yield Problem(("size", "stride", "dilation", "groups"), reason, "count filters by output= and hidden=")
