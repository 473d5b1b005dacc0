"""What a region layer (YOLOv2) asks of its outputs: which cell and anchor answers for which object (region_layer.c).

The result is a target and a weight for every output; `delta = weight * (target - output)` is Darknet's delta.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from undertow.darknet.detection.boxes import box_iou
from undertow.darknet.files.tree import ClassTree
from undertow.errors import UndertowError

Array = np.ndarray[Any, Any]

MOST_TRUTHS = 30
WARMUP_SAMPLES = 12800  # so many samples long every box is drawn to its anchor
WARMUP_WEIGHT = 0.01
ONLY_CLASS = 100000  # a truth beyond this place is a class without a box


@dataclass(frozen=True)
class RegionRule:
    """The options of a region layer.

    anchors: (n, 2) in cells. coords: box values, 4 and mask coefficients. threshold: no objectness is asked of a box
    that overlaps some truth by more. match_anchors: the anchor whose shape fits answers (`bias_match`), otherwise the
    predicted box. rescore: the overlap is what objectness should be. Scales weigh the parts. tree: of classes, or None.
    logistic_masks, misread_masks, joint_background: see `Dialect`.
    """

    anchors: Array
    classes: int
    coords: int = 4
    softmax: bool = False
    background: bool = False
    rescore: bool = False
    match_anchors: bool = False
    threshold: float = 0.5
    coord_scale: float = 1.0
    mask_scale: float = 1.0
    object_scale: float = 1.0
    noobject_scale: float = 1.0
    class_scale: float = 1.0
    tree: ClassTree | None = None
    class_map: Array | None = None
    logistic_masks: bool = True
    misread_masks: bool = False
    joint_background: bool = True

    @property
    def n(self) -> int:
        return len(self.anchors)

    @property
    def entries(self) -> int:
        """Values for each cell and anchor: coords, objectness, classes."""
        return self.coords + 1 + self.classes


@dataclass
class RegionStatistics:
    """Sums over one pass, printed in Darknet's line."""

    iou: float = 0.0
    class_score: float = 0.0
    objectness: float = 0.0
    any_objectness: float = 0.0
    recall: int = 0
    count: int = 0
    class_count: int = 0

    def line(self, layer: int) -> str:
        """Darknet's line: averages over the objects (nan when there are none)."""
        n, classes = self.count or float("nan"), self.class_count or float("nan")
        return (
            f"Region Avg IOU: {self.iou / n:.6f}, Class: {self.class_score / classes:.6f}, "
            f"Obj: {self.objectness / n:.6f}, No Obj: {self.any_objectness:.6f}, "
            f"Avg Recall: {self.recall / n:.6f},  count: {self.count}"
        )


