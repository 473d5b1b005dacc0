"""From the output of a [Gaussian_yolo] layer to boxes (gaussian_yolo_layer.c)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from undertow.darknet.detection.boxes import Candidates
from undertow.darknet.detection.decode import Frame, boxes_at, correct_yolo_boxes
from undertow.errors import ShapeError

_SHIFTS = {"center": 0.0, "left_top": 0.5, "right_bottom": -0.5}


@dataclass(frozen=True)
class GaussianHead:
    """Output of one [Gaussian_yolo] layer with what is needed to read it.

    output: (batch, n*(9 + classes), h, w) after the layer's activation; per anchor the maps x, sx, y, sy, w, sw, h, sh,
        objectness, classes. anchors, mask: as in `YoloHead`. point: which point of the box x and y are.
    """

    output: NDArray[np.float32]
    anchors: NDArray[np.float32]
    mask: tuple[int, ...]
    classes: int
    point: str = "center"

    def __post_init__(self) -> None:
        wanted = len(self.mask) * (9 + self.classes)
        if self.output.ndim != 4 or self.output.shape[1] != wanted:
            raise ShapeError(f"a Gaussian_yolo head needs {wanted} channels, not {self.output.shape}")

    def candidates(self, frame: Frame, threshold: float, index: int = 0) -> Candidates:
        """The boxes above the threshold, in the picture.

        prob = objectness * class * (1 - mean of the four uncertainties), 0 unless above the threshold.
        """
        _, _, height, width = self.output.shape
        maps = self.output[index].reshape(len(self.mask), 9 + self.classes, height * width)
        cell, anchor = np.nonzero((maps[:, 8] > threshold).T)
        found = maps[anchor, :, cell]
        boxes = boxes_at(
            self.anchors[np.asarray(self.mask, np.intp)[anchor]], found[:, 0:8:2], cell, (width, height), frame.net_size
        )
        boxes[:, :2] += boxes[:, 2:] * np.float32(_SHIFTS[self.point])
        boxes = correct_yolo_boxes(
            boxes, frame.image_size, frame.net_size, relative=frame.relative, letterbox=frame.letterbox
        )
        uncertainties, objectness = found[:, 1:8:2], found[:, 8]
        certain = 1 - uncertainties.mean(axis=1, dtype=np.float64)
        probabilities = (objectness[:, None] * found[:, 9:] * certain[:, None]).astype(np.float32)
        kept = np.where(probabilities > threshold, probabilities, np.float32(0))
        return Candidates(boxes, objectness, kept, uncertainties)
