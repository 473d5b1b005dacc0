"""Trained networks of the fork's users on real pictures."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from undertow.darknet import Network, load
from undertow.darknet.detection.detector import as_picture, fit_picture
from undertow.darknet.dialect import ALEXEYAB
from undertow.kernels.reference.batchnorm import BatchNormRule, Scaling

# OpenCV's reader of these files has 1e-6 where the fork has 1e-5: confidences move by up to .004.
OPENCV = replace(ALEXEYAB, batch_norm=BatchNormRule(Scaling(1e-6, "inside", "N-1")))
DETECTORS = (
    "mobilenetv2-yolo-fastest-voc",
    "mobilenetv2-yolov3-nano-voc",
    "yolo-fastest-1.0",
    "yolo-fastest-1.1",
    "yoloface-500k",
    "yoloface-500k-v2",
    "yoloface-50k",
)


def files(reference_data: Path, model: str) -> tuple[Path, Path]:
    folder = reference_data / "data" / "darknet" / model
    return next(folder.glob("*.cfg")), next(folder.glob("*.weights"))


@pytest.mark.reference
@pytest.mark.filterwarnings("ignore:.*negative values in its rolling_variance")
@pytest.mark.parametrize("model", DETECTORS)
def test_detections_of_another_program(reference_data: Path, model: str) -> None:
    """OpenCV's: each is among our candidates, within 3 pixels and .03 of confidence, and their number is the same.

    What is left comes from its pictures, stretched in whole grey levels.
    """
    cfg, weights = files(reference_data, model)
    net = load(cfg, weights, names=next(cfg.parent.glob("*.names")), dialect=OPENCV)
    for result in json.loads((cfg.parent / "expected_opencv.json").read_text())["results"]:
        picture = as_picture(next((reference_data / "data" / "images").glob(f"*/{result['image']}")))
        size = picture.shape[2], picture.shape[1]
        assert [net.w, net.h] == result["net_size"]
        net.predict((np.round(fit_picture(net, picture) * 255) / 255).astype(np.float32)[None])
        assert len(net.candidates(size, -1.0)) == result["raw_rows"]
        found = net.candidates(size, 0.01).detections(net.names, result["thresh"] - 0.03, size)
        for wanted in result["detections"]:
            left, top, width, height = wanted["box_xywh"]
            sides = left, top, left + width, top + height
            matching = [
                one
                for one in found
                if one.name == wanted["cls"]
                and abs(one.confidence - wanted["conf"]) < 0.03
                and max(abs(a - b) for a, b in zip(one.pixel_box.sides, sides, strict=True)) < 3
            ]
            assert matching, (result["image"], wanted)


@pytest.mark.reference
@pytest.mark.filterwarnings("ignore:.*negative values in its rolling_variance")
@pytest.mark.parametrize("model", DETECTORS)
def test_files_are_the_forks_and_saved_byte_for_byte(reference_data: Path, model: str, tmp_path: Path) -> None:
    cfg, weights = files(reference_data, model)
    net = load(cfg, weights)
    assert net.dialect is ALEXEYAB
    net.save_weights(tmp_path / "again.weights")
    assert (tmp_path / "again.weights").read_bytes() == weights.read_bytes()


@pytest.mark.reference
def test_a_photo_through_detect(reference_data: Path) -> None:
    cfg, weights = files(reference_data, "yolo-fastest-1.1")
    net = load(cfg, weights, names=cfg.parent / "coco.names")
    dog = net.detect(reference_data / "data/images/darknet/person.jpg", threshold=0.5)
    assert [one.name for one in sorted(dog, key=lambda one: -one.confidence)] == ["person", "dog", "sheep"]
    assert net.layers[-1].nms_kind == "greedynms"


@pytest.mark.reference
def test_digits(reference_data: Path) -> None:
    """A classifier, on the first 2000 test digits: 93.9% by a forward pass in plain NumPy."""
    cfg, weights = files(reference_data, "mnist_lenet")
    net: Network = load(cfg, weights)
    mnist = reference_data / "data" / "mnist"
    images = np.frombuffer(gzip.decompress((mnist / "t10k-images-idx3-ubyte.gz").read_bytes()), np.uint8, offset=16)
    labels = np.frombuffer(gzip.decompress((mnist / "t10k-labels-idx1-ubyte.gz").read_bytes()), np.uint8, offset=8)
    grey = images.reshape(-1, 1, 28, 28)[:2000] / np.float32(255)
    answers = net.predict(np.repeat(grey, 3, axis=1)).reshape(2000, 10).argmax(axis=1)
    assert (answers == labels[:2000]).mean() == pytest.approx(0.939, abs=0.0006)
