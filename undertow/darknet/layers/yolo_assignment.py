"""What a yolo layer asks of its outputs: which cell and anchor answers for which object (yolo_layer.c).

The result is a target and a weight for every output; `delta = weight * (target - output)` is Darknet's delta.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from undertow.darknet.detection.boxes import box_iou
from undertow.darknet.layers.yolo_overlaps import overlapping, overlaps, predicted_boxes
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


class Cells(NamedTuple):
    """Cell and anchor of each object that is answered for: four arrays (count,) that index (batch, n, h, w)."""

    image: Array
    n: Array
    row: Array
    column: Array

    def of(self, values: Array) -> Array:
        """Their values (count, 5 + classes) in an array (batch, n, 5 + classes, h, w)."""
        found: Array = values[self.image, self.n, :, self.row, self.column]
        return found

    def put(self, values: Array, rows: Array) -> None:
        """Set them."""
        values[self.image, self.n, :, self.row, self.column] = rows


@dataclass
class Assignment:
    """Targets and weights of outputs (batch, n, 5 + classes, h, w).

    Objectness is asked of nearly all places, everything else of the cells with objects only; so the two are kept apart:
    `objectness`, its target and weight are (batch, n, h, w), target and weight of the cells (count, 5 + classes).
    """

    output: Array
    rule: YoloRule
    statistics: YoloStatistics
    objectness: Array
    objectness_target: Array
    objectness_weight: Array
    cells: Cells
    cell_target: Array
    cell_weight: Array

    @property
    def target(self) -> Array:
        """Of all outputs, (batch, n, 5 + classes, h, w)."""
        return self.spread(self.objectness_target, self.cell_target)

    @property
    def weight(self) -> Array:
        """Of all outputs, (batch, n, 5 + classes, h, w)."""
        return self.spread(self.objectness_weight, self.cell_weight)

    @cached_property
    def objectness_delta(self) -> Array:
        """weight * (target - output) of the objectness, (batch, n, h, w)."""
        return self.objectness_weight * (self.objectness_target - self.objectness)

    @cached_property
    def cell_delta(self) -> Array:
        """weight * (target - output) of the cells with objects, (count, 5 + classes)."""
        return self.cell_weight * (self.cell_target - self.cells.of(self.output))

    def spread(self, objectness: Array, rows: Array, rest: Array | None = None) -> Array:
        """One array out of the parts, in the memory order of the output. rest: where all else is taken from, not 0."""
        whole = np.zeros_like(self.output) if rest is None else rest
        whole[:, :, 4] = objectness
        self.cells.put(whole, rows)
        return whole


class _Answers(NamedTuple):
    """Which cell and anchor answers for which truth, in the order of asking."""

    cells: Cells
    truth: Array  # number of the truth


_NOBODY = _Answers(Cells(*[np.empty(0, np.intp)] * 4), np.empty(0, np.intp))


def assign(output: Array, truth: Array, rule: YoloRule) -> Assignment:
    """Decide for one pass.

    output: (batch, n, 5 + classes, h, w) after the logistic. truth: (batch, values) with 5 values a box, relative
    to the picture; the list of an image ends at the first box whose x is 0.
    """
    values = np.ascontiguousarray(output[:, :, :5].transpose(2, 0, 1, 3, 4))
    objectness = values[4]
    statistics = YoloStatistics(no_objectness=float(objectness.sum(dtype=np.float64)) / objectness.size)
    target, weight = np.zeros(objectness.shape, output.dtype), np.ones(objectness.shape, output.dtype)
    image, truths = all_truths(truth, rule)
    answers = _NOBODY
    if len(truths):
        boxes = predicted_boxes(values, rule.anchors[list(rule.mask)], rule.net_size)
        answers = _by_shape(objectness.shape, image, truths, rule)
        _count(statistics, answers, output, boxes, truths)
        answers = _good_guesses(weight, boxes, image, truths, answers, rule)
    cells, cell_target, cell_weight = _asked(answers, truths, output, rule)
    target[tuple(cells)] = weight[tuple(cells)] = 1
    return Assignment(output, rule, statistics, objectness, target, weight, cells, cell_target, cell_weight)


def all_truths(truth: Array, rule: YoloRule) -> tuple[Array, Array]:
    """Of a batch (batch, values): the number of the image and the box of each, (count,) and (count, 5), class mapped.

    Raises UndertowError for a class that the layer does not know.
    """
    count = min(truth.shape[1] // TRUTH_VALUES, rule.max_boxes)
    boxes = truth[:, : count * TRUTH_VALUES].reshape(len(truth), count, TRUTH_VALUES)
    ended = np.logical_or.accumulate(boxes[:, :, 0] == 0, axis=1)
    image, place = np.nonzero(~ended)
    boxes = boxes[image, place]
    if rule.class_map is not None:
        boxes[:, 4] = rule.class_map[boxes[:, 4].astype(int)]
    wrong = boxes[~((boxes[:, 4] >= 0) & (boxes[:, 4] < rule.classes)), 4]
    if len(wrong):
        raise UndertowError(
            f"a truth has class {wrong[0]:g}, the yolo layer knows {rule.classes} (0 to {rule.classes - 1})",
            remedy="correct the label, or classes= in the cfg",
        )
    return image, boxes


def truths_of(row: Array, rule: YoloRule) -> Array:
    """The boxes of one image, (count, 5), with the class mapped."""
    return all_truths(row[None], rule)[1]


def _good_guesses(
    weight: Array, boxes: Array, image: Array, truths: Array, answers: _Answers, rule: YoloRule
) -> _Answers:
    """Ask no objectness of boxes that overlap a truth; those that do by very much answer for it, before the others."""
    sure = []
    for place, overlap in overlapping(boxes, image, truths, min(rule.ignore_threshold, rule.truth_threshold)):
        weight.reshape(-1)[place[overlap > rule.ignore_threshold]] = 0
        sure.append(place[overlap > rule.truth_threshold])
    if not any(map(len, sure)):
        return answers
    cells = _in_cell_order(np.unique(np.concatenate(sure)), weight.shape)
    chosen = []
    for picture, n, row, column in zip(*cells, strict=True):
        own = np.flatnonzero(image == picture)
        box = boxes[:, picture, n, row, column]
        chosen.append(own[overlaps(box[:, None], truths[own]).argmax()])
    joined = Cells(*(np.concatenate(parts) for parts in zip(cells, answers.cells, strict=True)))
    return _Answers(joined, np.concatenate([chosen, answers.truth]))


def _in_cell_order(places: Array, shape: tuple[int, ...]) -> Cells:
    """In the order of the original's loops: images, rows, columns, anchors."""
    image, n, row, column = np.unravel_index(places, shape)
    order = np.lexsort((n, column, row, image))
    return Cells(image[order], n[order], row[order], column[order])


