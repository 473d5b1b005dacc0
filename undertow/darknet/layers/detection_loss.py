"""The loss of a detection layer (YOLOv1) as one operation: truth assignment and gradient (detection_layer.c).

Outputs of one image stand in three blocks: classes (cells, classes), objectness (cells, num), boxes (cells, num,
coords), cells row by row; a box is x, y within its cell and w, h relative to the picture, or their roots.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from undertow.core.function import Function
from undertow.core.registry import Sample, register
from undertow.core.variable import Operand
from undertow.darknet.detection.boxes import box_iou, box_rmse
from undertow.darknet.layers.draws import LayerDraws

Array = np.ndarray[Any, Any]

RANDOM_SAMPLES = 64000  # so many samples long `random=1` chooses boxes by chance
_SMALL_AREA = 0.1


@dataclass(frozen=True)
class DetectionRule:
    """The options of a detection layer.

    sqrt: w and h are roots. rescore: the overlap is what objectness should be. forced: the second box answers for
    objects of less than a tenth of the picture, the first for others. random: any box answers, by chance, during the
    first samples of training. Scales weigh the parts.
    """

    side: int
    num: int
    classes: int
    coords: int = 4
    softmax: bool = False
    sqrt: bool = False
    rescore: bool = False
    forced: bool = False
    random: bool = False
    coord_scale: float = 1.0
    object_scale: float = 1.0
    noobject_scale: float = 1.0
    class_scale: float = 1.0

    def blocks(self, rows: Array) -> tuple[Array, Array, Array]:
        """Views of (batch, outputs): classes (batch, cells, classes), objectness and boxes (batch, cells, num, ...)."""
        batch, cells = len(rows), self.side * self.side
        boxes = cells * (self.classes + self.num)
        return (
            rows[:, : cells * self.classes].reshape(batch, cells, self.classes),
            rows[:, cells * self.classes : boxes].reshape(batch, cells, self.num),
            rows[:, boxes:].reshape(batch, cells, self.num, self.coords),
        )


@dataclass
class DetectionStatistics:
    """Sums over one pass, printed in Darknet's line."""

    iou: float = 0.0
    right_class: float = 0.0
    all_classes: float = 0.0
    objectness: float = 0.0
    any_objectness: float = 0.0
    count: int = 0

    def line(self, layer: int) -> str:
        """Darknet's line: averages over the objects (nan when there are none)."""
        n = self.count or float("nan")
        return (
            f"Detection Avg IOU: {self.iou / n:.6f}, Pos Cat: {self.right_class / n:.6f}, "
            f"All Cat: {self.all_classes / n:.6f}, Pos Obj: {self.objectness / n:.6f}, "
            f"Any Obj: {self.any_objectness:.6f}, count: {self.count}"
        )


class DetectionAssignment:
    """Targets and weights, both (batch, outputs); `weight * (target - output)` is Darknet's delta.

    truth: (batch, values), for each cell whether it holds an object, its classes, x, y, w, h. choose: from a number of
    boxes to one of them, by chance; None to take the best.
    """

    def __init__(
        self, output: Array, truth: Array, rule: DetectionRule, choose: Callable[[int], int] | None = None
    ) -> None:
        self.rule, self.output = rule, output
        self.target, self.weight = np.zeros_like(output), np.zeros_like(output)
        self.statistics = DetectionStatistics()
        rows = truth.reshape(len(output), rule.side * rule.side, -1)
        objectness = rule.blocks(self.weight)[1]
        objectness[...] = rule.noobject_scale
        for image, cell in np.argwhere(rows[..., 0].astype(int)):
            self._object(int(image), int(cell), rows[image, cell], choose)
        self.statistics.any_objectness = float(rule.blocks(output)[1].mean(dtype=np.float64))

    def delta(self) -> Array:
        """weight * (target - output)."""
        return self.weight * (self.target - self.output)

    def _object(self, image: int, cell: int, truth: Array, choose: Callable[[int], int] | None) -> None:
        rule, statistics = self.rule, self.statistics
        scores, objectness, boxes = (block[image, cell] for block in rule.blocks(self.output))
        targets = [block[image, cell] for block in rule.blocks(self.target)]
        weights = [block[image, cell] for block in rule.blocks(self.weight)]
        classes, box = truth[1 : 1 + rule.classes], truth[1 + rule.classes : 5 + rule.classes]
        targets[0][...], weights[0][...] = classes, rule.class_scale
        overlaps, distances = self._compared(boxes, box)
        best = self._responsible(overlaps, distances, box) if choose is None else choose(rule.num)
        targets[1][best] = overlaps[best] if rule.rescore else 1
        weights[1][best] = rule.object_scale
        targets[2][best, :2] = box[:2]
        targets[2][best, 2:4] = np.sqrt(box[2:]) if rule.sqrt else box[2:]
        weights[2][best, :4] = rule.coord_scale
        statistics.right_class += float(scores[classes != 0].sum())
        statistics.all_classes += float(scores.mean())
        statistics.objectness += float(objectness[best])
        statistics.iou += float(overlaps[best])
        statistics.count += 1

    def _compared(self, boxes: Array, box: Array) -> tuple[Array, Array]:
        """Overlap with the truth, and distance from it, of each box of a cell."""
        scale = np.array([self.rule.side, self.rule.side, 1, 1], boxes.dtype)
        found = boxes[:, :4] / scale
        if self.rule.sqrt:
            found[:, 2:] = found[:, 2:] * found[:, 2:]
        wanted = box / scale
        return np.nan_to_num(box_iou(found, wanted)), box_rmse(found, wanted)

    def _responsible(self, overlaps: Array, distances: Array, box: Array) -> int:
        """The box that overlaps most; where none does, the one nearest."""
        if self.rule.forced:
            return int(box[2] * box[3] < _SMALL_AREA)
        return int(overlaps.argmax() if overlaps.max() > 0 else distances.argmin())


