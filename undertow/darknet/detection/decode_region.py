"""From the output of a region layer (YOLOv2) to boxes: Darknet's `get_region_detections`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from undertow.darknet.detection.boxes import Candidates
from undertow.darknet.detection.decode import Frame, correct_yolo_boxes
from undertow.darknet.layers.region_assignment import RegionRule, region_boxes

Array = np.ndarray[Any, Any]

TREE_THRESHOLD = 0.5


@dataclass(frozen=True)
class RegionHead:
    """Output of a [region] layer with what is needed to read it.

    output: (batch, n*(coords + 1 + classes), h, w) as the layer gives it. tree_threshold: with a class tree, how likely
    a class must be to go on from its parent to it (`hier_thresh`).
    """

    output: Array
    rule: RegionRule
    tree_threshold: float = TREE_THRESHOLD

    @property
    def classes(self) -> int:
        return self.rule.classes

    def candidates(self, frame: Frame, threshold: float, index: int = 0) -> Candidates:
        """All boxes in Darknet's order: anchors, then cells by rows; objectness is 0 unless above the threshold.

        prob = objectness * class, 0 unless above the threshold; with a class tree, objectness for the one class that
        `ClassTree.top_prediction` finds.
        """
        rule = self.rule
        _, _, height, width = self.output.shape
        maps = self.output[index].reshape(1, rule.n, rule.entries, height, width)
        boxes = region_boxes(maps, rule.anchors)[0].reshape(-1, 4)
        cells = maps[0].transpose(0, 2, 3, 1).reshape(-1, rule.entries)
        scale = np.ones(len(cells), cells.dtype) if rule.background else cells[:, rule.coords]
        objectness = np.where(scale > threshold, scale, 0).astype(np.float32)
        if rule.tree is None:
            found = scale[:, None] * cells[:, rule.coords + 1 :]
            found = np.where((found > threshold) & (objectness > 0)[:, None], found, 0)
        else:
            found = self._in_tree(cells[:, rule.coords + 1 :], objectness)
        return Candidates(
            correct_yolo_boxes(
                boxes, frame.image_size, frame.net_size, relative=frame.relative, letterbox=frame.letterbox
            ),
            objectness,
            found.astype(np.float32),
        )

    def _in_tree(self, conditional: Array, objectness: Array) -> Array:
        tree = self.rule.tree
        assert tree is not None
        found = np.zeros_like(conditional)
        predictions = tree.predictions(conditional.T).T
        for cell in np.flatnonzero(objectness):
            found[cell, tree.top_prediction(predictions[cell], self.tree_threshold)] = objectness[cell]
        return found
