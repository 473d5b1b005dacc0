"""Boxes as SSD has them: corners left, top, right, bottom in parts of the image; coding, matching, suppression.

Arrays (..., 4). Sources: SSD (Liu et al. 2016) and its bbox_util.cpp.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]

# Overlaps up to this one count as none when boxes are matched.
_TOUCHING = 1e-6
UNMATCHED, CROSSING = -1, -2


def areas(boxes: Array, pixel: float = 0.0) -> Array:
    """Area of each box, 0 for one turned inside out. pixel: 1 where corners are pixels that belong to the box."""
    size = boxes[..., 2:] - boxes[..., :2]
    return np.where((size >= 0).all(-1), (size + pixel).prod(-1), 0)


def overlaps(box: Array, boxes: Array, pixel: float = 0.0) -> Array:
    """Intersection over union, broadcast over the leading axes; 0 where there is no intersection."""
    size = np.minimum(box[..., 2:], boxes[..., 2:]) - np.maximum(box[..., :2], boxes[..., :2])
    inner = np.where((size >= 0).all(-1), (size + pixel).prod(-1), 0)
    union = areas(box, pixel) + areas(boxes, pixel) - inner
    return np.divide(inner, union, out=np.zeros_like(inner), where=inner > 0)


def coverage(boxes: Array, by: Array) -> Array:
    """The part of each box that lies inside another one, broadcast; 0 for boxes without area."""
    size = np.minimum(boxes[..., 2:], by[..., 2:]) - np.maximum(boxes[..., :2], by[..., :2])
    inner = np.where((size > 0).all(-1), size.prod(-1), 0)
    return np.divide(inner, areas(boxes), out=np.zeros_like(inner), where=inner > 0)


def decode(offsets: Array, priors: Array, variance: Array, code: str, in_target: bool = False) -> Array:
    """Corners (n, 4) from what a net predicts about default boxes.

    code: CORNER, CORNER_SIZE or CENTER_SIZE. in_target: the variance is in the targets, offsets come without it.
    """
    moved = offsets if in_target else offsets * variance
    size = priors[:, 2:] - priors[:, :2]
    if code == "CORNER":
        return priors + moved
    if code == "CORNER_SIZE":
        return priors + moved * np.concatenate([size, size], 1)
    centre = (priors[:, :2] + priors[:, 2:]) / 2 + moved[:, :2] * size
    with np.errstate(over="ignore"):
        half = np.exp(moved[:, 2:]) * size / 2
    return np.concatenate([centre - half, centre + half], 1)


def encode(boxes: Array, priors: Array, variance: Array, code: str, in_target: bool = False) -> Array:
    """What a net should predict about default boxes (n, 4) for these boxes; the inverse of `decode`."""
    size = priors[:, 2:] - priors[:, :2]
    if code == "CORNER":
        offsets = boxes - priors
    elif code == "CORNER_SIZE":
        offsets = (boxes - priors) / np.concatenate([size, size], 1)
    else:
        centre = (boxes[:, :2] + boxes[:, 2:] - priors[:, :2] - priors[:, 2:]) / 2
        offsets = np.concatenate([centre / size, np.log((boxes[:, 2:] - boxes[:, :2]) / size)], 1)
    return offsets if in_target else offsets / variance


class Matches(NamedTuple):
    """truth: for each box the index of its object, or UNMATCHED, or CROSSING. overlap: with it, else the largest."""

    truth: Array
    overlap: Array


def match(truth: Array, boxes: Array, threshold: float, *, every: bool = True, inside: bool = False) -> Matches:
    """Give objects (m, 4) to boxes (n, 4): first each object its best box, the best pairs first.

    every: then each box that is left the object it overlaps most, by `threshold` or more (PER_PREDICTION).
    inside: leave out boxes that cross the border of the image.
    """
    found = np.full(len(boxes), UNMATCHED)
    if not len(truth):
        return Matches(found, np.zeros(len(boxes), boxes.dtype))
    table = overlaps(boxes[:, None], truth[None])
    if inside:
        crossing = ((boxes < 0) | (boxes > 1)).any(1)
        found[crossing], table[crossing] = CROSSING, 0
    table[table <= _TOUCHING] = 0
    best = table.max(1)
    free = table.copy()
    for _ in range(len(truth)):
        box, thing = divmod(int(free.argmax()), len(truth))
        if free[box, thing] <= 0:
            break
        found[box], best[box] = thing, table[box, thing]
        free[box], free[:, thing] = 0, 0
    if every:
        rest = (found == UNMATCHED) & (best >= threshold) & (best > 0)
        found[rest] = table[rest].argmax(1)
    return Matches(found, best)


def suppress(boxes: Array, scores: Array, limit: float, *, top_k: int = -1, eta: float = 1.0) -> list[int]:
    """The boxes that stay, by falling score: those that overlap no better one by more than `limit`.

    top_k: only so many are looked at (-1: all). eta: below 1, lowers the limit as boxes are taken.
    """
    order = np.argsort(-scores, kind="stable")
    kept: list[int] = []
    for index in order if top_k < 0 else order[:top_k]:
        if not kept or overlaps(boxes[index], boxes[kept]).max() <= limit:
            kept.append(int(index))
            limit *= eta if eta < 1 and limit > 0.5 else 1
    return kept


def project(boxes: Array, window: Array) -> tuple[Array, Array]:
    """Boxes (n, 4) seen from a window (4,) of their image, cut off at its border; and which of them have area left."""
    size = np.concatenate([window[2:] - window[:2]] * 2)
    moved = ((boxes - np.concatenate([window[:2]] * 2)) / size).clip(0, 1)
    outside = (boxes[:, :2] >= window[2:]).any(1) | (boxes[:, 2:] <= window[:2]).any(1)
    return moved, ~outside & (areas(moved) > 0)
