"""Which detections are right: the rules of PASCAL VOC and of COCO, one picture and one class at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertow.darknet.detection.boxes import Candidates, Floats, box_intersection
from undertow.errors import ShapeError

Rule = Literal["voc", "coco"]
RIGHT, WRONG, IGNORED = 1, 0, -1


@dataclass(frozen=True)
class Truth:
    """What is in one picture: boxes (n, 4) x, y, w, h; classes (n,).

    ignored (n,): finding or missing these counts neither way; VOC's difficult objects, COCO's crowds.
    """

    boxes: NDArray[np.floating]
    classes: NDArray[np.integer]
    ignored: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, bool))

    def __post_init__(self) -> None:
        object.__setattr__(self, "boxes", np.asarray(self.boxes, np.float64).reshape(-1, 4))
        object.__setattr__(self, "classes", np.asarray(self.classes, np.intp).reshape(-1))
        ignored = np.asarray(self.ignored, bool).reshape(-1)
        object.__setattr__(self, "ignored", ignored if ignored.size else np.zeros(len(self.boxes), bool))
        if not len(self.boxes) == len(self.classes) == len(self.ignored):
            raise ShapeError(
                f"{len(self.boxes)} boxes, {len(self.classes)} classes and {len(self.ignored)} marks to ignore"
            )


@dataclass(frozen=True)
class Predictions:
    """What was found in one picture: boxes (m, 4) in the units of the truth, scores (m,), classes (m,)."""

    boxes: NDArray[np.floating]
    scores: NDArray[np.floating]
    classes: NDArray[np.integer]

    def __post_init__(self) -> None:
        object.__setattr__(self, "boxes", np.asarray(self.boxes, np.float64).reshape(-1, 4))
        object.__setattr__(self, "scores", np.asarray(self.scores, np.float64).reshape(-1))
        object.__setattr__(self, "classes", np.asarray(self.classes, np.intp).reshape(-1))
        if not len(self.boxes) == len(self.scores) == len(self.classes):
            raise ShapeError(f"{len(self.boxes)} boxes, {len(self.scores)} scores and {len(self.classes)} classes")

    @classmethod
    def of(cls, candidates: Candidates) -> Predictions:
        """Every class with a probability above 0 in every box, after suppression, in Darknet's order."""
        candidate, class_id = np.nonzero(candidates.probabilities > 0)
        return cls(candidates.boxes[candidate], candidates.probabilities[candidate, class_id], class_id)


class Verdicts(NamedTuple):
    """One class over all pictures, best score first: scores; verdicts RIGHT, WRONG or IGNORED; the IoU with the truth
    that decided (0 without one); and the number of true objects that count.
    """

    scores: Floats
    verdicts: NDArray[np.int8]
    ious: NDArray[np.float64]
    truths: int

    def above(self, confidence: float) -> Verdicts:
        """Only the detections whose score is above `confidence`."""
        kept = self.scores > confidence
        return Verdicts(self.scores[kept], self.verdicts[kept], self.ious[kept], self.truths)


class Pairing(NamedTuple):
    """One picture's detections and objects of one class: scores, best first; overlaps (detections, objects); which
    objects are ignored (they come last).
    """

    scores: Floats
    overlaps: NDArray[np.float64]
    ignored: NDArray[np.bool_]


def pair(
    predictions: Sequence[Predictions], truths: Sequence[Truth], rule: Rule = "voc", max_detections: int | None = None
) -> dict[int, list[Pairing]]:
    """Per class the pairings of all pictures where it is found or present; predictions and truths one per picture.

    max_detections: only so many of the best per picture and class count (COCO: 100).
    """
    if len(predictions) != len(truths):
        raise ShapeError(f"predictions for {len(predictions)} pictures, truths for {len(truths)}")
    pairings: dict[int, list[Pairing]] = {}
    for found, real in zip(predictions, truths, strict=True):
        for class_id in np.union1d(found.classes, real.classes):
            mine = np.flatnonzero(found.classes == class_id)
            mine = mine[np.argsort(-found.scores[mine], kind="stable")][:max_detections]
            theirs = np.flatnonzero(real.classes == class_id)
            theirs = theirs[np.argsort(real.ignored[theirs], kind="stable")]
            ignored = real.ignored[theirs]
            overlaps = _overlaps(found.boxes[mine], real.boxes[theirs], ignored if rule == "coco" else None)
            pairings.setdefault(int(class_id), []).append(Pairing(found.scores[mine], overlaps, ignored))
    return pairings


def judge(pairings: Sequence[Pairing], iou_threshold: float, rule: Rule = "voc") -> Verdicts:
    """Judge all detections of one class, given its pairings.

    rule "voc" (PASCAL, and AlexeyAB's map): a detection belongs to the object it overlaps most, if by more than the
    threshold; the best-scored one is right, further ones wrong. "coco": it takes the object it overlaps most
    among those still free, if by at least the threshold. Equal scores keep the order they come in.
    """
    decide = _by_coco if rule == "coco" else _by_voc
    scores = np.concatenate([pairing.scores for pairing in pairings] or [np.zeros(0)])
    verdicts, ious = np.full(len(scores), WRONG, np.int8), np.zeros(len(scores))
    start = 0
    for pairing in pairings:
        if pairing.overlaps.size:
            for place, verdict, iou in decide(pairing.overlaps, pairing.ignored, iou_threshold):
                verdicts[start + place], ious[start + place] = verdict, iou
        start += len(pairing.scores)
    order = np.argsort(-scores, kind="stable")
    wanted = sum(int((~pairing.ignored).sum()) for pairing in pairings)
    return Verdicts(scores[order], verdicts[order], ious[order], wanted)


def _by_voc(
    overlaps: NDArray[np.float64], ignored: NDArray[np.bool_], threshold: float
) -> Iterator[tuple[int, int, float]]:
    """(detection, verdict, IoU) of those that are not simply wrong; overlaps (detections, objects)."""
    taken = np.zeros(len(ignored), bool)
    best = overlaps.argmax(axis=1)
    for place in np.flatnonzero(overlaps.max(axis=1) > threshold).tolist():
        thing = int(best[place])
        if ignored[thing]:
            yield place, IGNORED, float(overlaps[place, thing])
        elif not taken[thing]:
            taken[thing] = True
            yield place, RIGHT, float(overlaps[place, thing])


def _by_coco(
    overlaps: NDArray[np.float64], ignored: NDArray[np.bool_], threshold: float
) -> Iterator[tuple[int, int, float]]:
    """As COCO's evaluation: free objects first, crowds after them and any number of times; of equal overlaps the last
    object wins.
    """
    taken = np.zeros(len(ignored), bool)
    least = min(threshold, 1 - 1e-10)
    for place in np.flatnonzero(overlaps.max(axis=1) >= least).tolist():
        row = overlaps[place]
        for group in (~ignored & ~taken, ignored):
            within = np.where(group, row, -1.0)
            thing = len(row) - 1 - int(within[::-1].argmax())
            if within[thing] >= least:
                taken[thing] = True
                yield place, IGNORED if ignored[thing] else RIGHT, float(row[thing])
                break


def _overlaps(found: Floats, real: Floats, crowd: NDArray[np.bool_] | None) -> NDArray[np.float64]:
    """IoU (detections, objects), 0 for boxes without area; against a crowd the share of the detection inside it."""
    inside = box_intersection(found[:, None], real)
    own = (found[:, 2] * found[:, 3])[:, None]
    union = own + real[:, 2] * real[:, 3] - inside
    if crowd is not None:
        union = np.where(crowd, own, union)
    return np.divide(inside, union, out=np.zeros_like(inside), where=union > 0)
