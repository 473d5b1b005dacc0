"""How good a detector is: average precision in the usual three ways, counts at a threshold, recall.

VOC 2007 reads the precision at 11 recalls, VOC 2010 and later integrate it (points=0), COCO reads it at 101 recalls
and averages over ten overlap thresholds. In all of them precision is first made to fall with recall.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from undertow.darknet.detection.boxes import Candidates, box_iou
from undertow.darknet.detection.matching import IGNORED, RIGHT, WRONG, Predictions, Rule, Truth, Verdicts, judge, pair

COCO_THRESHOLDS = tuple(np.linspace(0.5, 0.95, 10))
COCO_DETECTIONS = 100


@dataclass(frozen=True)
class Counts:
    """Right, wrong and missed at one confidence, and the IoU of the right ones summed.

    average_iou is AlexeyAB's: the sum over the right ones, divided by all detections, right and wrong.
    """

    true_positives: int
    false_positives: int
    false_negatives: int
    iou_sum: float

    @property
    def precision(self) -> float:
        """Share of right ones among the detections, 0 to 1; 0 where there are none."""
        return _ratio(self.true_positives, self.true_positives + self.false_positives)

    @property
    def recall(self) -> float:
        """Share of the true objects that were found, 0 to 1; 0 where there are none."""
        return _ratio(self.true_positives, self.true_positives + self.false_negatives)

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall."""
        return _ratio(2 * self.precision * self.recall, self.precision + self.recall)

    @property
    def average_iou(self) -> float:
        """Mean overlap with the true boxes over all detections, wrong ones counted as 0."""
        return _ratio(self.iou_sum, self.true_positives + self.false_positives)

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.true_positives + other.true_positives,
            self.false_positives + other.false_positives,
            self.false_negatives + other.false_negatives,
            self.iou_sum + other.iou_sum,
        )


@dataclass(frozen=True)
class ClassResult:
    """One class: its objects in the set, its average precision (0..1; NaN without objects), and its counts."""

    name: str
    truths: int
    average_precision: float
    counts: Counts


@dataclass(frozen=True)
class Evaluation:
    """Result of `evaluate`; `lines()` prints it in the form of AlexeyAB's `detector map`."""

    classes: tuple[ClassResult, ...]
    mean_average_precision: float
    counts: Counts
    iou_threshold: float
    confidence: float
    points: int

    def lines(self) -> list[str]:
        """The report, line by line; classes without an object have 0.00 %, as in that program."""
        rows = [
            f"class_id = {number}, name = {result.name}, ap = {100 * np.nan_to_num(result.average_precision):.2f}%"
            f"   (TP = {result.counts.true_positives}, FP = {result.counts.false_positives})"
            for number, result in enumerate(self.classes)
        ]
        total = self.counts
        method = f"used {self.points} Recall-points" if self.points else "used Area-Under-Curve for each unique Recall"
        return [
            *rows,
            f"for conf_thresh = {self.confidence:.2f}, precision = {total.precision:.2f}, "
            f"recall = {total.recall:.2f}, F1-score = {total.f1:.2f}",
            f"for conf_thresh = {self.confidence:.2f}, TP = {total.true_positives}, FP = {total.false_positives}, "
            f"FN = {total.false_negatives}, average IoU = {100 * total.average_iou:.2f} %",
            f"IoU threshold = {100 * self.iou_threshold:.0f} %, {method}",
            f"mean average precision (mAP@{self.iou_threshold:.2f}) = {self.mean_average_precision:.6f}, "
            f"or {100 * self.mean_average_precision:.2f} %",
        ]


def evaluate(
    predictions: Sequence[Predictions],
    truths: Sequence[Truth],
    names: Sequence[str],
    *,
    iou_threshold: float = 0.5,
    points: int = 0,
    confidence: float = 0.25,
    rule: Rule = "voc",
    absent_classes: bool = False,
) -> Evaluation:
    """Judge the detections of a set of pictures, `predictions` and `truths` one per picture in the same order.

    names: one per class. points: 0 for the area under the curve, else the number of recalls (11, 101).
    confidence: where right, wrong and missed are counted (scores above it); the average precision uses all scores.
    absent_classes: classes without a true object count as 0 in the mean, as AlexeyAB's program does; otherwise they
        are left out. Differs from that program's counts in one point: of several detections of one object the
        best-scored is the right one here, the first in the list there.
    """
    pairings = pair(predictions, truths, rule)
    results = []
    for class_id, name in enumerate(names):
        verdicts = judge(pairings.get(class_id, []), iou_threshold, rule)
        results.append(
            ClassResult(name, verdicts.truths, class_precision(verdicts, points), count(verdicts, confidence))
        )
    precisions = np.array([result.average_precision for result in results])
    if absent_classes:
        precisions = np.nan_to_num(precisions)
    total = sum((result.counts for result in results), Counts(0, 0, 0, 0.0))
    return Evaluation(tuple(results), _mean(precisions), total, iou_threshold, confidence, points)


