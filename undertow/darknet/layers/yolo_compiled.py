"""The passes of `YoloLoss` by compiled kernels, where they may be used."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from undertow.darknet.layers.yolo_assignment import TRUTH_VALUES, Assignment, Cells, YoloRule, YoloStatistics
from undertow.kernels import select

Array = np.ndarray[Any, Any]


class Pass(NamedTuple):
    """What a pass forward leaves. asked: for the pass back."""

    y: Array
    loss: float
    cost: float
    assignment: Assignment
    asked: Any


class CompiledYolo:
    """The kernels for one rule.

    They leave to NumPy: other types than float32, inputs that are not finite, truths without sense, and rules by which
    a box that overlaps a truth by enough answers for it.
    """

    def __init__(self, rule: YoloRule) -> None:
        self._rule = rule
        self._head: Any = None

    def forward(self, x: Array, truth: Array) -> Pass | None:
        """None where NumPy has to do it."""
        rule, backend = self._rule, select.compiled(x)
        if backend is None or rule.truth_threshold < 1:
            return None
        if self._head is None:
            thresholds = (rule.ignore_threshold, rule.truth_threshold)
            self._head = backend.YoloHead(
                rule.anchors, rule.mask, rule.classes, rule.net_size, thresholds,
                rule.class_map, rule.reset_by_zero_delta,
            )  # fmt: skip
        asked = self._head.forward(x, truth, min(truth.shape[1] // TRUTH_VALUES, rule.max_boxes))
        if asked is None:
            return None
        return Pass(asked.y, asked.numbers.loss, asked.numbers.cost, self._assignment(asked), asked)

    def _assignment(self, asked: Any) -> Assignment:
        batch, _, height, width = asked.y.shape
        output = asked.y.reshape(batch, len(self._rule.mask), 5 + self._rule.classes, height, width)
        numbers, count = asked.numbers, int(asked.numbers.cells)
        statistics = YoloStatistics(
            numbers.iou, numbers.class_score, numbers.objectness, numbers.no_objectness / asked.weight.size,
            int(numbers.recall50), int(numbers.recall75), int(numbers.answers),
        )  # fmt: skip
        cells, target, weight = asked.cells[:, :count], asked.cell_target[:count], asked.cell_weight[:count]
        return Assignment(
            output, self._rule, statistics, output[:, :, 4], asked.target, asked.weight, Cells(*cells), target, weight
        )

    def backward(self, asked: Any, factor: Array, place: Array | None) -> Array:
        """factor times Darknet's delta, in `place` where there is one."""
        gx: Array = self._head.backward(asked, float(factor), place)
        return gx
