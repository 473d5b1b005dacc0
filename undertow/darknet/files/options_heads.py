"""The options of the layers that hold a detection loss: yolo, region, detection, iseg (src/parser.c parse_*)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from undertow.darknet.files.option_fields import UNSET, Problem, option
from undertow.darknet.files.options_layers import LayerOptions

IOU_LOSSES = ("mse", "iou", "giou", "diou", "ciou")
NMS_KINDS = ("default", "greedynms", "diounms", "cornersnms")
YOLO_POINTS = ("center", "left_top", "right_bottom")
_DEFAULT_ANCHOR = 0.5
_MOST_ANCHORS = 4096


@dataclass(frozen=True, kw_only=True)
class _AnchorOptions(LayerOptions):
    """Heads with anchors: `num` pairs of width and height, each 0.5 unless given."""

    classes: int = option(20, least=0)
    num: int = option(1, least=1)
    anchors: tuple[float, ...] = option(UNSET)

    def __post_init__(self) -> None:
        self._resolve(anchors=(_DEFAULT_ANCHOR,) * (2 * min(self.num, _MOST_ANCHORS)))

    @property
    def biases(self) -> tuple[float, ...]:
        """`num` widths and heights; those that the file leaves out are 0.5, as the original fills its array."""
        return (self.anchors + (_DEFAULT_ANCHOR,) * (2 * self.num - len(self.anchors)))[: 2 * self.num]

    def problems(self) -> Iterator[Problem]:
        if self.num > _MOST_ANCHORS:
            yield Problem(("num",), f"num={self.num} anchors are too many", f"give at most {_MOST_ANCHORS}")
        given, needed = len(self.anchors), 2 * self.num
        if given != needed:
            reason = f"anchors has {given} values, num={self.num} needs {needed}: a width and a height for each"
            became = f"the first {needed} count" if given > needed else f"the rest is {_DEFAULT_ANCHOR}"
            remedy = "make num the number of pairs, with commas between all values"
            yield Problem(("anchors", "num"), reason, remedy, for_original=given > needed, in_fork=became)
        if min(self.anchors, default=1.0) <= 0:
            reason = f"anchor {min(self.anchors):g} is not above 0"
            yield Problem(("anchors",), reason, "give positive widths and heights", for_original=False)


@dataclass(frozen=True, kw_only=True)
class YoloOptions(_AnchorOptions):
    """[yolo]. anchors: in pixels of the net's input. mask: the anchors this head is responsible for, all by default.

    scale_x_y and new_coords come from AlexeyAB's fork: boxes are decoded with
    x = (s*scale_x_y - (scale_x_y-1)/2 + column) / width, where s is the logistic of the input, or with new_coords
    the input itself, and w = (2s)^2 * anchor / net width instead of exp(input) * anchor / net width. So do nms_kind
    and beta_nms: how one of several overlapping boxes is chosen, see `undertow.darknet.detection.nms`.
    """

    mask: tuple[int, ...] = option(UNSET)
    max_boxes: int = option(90, key="max", least=0)
    jitter: float = option(0.2)
    ignore_thresh: float = option(0.5)
    truth_thresh: float = option(1.0)
    random: bool = option(False)
    map: str | None = option(None, file_name=True)
    scale_x_y: float = option(1.0, fork=True)
    new_coords: bool = option(False, fork=True)
    iou_loss: str = option("mse", choices=IOU_LOSSES, fallback="iou", fork=True)
    nms_kind: str = option("default", choices=NMS_KINDS, fork=True)
    beta_nms: float = option(0.6, fork=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._resolve(mask=tuple(range(min(self.num, _MOST_ANCHORS))))

    @property
    def biases(self) -> tuple[float, ...]:
        """As in every head; a mask beyond `num` (a cfg of the fork) goes on in the anchors that the file gives."""
        beyond = 2 * (max(self.mask) + 1) if self.mask else 0
        return super().biases + self.anchors[2 * self.num : beyond]

    @property
    def channels(self) -> int:
        """Filters the layer before must have: for each anchor of the mask 4 box values, objectness, classes."""
        return len(self.mask) * (self.classes + 5)

    def problems(self) -> Iterator[Problem]:
        yield from super().problems()
        wrong = [index for index in self.mask if not 0 <= index < self.num]
        if wrong:
            reason = f"mask names anchor {wrong[0]}, there are {self.num} (0 to {self.num - 1})"
            given = min(self.mask) >= 0 and 2 * (max(self.mask) + 1) <= len(self.anchors)
            became = "its boxes take the anchors that the file gives, where the fork reads behind its own"
            yield Problem(("mask", "num"), reason, "correct mask= or num=", in_fork=became if given else None)


@dataclass(frozen=True, kw_only=True)
class RegionOptions(_AnchorOptions):
    """[region]. anchors: in cells of the grid."""

    coords: int = option(4, least=4)
    log: bool = option(False)
    sqrt: bool = option(False)
    softmax: bool = option(False)
    background: bool = option(False)
    max_boxes: int = option(30, key="max", least=0)
    jitter: float = option(0.2)
    rescore: bool = option(False)
    thresh: float = option(0.5)
    classfix: int = option(0)
    absolute: bool = option(False)
    random: bool = option(False)
    coord_scale: float = option(1.0)
    object_scale: float = option(1.0)
    noobject_scale: float = option(1.0)
    mask_scale: float = option(1.0)
    class_scale: float = option(1.0)
    bias_match: bool = option(False)
    tree: str | None = option(None, file_name=True)
    map: str | None = option(None, file_name=True)

    @property
    def channels(self) -> int:
        """Filters the layer before must have."""
        return self.num * (self.classes + self.coords + 1)


@dataclass(frozen=True, kw_only=True)
class DetectionOptions(LayerOptions):
    """[detection], the head of YOLOv1: a side x side grid, `num` boxes and one set of classes for each cell."""

    coords: int = option(1, least=1)
    classes: int = option(1, least=0)
    rescore: bool = option(False)
    num: int = option(1, least=1)
    side: int = option(7, least=1)
    softmax: bool = option(False)
    sqrt: bool = option(False)
    max_boxes: int = option(90, key="max", least=0)
    coord_scale: float = option(1.0)
    forced: bool = option(False)
    object_scale: float = option(1.0)
    noobject_scale: float = option(1.0)
    class_scale: float = option(1.0)
    jitter: float = option(0.2)
    random: bool = option(False)
    reorg: bool = option(False)

    @property
    def outputs(self) -> int:
        """Values the layer before must give."""
        return self.side * self.side * ((1 + self.coords) * self.num + self.classes)


@dataclass(frozen=True, kw_only=True)
class IsegOptions(LayerOptions):
    """[iseg]: instance segmentation. ids: length of the embedding that tells instances apart."""

    classes: int = option(20, least=0)
    ids: int = option(32, least=0)

    @property
    def channels(self) -> int:
        """Filters the layer before must have."""
        return self.classes + self.ids
