"""What a solver's tests report: the mean of each output number, or with eval_type "detection" mean average precision.

Detections come as DetectionEvaluate gives them. Source of the latter: SSD's solver.cpp, bbox_util.cpp (ComputeAP).
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from typing import Any, Protocol

import numpy as np

from undertow.caffe.glog import log, number
from undertow.caffe.net import Net
from undertow.caffe.proto.message import Message
from undertow.caffe.solver_report import output_scores
from undertow.errors import ShapeError, UndertowError, UndertowWarning

Array = np.ndarray[Any, Any]
Score = tuple[str, float, float]
VERSIONS = ("Integral", "MaxIntegral", "11point")


class Scores(Protocol):
    """Collects the outputs of a test net's passes."""

    def add(self, net: Net) -> None:
        """The outputs that stand in the net."""

    def results(self) -> list[Score]:
        """(blob name, loss weight, value) for every number to report."""


def scores_for(param: Message) -> Scores:
    """The collector that a solver's eval_type asks for. Raises UndertowError for an unknown one."""
    kind = str(param.eval_type) if "eval_type" in param.descriptor.by_name else "classification"
    if kind == "classification":
        return MeanScores()
    if kind != "detection":
        raise UndertowError(f"there is no eval_type '{kind}'", remedy="use classification or detection")
    if param.ap_version not in VERSIONS:
        raise UndertowError(f"there is no ap_version '{param.ap_version}'", remedy=f"use {', '.join(VERSIONS)}")
    return DetectionScores(str(param.ap_version), bool(param.show_per_class_result))


class MeanScores:
    """The mean of every number."""

    def __init__(self) -> None:
        self._passes, self._sums = 0, np.zeros(0)
        self._places: list[tuple[str, float]] = []

    def add(self, net: Net) -> None:
        found = list(output_scores(net))
        values = np.array([value for _, _, value in found])
        if self._passes and len(values) != len(self._sums):
            raise ShapeError(
                f"the outputs of the net are {len(values)} numbers, in the pass before there were {len(self._sums)}: "
                "they have no means",
                remedy='a detector is tested by its solver, with eval_type: "detection" and DetectionEvaluate',
            )
        self._sums = values if not self._passes else self._sums + values
        self._places = [(name, weight) for name, weight, _ in found]
        self._passes += 1

    def results(self) -> list[Score]:
        pairs = zip(self._places, self._sums, strict=True)
        return [(name, weight, float(total) / self._passes) for (name, weight), total in pairs]


class DetectionScores:
    """Mean average precision over classes, for every output of rows image, class, score, right, wrong."""

    def __init__(self, version: str = "Integral", per_class: bool = False) -> None:
        self.version, self.per_class = version, per_class
        self._rows: dict[str, list[Array]] = defaultdict(list)

    def add(self, net: Net) -> None:
        for name in net.outputs:
            rows = net.blobs[name].data
            if rows.ndim != 4 or rows.shape[-1] != 5:
                raise ShapeError(
                    f"eval_type: detection needs outputs of 5 columns, '{name}' has shape {rows.shape}",
                    remedy="end the test net with DetectionEvaluate, and silence its other outputs",
                )
            self._rows[name].append(rows.reshape(-1, 5).copy())

    def results(self) -> list[Score]:
        return [(name, 0.0, self._mean(np.concatenate(parts))) for name, parts in self._rows.items()]

    def _mean(self, rows: Array) -> float:
        counts: dict[int, float] = defaultdict(float)
        for label, things in rows[rows[:, 0] == -1, 1:3]:
            counts[int(label)] += float(things)
        precisions = []
        for label, things in sorted(counts.items()):
            mine = rows[(rows[:, 0] != -1) & (rows[:, 1] == label)]
            mine = mine[(mine[:, 3] != 0) | (mine[:, 4] != 0)]
            if not len(mine):
                warnings.warn(UndertowWarning(f"nothing was detected of class {label}"), stacklevel=2)
            precisions.append(average_precision(mine[:, 2], mine[:, 3], things, self.version))
            if self.per_class:
                log(f"class{label}: {number(precisions[-1])}", "solver.cpp:540")
        return float(np.mean(precisions)) if precisions else 0.0


def average_precision(scores: Array, right: Array, things: float, version: str = "Integral") -> float:
    """The area under precision over recall.

    scores, right: (n,), right is 1 or 0. things: how many there are to be found. version: "Integral", as it stands;
    "MaxIntegral", precision made falling (VOC 2012); "11point" (VOC 2007).
    """
    if not len(scores) or not things:
        return 0.0
    hits = np.cumsum(right[np.argsort(-scores, kind="stable")])
    recall, precision = hits / things, hits / np.arange(1, len(hits) + 1)
    if version == "11point":
        levels = [precision[recall >= level / 10] for level in range(11)]
        return float(sum(values.max() for values in levels if len(values)) / 11)
    if version == "MaxIntegral":
        precision = np.maximum.accumulate(precision[::-1])[::-1]
    return float((precision * np.diff(recall, prepend=0)).sum())
