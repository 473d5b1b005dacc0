"""Measures of how well two boxes fit together beyond plain overlap: giou, diou, ciou (AlexeyAB's fork, box.c).

Boxes are (..., 4) x, y, w, h, broadcast against each other; results are in their dtype. Boxes apart, or inside one
another, differ in these measures where `box_iou` sees no difference.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from undertow.darknet.detection.boxes import Floats, box_intersection, box_iou, to_corners

# Stretches the distance in the measure that greedynms suppresses by.
GREEDY_BETA = 0.6


def box_giou(a: Floats, b: Floats) -> Floats:
    """IoU minus the share of the enclosing box that neither of the two covers."""
    width, height = _enclosing(a, b)
    shared = box_intersection(a, b)
    union = a[..., 2] * a[..., 3] + b[..., 2] * b[..., 3] - shared
    return box_iou(a, b) - _share(width * height - union, width * height)


def box_diounms(a: Floats, b: Floats, beta: float) -> Floats:
    """IoU minus (d^2 / c^2)^beta: distance of the centres over the diagonal of the enclosing box."""
    return box_iou(a, b) - _distance(a, b) ** np.asarray(a).dtype.type(beta)


def box_diou(a: Floats, b: Floats) -> Floats:
    """`box_diounms` with the exponent 0.6, as the fork's box_diou has it."""
    return box_diounms(a, b, GREEDY_BETA)


def box_ciou(a: Floats, b: Floats) -> Floats:
    """IoU minus d^2 / c^2 minus a term for unlike proportions."""
    angle = np.arctan(b[..., 2] / b[..., 3]) - np.arctan(a[..., 2] / a[..., 3])
    unlike = 4 / np.pi**2 * angle * angle
    iou = box_iou(a, b)
    return iou - _distance(a, b) - unlike * unlike / (1 - iou + unlike + 1e-6)


MEASURES: dict[str, Callable[[Floats, Floats], Floats]] = {
    "iou": box_iou,
    "giou": box_giou,
    "diou": box_diou,
    "ciou": box_ciou,
}


def _enclosing(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Width and height of the smallest box around both."""
    one, other = to_corners(a), to_corners(b)
    size = np.maximum(one[..., 2:], other[..., 2:]) - np.minimum(one[..., :2], other[..., :2])
    return size[..., 0], size[..., 1]


def _distance(a: Floats, b: Floats) -> Floats:
    """Squared distance of the centres over the squared diagonal of the enclosing box."""
    width, height = _enclosing(a, b)
    apart = (np.asarray(a)[..., :2] - np.asarray(b)[..., :2]) ** 2
    return _share(apart[..., 0] + apart[..., 1], width * width + height * height)


def _share(part: Floats, whole: Floats) -> NDArray[np.floating]:
    """part / whole, 0 where the whole is 0."""
    return np.divide(part, whole, out=np.zeros_like(part), where=whole != 0)
