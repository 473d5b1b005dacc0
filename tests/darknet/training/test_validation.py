from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.darknet.training.scenes import Scene
from undertow.darknet import Network, load, train, validate
from undertow.darknet.detection.evaluate import evaluate
from undertow.darknet.detection.matching import Predictions, Truth
from undertow.darknet.detection.validation import ValidationSet
from undertow.darknet.files.labels import read_labels
from undertow.darknet.runs import validation_set
from undertow.errors import FormatError, UndertowWarning


@pytest.fixture
def trained(scene: Scene) -> tuple[Scene, Path]:
    scene.write_cfg(max_batches=120, rate=0.005)
    return scene, train(scene.data, scene.cfg).weights


def by_hand(net: Network, scene: Scene) -> float:
    """mAP from `net.detect` on one picture after the other."""
    found, truths = [], []
    for number in range(6):
        detections = net.detect(scene.image(number), threshold=0.005, nms=0.45)
        found.append(
            Predictions(
                np.array([one.box for one in detections]),
                np.array([one.confidence for one in detections]),
                np.array([one.class_id for one in detections]),
            )
        )
        boxes = read_labels(str(scene.image(number).with_suffix(".txt"))).boxes
        truths.append(Truth(boxes[:, :4], boxes[:, 4].astype(int)))
    return evaluate(found, truths, ["red", "blue"]).mean_average_precision


def test_map_is_that_of_the_detections_of_each_picture_once(trained: tuple[Scene, Path]) -> None:
    scene, weights = trained
    ticks: list[tuple[int, int]] = []
    evaluation = validate(scene.data, scene.cfg, weights, tick=lambda *counts: ticks.append(counts))
    assert evaluation.mean_average_precision == pytest.approx(by_hand(load(scene.cfg, weights), scene), abs=1e-12)
    assert 0.05 < evaluation.mean_average_precision < 1
    assert [result.name for result in evaluation.classes] == ["red", "blue"]
    assert sum(result.truths for result in evaluation.classes) == 12
    assert ticks == [(number, 6) for number in range(1, 7)]


def test_recall_of_proposals(trained: tuple[Scene, Path]) -> None:
    scene, weights = trained
    net = load(scene.cfg, weights)
    from undertow.darknet import read_data

    result = validation_set(read_data(scene.data), net).measure_recall(net)
    assert result.pictures == 6
    assert result.truths == 12
    assert 0 < result.found <= 12


def test_pictures_that_cannot_be_read_do_not_count_and_are_told(trained: tuple[Scene, Path]) -> None:
    scene, weights = trained
    scene.image(0).write_bytes(b"nothing")
    with pytest.warns(UndertowWarning, match=r"0\.png: this is no picture in a known format; .* not count"):
        evaluation = validate(scene.data, scene.cfg, weights)
    assert sum(result.truths for result in evaluation.classes) == 10
    for number in range(6):
        scene.image(number).write_bytes(b"nothing")
    with pytest.raises(FormatError, match="none of the 6 pictures"):
        validate(scene.data, scene.cfg, weights)


def test_broken_labels_are_errors(scene: Scene) -> None:
    scene.image(3).with_suffix(".txt").write_text("0 0.5 0.5 0.2\n")
    with pytest.raises(FormatError, match=r"3\.txt:1"):
        ValidationSet([str(scene.image(number)) for number in range(6)], ["red", "blue"])


def test_valid_must_be_given(scene: Scene) -> None:
    scene.data.write_text("classes=2\ntrain=train.txt\nnames=obj.names\n")
    with pytest.raises(FormatError, match="valid= is missing"):
        validate(scene.data, scene.cfg)