def _samples(rng: np.random.Generator) -> list[Sample]:
    def sample(**options: Any) -> Sample:
        rule = DetectionRule(side=2, num=2, classes=3, class_scale=1.5, noobject_scale=0.5, coord_scale=5.0, **options)
        truth = np.zeros((2, 4, 8))
        truth[0, 1] = (1, 0, 1, 0, 0.3, 0.6, 0.4, 0.3)
        truth[1, 2] = (1, 1, 0, 0, 0.5, 0.2, 0.2, 0.5)
        x = rng.uniform(0.1, 0.9, (2, 4 * (3 + 2 + 8)))
        return Sample((x,), lambda x: detection_loss(x, truth.reshape(2, -1), rule), note=str(options))

    return [sample(), sample(softmax=True, sqrt=True), sample(forced=True)]


@register(
    "detection_loss",
    gradient="once",
    forward="y = x, or softmax(x) for the classes of each cell; loss = sum of weight (target - y)^2 / 2, or with "
    "softmax - sum of weight target log y for classes",
    backward="gx = gloss weight (y - target) + slope gy; classes with softmax: gloss weight (y sum(target) - target)",
    samples=_samples,
)
class DetectionLoss(Function):
    """Outputs and loss of a detection layer.

    The loss is the one Darknet derives its deltas from. With `rescore` the overlap that objectness should be is a
    constant, and so is the choice of who answers. What Darknet prints as cost is the sum of squares of `delta`.

    The second input is the truth, without a gradient; left out, there is no loss. seen: tells how many samples were
    seen in training. draws: of `random=1`. straight_through: see `Dialect.straight_through_heads`.
    """

    def __init__(
        self,
        rule: DetectionRule,
        seen: Callable[[], int],
        draws: LayerDraws | None = None,
        straight_through: bool = False,
    ) -> None:
        self.rule, self.seen, self.draws, self.straight_through = rule, seen, draws, straight_through
        self.assignment: DetectionAssignment | None = None
        self._y: Array

    def forward(self, x: Array, truth: Array | None = None) -> tuple[Array, Array]:
        self._y = y = x.copy()
        logs = None
        if self.rule.softmax:
            scores = self.rule.blocks(y)[0]
            logs = scores - scores.max(axis=2, keepdims=True)
            logs -= np.log(np.exp(logs).sum(axis=2, keepdims=True))
            scores[...] = np.exp(logs)
        self.assignment, loss = None, 0.0
        if truth is not None:
            by_chance = self.rule.random and self.seen() < RANDOM_SAMPLES
            choose = self.draws.start().index if by_chance and self.draws is not None else None
            self.assignment = DetectionAssignment(y, truth.astype(x.dtype, copy=False), self.rule, choose)
            loss = self._loss(self.assignment, logs)
        return y, np.asarray(loss, x.dtype)

    def backward(self, gy: Array, gloss: Array) -> tuple[Array | None, ...]:
        gx = np.zeros_like(self._y)
        if self.assignment is not None:
            gx -= gloss * self.assignment.delta()
            if self.rule.softmax and not self.straight_through:
                p, target, weight = self._classes(self._y, self.assignment.target, self.assignment.weight)
                self.rule.blocks(gx)[0][...] = gloss * weight * (p * target.sum(axis=2, keepdims=True) - target)
        if gy.any():
            through = np.array(gy)
            if self.rule.softmax and not self.straight_through:
                p, g = self._classes(self._y, through)
                g[...] = p * (g - (g * p).sum(axis=2, keepdims=True))
            gx += through
        return (gx, None)[: len(self.inputs)]

    @property
    def delta(self) -> Array:
        """Darknet's delta, (batch, outputs); 0 without truth."""
        return np.zeros_like(self._y) if self.assignment is None else self.assignment.delta()

    def _classes(self, *rows: Array) -> list[Array]:
        return [self.rule.blocks(array)[0] for array in rows]

    def _loss(self, assignment: DetectionAssignment, logs: Array | None) -> float:
        errors = 0.5 * assignment.weight * (assignment.target - self._y) ** 2
        total = float(errors.sum(dtype=np.float64))
        if logs is not None:
            squares, target, weight = self._classes(errors, assignment.target, assignment.weight)
            total -= float(np.sum(squares + weight * target * logs, dtype=np.float64))
        return total


def detection_loss(x: Operand, truth: Operand, rule: DetectionRule) -> Any:
    """Outputs and summed loss of a detection layer, see `DetectionLoss`.

    x: (batch, side*side*((1 + coords)*num + classes)). truth: (batch, side*side*(1 + classes + 4)).
    Returns (outputs of the shape of x, loss of shape ()).
    """
    return DetectionLoss(rule, lambda: RANDOM_SAMPLES)(x, truth)
