"""Detection on real photos with real weights, and on arrays."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.darknet.training.scenes import Scene
from undertow.darknet import DIALECTS, Network, load
from undertow.darknet.detection.detector import as_picture, fit_picture
from undertow.data.images import load_image, load_pixels
from undertow.errors import FormatError, ShapeError


@pytest.fixture(scope="module")
def tiny(reference_data: Path) -> Network:
    folder = reference_data / "data" / "darknet" / "yolov3-tiny"
    return load(folder / "yolov3-tiny.cfg", folder / "yolov3-tiny.weights", names=folder / "coco.names")


def expected(reference_data: Path, name: str) -> dict[str, object]:
    content: dict[str, object] = json.loads((reference_data / "data/darknet/yolov3-tiny" / name).read_text())
    return content


@pytest.mark.reference
@pytest.mark.parametrize("photo", ["dog", "person", "horses", "giraffe", "eagle", "kite"])
def test_photos_give_the_detections_of_another_program(tiny: Network, reference_data: Path, photo: str) -> None:
    """Names, confidences within a point, boxes (left, top, width, height) within two pixels; nothing besides."""
    results = expected(reference_data, "expected_letterbox.json")["results"]
    wanted = results[f"{photo}.jpg"]  # type: ignore[index]
    found = tiny.detect(reference_data / "data/images/darknet" / f"{photo}.jpg")
    assert len(found) == len(wanted)
    for item in wanted:
        box = json.loads(item["box_xywh"])
        matching = [one for one in found if one.name == item["cls"] and near(one.pixel_box.sides, corners(box), 2)]
        assert len(matching) == 1, item
        assert abs(100 * matching[0].confidence - float(item["percent"])) < 1


@pytest.mark.reference
def test_the_original_printed_these_in_this_order(tiny: Network, reference_data: Path) -> None:
    published = expected(reference_data, "published_darknet.json")
    for photo in ("dog", "person"):
        found = tiny.detect(reference_data / "data/images/darknet" / f"{photo}.jpg")
        printed = [line.split(": ") for line in published[f"{photo}.jpg_printed"]]  # type: ignore[attr-defined]
        assert [one.name for one in found] == [name for name, _ in printed]
        for one, (_, percent) in zip(found, printed, strict=True):
            assert abs(100 * one.confidence - float(percent.rstrip("%"))) <= 1  # a percentage point
    dog = tiny.detect(reference_data / "data/images/darknet/dog.jpg")
    for name, confidence, left, right, top, bottom in published["dog.jpg_with_boxes_left_right_top_bottom"]:  # type: ignore[attr-defined]
        sides = (left, top, right, bottom)
        match = next(one for one in dog if one.name == name and near(one.pixel_box.sides, sides, 2))
        assert abs(match.confidence - confidence) < 0.01


@pytest.mark.reference
def test_an_array_gives_what_its_file_gives(tiny: Network, reference_data: Path) -> None:
    path = reference_data / "data/images/darknet/person.jpg"
    from_file = [(one.name, one.confidence, one.box) for one in tiny.detect(path)]
    for image in (load_image(path), load_pixels(path)):
        assert [(one.name, one.confidence, one.box) for one in tiny.detect(image)] == from_file
    assert len(tiny.detect(path, threshold=0.88)) == 3
    assert len(tiny.detect(path, nms=0)) > len(from_file)


def test_letterbox_or_stretch_is_the_dialects_choice(scene: Scene) -> None:
    picture = as_picture(scene.image(0))
    boxed = fit_picture(load(scene.cfg), picture)
    assert boxed.shape == (3, 32, 32)
    np.testing.assert_array_equal(boxed[:, :4], np.full((3, 4, 32), 0.5))
    from dataclasses import replace

    stretching = replace(DIALECTS["exact"], letterbox=False)
    stretched = fit_picture(load(scene.cfg, dialect=stretching), picture)
    assert (stretched[:, 0] != 0.5).any()


def test_arrays_of_another_form_are_refused(scene: Scene) -> None:
    net = load(scene.cfg, names=["red", "blue"])
    for wrong in (np.zeros((40, 56, 3)), np.zeros((3, 40, 56), np.uint8), np.zeros((40, 56), np.uint8)):
        with pytest.raises(ShapeError, match="a picture for this network is"):
            net.detect(wrong)
    with pytest.raises(FormatError, match=r"nothing\.png"):
        net.detect("nothing.png")


def near(a: tuple[float, ...], b: tuple[float, ...], pixels: float) -> bool:
    return all(abs(x - y) <= pixels for x, y in zip(a, b, strict=True))


def corners(box: list[float]) -> tuple[float, ...]:
    left, top, width, height = box
    return left, top, left + width, top + height
