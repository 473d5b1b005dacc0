"""Boxes and what is found in them.

A box is x, y, w, h: centre and size, relative to the picture (0..1) or in pixels. Many boxes are an array (..., 4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertow.errors import ShapeError

Floats = NDArray[np.floating]


class Box(NamedTuple):
    """Centre and size."""

    x: float
    y: float
    w: float
    h: float

    @property
    def sides(self) -> tuple[float, float, float, float]:
        """(left, top, right, bottom)."""
        return self.x - self.w / 2, self.y - self.h / 2, self.x + self.w / 2, self.y + self.h / 2

    def scaled(self, width: float, height: float) -> Box:
        """x and w times width, y and h times height: relative to pixels."""
        return Box(self.x * width, self.y * height, self.w * width, self.h * height)


@dataclass(frozen=True)
class Detection:
    """One object found: a class in a box.

    name, class_id: the class; confidence: objectness times the class's own probability, as Darknet prints it.
    box: relative to the picture; pixel_box: the same in pixels of the picture of `image_size` (width, height).
    candidate: number of the box in the network's list; several classes may share one.
    probabilities: of all classes in this box after suppression, (classes,).
    """

    name: str
    class_id: int
    confidence: float
    objectness: float
    box: Box
    image_size: tuple[int, int]
    candidate: int
    probabilities: NDArray[np.float32]

    @property
    def pixel_box(self) -> Box:
        """The box in pixels of the picture it was found in."""
        return self.box.scaled(*self.image_size)

    def __str__(self) -> str:
        return f"{self.name}: {self.confidence:.0%}"


@dataclass(frozen=True)
class Candidates:
    """The boxes of one picture in Darknet's order, as arrays: Darknet's `detection *dets`.

    boxes (n, 4) x, y, w, h; objectness (n,); probabilities (n, classes), 0 where not above the threshold.
    uncertainties: (n, 4) of the box values, from a Gaussian_yolo layer; 0 or None where there are none.
    """

    boxes: NDArray[np.float32]
    objectness: NDArray[np.float32]
    probabilities: NDArray[np.float32]
    uncertainties: NDArray[np.float32] | None = None

    def __post_init__(self) -> None:
        count = len(self.boxes)
        if self.boxes.shape != (count, 4) or self.objectness.shape != (count,) or len(self.probabilities) != count:
            raise ShapeError(
                f"boxes {self.boxes.shape}, objectness {self.objectness.shape} and probabilities "
                f"{self.probabilities.shape} do not describe the same candidates"
            )

    def __len__(self) -> int:
        return len(self.boxes)

    @property
    def classes(self) -> int:
        return self.probabilities.shape[1]

    def taken(self, order: NDArray[np.intp]) -> Candidates:
        """The candidates named by `order`, in that order (copies)."""
        uncertainties = None if self.uncertainties is None else self.uncertainties[order]
        return Candidates(self.boxes[order], self.objectness[order], self.probabilities[order], uncertainties)

    @classmethod
    def joined(cls, parts: Sequence[Candidates]) -> Candidates:
        """Those of several heads, one after another."""
        uncertainties = None
        if any(part.uncertainties is not None for part in parts):
            uncertainties = np.concatenate(
                [np.zeros_like(part.boxes) if part.uncertainties is None else part.uncertainties for part in parts]
            )
        return cls(
            np.concatenate([part.boxes for part in parts]),
            np.concatenate([part.objectness for part in parts]),
            np.concatenate([part.probabilities for part in parts]),
            uncertainties,
        )

    def detections(
        self, names: Sequence[str], threshold: float, image_size: tuple[int, int], *, relative: bool = True
    ) -> list[Detection]:
        """Every class above the threshold in every box, in the order Darknet prints them.

        names: one per class; classes beyond them are called by their number. relative: what self.boxes are.
        """
        width, height = image_size
        scale = (1.0, 1.0) if relative else (1 / width, 1 / height)
        found = []
        for candidate, class_id in zip(*np.nonzero(self.probabilities > threshold), strict=True):
            box = Box(*map(float, self.boxes[candidate])).scaled(*scale)
            found.append(
                Detection(
                    name=names[class_id] if class_id < len(names) else str(class_id),
                    class_id=int(class_id),
                    confidence=float(self.probabilities[candidate, class_id]),
                    objectness=float(self.objectness[candidate]),
                    box=box,
                    image_size=image_size,
                    candidate=int(candidate),
                    probabilities=self.probabilities[candidate],
                )
            )
        return found


def box_intersection(a: Floats, b: Floats) -> Floats:
    """Area shared by boxes (..., 4) and (..., 4), broadcast against each other; 0 where they are apart."""
    a, b = np.asarray(a), np.asarray(b)
    across, down = _overlap(a, b, 0), _overlap(a, b, 1)
    return np.where((across < 0) | (down < 0), np.zeros((), across.dtype), across * down)


def box_iou(a: Floats, b: Floats) -> Floats:
    """Intersection over union of boxes (..., 4) and (..., 4), broadcast; NaN for two boxes without area.

    In the dtype of the boxes, with the operations of Darknet's `box_iou`.
    """
    a, b = np.asarray(a), np.asarray(b)
    shared = box_intersection(a, b)
    union = a[..., 2] * a[..., 3] + b[..., 2] * b[..., 3] - shared
    with np.errstate(divide="ignore", invalid="ignore"):
        return shared / union


def box_rmse(a: Floats, b: Floats) -> Floats:
    """Euclidean distance of the four numbers (Darknet's name for it), broadcast over (..., 4)."""
    difference = np.asarray(a) - np.asarray(b)
    return np.sqrt((difference**2).sum(axis=-1))


def to_corners(boxes: Floats) -> Floats:
    """(..., 4) x, y, w, h -> left, top, right, bottom."""
    boxes = np.asarray(boxes)
    half = boxes[..., 2:] / 2
    return np.concatenate([boxes[..., :2] - half, boxes[..., :2] + half], axis=-1)


def to_centers(corners: Floats) -> Floats:
    """(..., 4) left, top, right, bottom -> x, y, w, h."""
    corners = np.asarray(corners)
    low, high = corners[..., :2], corners[..., 2:]
    return np.concatenate([(low + high) / 2, high - low], axis=-1)


def _overlap(a: Floats, b: Floats, axis: int) -> Floats:
    """How far two boxes overlap along x (0) or y (1); negative where they are apart."""
    a_half, b_half = a[..., axis + 2] / 2, b[..., axis + 2] / 2
    low = np.maximum(a[..., axis] - a_half, b[..., axis] - b_half)
    high = np.minimum(a[..., axis] + a_half, b[..., axis] + b_half)
    return high - low