@dataclass
class RegionAssignment:
    """Targets and weights, both (batch, n, entries, h, w), for outputs of that shape."""

    output: Array
    rule: RegionRule
    target: Array = field(init=False)
    weight: Array = field(init=False)
    statistics: RegionStatistics = field(default_factory=RegionStatistics)

    def __post_init__(self) -> None:
        self.target, self.weight = np.zeros_like(self.output), np.zeros_like(self.output)

    def delta(self) -> Array:
        """weight * (target - output)."""
        return self.weight * (self.target - self.output)

    def ask(self, place: Any, target: Any, weight: Any) -> None:
        """Set what is asked of some outputs."""
        self.target[place], self.weight[place] = target, weight

    @property
    def _classes(self) -> slice:
        return slice(self.rule.coords + 1, None)

    def empty(self, image: int, overlapping: Array) -> None:
        """Ask for no object in all cells, but for nothing of boxes that overlap a truth, (n, h, w)."""
        rule = self.rule
        weight = np.where(overlapping, 0, rule.noobject_scale)
        self.ask((image, slice(None), rule.coords), 1 if rule.background else 0, weight)
        if rule.background and rule.joint_background:
            self.ask((image, slice(None), self._classes), 0, weight[:, None])

    def warm_up(self, image: int) -> None:
        """Draw every box to the middle of its cell and the size of its anchor."""
        self.ask((image, slice(None), slice(0, 2)), 0.5, WARMUP_WEIGHT)
        self.ask((image, slice(None), slice(2, 4)), 0, WARMUP_WEIGHT)

    def box(self, image: int, n: int, row: int, column: int, truth: Array) -> None:
        """Ask for a box, small ones up to twice as much, and its mask coefficients."""
        rule, (height, width) = self.rule, self.output.shape[3:]
        wanted = (
            truth[0] * width - column,
            truth[1] * height - row,
            np.log(truth[2] * width / rule.anchors[n, 0]),
            np.log(truth[3] * height / rule.anchors[n, 1]),
        )
        self.ask((image, n, slice(0, 4), row, column), wanted, rule.coord_scale * (2 - truth[2] * truth[3]))
        if rule.coords > 4:
            masks, scale = truth[4 : rule.coords], rule.mask_scale
            if rule.misread_masks:
                masks, scale = truth[5 : rule.coords + 1], int(scale)
            self.ask((image, n, slice(4, rule.coords), row, column), masks, scale)

    def object(self, image: int, n: int, row: int, column: int, overlap: float) -> None:
        """Ask for an object."""
        rule = self.rule
        wanted = 0.0 if rule.background else overlap if rule.rescore else 1.0
        scale = rule.class_scale if rule.background and rule.joint_background else rule.object_scale
        self.ask((image, n, rule.coords, row, column), wanted, scale)

    def label(self, image: int, n: int, row: int, column: int, label: int) -> float:
        """Ask for a class; returns the probability it has. In a tree, for all classes above it too."""
        rule, first = self.rule, self.rule.coords + 1
        scores = self.output[image, n, first:, row, column]
        if rule.tree is not None:
            path = rule.tree.path(label)
            for one in path:
                group = rule.tree.group[one]
                begin = first + rule.tree.group_offset[group]
                members = slice(begin, begin + rule.tree.group_size[group])
                self.ask((image, n, members, row, column), 0, rule.class_scale)
                self.target[image, n, first + one, row, column] = 1
            return float(scores[path].prod())
        place = (image, n, self._classes, row, column)
        taken = self.weight[place][0] * (self.target[place][0] - self.output[place][0]) != 0
        if taken and not rule.softmax:
            # A second object in the same place adds its class to the first.
            self.ask((image, n, first + label, row, column), 1, rule.class_scale)
            return 0.0
        self.ask(place, 0, rule.class_scale)
        self.target[image, n, first + label, row, column] = 1
        return float(scores[label])


def assign_region(output: Array, truth: Array, rule: RegionRule, seen: int) -> RegionAssignment:
    """Decide for one pass.

    output: (batch, n, entries, h, w) as the layer gives it. truth: (batch, values), coords + 1 values a box: x, y, w,
    h relative to the picture, mask coefficients, class; the list of an image ends at the first box whose x is 0.
    seen: samples seen in training.
    """
    result = RegionAssignment(output, rule)
    boxes = region_boxes(output, rule.anchors)
    for image, row in enumerate(truth):
        truths = region_truths(row, rule)
        if rule.tree is not None and _only_class(result, image, truths):
            continue
        overlapping = _overlapping(boxes[image], truths, rule)
        result.empty(image, overlapping)
        if seen < WARMUP_SAMPLES:
            result.warm_up(image)
        for one in truths:
            _assign_truth(result, image, boxes[image], one)
    result.statistics.any_objectness = float(output[:, :, rule.coords].mean(dtype=np.float64))
    return result


