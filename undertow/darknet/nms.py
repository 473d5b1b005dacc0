"""Non-maximum suppression as Darknet does it, down to the order of the results."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from undertow.darknet.boxes import Candidates, box_iou


def do_nms_sort(candidates: Candidates, threshold: float) -> Candidates:
    """Class by class: of two boxes that overlap by more than `threshold` (IoU), the less probable loses the class.

    The result keeps every candidate, with the lost probabilities 0, sorted by the last class (ties: by the class
    before, and so on), those without objectness last, as the original leaves them.
    """
    candidates, alive = _zeros_last(candidates)
    order = np.arange(len(candidates))
    probabilities = candidates.probabilities.copy()
    for column in probabilities.T:
        order[:alive] = order[:alive][np.argsort(-column[order[:alive]], kind="stable")]
        ranked = order[:alive][column[order[:alive]] > 0]
        column[ranked[~_survivors(candidates.boxes[ranked], threshold)]] = 0
    return Candidates(candidates.boxes, candidates.objectness, probabilities).taken(order)


def do_nms_obj(candidates: Candidates, threshold: float) -> Candidates:
    """Of two boxes that overlap by more than `threshold` (IoU), the one with less objectness loses everything.

    The result keeps every candidate, sorted by the objectness it had, those without any last.
    """
    candidates, alive = _zeros_last(candidates)
    order = np.arange(len(candidates))
    order[:alive] = np.argsort(-candidates.objectness[:alive], kind="stable")
    result = candidates.taken(order)
    lost = np.flatnonzero(~_survivors(result.boxes[:alive], threshold))
    result.objectness[lost] = 0
    result.probabilities[lost] = 0
    return result


def _survivors(boxes: NDArray[np.float32], threshold: float) -> NDArray[np.bool_]:
    """Which of the boxes, best first, stay when each standing one strikes out later ones that overlap it."""
    standing = np.ones(len(boxes), bool)
    for place in range(len(boxes)):
        if standing[place]:
            later = np.flatnonzero(standing[place + 1 :]) + place + 1
            standing[later[box_iou(boxes[place], boxes[later]) > threshold]] = False
    return standing


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
