"""From the outputs of the heads to boxes on the picture: Darknet's `get_network_boxes`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from undertow.darknet.detection.boxes import Candidates
from undertow.data.resize import letterbox_size
from undertow.errors import ShapeError
from undertow.kernels import select


@dataclass(frozen=True)
class Frame:
    """How boxes of a network's input lie in a picture.

    net_size, image_size: (width, height). relative: boxes in 0..1 of the picture, otherwise in its pixels.
    letterbox: the picture was fitted in with its shape kept; False: it was stretched to the network's size.
    """

    net_size: tuple[int, int]
    image_size: tuple[int, int]
    relative: bool = True
    letterbox: bool = True


class Head(Protocol):
    """The output of a layer that finds boxes."""

    @property
    def classes(self) -> int:
        """How many classes a box has."""
        ...

    def candidates(self, frame: Frame, threshold: float, index: int = 0) -> Candidates:
        """The boxes of one picture of the batch."""
        ...


@dataclass(frozen=True)
class YoloHead:
    """Output of one [yolo] layer with what is needed to read it.

    output: (batch, n*(5 + classes), h, w) after the layer's activation; per anchor the maps x, y, w, h, objectness,
        classes. anchors: (num, 2) widths and heights in pixels of the network. mask: this head's n anchors.
    new_coords: sizes are (2 t)^2 times the anchor (Scaled-YOLOv4) and not exp(t) times.
    """

    output: NDArray[np.float32]
    anchors: NDArray[np.float32]
    mask: tuple[int, ...]
    classes: int
    new_coords: bool = False

    def __post_init__(self) -> None:
        wanted = len(self.mask) * (5 + self.classes)
        if self.output.ndim != 4 or self.output.shape[1] != wanted:
            raise ShapeError(
                f"a yolo head with {len(self.mask)} anchors and {self.classes} classes has {wanted} channels, "
                f"(batch, {wanted}, h, w), not {self.output.shape}"
            )
        if max(self.mask, default=-1) >= len(self.anchors):
            raise ShapeError(f"mask {self.mask} names anchors beyond the {len(self.anchors)} given")

    def candidates(self, frame: Frame, threshold: float, index: int = 0) -> Candidates:
        """The boxes above the threshold, in the picture."""
        found = yolo_boxes(self, frame.net_size, threshold, index)
        boxes = correct_yolo_boxes(
            found.boxes, frame.image_size, frame.net_size, relative=frame.relative, letterbox=frame.letterbox
        )
        return Candidates(boxes, found.objectness, found.probabilities)


def activate_yolo(
    raw: NDArray[np.floating], n: int, classes: int, scale_x_y: float = 1.0, new_coords: bool = False
) -> NDArray[np.floating]:
    """What a [yolo] layer does to its input (batch, n*(5 + classes), h, w) at inference.

    x, y, objectness and classes pass the logistic (with new_coords the layer before has done so); then
    x, y = scale_x_y * v - (scale_x_y - 1)/2.
    """
    batch, _, height, width = raw.shape
    plain = np.ascontiguousarray(raw).reshape(batch, n, 5 + classes, height, width)
    if new_coords:
        maps = plain.copy()
    else:
        with np.errstate(over="ignore"):
            maps = select.activate(plain, "logistic")
        maps[:, :, 2:4] = plain[:, :, 2:4]
    if scale_x_y != 1:
        maps[:, :, :2] = maps[:, :, :2] * scale_x_y - 0.5 * (scale_x_y - 1)
    return maps.reshape(raw.shape)


def get_network_boxes(
    heads: Sequence[Head],
    net_size: tuple[int, int],
    image_size: tuple[int, int],
    threshold: float,
    *,
    relative: bool = True,
    letterbox: bool = True,
    index: int = 0,
) -> Candidates:
    """The boxes with objectness above the threshold, in Darknet's order: heads, then cells by rows, then anchors.

    net_size, image_size: (width, height). relative: boxes in 0..1 of the picture, otherwise in its pixels.
    letterbox: the picture was fitted in with its shape kept; False: it was stretched to the network's size.
    index: which picture of the batch.
    """
    if not heads:
        raise ShapeError("there is no head to take boxes from")
    if len({head.classes for head in heads}) > 1:
        raise ShapeError(f"the heads differ in their classes: {[head.classes for head in heads]}")
    frame = Frame(net_size, image_size, relative, letterbox)
    return Candidates.joined([head.candidates(frame, threshold, index) for head in heads])


def yolo_boxes(head: YoloHead, net_size: tuple[int, int], threshold: float, index: int = 0) -> Candidates:
    """One head's boxes above the threshold, relative to the network's input; Darknet's `get_yolo_detections`.

    prob = objectness * class; 0 unless above the threshold.
    """
    n = len(head.mask)
    _, _, height, width = head.output.shape
    cells = head.output[index].reshape(n, 5 + head.classes, height * width)
    cell, anchor = np.nonzero((cells[:, 4] > threshold).T)
    found = cells[anchor, :, cell]
    chosen = np.asarray(head.anchors, np.float32)[np.asarray(head.mask, np.intp)[anchor]]
    boxes = boxes_at(chosen, found[:, :4], cell, (width, height), net_size, head.new_coords)
    objectness = found[:, 4].astype(np.float32)
    probabilities = objectness[:, None] * found[:, 5:]
    return Candidates(boxes, objectness, np.where(probabilities > threshold, probabilities, np.float32(0)))


def boxes_at(
    anchors: NDArray[np.float32],
    found: NDArray[np.float32],
    cell: NDArray[np.intp],
    grid: tuple[int, int],
    net_size: tuple[int, int],
    new_coords: bool = False,
) -> NDArray[np.float32]:
    """Darknet's `get_yolo_box` for rows (n, 4) of x, y, w, h with their anchors (n, 2) and cells; (n, 4).

    grid, net_size: (width, height) of the head in cells and of the network in pixels. new_coords: see `YoloHead`.
    """
    width, height = grid
    x = (cell % width + found[:, 0]) / np.float32(width)
    y = (cell // width + found[:, 1]) / np.float32(height)
    with np.errstate(over="ignore"):
        growth = 4 * found[:, 2:4] ** 2 if new_coords else np.exp(found[:, 2:4])
        size = growth * anchors / np.asarray(net_size, np.float32)
    return np.concatenate([x[:, None], y[:, None], size], axis=1).astype(np.float32)


def correct_yolo_boxes(
    boxes: NDArray[np.floating],
    image_size: tuple[int, int],
    net_size: tuple[int, int],
    *,
    relative: bool = True,
    letterbox: bool = True,
) -> NDArray[np.float32]:
    """Boxes (n, 4) relative to the network's input -> relative to the picture, or in its pixels.

    image_size, net_size: (width, height). A stretched picture (letterbox False) needs no shift.
    """
    net = np.asarray(net_size, np.float64)
    inner = np.asarray(letterbox_size(*image_size, *net_size), np.float64) if letterbox else net
    boxes = np.asarray(boxes, np.float64)
    center = (boxes[:, :2] - (net - inner) / 2 / net) / (inner / net)
    size = boxes[:, 2:] * (net / inner)
    if not relative:
        center, size = center * image_size, size * image_size
    return np.concatenate([center, size], axis=1).astype(np.float32)
