"""A box that reaches beyond the picture: clipped in the files of `detector valid`, whole for `detector map`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from undertow.darknet.detection.boxes import Candidates
from undertow.darknet.detection.evaluate import evaluate
from undertow.darknet.detection.matching import Predictions, Truth
from undertow.darknet.detection.pictures import Found
from undertow.darknet.detection.results import write_results

WIDTH, HEIGHT = 100, 50
REACHING = np.array([[0.05, 0.5, 0.3, 0.4]])  # from -0.1 to 0.2
VISIBLE = np.array([[0.1, 0.5, 0.2, 0.4]])  # IoU with it 2/3 whole, 1 clipped


def test_files_are_clipped_and_map_is_not(tmp_path: Path) -> None:
    candidates = Candidates(REACHING, np.ones(1), np.ones((1, 1)))
    (file,) = write_results([Found(0, "a_7.jpg", (WIDTH, HEIGHT), candidates)], "coco", tmp_path, ["cat"])
    (row,) = json.loads(file.read_text())
    assert row["bbox"] == pytest.approx([0, 0.3 * HEIGHT, 0.2 * WIDTH, 0.4 * HEIGHT])
    left, top, width, height = row["bbox"]
    clipped = np.array([[left + width / 2, top + height / 2, width, height]]) / (WIDTH, HEIGHT, WIDTH, HEIGHT)

    def precision(predictions: Predictions) -> float:
        truths = [Truth(VISIBLE, np.zeros(1, np.intp))]
        return evaluate([predictions], truths, ["cat"], iou_threshold=0.75).mean_average_precision

    assert precision(Predictions.of(candidates)) == 0
    assert precision(Predictions(clipped, [1.0], [0])) == pytest.approx(1)
