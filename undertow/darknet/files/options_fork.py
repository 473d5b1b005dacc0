"""The options of the sections that AlexeyAB's fork added (its src/parser.c parse_*)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from undertow.darknet.files.option_fields import UNSET, Problem, option
from undertow.darknet.files.options_heads import NMS_KINDS, YOLO_POINTS, YoloOptions
from undertow.darknet.files.options_layers import LayerOptions, activation, window_problems


@dataclass(frozen=True, kw_only=True)
class GaussianYoloOptions(YoloOptions):
    """[Gaussian_yolo]: yolo with an uncertainty for each of the four box values.

    yolo_point: which point of the box x and y are.
    """

    nms_kind: str = option("default", choices=NMS_KINDS)
    yolo_point: str = option("center", choices=YOLO_POINTS)

    @property
    def channels(self) -> int:
        """Filters the layer before must have: for each anchor 4 values, 4 uncertainties, objectness, classes."""
        return len(self.mask) * (self.classes + 9)


@dataclass(frozen=True, kw_only=True)
class LocalAvgpoolOptions(LayerOptions):
    """[local_avgpool] or [local_avg]: [maxpool]'s windows, averaged over what lies inside the image."""

    stride: int = option(1, least=1)
    size: int = option(UNSET, least=1)
    padding: int = option(UNSET, least=0)
    stride_x: int = option(UNSET, least=1)
    stride_y: int = option(UNSET, least=1)

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
class Reorg3dOptions(LayerOptions):
    """[reorg3d]: blocks of stride x stride become channels."""

    stride: int = option(1, least=1)
    reverse: bool = option(False)

    def problems(self) -> Iterator[Problem]:
        if self.reverse:
            yield Problem(("reverse",), "reverse=1 in [reorg3d], with which the original crashes", "use [reorg]")


@dataclass(frozen=True, kw_only=True)
class _SourceOptions(LayerOptions):
    """source: the other layer (`from=`), relative when negative."""

    source: int = option(UNSET, key="from")
    activation: str = activation("linear")

    def problems(self) -> Iterator[Problem]:
        if self.source is UNSET:
            yield Problem((), "the section does not say which layer to multiply", "give from=, for example from=-3")


@dataclass(frozen=True, kw_only=True)
class ScaleChannelsOptions(_SourceOptions):
    """[scale_channels]: another layer times one factor for each channel, or with scale_wh for each place."""

    scale_wh: bool = option(False)


@dataclass(frozen=True, kw_only=True)
class SamOptions(_SourceOptions):
    """[sam]: another layer times this one, element by element."""


@dataclass(frozen=True, kw_only=True)
class ImplicitOptions(LayerOptions):
    """[implicit]: learned numbers, the same for every picture: `filters` channels of `atoms` rows."""

    filters: int = option(128, least=1)
    atoms: int = option(1, least=1)
    mean: float = option(0.0)
    std: float = option(0.2)


@dataclass(frozen=True, kw_only=True)
class EmptyOptions(LayerOptions):
    """[empty] or [silence]: nothing."""


@dataclass(frozen=True, kw_only=True)
class ConvLstmOptions(LayerOptions):
    """[conv_lstm]: an LSTM whose inner layers are convolutions.

    output: filters. peephole: the gates also look at the cell. state_constrain: the cell stays within plus and minus
    this; 32 for each time step unless given, 0 for no limit.
    """

    output: int = option(1, least=1)
    size: int = option(3, least=1)
    stride: int = option(1, least=1)
    dilation: int = option(1, least=1)
    pad: bool = option(False)
    padding: int = option(0, least=0)
    groups: int = option(1, least=1)
    activation: str = activation("linear")
    batch_normalize: bool = option(False)
    peephole: bool = option(False)
    state_constrain: int | None = option(None, least=0)

    @property
    def border(self) -> int:
        """Zeros added on each side."""
        return self.size // 2 if self.pad else self.padding


@dataclass(frozen=True, kw_only=True)
class HistoryOptions(LayerOptions):
    """[history]: the last history_size inputs of each sequence, newest first, along the channels."""

    history_size: int = option(4, least=1)