def region_truths(row: Array, rule: RegionRule) -> Array:
    """The boxes of one image, (count, coords + 1), with the class mapped. Raises UndertowError for an unknown class."""
    values = rule.coords + 1
    boxes = row[: len(row) // values * values].reshape(-1, values)[:MOST_TRUTHS]
    ends = np.flatnonzero(boxes[:, 0] == 0)
    boxes = boxes[: ends[0]] if len(ends) else boxes
    if rule.class_map is not None:
        boxes = boxes.copy()
        boxes[:, -1] = rule.class_map[boxes[:, -1].astype(int)]
    wrong = boxes[(boxes[:, -1] < 0) | (boxes[:, -1] >= rule.classes), -1]
    if len(wrong):
        raise UndertowError(
            f"a truth has class {wrong[0]:g}, the region layer knows {rule.classes} (0 to {rule.classes - 1})",
            remedy="correct the label, or classes= in the cfg",
        )
    return boxes


def region_boxes(output: Array, anchors: Array) -> Array:
    """Boxes (batch, n, h, w, 4) in x, y, w, h relative to the input (get_region_box). anchors: in cells."""
    height, width = output.shape[3:]
    sizes = anchors.astype(output.dtype)[None, :, :, None, None]
    boxes = np.empty((*output.shape[:2], height, width, 4), output.dtype)
    boxes[..., 0] = (output[:, :, 0] + np.arange(width, dtype=output.dtype)) / width
    boxes[..., 1] = (output[:, :, 1] + np.arange(height, dtype=output.dtype)[:, None]) / height
    with np.errstate(over="ignore"):
        boxes[..., 2] = np.exp(output[:, :, 2]) * sizes[:, :, 0] / width
        boxes[..., 3] = np.exp(output[:, :, 3]) * sizes[:, :, 1] / height
    return boxes


def _overlapping(boxes: Array, truths: Array, rule: RegionRule) -> Array:
    if not len(truths):
        return np.zeros(boxes.shape[:-1], bool)
    overlaps = _overlaps(boxes[..., None, :], truths[:, :4])
    found: Array = overlaps.max(axis=-1) > rule.threshold
    return found


def _assign_truth(result: RegionAssignment, image: int, boxes: Array, truth: Array) -> None:
    rule, statistics = result.rule, result.statistics
    height, width = result.output.shape[3:]
    row, column = int(truth[1] * height), int(truth[0] * width)
    if not (0 <= row < height and 0 <= column < width):
        return
    n = _best_anchor(boxes[:, row, column], truth, rule, (width, height))
    overlap = float(_overlaps(boxes[n, row, column], truth[:4]))
    result.box(image, n, row, column, truth)
    statistics.recall += overlap > 0.5
    statistics.iou += overlap
    statistics.objectness += float(result.output[image, n, rule.coords, row, column])
    result.object(image, n, row, column, overlap)
    statistics.class_score += result.label(image, n, row, column, int(truth[-1]))
    statistics.count += 1
    statistics.class_count += 1


def _best_anchor(boxes: Array, truth: Array, rule: RegionRule, size: tuple[int, int]) -> int:
    """Whose box, or anchor, has the shape of the truth when both are centred on the same point."""
    shapes = (rule.anchors / np.array(size)).astype(truth.dtype) if rule.match_anchors else boxes[:, 2:]
    centred = np.concatenate([np.zeros_like(shapes), shapes], axis=1)
    return int(_overlaps(centred, np.array([0, 0, *truth[2:4]], truth.dtype)).argmax())


def _overlaps(boxes: Array, truths: Array) -> Array:
    """IoU; 0 for boxes that grew beyond all numbers."""
    with np.errstate(invalid="ignore", over="ignore"):
        return np.nan_to_num(box_iou(boxes, truths))


def _only_class(result: RegionAssignment, image: int, truths: Array) -> bool:
    """A picture with a class and no boxes: the box that is surest of the class learns it, and nothing else."""
    rule = result.rule
    assert rule.tree is not None
    for truth in _beyond(truths):
        label = int(truth[-1])
        objectness = result.output[image, :, rule.coords]
        classes = np.moveaxis(result.output[image, :, rule.coords + 1 :], 1, 0)
        chances = objectness * rule.tree.probability(classes, label)
        n, row, column = (int(i) for i in np.unravel_index(int(chances.argmax()), chances.shape))
        result.ask((image, slice(None), rule.coords), 0, rule.noobject_scale)
        result.weight[image, n, rule.coords, row, column] = 0
        result.statistics.class_score += result.label(image, n, row, column, label)
        result.statistics.class_count += 1
        return True
    return False


def _beyond(truths: Array) -> Iterator[Array]:
    yield from truths[(truths[:, 0] > ONLY_CLASS) & (truths[:, 1] > ONLY_CLASS)]
