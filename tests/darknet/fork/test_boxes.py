"""Overlap measures, suppression and the Gaussian head, against loops."""

from __future__ import annotations

import math

import numpy as np
import pytest

from undertow.darknet.detection.boxes import Box, Candidates
from undertow.darknet.detection.boxes_measures import MEASURES, box_ciou, box_diou, box_diounms, box_giou
from undertow.darknet.detection.decode import Frame
from undertow.darknet.detection.decode_gaussian import GaussianHead
from undertow.darknet.detection.nms import do_nms, do_nms_sort
from undertow.errors import ShapeError

Array = np.ndarray


def measure_by_hand(kind: str, a: Box, b: Box, beta: float = 0.6) -> float:
    """giou, diou, ciou of two boxes, from their definitions."""
    (l1, t1, r1, b1), (l2, t2, r2, b2) = a.sides, b.sides
    shared = max(min(r1, r2) - max(l1, l2), 0) * max(min(b1, b2) - max(t1, t2), 0)
    union = a.w * a.h + b.w * b.h - shared
    width, height = max(r1, r2) - min(l1, l2), max(b1, b2) - min(t1, t2)
    iou = shared / union
    distance = ((a.x - b.x) ** 2 + (a.y - b.y) ** 2) / (width**2 + height**2)
    if kind == "giou":
        return iou - (width * height - union) / (width * height)
    if kind == "diou":
        return iou - distance**beta
    v = 4 / math.pi**2 * (math.atan(a.w / a.h) - math.atan(b.w / b.h)) ** 2
    return iou - distance - v * v / (1 - iou + v + 1e-6)


@pytest.mark.parametrize(("kind", "measure"), [("giou", box_giou), ("diou", box_diou), ("ciou", box_ciou)])
def test_measures(kind: str, measure: object, rng: np.random.Generator) -> None:
    pairs = np.concatenate([rng.uniform(0, 1, (40, 2, 2)), rng.uniform(0.1, 0.6, (40, 2, 2))], axis=-1)
    expected = [measure_by_hand(kind, Box(*map(float, a)), Box(*map(float, b))) for a, b in pairs]
    np.testing.assert_allclose(MEASURES[kind](pairs[:, 0], pairs[:, 1]), expected, rtol=1e-10)
    assert MEASURES[kind] is measure


def test_boxes_without_area_have_no_distance_term() -> None:
    point = np.array([0.5, 0.5, 0.0, 0.0])
    with np.errstate(invalid="ignore"):
        assert math.isnan(box_diounms(point, point, 1.0))  # as plain IoU: 0/0


@pytest.mark.parametrize(("kind", "beta"), [("greedynms", 0.6), ("diounms", 0.6), ("diounms", 1.3)])
def test_suppression_box_by_box(kind: str, beta: float, rng: np.random.Generator) -> None:
    n = 60
    boxes = np.concatenate([rng.uniform(0.3, 0.7, (n, 2)), rng.uniform(0.1, 0.5, (n, 2))], axis=1).astype(np.float32)
    probabilities = rng.uniform(0, 1, (n, 3)).astype(np.float32)
    probabilities[probabilities < 0.2] = 0
    found = Candidates(boxes, np.ones(n, np.float32), probabilities)
    kept = do_nms(found, 0.2, kind, beta)
    expected = probabilities.copy()
    for c in range(3):
        order = sorted(range(n), key=lambda i: -probabilities[i, c])
        for place, i in enumerate(order):
            for j in order[place + 1 :] if expected[i, c] else ():
                if measure_by_hand("diou", Box(*map(float, boxes[i])), Box(*map(float, boxes[j])), beta) > 0.2:
                    expected[j, c] = 0
    assert (expected == 0).sum() > (probabilities == 0).sum()
    np.testing.assert_array_equal(np.sort(kept.probabilities, axis=0), np.sort(expected, axis=0))
    by_box = {tuple(box): row for box, row in zip(boxes, expected, strict=True)}
    for box, row in zip(kept.boxes, kept.probabilities, strict=True):
        np.testing.assert_array_equal(row, by_box[tuple(box)])


def test_kinds_of_suppression(rng: np.random.Generator) -> None:
    boxes = np.array([[0.5, 0.5, 0.4, 0.4], [0.6, 0.5, 0.4, 0.4]], np.float32)
    found = Candidates(boxes, np.ones(2, np.float32), np.array([[0.9], [0.8]], np.float32))
    for kind in ("default", "cornersnms"):
        np.testing.assert_array_equal(do_nms(found, 0.45, kind).probabilities, do_nms_sort(found, 0.45).probabilities)
    # The plain overlap is .6; the distance of the centres takes .11 of it.
    assert [(do_nms(found, 0.55, kind).probabilities > 0).sum() for kind in ("default", "greedynms")] == [1, 2]
    with pytest.raises(ValueError, match="no nms_kind 'soft'"):
        do_nms(found, 0.45, "soft")


@pytest.mark.parametrize(("point", "shift"), [("center", 0.0), ("left_top", 0.5), ("right_bottom", -0.5)])
def test_gaussian_head(point: str, shift: float, rng: np.random.Generator) -> None:
    output = rng.uniform(0, 1, (2, 2 * 11, 2, 3)).astype(np.float32)
    anchors = np.array([[3, 4], [5, 6], [7, 8]], np.float32)
    head = GaussianHead(output, anchors, (1, 2), 2, point)
    found = head.candidates(Frame((30, 20), (30, 20), letterbox=False), 0.3, index=1)
    rows = []
    for j, i, n in np.ndindex(2, 3, 2):
        x, sx, y, sy, w, sw, h, sh, objectness, *classes = map(float, output[1, n * 11 : n * 11 + 11, j, i])
        if objectness > 0.3:
            width, height = math.exp(w) * anchors[n + 1, 0] / 30, math.exp(h) * anchors[n + 1, 1] / 20
            box = [(i + x) / 3 + shift * width, (j + y) / 2 + shift * height, width, height]
            sure = 1 - (sx + sy + sw + sh) / 4
            chances = [objectness * p * sure for p in classes]
            rows.append([*box, objectness, *(p if p > 0.3 else 0 for p in chances), sx, sy, sw, sh])
    expected = np.array(rows)
    assert 0 < len(expected) < 12
    np.testing.assert_allclose(found.boxes, expected[:, :4], rtol=1e-5)
    np.testing.assert_allclose(found.objectness, expected[:, 4], rtol=1e-6)
    np.testing.assert_allclose(found.probabilities, expected[:, 5:7], rtol=1e-5)
    assert found.uncertainties is not None
    np.testing.assert_allclose(found.uncertainties, expected[:, 7:], rtol=1e-6)


def test_a_gaussian_head_of_the_wrong_size() -> None:
    with pytest.raises(ShapeError, match="needs 22 channels"):
        GaussianHead(np.zeros((1, 21, 2, 2), np.float32), np.ones((2, 2), np.float32), (0, 1), 2)


def test_candidates_of_several_heads() -> None:
    plain = Candidates(np.ones((1, 4), np.float32), np.ones(1, np.float32), np.ones((1, 2), np.float32))
    gaussian = Candidates(plain.boxes, plain.objectness, plain.probabilities, np.full((1, 4), 0.3, np.float32))
    assert Candidates.joined([plain, plain]).uncertainties is None
    joined = Candidates.joined([plain, gaussian]).taken(np.array([1, 0]))
    assert joined.uncertainties is not None
    np.testing.assert_allclose(joined.uncertainties, np.outer([0.3, 0], np.ones(4)), rtol=1e-6)
