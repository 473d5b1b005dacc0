"""Augmentation: the original's recorded runs, and what must hold for every draw."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data import goldens
from undertow.data import augment
from undertow.data.augment import ClassifierOptions, Colours, DetectionOptions
from undertow.data.crand import CounterRandom, GlibcRandom
from undertow.data.images import load_image, load_pixels
from undertow.errors import ShapeError

# Sampling positions of the original are rounded at values up to the picture's width (see test_resize).
PICTURE_TOLERANCE = 2e-6


def boxes_of(picture: Path) -> np.ndarray:
    lines = (picture.parent.parent / "labels" / picture.name).with_suffix(".txt").read_text().splitlines()
    rows = [[float(word) for word in line.split()] for line in lines]
    return np.array([[x, y, w, h, number] for number, x, y, w, h in rows], np.float32)


def test_recorded_random_numbers() -> None:
    random = GlibcRandom(77)
    recorded = goldens.load("darknet", "augment").arrays["rand"]
    assert [random.rand() for _ in recorded] == recorded.tolist()


@pytest.mark.parametrize("name", ["detection", "detection_nojitter"])
def test_load_data_detection_of_the_original(name: str) -> None:
    golden = goldens.load("darknet", "augment")
    case, random = golden.case[name], GlibcRandom(77)
    colours = Colours(case["hue"], case["saturation"], case["exposure"])
    options = DetectionOptions(case["jitter"], colours)
    paths = [golden.folder / golden.case["paths"][random.index(3)] for _ in range(case["n"])]
    for row, path in enumerate(paths):
        picture, truth = augment.augment_detection(
            load_image(path), boxes_of(path), (case["w"], case["h"]), options, random, case["boxes"]
        )
        difference = np.abs(picture.ravel() - golden.arrays[f"{name}/X"][row])
        assert difference.max() <= PICTURE_TOLERANCE
        assert np.array_equal(truth.ravel(), golden.arrays[f"{name}/y"][row])


@pytest.mark.parametrize("name", ["classify", "classify_center"])
def test_load_data_augment_of_the_original(name: str) -> None:
    golden = goldens.load("darknet", "augment")
    case, random = golden.case[name], GlibcRandom(77)
    options = ClassifierOptions(
        case["min"],
        case["max"],
        case["size"],
        case["angle"],
        case["aspect"],
        Colours(case["hue"], case["saturation"], case["exposure"]),
        bool(case["center"]),
    )
    paths = [golden.folder / golden.case["paths"][random.index(3)] for _ in range(case["n"])]
    for row, path in enumerate(paths):
        picture = augment.augment_classifier(load_image(path), options, random)
        assert np.abs(picture.ravel() - golden.arrays[f"{name}/X"][row]).max() <= PICTURE_TOLERANCE


@pytest.mark.parametrize("flip", [False, True])
def test_correct_boxes_of_the_original(flip: bool) -> None:
    golden = goldens.load("darknet", "image_ops")
    boxes = golden.arrays["box/xywh"].copy()
    boxes[3, :2] = 0  # the recording did so, to show what becomes of a box on the corner
    moved = augment.correct_boxes(boxes, 0.1, -0.2, 1.3, 0.7, flip)
    recorded = golden.arrays["box/correct_flip" if flip else "box/correct"]
    assert (recorded[3] == 999999).all()
    np.testing.assert_allclose(moved, recorded, atol=2e-7)


def test_uint8_and_float_pictures_give_the_same() -> None:
    golden = goldens.load("darknet", "augment")
    path = golden.folder / golden.case["paths"][0]
    options = DetectionOptions(0.3, Colours(0.1, 1.5, 1.5))
    results = [
        augment.augment_detection(picture, boxes_of(path), (24, 16), options, GlibcRandom(5))
        for picture in (load_image(path), load_pixels(path).transpose(2, 0, 1))
    ]
    np.testing.assert_allclose(results[0][0], results[1][0], atol=2e-6)
    assert np.array_equal(results[0][1], results[1][1])


SIDE = st.integers(8, 60)


@given(st.integers(0, 2**32), st.floats(0, 0.9), SIDE, SIDE, SIDE, SIDE)
def test_boxes_follow_the_picture(seed: int, jitter: float, w: int, h: int, width: int, height: int) -> None:
    """A white rectangle on black lands where its box says, up to the pixel that drawing rounds away."""
    left, right, top, bottom = w // 4, w // 4 + w // 2, h // 4, h // 4 + h // 2
    picture = np.zeros((3, h, w), np.float32)
    picture[:, top:bottom, left:right] = 1
    box = [(left + right) / 2 / w, (top + bottom) / 2 / h, (right - left) / w, (bottom - top) / h, 2]
    canvas, truth = augment.augment_detection(
        picture, np.array([box], np.float32), (width, height), DetectionOptions(jitter), CounterRandom(seed, 0)
    )
    rows, columns = np.nonzero(canvas[0] > 0.6)
    # one source pixel of blur, one pixel of truncation on the canvas, and one for the whole pixels themselves
    reach_x, reach_y = 2 + width / w, 2 + height / h
    assert not truth[1:].any()
    if not truth[0].any():  # the picture's middle fell off the canvas
        assert len(rows) == 0 or min(np.ptp(rows) - reach_y, np.ptp(columns) - reach_x) <= 0
        return
    x, y, bw, bh, number = truth[0].astype(np.float64)
    assert number == 2
    if len(rows):
        assert abs(columns.min() - (x - bw / 2) * width) <= reach_x
        assert abs(columns.max() + 1 - (x + bw / 2) * width) <= reach_x
        assert abs(rows.min() - (y - bh / 2) * height) <= reach_y
        assert abs(rows.max() + 1 - (y + bh / 2) * height) <= reach_y


def test_a_draw_depends_on_its_counter_alone(rng: np.random.Generator) -> None:
    picture = rng.random((3, 20, 30), np.float32)
    boxes = rng.random((7, 5)).astype(np.float32)
    options = DetectionOptions(0.3, Colours(0.1, 1.5, 1.5))
    first = [augment.augment_detection(picture, boxes, (32, 32), options, CounterRandom(9, n)) for n in range(3)]
    again = augment.augment_detection(picture, boxes, (32, 32), options, CounterRandom(9, 2))
    assert np.array_equal(first[2][0], again[0])
    assert np.array_equal(first[2][1], again[1])
    assert not np.array_equal(first[1][0], again[0])


def test_flip_can_be_forbidden(rng: np.random.Generator) -> None:
    options = DetectionOptions(flip=False)
    draws = [augment.draw_detection(CounterRandom(1, n), (10, 10), (8, 8), options) for n in range(20)]
    assert not any(draw.flip for draw in draws)
    allowed = [augment.draw_detection(CounterRandom(1, n), (10, 10), (8, 8), DetectionOptions()) for n in range(20)]
    assert any(draw.flip for draw in allowed)


def test_truth_is_limited_before_tiny_boxes_are_dropped() -> None:
    boxes = np.array([[0.5, 0.5, 0.0005, 0.1], [0.5, 0.5, 0.2, 0.2], [0.4, 0.4, 0.1, 0.1]], np.float32)
    truth = augment.fill_truth(boxes, np.array([0, 1, 2]), limit=2)
    assert truth.shape == (2, 5)
    assert truth[0].tolist() == [np.float32(v) for v in (0.5, 0.5, 0.2, 0.2, 1)]
    assert not truth[1].any()


def test_box_on_the_corner_is_dropped() -> None:
    moved = augment.correct_boxes(np.array([[0, 0, 0.5, 0.5]], np.float32), 0, 0, 1, 1, False)
    assert not augment.fill_truth(moved, np.array([1])).any()


def test_no_boxes() -> None:
    picture = np.zeros((3, 4, 4), np.float32)
    _, truth = augment.augment_detection(picture, np.zeros((0, 5)), (8, 8), DetectionOptions(), CounterRandom(0, 0))
    assert truth.shape == (90, 5)
    assert not truth.any()


def test_grey_pictures_take_the_exposure_alone() -> None:
    picture = np.full((1, 8, 8), 0.5, np.float32)
    options = DetectionOptions(0, Colours(0.2, 1.5, 1.5), flip=False)
    draw = augment.draw_detection(CounterRandom(3, 0), (8, 8), (8, 8), options)
    result = augment.apply_to_picture(picture, draw, (8, 8))
    np.testing.assert_allclose(result, 0.5 * draw.exposure, rtol=1e-6)


def test_impossible_options() -> None:
    with pytest.raises(ValueError, match="jitter"):
        DetectionOptions(jitter=1)
    with pytest.raises(ShapeError, match="at least 1"):
        ClassifierOptions(10, 20, 0)
