"""What a yolo layer asks of its outputs: which cell and anchor answers for which object (yolo_layer.c).

The result is a target and a weight for every output; `delta = weight * (target - output)` is Darknet's delta.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from undertow.darknet.detection.boxes import box_iou
from undertow.errors import UndertowError

TRUTH_VALUES = 5  # x, y, w, h, class

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class YoloRule:
    """The options of a yolo layer that decide about truth.

    anchors: (num, 2) in pixels of the network input. mask: this head's anchors. net_size: (width, height).
    ignore_threshold: no objectness is asked of a box that overlaps some truth by more than this.
    truth_threshold: a box that overlaps by more than this answers for the truth, whatever its anchor.
    max_boxes: so many truths are read. reset_by_zero_delta: see `Dialect.class_reset_by_zero_delta`.
    """

    anchors: Array
    mask: tuple[int, ...]
    classes: int
    net_size: tuple[int, int]
    ignore_threshold: float
    truth_threshold: float
    max_boxes: int
    class_map: Array | None = None
    reset_by_zero_delta: bool = False


@dataclass
class YoloStatistics:
    """Sums over one pass, printed in Darknet's line for each head."""

    iou: float = 0.0
    class_score: float = 0.0
    objectness: float = 0.0
    no_objectness: float = 0.0
    recall50: int = 0
    recall75: int = 0
    count: int = 0

    def line(self, layer: int) -> str:
        """Darknet's line: averages over the objects this head answers for (nan when there are none)."""
        n = self.count or float("nan")
        return (
            f"Region {layer} Avg IOU: {self.iou / n:.6f}, Class: {self.class_score / n:.6f}, "
            f"Obj: {self.objectness / n:.6f}, No Obj: {self.no_objectness:.6f}, .5R: {self.recall50 / n:.6f}, "
            f".75R: {self.recall75 / n:.6f},  count: {self.count}"
        )


@dataclass
class Assignment:
    """Targets and weights, both (batch, n, 5 + classes, h, w), for outputs of that shape."""

    output: Array
    rule: YoloRule
    target: Array = field(init=False)
    weight: Array = field(init=False)
    statistics: YoloStatistics = field(default_factory=YoloStatistics)

    def __post_init__(self) -> None:
        self.target = np.zeros_like(self.output)
        self.weight = np.zeros_like(self.output)

    def delta(self) -> Array:
        """weight * (target - output)."""
        return self.weight * (self.target - self.output)

    def box(self, image: int, n: int, row: int, column: int, truth: Array) -> None:
        """Ask cell and anchor for this box; small boxes weigh up to twice as much as large ones."""
        height, width = self.output.shape[3:]
        anchor = self.rule.anchors[self.rule.mask[n]]
        place = (image, n, slice(0, 4), row, column)
        self.target[place] = (
            truth[0] * width - column,
            truth[1] * height - row,
            np.log(truth[2] * self.rule.net_size[0] / anchor[0]),
            np.log(truth[3] * self.rule.net_size[1] / anchor[1]),
        )
        self.weight[place] = 2 - truth[2] * truth[3]

    def label(self, image: int, n: int, row: int, column: int, label: int) -> None:
        """Ask for a class; a second object in the same place adds its class to the first."""
        first = (image, n, 5, row, column)
        taken = self.weight[first] != 0
        if self.rule.reset_by_zero_delta:
            taken = taken and self.target[first] != self.output[first]
        if not taken:
            self.target[image, n, 5:, row, column] = 0
            self.weight[image, n, 5:, row, column] = 1
        self.target[image, n, 5 + label, row, column] = 1


def assign(output: Array, truth: Array, rule: YoloRule) -> Assignment:
    """Decide for one pass.

    output: (batch, n, 5 + classes, h, w) after the logistic. truth: (batch, values) with 5 values a box, relative
    to the picture; the list of an image ends at the first box whose x is 0.
    """
    result = Assignment(output, rule)
    result.weight[:, :, 4] = 1
    boxes = predicted_boxes(output, rule)
    for image, row in enumerate(truth):
        truths = truths_of(row, rule)
        if len(truths):
            _ignore_good_guesses(result, image, boxes[image], truths)
            for one in truths:
                _assign_truth(result, image, boxes[image], one)
    result.statistics.no_objectness = float(output[:, :, 4].mean(dtype=np.float64))
    return result


