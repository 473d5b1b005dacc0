"""From yolo outputs to boxes on the picture."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.darknet.detection import heads
from tests.data import goldens
from undertow.darknet.detection.decode import YoloHead, activate_yolo, correct_yolo_boxes, get_network_boxes, yolo_boxes
from undertow.darknet.detection.nms import do_nms_obj, do_nms_sort
from undertow.errors import ShapeError

RECORDED = [
    ("darknet", "boxes_yolo"),
    ("darknet", "boxes_yolo_relative"),
    ("darknet", "boxes_yolo_two_heads"),
    ("alexeyab", "boxes_yolo"),
    ("alexeyab", "boxes_yolo_letter"),
    ("alexeyab", "boxes_yolo_pixels"),
    ("alexeyab", "boxes_two_heads"),
]


@pytest.mark.parametrize(("program", "name"), RECORDED)
def test_get_network_boxes_of_the_originals(program: str, name: str) -> None:
    golden = goldens.load(program, name)
    assert len(heads.candidates(golden)) == golden.arrays["count"]
    heads.same(golden, "raw", heads.candidates(golden))


@pytest.mark.parametrize(("program", "name"), RECORDED)
@pytest.mark.parametrize("kind", ["nms_sort", "nms_obj"])
def test_suppression_of_the_originals(program: str, name: str, kind: str) -> None:
    golden = goldens.load(program, name)
    suppress = {"nms_sort": do_nms_sort, "nms_obj": do_nms_obj}[kind]
    heads.same(golden, kind, suppress(heads.candidates(golden), golden.case["nms"]))


def one_cell(x: float, y: float, tw: float, th: float, **options: object) -> YoloHead:
    """A 4x3 map whose cell (column 2, row 1) holds one box; anchor 1 of two, 20 x 10 pixels."""
    output = np.zeros((1, 7, 3, 4), np.float32)
    output[0, :, 1, 2] = x, y, tw, th, 0.8, 0.5, 0.1
    return YoloHead(output, np.array([[5, 5], [20, 10]], np.float32), (1,), 2, **options)


def test_box_formula() -> None:
    found = yolo_boxes(one_cell(0.25, 0.5, math.log(2), 0.0), (64, 32), 0.1)
    np.testing.assert_allclose(found.boxes, [[2.25 / 4, 1.5 / 3, 2 * 20 / 64, 10 / 32]], rtol=1e-6)
    np.testing.assert_allclose(found.objectness, [0.8])
    np.testing.assert_allclose(found.probabilities, [[0.4, 0]], rtol=1e-6)  # 0.08 is not above the threshold


def test_new_coords_formula() -> None:
    found = yolo_boxes(one_cell(0.25, 0.5, 0.6, 0.5, new_coords=True), (64, 32), 0.1)
    np.testing.assert_allclose(found.boxes[0, 2:], [1.44 * 20 / 64, 10 / 32], rtol=1e-6)


def test_threshold_is_strict() -> None:
    head = one_cell(0.5, 0.5, 0, 0)
    assert len(yolo_boxes(head, (64, 32), float(np.float32(0.8)))) == 0
    assert len(yolo_boxes(head, (64, 32), 0.79)) == 1


def test_pictures_of_a_batch_are_separate() -> None:
    head = one_cell(0.25, 0.5, 0, 0)
    batch = YoloHead(np.concatenate([np.zeros_like(head.output), head.output]), head.anchors, head.mask, head.classes)
    assert len(get_network_boxes([batch], (64, 32), (64, 32), 0.1, index=0)) == 0
    assert len(get_network_boxes([batch], (64, 32), (64, 32), 0.1, index=1)) == 1


@pytest.mark.parametrize("letterbox", [True, False])
@pytest.mark.parametrize("image_size", [(640, 480), (208, 832), (416, 416)])
def test_whole_picture_maps_back(image_size: tuple[int, int], letterbox: bool) -> None:
    width, height = image_size
    fit = min(416 / width, 416 / height)
    inner = (width * fit / 416, height * fit / 416) if letterbox else (1, 1)
    box = np.array([[0.5, 0.5, *inner]])
    back = correct_yolo_boxes(box, image_size, (416, 416), letterbox=letterbox)
    np.testing.assert_allclose(back, [[0.5, 0.5, 1, 1]], atol=1e-6)
    pixels = correct_yolo_boxes(box, image_size, (416, 416), relative=False, letterbox=letterbox)
    np.testing.assert_allclose(pixels, back * [width, height, width, height], rtol=1e-6)


def test_activation_of_the_layer() -> None:
    raw = np.linspace(-3, 3, 14, dtype=np.float64).reshape(1, 14, 1, 1)
    plain = activate_yolo(raw, 2, 2).ravel()
    logistic = 1 / (1 + np.exp(-raw.ravel()))
    kept = [2, 3, 9, 10]
    expected = logistic.copy()
    expected[kept] = raw.ravel()[kept]
    np.testing.assert_allclose(plain, expected)
    scaled = activate_yolo(raw, 2, 2, scale_x_y=1.2).ravel()
    np.testing.assert_allclose(scaled[[0, 1, 7, 8]], expected[[0, 1, 7, 8]] * 1.2 - 0.1)
    np.testing.assert_allclose(np.delete(scaled, [0, 1, 7, 8]), np.delete(expected, [0, 1, 7, 8]))


def test_wrong_shapes_are_refused() -> None:
    anchors = np.ones((2, 2), np.float32)
    with pytest.raises(ShapeError, match="14 channels"):
        YoloHead(np.zeros((1, 15, 2, 2), np.float32), anchors, (0, 1), 2)
    with pytest.raises(ShapeError, match="beyond the 2"):
        YoloHead(np.zeros((1, 7, 2, 2), np.float32), anchors, (2,), 2)
    with pytest.raises(ShapeError, match="no head"):
        get_network_boxes([], (32, 32), (32, 32), 0.5)
    heads_apart = [YoloHead(np.zeros((1, 5 + classes, 2, 2), np.float32), anchors, (0,), classes) for classes in (1, 2)]
    with pytest.raises(ShapeError, match="differ in their classes"):
        get_network_boxes(heads_apart, (32, 32), (32, 32), 0.5)


def test_new_coords_with_scale_by_hand() -> None:
    """A Scaled-YOLOv4 head on one cell: the layer before has done the logistic, t = 0.5 means the anchor itself."""
    raw = np.full((1, 7, 1, 1), 0.5)
    raw[0, 4:, 0, 0] = 0.9, 0.2, 0.8
    output = activate_yolo(raw, 1, 2, scale_x_y=2.0, new_coords=True).astype(np.float32)
    head = YoloHead(output, np.array([[10, 13]], np.float32), (0,), 2, new_coords=True)
    found = get_network_boxes([head], (32, 32), (32, 32), 0.1)
    np.testing.assert_allclose(found.boxes, [[0.5, 0.5, 0.3125, 0.40625]], rtol=1e-6)
    np.testing.assert_allclose(found.objectness, [0.9], rtol=1e-6)
    np.testing.assert_allclose(found.probabilities, [[0.18, 0.72]], rtol=1e-6)