def _by_shape(shape: tuple[int, ...], image: Array, truths: Array, rule: YoloRule) -> _Answers:
    """Give each truth to the anchor, of all heads, whose shape fits best; skip those that do not get one of ours."""
    height, width = shape[2:]
    with np.errstate(invalid="ignore"):  # a truth without a place gets none
        row, column = (truths[:, 1] * height).astype(np.intp), (truths[:, 0] * width).astype(np.intp)
    ours = np.full(max(len(rule.anchors), *rule.mask) + 1, -1)
    ours[list(rule.mask[::-1])] = np.arange(len(rule.mask))[::-1]
    n = ours[_shape_overlaps(truths, rule).argmax(axis=1)]
    taken = np.flatnonzero((n >= 0) & (row >= 0) & (row < height) & (column >= 0) & (column < width))
    return _Answers(Cells(image[taken], n[taken], row[taken], column[taken]), taken)


def _shape_overlaps(truths: Array, rule: YoloRule) -> Array:
    """Overlap of truths with every anchor, (count, num), when both are centred on the same point."""
    sizes = (rule.anchors / np.array(rule.net_size)).astype(truths.dtype)
    common = np.minimum(sizes, truths[:, None, 2:4]).prod(axis=2)
    overlap: Array = common / (sizes.prod(axis=1) + truths[:, 2:3] * truths[:, 3:4] - common)
    return overlap


def _count(statistics: YoloStatistics, answers: _Answers, output: Array, boxes: Array, truths: Array) -> None:
    image, n, row, column = answers.cells
    truth = truths[answers.truth]
    overlap = box_iou(boxes[:, image, n, row, column].T, truth[:, :4])
    label = 5 + truth[:, 4].astype(np.intp)
    statistics.iou = _total(overlap)
    statistics.objectness = _total(output[image, n, 4, row, column])
    statistics.class_score = _total(output[image, n, label, row, column])
    statistics.recall50, statistics.recall75 = int((overlap > 0.5).sum()), int((overlap > 0.75).sum())
    statistics.count = len(overlap)


def _total(values: Array) -> float:
    """The sum in the order of the original's loop."""
    total = 0.0
    for value in values.tolist():
        total += value
    return total


def _asked(answers: _Answers, truths: Array, output: Array, rule: YoloRule) -> tuple[Cells, Array, Array]:
    """Cells with objects, each once, and what is asked of their outputs: targets and weights, (count, 5 + classes).

    Of several objects in one place the last gives the box; their classes are all asked for.
    """
    places = list(zip(*(part.tolist() for part in answers.cells), strict=True))
    last = {place: number for number, place in enumerate(places)}
    numbers = list(last.values())
    cells = Cells(*(part[numbers] for part in answers.cells))
    target = np.zeros((len(last), output.shape[2]), output.dtype)
    weight = np.ones_like(target)
    if last:
        truth = truths[answers.truth[numbers]]
        target[:, :4], target[:, 4] = _box_targets(cells, truth, output.shape, rule), 1
        weight[:, :4] = (2 - truth[:, 2] * truth[:, 3])[:, None]
        slot = dict(zip(last, range(len(last)), strict=True))
        labels = truths[answers.truth, 4].astype(np.intp)
        _label(
            target, [slot[place] for place in places], labels, cells.of(output) if rule.reset_by_zero_delta else None
        )
    return cells, target, weight


def _box_targets(cells: Cells, truth: Array, shape: tuple[int, ...], rule: YoloRule) -> Array:
    """The outputs x, y, w, h that give these boxes."""
    height, width = shape[3:]
    anchor = rule.anchors[list(rule.mask)][cells.n]
    sides = (
        truth[:, 0] * width - cells.column.astype(truth.dtype),
        truth[:, 1] * height - cells.row.astype(truth.dtype),
        np.log(truth[:, 2] * rule.net_size[0] / anchor[:, 0]),
        np.log(truth[:, 3] * rule.net_size[1] / anchor[:, 1]),
    )
    return np.stack(sides, axis=1)


def _label(target: Array, slot: list[int], labels: Array, output: Array | None) -> None:
    """Ask for classes. output: of the cells, where the first class's delta of 0 lets go of the classes before."""
    if output is None:
        target[slot, 5 + labels] = 1
        return
    for place, label in zip(slot, labels, strict=True):
        if target[place, 5] == output[place, 5]:
            target[place, 5:] = 0
        target[place, 5 + label] = 1
