"""Where a yolo layer's boxes overlap objects, found without comparing every box with every object.

A box of the layer has its middle in its own cell, and boxes that overlap by much have middles near each other: so an
object is compared with the boxes of the cells around it only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from undertow.darknet.detection.boxes import box_iou

Array = np.ndarray[Any, Any]

# Cells are left out only where rounding cannot turn their boxes' overlap into one above the threshold. In float32 that
# holds with this share of the threshold, for thresholds and objects (relative to the picture) of usual sizes.
_SURE_SHARE = 0.97
_SMALLEST_THRESHOLD = 0.05
_SMALLEST_SIDE, _LARGEST = 1e-3, 2.0
_SLACK = 0.01  # of a cell

_AT_ONCE = 64  # objects: bounds the memory where all boxes have to be looked at


def predicted_boxes(values: Array, anchors: Array, net_size: tuple[int, int]) -> Array:
    """Boxes (4, batch, n, h, w): x, y, w, h relative to the picture.

    values: the outputs (4 or more, batch, n, h, w) that begin with x, y, w, h. anchors: (n, 2), in pixels of the
    network input of net_size (width, height).
    """
    height, width = values.shape[3:]
    boxes = np.empty((4, *values.shape[1:]), values.dtype)
    places, sizes = boxes[:2], boxes[2:]
    np.add(values[0], np.arange(width, dtype=values.dtype), out=places[0])
    np.add(values[1], np.arange(height, dtype=values.dtype)[:, None], out=places[1])
    places /= np.array([width, height], values.dtype).reshape(2, 1, 1, 1, 1)
    with np.errstate(over="ignore"):
        np.exp(values[2:4], out=sizes)
        sizes *= anchors.astype(values.dtype).T[:, None, :, None, None]
        sizes /= np.array(net_size, values.dtype).reshape(2, 1, 1, 1, 1)
    return boxes


def overlaps(boxes: Array, truth: Array) -> Array:
    """IoU of boxes (4, count) or (4, n, count) with truths (count, 4 or more); 0 where both have no area."""
    found: Array = box_iou(boxes.transpose(*range(1, boxes.ndim), 0), truth[:, :4])
    found[np.isnan(found)] = 0
    return found


def overlapping(boxes: Array, image: Array, truth: Array, threshold: float) -> Iterator[tuple[Array, Array]]:
    """All places whose box overlaps a truth of its picture by more than the threshold, and by how much, in parts.

    boxes: (4, batch, n, h, w) of `predicted_boxes`. image: (count,), the picture of each truth. truth: (count, 4 or
    more). A place is an index into the flattened (batch, n, h, w); it comes once for each truth.
    """
    _, _, n, height, width = boxes.shape
    flat = boxes.reshape(4, -1)
    first = np.arange(n)[:, None] * (height * width)
    for start in range(0, len(truth), _AT_ONCE):
        some, of = truth[start : start + _AT_ONCE], image[start : start + _AT_ONCE]
        rows, columns = _near(some, threshold, height, width)
        cells = np.flatnonzero(rows[:, :, None] & columns[:, None, :])
        which, cell = np.divmod(cells, height * width)
        place = first + (of[which] * (n * height * width) + cell)
        found = overlaps(flat[:, place], some[which])
        above = found > threshold
        yield place[above], found[above]


def _near(truth: Array, threshold: float, height: int, width: int) -> tuple[Array, Array]:
    """Rows (count, height) and columns (count, width) with a point where boxes may have their middle that overlap.

    With IoU > t the smaller side is more than t times the larger one, and sides overlap by more than t times the
    larger one: so middles are less than (1 - t) max(1, 1 / 2t) of the truth's side apart.
    """
    low, high = np.full((2, len(truth), 2), [[[-np.inf]], [[np.inf]]])
    if threshold >= _SMALLEST_THRESHOLD:
        usual = (np.abs(truth[:, :4]) <= _LARGEST).all(axis=1) & (truth[:, 2:4] >= _SMALLEST_SIDE).all(axis=1)
        middle, side, cells = truth[usual, :2], truth[usual, 2:4], np.array([width, height])
        share = _SURE_SHARE * threshold
        far = side * (max(1 - share, 0) * max(1, 0.5 / share))
        low[usual], high[usual] = (middle - far) * cells - (1 + _SLACK), (middle + far) * cells + _SLACK
    row, column = np.arange(height), np.arange(width)
    return (
        (row >= low[:, 1:]) & (row <= high[:, 1:]),
        (column >= low[:, :1]) & (column <= high[:, :1]),
    )