def count(verdicts: Verdicts, confidence: float) -> Counts:
    """Right, wrong and missed among the detections scored above `confidence`."""
    chosen = verdicts.above(confidence)
    right = chosen.verdicts == RIGHT
    hits = int(right.sum())
    return Counts(hits, int((chosen.verdicts == WRONG).sum()), verdicts.truths - hits, float(chosen.ious[right].sum()))


def precision_recall(verdicts: Verdicts) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Precision and recall after each detection that counts, best score first. Recall is 0 without true objects."""
    right = verdicts.verdicts[verdicts.verdicts != IGNORED] == RIGHT
    hits = np.cumsum(right)
    return hits / np.arange(1, len(hits) + 1), hits / max(1, verdicts.truths)


def class_precision(verdicts: Verdicts, points: int = 0) -> float:
    """Average precision of one class; NaN where the set holds no object of it."""
    if verdicts.truths == 0:
        return float("nan")
    return average_precision(*precision_recall(verdicts), points)


def average_precision(precision: NDArray[np.floating], recall: NDArray[np.floating], points: int = 0) -> float:
    """From the curve (recall rising) to one number.

    points=0: the area under the curve whose value at each recall is the best precision at that recall or beyond.
    points=n: the mean of that value at the recalls 0, 1/(n-1), ..., 1.
    """
    return _read(precision, recall, np.arange(points) / (points - 1)) if points else _area(precision, recall)


@dataclass(frozen=True)
class CocoResult:
    """AP at IoU .50:.95, at .50, at .75 and the average recall (100 detections); per class AP, NaN without objects."""

    average_precision: float
    at_50: float
    at_75: float
    average_recall: float
    per_class: NDArray[np.float64]


def evaluate_coco(predictions: Sequence[Predictions], truths: Sequence[Truth], classes: int) -> CocoResult:
    """COCO's detection numbers over all areas, at most 100 detections per picture and class."""
    recalls = np.linspace(0, 1, 101)  # not i/100: ties with a recall must fall as in COCO's own program
    precision = np.full((len(COCO_THRESHOLDS), classes), np.nan)
    recall = np.full_like(precision, np.nan)
    pairings = pair(predictions, truths, "coco", COCO_DETECTIONS)
    for class_id in range(classes):
        for row, threshold in enumerate(COCO_THRESHOLDS):
            verdicts = judge(pairings.get(class_id, []), threshold, "coco")
            if verdicts.truths:
                curve = precision_recall(verdicts)
                precision[row, class_id] = _read(*curve, recalls)
                recall[row, class_id] = curve[1][-1] if len(curve[1]) else 0
    return CocoResult(
        average_precision=_mean(precision),
        at_50=_mean(precision[0]),
        at_75=_mean(precision[5]),
        average_recall=_mean(recall),
        per_class=precision.mean(axis=0),
    )


@dataclass(frozen=True)
class RecallResult:
    """Darknet's `detector recall`: class-blind. proposals: boxes above the threshold, all pictures together."""

    pictures: int
    proposals: int
    truths: int
    found: int
    average_iou: float

    @property
    def recall(self) -> float:
        """Share of the true boxes that some proposal covers, 0 to 1."""
        return _ratio(self.found, self.truths)

    @property
    def proposals_per_picture(self) -> float:
        """Mean number of proposals."""
        return _ratio(self.proposals, self.pictures)


def evaluate_recall(
    candidates: Sequence[Candidates], truths: Sequence[Truth], threshold: float = 0.001, iou_threshold: float = 0.5
) -> RecallResult:
    """For every true box the best overlap with any candidate whose objectness is above the threshold.

    candidates: after `do_nms_obj`, in the units of the truth. Found: overlaps of more than `iou_threshold`.
    """
    proposals, best = 0, [np.zeros(0)]
    for found, real in zip(candidates, truths, strict=True):
        boxes = found.boxes[found.objectness > threshold]
        proposals += len(boxes)
        overlaps = np.nan_to_num(box_iou(real.boxes[:, None], boxes.astype(np.float64)))
        best.append(overlaps.max(axis=1, initial=0))
    overlap = np.concatenate(best)
    hits = int((overlap > iou_threshold).sum())
    average = float(overlap.mean()) if len(overlap) else 0.0
    return RecallResult(len(truths), proposals, len(overlap), hits, average)


def _falling(precision: NDArray[np.floating]) -> NDArray[np.floating]:
    """The best precision from each place on."""
    return np.maximum.accumulate(precision[::-1])[::-1]


def _area(precision: NDArray[np.floating], recall: NDArray[np.floating]) -> float:
    return float((np.diff(recall, prepend=0) * _falling(precision)).sum())


def _read(precision: NDArray[np.floating], recall: NDArray[np.floating], at: NDArray[np.floating]) -> float:
    falling = np.append(_falling(precision), 0)
    return float(falling[np.searchsorted(recall, at, side="left")].mean())


def _mean(values: NDArray[np.floating]) -> float:
    """Over the classes that occur; 0 where none does."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else 0.0


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
