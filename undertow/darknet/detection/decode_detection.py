"""From the output of a detection layer (YOLOv1) to boxes: Darknet's `get_detection_detections`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from undertow.darknet.detection.boxes import Candidates
from undertow.darknet.detection.decode import Frame
from undertow.darknet.layers.detection_loss import DetectionRule

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class DetectionHead:
    """Output of a [detection] layer, (batch, outputs), with what is needed to read it."""

    output: Array
    rule: DetectionRule

    @property
    def classes(self) -> int:
        return self.rule.classes

    def candidates(self, frame: Frame, threshold: float, index: int = 0) -> Candidates:
        """All boxes in Darknet's order: cells by rows, then boxes of a cell; objectness without a threshold.

        prob = objectness * class, 0 unless above the threshold. The picture was stretched: YOLOv1 knows no letterbox.
        (The original gives pixels whatever it is asked for.)
        """
        rule = self.rule
        scores, objectness, boxes = (block[0] for block in rule.blocks(self.output[index : index + 1]))
        cell = np.arange(rule.side * rule.side)
        corner = np.stack([cell % rule.side, cell // rule.side], axis=1)[:, None]
        size = boxes[..., 2:4] ** 2 if rule.sqrt else boxes[..., 2:4]
        found = np.concatenate([(boxes[..., :2] + corner) / rule.side, size], axis=2).reshape(-1, 4)
        if not frame.relative:
            found = found * np.tile(frame.image_size, 2)
        probabilities = objectness[..., None] * scores[:, None]
        probabilities = np.where(probabilities > threshold, probabilities, 0).reshape(-1, rule.classes)
        return Candidates(
            found.astype(np.float32), objectness.reshape(-1).astype(np.float32), probabilities.astype(np.float32)
        )