def truths_of(row: Array, rule: YoloRule) -> Array:
    """The boxes of one image, (count, 5), with the class mapped."""
    boxes = row[: len(row) // TRUTH_VALUES * TRUTH_VALUES].reshape(-1, TRUTH_VALUES)[: rule.max_boxes]
    ends = np.flatnonzero(boxes[:, 0] == 0)
    boxes = boxes[: ends[0]] if len(ends) else boxes
    if rule.class_map is not None:
        boxes = boxes.copy()
        boxes[:, 4] = rule.class_map[boxes[:, 4].astype(int)]
    wrong = boxes[(boxes[:, 4] < 0) | (boxes[:, 4] >= rule.classes), 4]
    if len(wrong):
        raise UndertowError(
            f"a truth has class {wrong[0]:g}, the yolo layer knows {rule.classes} (0 to {rule.classes - 1})",
            remedy="correct the label, or classes= in the cfg",
        )
    return boxes


def predicted_boxes(output: Array, rule: YoloRule) -> Array:
    """Boxes (batch, n, h, w, 4) in x, y, w, h relative to the picture."""
    height, width = output.shape[3:]
    anchors = rule.anchors[list(rule.mask)].astype(output.dtype)[None, :, :, None, None]
    boxes = np.empty((*output.shape[:2], height, width, 4), output.dtype)
    boxes[..., 0] = (output[:, :, 0] + np.arange(width, dtype=output.dtype)) / width
    boxes[..., 1] = (output[:, :, 1] + np.arange(height, dtype=output.dtype)[:, None]) / height
    with np.errstate(over="ignore"):
        boxes[..., 2] = np.exp(output[:, :, 2]) * anchors[:, :, 0] / rule.net_size[0]
        boxes[..., 3] = np.exp(output[:, :, 3]) * anchors[:, :, 1] / rule.net_size[1]
    return boxes


def _ignore_good_guesses(result: Assignment, image: int, boxes: Array, truths: Array) -> None:
    rule = result.rule
    overlaps = np.nan_to_num(box_iou(boxes[..., None, :], truths[:, :4]))
    best = overlaps.max(axis=-1)
    result.weight[image, :, 4][best > rule.ignore_threshold] = 0
    for n, row, column in _in_cell_order(best > rule.truth_threshold):
        truth = truths[overlaps[n, row, column].argmax()]
        result.target[image, n, 4, row, column] = 1
        result.weight[image, n, 4, row, column] = 1
        result.label(image, n, row, column, int(truth[4]))
        result.box(image, n, row, column, truth)


def _in_cell_order(chosen: Array) -> Iterator[tuple[int, int, int]]:
    """Places (n, row, column) in the order of the original's loops: rows, columns, anchors."""
    for row, column, n in np.argwhere(chosen.transpose(1, 2, 0)):
        yield int(n), int(row), int(column)


def _assign_truth(result: Assignment, image: int, boxes: Array, truth: Array) -> None:
    """Give a truth to the anchor, of all heads, whose shape fits best; skip it when that is not one of ours."""
    rule, statistics = result.rule, result.statistics
    height, width = result.output.shape[3:]
    row, column = int(truth[1] * height), int(truth[0] * width)
    best = int(_shape_overlaps(truth, rule).argmax())
    if best not in rule.mask or not (0 <= row < height and 0 <= column < width):
        return
    n = rule.mask.index(best)
    overlap = float(box_iou(boxes[n, row, column], truth[:4]))
    label = int(truth[4])
    statistics.objectness += float(result.output[image, n, 4, row, column])
    statistics.class_score += float(result.output[image, n, 5 + label, row, column])
    statistics.iou += overlap
    statistics.recall50 += overlap > 0.5
    statistics.recall75 += overlap > 0.75
    statistics.count += 1
    result.box(image, n, row, column, truth)
    result.target[image, n, 4, row, column] = 1
    result.weight[image, n, 4, row, column] = 1
    result.label(image, n, row, column, label)


def _shape_overlaps(truth: Array, rule: YoloRule) -> Array:
    """Overlap of the truth with every anchor when both are centred on the same point."""
    sizes = (rule.anchors / np.array(rule.net_size)).astype(truth.dtype)
    common = np.minimum(sizes, truth[2:4]).prod(axis=1)
    return common / (sizes.prod(axis=1) + truth[2] * truth[3] - common)
