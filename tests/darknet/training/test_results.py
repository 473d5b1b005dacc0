"""Files of results by hand; tests against the original program stand in test_original_program.py."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from undertow.darknet.detection.boxes import Candidates
from undertow.darknet.detection.pictures import Found
from undertow.darknet.detection.results import COCO_IDS, write_results
from undertow.errors import FormatError

NAMES = ["cat", "dog"]


@pytest.fixture
def found() -> list[Found]:
    """Two boxes in a picture of 128 x 64; the second reaches over its left and lower side and is two things."""
    candidates = Candidates(
        np.array([[0.5, 0.5, 0.25, 0.5], [0.125, 0.875, 0.5, 0.5]], np.float32),
        np.array([0.9, 0.8], np.float32),
        np.array([[0.75, 0.0], [0.5, 0.25]], np.float32),
    )
    return [Found(4, "val/COCO_val2014_000000000042.jpg", (128, 64), candidates)]


def test_voc(found: list[Found], tmp_path: Path) -> None:
    cats, dogs = write_results(found, "voc", tmp_path / "new", NAMES)
    assert (cats.name, dogs.name) == ("comp4_det_test_cat.txt", "comp4_det_test_dog.txt")
    assert cats.read_text() == (
        "COCO_val2014_000000000042 0.750000 49.000000 17.000000 81.000000 49.000000\n"
        "COCO_val2014_000000000042 0.500000 1.000000 41.000000 49.000000 64.000000\n"
    )
    assert dogs.read_text() == "COCO_val2014_000000000042 0.250000 1.000000 41.000000 49.000000 64.000000\n"
    assert write_results(found, "voc", tmp_path, NAMES, "mine_")[0].name == "mine_cat.txt"


def test_coco(found: list[Found], tmp_path: Path) -> None:
    (file,) = write_results(found, "coco", tmp_path, NAMES)
    assert json.loads(file.read_text()) == [
        {"image_id": 42, "category_id": 1, "bbox": [48, 16, 32, 32], "score": 0.75},
        {"image_id": 42, "category_id": 1, "bbox": [0, 40, 48, 24], "score": 0.5},
        {"image_id": 42, "category_id": 2, "bbox": [0, 40, 48, 24], "score": 0.25},
    ]
    assert file.read_text() == (  # the original's printf, line by line
        "[\n"
        '{"image_id":42, "category_id":1, "bbox":[48.000000, 16.000000, 32.000000, 32.000000], "score":0.750000},\n'
        '{"image_id":42, "category_id":1, "bbox":[0.000000, 40.000000, 48.000000, 24.000000], "score":0.500000},\n'
        '{"image_id":42, "category_id":2, "bbox":[0.000000, 40.000000, 48.000000, 24.000000], "score":0.250000}\n'
        "]\n"
    )
    assert json.loads(write_results([], "coco", tmp_path, NAMES)[0].read_text()) == []


def test_coco_has_a_number_for_each_of_its_classes(found: list[Found], tmp_path: Path) -> None:
    assert len(COCO_IDS) == 80
    assert (COCO_IDS[11], COCO_IDS[24], COCO_IDS[79]) == (13, 27, 90)
    with pytest.raises(FormatError, match="COCO has 80 classes"):
        write_results(found, "coco", tmp_path, [str(number) for number in range(81)])


def test_imagenet(found: list[Found], tmp_path: Path) -> None:
    (file,) = write_results(found, "imagenet", tmp_path, NAMES)
    assert file.name == "imagenet-detection.txt"
    assert file.read_text().splitlines()[2] == "5 2 0.250000 0.000000 40.000000 48.000000 64.000000"


def test_voc_of_yolov1_counts_pixels_from_0(found: list[Found], tmp_path: Path) -> None:
    cats, _ = write_results(found, "voc", tmp_path, NAMES, first_pixel=0)
    assert cats.read_text().splitlines() == [
        "COCO_val2014_000000000042 0.750000 48.000000 16.000000 80.000000 48.000000",
        "COCO_val2014_000000000042 0.500000 0.000000 40.000000 48.000000 64.000000",
    ]
