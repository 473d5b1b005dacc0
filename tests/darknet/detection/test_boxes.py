"""Box arithmetic and the list of detections."""

from __future__ import annotations

import numpy as np
import pytest

from tests.data import goldens
from undertow.darknet.detection.boxes import Box, Candidates, box_iou, box_rmse, to_centers, to_corners
from undertow.errors import ShapeError


def test_iou_and_rmse_of_the_original() -> None:
    golden = goldens.load("darknet", "image_ops")
    boxes = golden.arrays["box/xywh"]
    golden.close("box/iou", box_iou(boxes[:, None], boxes), 1e-6)
    golden.close("box/rmse", box_rmse(boxes[:, None], boxes), 1e-6)


def test_iou_of_the_fork() -> None:
    arrays = goldens.load("alexeyab", "iou").arrays
    # the fork's compiler fused multiply and add, which shows where a small union is the difference of larger areas
    np.testing.assert_allclose(box_iou(arrays["box/pred"], arrays["box/truth"]), arrays["iou/value"], atol=1e-6)


@pytest.mark.parametrize(("other", "expected"), [
    ((0.5, 0.5, 0.2, 0.2), 1),
    ((0.6, 0.5, 0.2, 0.2), 1 / 3),
    ((0.5, 0.5, 0.1, 0.1), 1 / 4),
    ((0.9, 0.5, 0.2, 0.2), 0),
    ((0.8, 0.8, 0.2, 0.2), 0),
])  # fmt: skip
def test_iou_by_hand(other: tuple[float, ...], expected: float) -> None:
    assert float(box_iou(np.array([0.5, 0.5, 0.2, 0.2]), np.array(other))) == pytest.approx(expected)


def test_corners_and_centers_are_inverse(rng: np.random.Generator) -> None:
    boxes = rng.random((3, 5, 4))
    np.testing.assert_allclose(to_centers(to_corners(boxes)), boxes)
    np.testing.assert_allclose(to_corners(np.array([0.5, 0.4, 0.2, 0.6])), [0.4, 0.1, 0.6, 0.7])
    assert Box(0.5, 0.4, 0.2, 0.6).sides == pytest.approx((0.4, 0.1, 0.6, 0.7))


def two_candidates() -> Candidates:
    return Candidates(
        np.array([[0.5, 0.5, 0.2, 0.4], [0.25, 0.25, 0.5, 0.5]], np.float32),
        np.array([0.9, 0.8], np.float32),
        np.array([[0.6, 0, 0.7], [0, 0.5, 0.2]], np.float32),
    )


def test_detections_come_box_by_box_and_class_by_class() -> None:
    found = two_candidates().detections(["cat", "dog"], 0.4, (200, 100))
    assert [(d.name, d.class_id, d.candidate) for d in found] == [("cat", 0, 0), ("2", 2, 0), ("dog", 1, 1)]
    assert [d.confidence for d in found] == pytest.approx([0.6, 0.7, 0.5])
    assert found[0].objectness == pytest.approx(0.9)
    assert found[0].pixel_box == pytest.approx((100, 50, 40, 40))
    assert str(found[0]) == "cat: 60%"


def test_detections_from_pixels_are_the_same() -> None:
    relative = two_candidates()
    pixels = Candidates(
        relative.boxes * np.array([200, 100, 200, 100], np.float32), relative.objectness, relative.probabilities
    )
    for a, b in zip(
        relative.detections([], 0.4, (200, 100)),
        pixels.detections([], 0.4, (200, 100), relative=False),
        strict=True,
    ):
        assert a.box == pytest.approx(b.box)


def test_arrays_that_do_not_belong_together() -> None:
    with pytest.raises(ShapeError, match="same candidates"):
        Candidates(np.zeros((2, 4), np.float32), np.zeros(3, np.float32), np.zeros((2, 1), np.float32))
