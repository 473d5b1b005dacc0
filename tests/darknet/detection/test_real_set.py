"""Average precision of a published detector on photos of COCO, equal to pycocotools on the files it writes."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from undertow.darknet import load
from undertow.darknet.detection.evaluate import evaluate, evaluate_coco
from undertow.darknet.detection.matching import Predictions, Truth
from undertow.darknet.detection.pictures import find_in_pictures
from undertow.darknet.detection.results import COCO_IDS, write_results
from undertow.darknet.files.labels import LabelReader
from undertow.data.images import image_size

pytestmark = pytest.mark.reference
CLASSES = len(COCO_IDS)


@pytest.fixture
def photos(reference_data: Path) -> list[str]:
    folder = reference_data / "data" / "detection" / "coco-cc"
    if not folder.is_dir():
        pytest.skip("the reference data has no photos of COCO")
    return [str(folder / line) for line in (folder / "val.txt").read_text().split()]


@pytest.fixture
def results(reference_data: Path, photos: list[str], tmp_path: Path) -> list[dict[str, object]]:
    """What yolo-fastest finds, as `detector valid` with eval=coco writes it."""
    model = reference_data / "data" / "darknet" / "yolo-fastest-1.1"
    net = load(model / "yolo-fastest-1.1.cfg", model / "yolo-fastest-1.1.weights")
    found = find_in_pictures(net, photos, 0.005, 0.45, net.suppress)
    (file,) = write_results(found, "coco", tmp_path, [str(number) for number in range(CLASSES)])
    rows: list[dict[str, object]] = json.loads(file.read_text())
    assert len(rows) > 200
    return rows


def truths_of(photos: Sequence[str]) -> list[Truth]:
    """Boxes in pixels."""
    reader, truths = LabelReader(CLASSES), []
    for path in photos:
        rows = reader(path).boxes
        truths.append(Truth(rows[:, :4] * np.tile(image_size(path), 2), rows[:, 4].astype(np.intp)))
    return truths


def image_id(path: str) -> int:
    return int(Path(path).stem)


def by_pycocotools(photos: Sequence[str], truths: Sequence[Truth], results: list[dict[str, object]]) -> np.ndarray:
    pytest.importorskip("pycocotools")
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    annotations = [
        {"image_id": image_id(path), "category_id": COCO_IDS[kind], "bbox": [x - w / 2, y - h / 2, w, h],
         "area": w * h, "iscrowd": 0}
        for path, truth in zip(photos, truths, strict=True)
        for (x, y, w, h), kind in zip(truth.boxes.tolist(), truth.classes, strict=True)
    ]  # fmt: skip
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO()
        coco.dataset = {
            "info": {},
            "images": [{"id": image_id(path)} for path in photos],
            "annotations": [{"id": number + 1, **row} for number, row in enumerate(annotations)],
            "categories": [{"id": number, "name": str(number)} for number in COCO_IDS],
        }
        coco.createIndex()
        evaluation = COCOeval(coco, coco.loadRes([dict(row) for row in results]), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    stats: np.ndarray = evaluation.stats
    return stats


def predictions_of(photos: Sequence[str], results: list[dict[str, object]]) -> list[Predictions]:
    """The rows of the file, picture by picture."""
    number = {coco: label for label, coco in enumerate(COCO_IDS)}
    predictions = []
    for path in photos:
        rows = [row for row in results if row["image_id"] == image_id(path)]
        corners = np.array([row["bbox"] for row in rows], np.float64).reshape(-1, 4)
        boxes = np.concatenate([corners[:, :2] + corners[:, 2:] / 2, corners[:, 2:]], axis=1)
        predictions.append(
            Predictions(boxes, [row["score"] for row in rows], [number[row["category_id"]] for row in rows])
        )
    return predictions


def test_the_numbers_are_those_of_pycocotools(photos: list[str], results: list[dict[str, object]]) -> None:
    truths = truths_of(photos)
    stats = by_pycocotools(photos, truths, results)
    ours = evaluate_coco(predictions_of(photos, results), truths, CLASSES)
    assert 0.15 < stats[1] < 0.9, "a detector that is worth measuring"
    assert ours.average_precision == pytest.approx(stats[0], abs=1e-6)
    assert ours.at_50 == pytest.approx(stats[1], abs=1e-6)
    assert ours.at_75 == pytest.approx(stats[2], abs=1e-6)
    assert ours.average_recall == pytest.approx(stats[8], abs=1e-6)
    # `detector map -points 101`: the same curve, but detections are matched by VOC's rule, which differs in crowds.
    voc = evaluate(predictions_of(photos, results), truths, [str(number) for number in range(CLASSES)], points=101)
    assert voc.mean_average_precision == pytest.approx(stats[1], abs=0.02)
