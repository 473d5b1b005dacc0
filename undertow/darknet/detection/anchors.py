"""Anchors for a data set: k-means over the sizes of its boxes with 1 - IoU as the distance (AlexeyAB's calc_anchors).

The fork begins at random boxes and stops where its means settle, so that every run gives others. Here several
beginnings that depend on the boxes alone are tried, each is then improved by moving single sides as long as the average
IoU grows, and the best is kept: the same boxes give the same anchors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from undertow.data.crand import CounterRandom
from undertow.errors import UndertowError

Array = np.ndarray[Any, Any]

BEGINNINGS = 8
_ROUNDS = 1000
_MOVES = (1.08, 1.03, 1.01)
# Sizes are grouped so finely for the search that the average IoU of large sets stays as it is.
_LARGEST = 20_000


@dataclass(frozen=True)
class Anchors:
    """sizes: (k, 2) widths and heights in pixels of the net's input, by rising area. average_iou: 0..1, of each box
    with the anchor that fits it best. counts: boxes that each anchor fits best. fine: not whole pixels.
    """

    sizes: Array
    average_iou: float
    counts: Array
    fine: bool = False

    def text(self) -> str:
        """As the fork writes anchors.txt: `10, 13,  16, 30`; with four decimals for nets of at most 32 pixels."""
        return ", ".join(self._pair(width, height) for width, height in self.sizes)

    def _pair(self, width: float, height: float) -> str:
        if self.fine:
            return f"{width:2.4f},{height:2.4f}"
        return f"{width:3.0f},{height:3.0f}"


def iou_of_sizes(sizes: Array, anchors: Array) -> Array:
    """(n, 2) and (k, 2) -> (n, k): intersection over union of boxes with one corner in common."""
    shared = np.minimum(sizes[:, None], anchors).prod(axis=2)
    return shared / (sizes.prod(axis=1)[:, None] + anchors.prod(axis=1) - shared)


def calc_anchors(sizes: Array, count: int, *, fine: bool = False) -> Anchors:
    """The anchors that fit boxes of these sizes.

    sizes: (n, 2) widths and heights in pixels of the net's input, all above 0. count: how many anchors. fine: four
    decimals; otherwise anchors are whole pixels, and the average IoU is that of these.
    Raises UndertowError for fewer different sizes than anchors.
    """
    sizes = np.asarray(sizes, np.float64)
    different, weights = np.unique(sizes, axis=0, return_counts=True)
    if len(different) < count:
        raise UndertowError(
            f"{count} anchors for boxes of {len(different)} different sizes",
            remedy=f"ask for at most {max(1, len(different))} (-num_of_clusters), or give more labels",
        )
    searched, shares = _thinned(different, weights)
    found = [_settled(searched, shares, _beginning(searched, shares, count, number)) for number in range(BEGINNINGS)]
    best = max(found, key=lambda anchors: _average(searched, shares, anchors))
    best = _improved(searched, shares, best)
    best = best if fine else np.maximum(np.rint(best), 1)
    best = best[np.argsort(best.prod(axis=1), kind="stable")]
    fits = iou_of_sizes(different, best)
    counts = np.bincount(fits.argmax(axis=1), weights, count).astype(np.int64)
    return Anchors(best, float((fits.max(axis=1) * weights).sum() / weights.sum()), counts, fine)


def _thinned(sizes: Array, weights: Array) -> tuple[Array, Array]:
    """At most so many sizes, evenly taken from those ordered by area; each stands for all up to the next."""
    if len(sizes) <= _LARGEST:
        return sizes, weights.astype(np.float64)
    order = np.lexsort((sizes[:, 0], sizes.prod(axis=1)))
    starts = np.linspace(0, len(order), _LARGEST, endpoint=False).astype(np.intp)
    total = np.add.reduceat(weights[order].astype(np.float64), starts)
    return sizes[order][starts], total


def _beginning(sizes: Array, weights: Array, count: int, number: int) -> Array:
    """k-means++: each next one is drawn by its distance from those before; the first is the box in the middle."""
    random = CounterRandom(number, 0)
    chosen = [np.average(sizes, axis=0, weights=weights)]
    while len(chosen) < count + 1:
        distance = (1 - iou_of_sizes(sizes, np.array(chosen)).max(axis=1)) * weights
        place = float(random.uniform(0, 1)) * distance.sum()
        chosen.append(sizes[min(int(np.searchsorted(np.cumsum(distance), place)), len(sizes) - 1)])
    return np.array(chosen[1:] if number else [*chosen[:1], *chosen[2:]])


def _settled(sizes: Array, weights: Array, anchors: Array) -> Array:
    """Means of the boxes that each anchor fits best, until these stay the same."""
    before = None
    for _ in range(_ROUNDS):
        nearest = iou_of_sizes(sizes, anchors).argmax(axis=1)
        if before is not None and np.array_equal(nearest, before):
            break
        before = nearest
        total = np.bincount(nearest, weights, len(anchors))
        sums = [np.bincount(nearest, weights * sizes[:, side], len(anchors)) for side in range(2)]
        means = np.stack(sums, axis=1) / np.maximum(total, 1e-300)[:, None]
        anchors = np.where(total[:, None] > 0, means, anchors)
    return anchors


def _improved(sizes: Array, weights: Array, anchors: Array) -> Array:
    """Sides made longer or shorter one at a time, in smaller and smaller steps, where the average IoU gains by it."""
    anchors, best = anchors.copy(), _average(sizes, weights, anchors)
    for step in _MOVES:
        for _ in range(20):
            before = best
            for place in np.ndindex(*anchors.shape):
                for factor in (step, 1 / step):
                    tried = anchors.copy()
                    tried[place] *= factor
                    average = _average(sizes, weights, tried)
                    if average > best:
                        anchors, best = tried, average
            if best - before < 1e-5:
                break
    return anchors


def _average(sizes: Array, weights: Array, anchors: Array) -> float:
    return float((iou_of_sizes(sizes, anchors).max(axis=1) * weights).sum() / weights.sum())
