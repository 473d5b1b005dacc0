"""Measuring a detector on the pictures of a list, each seen once (AlexeyAB's validate_detector_map)."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from undertow.darknet.boxes import Candidates
from undertow.darknet.dataset import read_all_labels
from undertow.darknet.detector import fit_picture
from undertow.darknet.evaluate import Evaluation, RecallResult, evaluate, evaluate_recall
from undertow.darknet.labels import LabelReader
from undertow.darknet.matching import Predictions, Truth
from undertow.darknet.network import Network
from undertow.darknet.nms import do_nms_obj
from undertow.darknet.prefetch import Prefetcher
from undertow.data.images import load_image
from undertow.data.resize import Picture
from undertow.errors import FormatError, UndertowWarning

Suppress = Callable[[Candidates, float], Candidates]
Tick = Callable[[int, int], None]

# What the original programs take: detections down to this confidence count, of overlapping ones the surest.
MAP_THRESHOLD, MAP_NMS = 0.005, 0.45
RECALL_THRESHOLD, RECALL_NMS = 0.001, 0.4


@dataclass(frozen=True)
class Fitted:
    """A picture ready for the network; image is None when it cannot be read."""

    image: Picture | None
    size: tuple[int, int]


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
        found, truths = self._candidates(net, MAP_THRESHOLD, MAP_NMS, net.suppress, tick)
        with np.errstate(over="ignore", invalid="ignore"):  # huge boxes of a young net
            return evaluate(
                [Predictions.of(candidates) for candidates in found],
                truths,
                self.names,
                iou_threshold=iou_threshold,
                points=points,
                confidence=confidence,
            )

    def measure_recall(self, net: Network, *, iou_threshold: float = 0.5, tick: Tick | None = None) -> RecallResult:
        """How many of the true boxes some proposal covers, classes aside (validate_detector_recall)."""
        found, truths = self._candidates(net, RECALL_THRESHOLD, RECALL_NMS, do_nms_obj, tick)
        return evaluate_recall(found, truths, RECALL_THRESHOLD, iou_threshold)

    def _candidates(
        self, net: Network, threshold: float, nms: float, suppress: Suppress, tick: Tick | None
    ) -> tuple[list[Candidates], list[Truth]]:
        """Candidates of each picture that can be read, and what is true of it."""
        found, truths, unreadable = [], [], []
        workers = min(4, max(1, os.cpu_count() or 1))

        def load(number: int) -> Fitted:
            return self._load(net, number)

        with Prefetcher(load, workers=workers, ahead=2 * workers, count=len(self)) as pictures:
            for number, picture in enumerate(pictures):
                if picture.image is None:
                    unreadable.append(self.paths[number])
                else:
                    net.predict(picture.image[None])
                    with np.errstate(over="ignore", invalid="ignore"):  # huge boxes of a young net
                        found.append(suppress(net.candidates(picture.size, threshold), nms))
                    truths.append(self.truths[number])
                if tick is not None:
                    tick(number + 1, len(self))
        if unreadable:
            self._tell(unreadable)
        return found, truths

    def _load(self, net: Network, number: int) -> Fitted:
        try:
            picture = load_image(self.paths[number], net.c)
        except FormatError:
            return Fitted(None, (0, 0))
        return Fitted(fit_picture(net, picture), (picture.shape[2], picture.shape[1]))

    def _tell(self, unreadable: list[str]) -> None:
        if len(unreadable) == len(self):
            raise FormatError(f"none of the {len(self)} pictures can be read", file=unreadable[0])
        message = f"{len(unreadable)} pictures cannot be read and do not count, the first is {unreadable[0]}"
        warnings.warn(UndertowWarning(message), stacklevel=4)
