"""`undertow darknet yolo`: train, test, valid and recall of a small net of YOLOv1's kind."""

from __future__ import annotations

from typing import Any

from tests.darknet.training.scenes import Scene
from tests.darknet.training.test_yolov1 import DETECTION


def test_from_training_to_results(undertow: Any, scene: Scene) -> None:
    text = scene.cfg.read_text()
    scene.cfg.write_text(text[: text.index("[convolutional]\nsize=1")] + DETECTION.format(random=0))
    data = ("-data", scene.data)
    assert undertow("darknet", "yolo", "train", scene.cfg, *data).status == 0
    weights = scene.backup.with_name("tiny_final.weights")
    tested = undertow("darknet", "yolo", "test", scene.cfg, weights, scene.image(0), *data)
    assert tested.status == 0
    assert "Predicted in" in tested.out
    assert undertow("darknet", "yolo", "valid", scene.cfg, weights, *data).status == 0
    rows = [row.split() for row in (scene.folder.parent / "results/comp4_det_test_red.txt").read_text().splitlines()]
    assert {row[0] for row in rows} <= {str(number) for number in range(6)}
    # Boxes of a net so young may lie beside the picture; their sides are clipped all the same.
    assert rows
    assert all(float(row[1]) >= 0.001 and min(map(float, row[2:4])) >= 0 for row in rows)
    assert all(float(row[4]) <= 56 and float(row[5]) <= 40 for row in rows)
    recall = undertow("darknet", "yolo", "recall", scene.cfg, weights, *data)
    assert recall.status == 0
    assert "   12\tRPs/Img:" in recall.out


def test_without_data_the_file_of_voc_is_asked_for(undertow: Any, scene: Scene) -> None:
    answer = undertow("darknet", "yolo", "train", scene.cfg)
    assert answer.status != 0
    assert "cfg/voc.data" in answer.err
