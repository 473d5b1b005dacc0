"""Measuring a detector on the pictures of a list, each seen once (AlexeyAB's validate_detector_map)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from undertow.darknet.detection.evaluate import Evaluation, RecallResult, evaluate, evaluate_recall
from undertow.darknet.detection.matching import Predictions, Truth
from undertow.darknet.detection.nms import do_nms_obj
from undertow.darknet.detection.pictures import Found, Suppress, Tick, find_in_pictures
from undertow.darknet.files.labels import LabelReader
from undertow.darknet.learning.dataset import read_all_labels
from undertow.darknet.network import Network

# What the original programs take: detections down to this confidence count, of overlapping ones the surest.
MAP_THRESHOLD, MAP_NMS = 0.005, 0.45
RECALL_THRESHOLD, RECALL_NMS = 0.001, 0.4


class ValidationSet:
    """Pictures with their true boxes.

    paths: of the pictures. names: of the classes. labels: reads the boxes; broken label files are errors.
    """

    def __init__(self, paths: Sequence[str], names: Sequence[str], labels: LabelReader | None = None) -> None:
        self.paths, self.names = tuple(paths), tuple(names)
        self.labels = labels or LabelReader(len(names))
        boxes = read_all_labels(self.paths, self.labels)
        self.truths = [Truth(rows[:, :4], rows[:, 4].astype(np.intp)) for rows in boxes]

    def __len__(self) -> int:
        return len(self.paths)

    def measure(
        self,
        net: Network,
        *,
        iou_threshold: float = 0.5,
        points: int = 0,
        confidence: float = 0.25,
        tick: Tick | None = None,
    ) -> Evaluation:
        """Average precisions, and the counts at `confidence`; see `evaluate`. tick(done, all): after each picture."""
        found, truths = self._find(net, MAP_THRESHOLD, MAP_NMS, net.suppress, tick)
        with np.errstate(over="ignore", invalid="ignore"):  # huge boxes of a young net
            return evaluate(
                [Predictions.of(one.candidates) for one in found],
                truths,
                self.names,
                iou_threshold=iou_threshold,
                points=points,
                confidence=confidence,
            )

    def measure_recall(self, net: Network, *, iou_threshold: float = 0.5, tick: Tick | None = None) -> RecallResult:
        """How many of the true boxes some proposal covers, classes aside (validate_detector_recall)."""
        found, truths = self._find(net, RECALL_THRESHOLD, RECALL_NMS, do_nms_obj, tick)
        with np.errstate(over="ignore", invalid="ignore"):
            return evaluate_recall([one.candidates for one in found], truths, RECALL_THRESHOLD, iou_threshold)

    def _find(
        self, net: Network, threshold: float, nms: float, suppress: Suppress, tick: Tick | None
    ) -> tuple[list[Found], list[Truth]]:
        """What is found in each picture that can be read, and what is true of it."""
        found = list(find_in_pictures(net, self.paths, threshold, nms, suppress, tick))
        return found, [self.truths[one.number] for one in found]
