"""Non-maximum suppression as Darknet and AlexeyAB's fork do it, down to the order of the results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from undertow.darknet.detection.boxes import Candidates, Floats, box_iou
from undertow.darknet.detection.boxes_measures import box_diou, box_diounms

Measure = Callable[[Floats, Floats], Floats]

# All pairs pay off sooner where every class asks for them; 4096 boxes take 16 MiB.
_AT_ONCE, _AT_ONCE_FOR_CLASSES = 256, 4096
_BAND = 32


def do_nms(candidates: Candidates, threshold: float, kind: str = "default", beta: float = 0.6) -> Candidates:
    """Suppression of the kind that a head asks for by nms_kind= and beta_nms= (diounms_sort of AlexeyAB's fork).

    default, cornersnms: `do_nms_sort`. greedynms, diounms: the same, but overlaps count less the further apart the
    centres are: IoU - (d^2/c^2)^b with the enclosing diagonal c, b = .6 for greedynms, beta for diounms.
    Raises ValueError for another kind.
    """
    measures: dict[str, Measure] = {
        "default": box_iou,
        "cornersnms": box_iou,
        "greedynms": box_diou,
        "diounms": lambda a, b: box_diounms(a, b, beta),
    }
    if kind not in measures:
        raise ValueError(f"there is no nms_kind '{kind}'; there are {', '.join(measures)}")
    return do_nms_sort(candidates, threshold, measures[kind])


def do_nms_sort(candidates: Candidates, threshold: float, measure: Measure = box_iou) -> Candidates:
    """Class by class: of two boxes that overlap by more than `threshold`, the less probable loses the class.

    measure: of the overlap, IoU unless given.
    The result keeps every candidate, with the lost probabilities 0, sorted by the last class (ties: by the class
    before, and so on), those without objectness last, as the original leaves them.
    """
    candidates, alive = _zeros_last(candidates)
    order = np.arange(len(candidates))
    probabilities = candidates.probabilities.copy()
    overlaps = _Overlaps(candidates.boxes, threshold, _AT_ONCE_FOR_CLASSES, measure)
    for column in probabilities.T:
        order[:alive] = order[:alive][np.argsort(-column[order[:alive]], kind="stable")]
        ranked = order[:alive][column[order[:alive]] > 0]
        column[ranked[~overlaps.survivors(ranked)]] = 0
    return replace(candidates, probabilities=probabilities).taken(order)


def do_nms_obj(candidates: Candidates, threshold: float) -> Candidates:
    """Of two boxes that overlap by more than `threshold` (IoU), the one with less objectness loses everything.

    The result keeps every candidate, sorted by the objectness it had, those without any last.
    """
    candidates, alive = _zeros_last(candidates)
    order = np.arange(len(candidates))
    order[:alive] = np.argsort(-candidates.objectness[:alive], kind="stable")
    result = candidates.taken(order)
    lost = np.flatnonzero(~_Overlaps(result.boxes, threshold, _AT_ONCE).survivors(np.arange(alive)))
    result.objectness[lost] = 0
    result.probabilities[lost] = 0
    return result


class _Overlaps:
    """Which boxes overlap by more than the threshold: all pairs at once, or row by row beyond `at_once` boxes."""

    def __init__(self, boxes: NDArray[np.float32], threshold: float, at_once: int, measure: Measure = box_iou) -> None:
        self._boxes, self._threshold, self._measure = boxes, threshold, measure
        self._pairs = self._all_pairs() if len(boxes) <= at_once else None

    def survivors(self, ranked: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Which of the ranked boxes, best first, stay when each standing one strikes out later ones it overlaps."""
        standing = np.ones(len(ranked), bool)
        pairs = None if self._pairs is None else self._pairs[np.ix_(ranked, ranked)]
        for place in range(len(ranked)) if pairs is None else np.flatnonzero(np.triu(pairs, 1).any(axis=1)):
            if standing[place]:
                row = self._row(ranked[place], ranked[place + 1 :]) if pairs is None else pairs[place, place + 1 :]
                standing[place + 1 :] &= ~row
        return standing

    def _row(self, box: np.intp, others: NDArray[np.intp]) -> NDArray[np.bool_]:
        return self._measure(self._boxes[box], self._boxes[others]) > self._threshold

    def _all_pairs(self) -> NDArray[np.bool_]:
        pairs = np.empty((len(self._boxes), len(self._boxes)), bool)
        for start in range(0, len(pairs), _BAND):
            band = slice(start, start + _BAND)
            pairs[band] = self._measure(self._boxes[band, None], self._boxes) > self._threshold
        return pairs


def _zeros_last(candidates: Candidates) -> tuple[Candidates, int]:
    """Move candidates without objectness to the end by the original's swaps; also how many have some."""
    if candidates.objectness.all():
        return candidates, len(candidates)
    order = list(range(len(candidates)))
    place, last = 0, len(order) - 1
    while place <= last:
        if candidates.objectness[order[place]] == 0:
            order[place], order[last] = order[last], order[place]
            last -= 1
        else:
            place += 1
    return candidates.taken(np.array(order, np.intp)), last + 1
