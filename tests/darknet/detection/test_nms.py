"""Suppression against a literal transcription of the rule, with ties and zeros."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from undertow.darknet.detection.boxes import Candidates, box_iou
from undertow.darknet.detection.nms import do_nms_obj, do_nms_sort


def plain_rule(candidates: Candidates, threshold: float, by_class: bool) -> Candidates:
    """The rule one candidate at a time, with Python's stable sort for the C library's merge sort."""
    rows = [
        [box, objectness, probabilities.copy()]
        for box, objectness, probabilities in zip(
            candidates.boxes, candidates.objectness, candidates.probabilities, strict=True
        )
    ]
    place, last = 0, len(rows) - 1
    while place <= last:
        if rows[place][1] == 0:
            rows[place], rows[last] = rows[last], rows[place]
            last -= 1
        else:
            place += 1
    alive, rest = rows[: last + 1], rows[last + 1 :]
    for k in range(candidates.classes if by_class else 1):
        key = functools.partial(lambda row, k: -row[2][k] if by_class else -row[1], k=k)
        alive.sort(key=key)
        for first in range(len(alive)):
            for second in range(first + 1, len(alive)):
                value = alive[first][2][k] if by_class else alive[first][1]
                if value != 0 and box_iou(alive[first][0], alive[second][0]) > threshold:
                    if by_class:
                        alive[second][2][k] = 0
                    else:
                        alive[second][1] = 0
                        alive[second][2][:] = 0
    rows = alive + rest
    return Candidates(*(np.array([row[part] for row in rows], np.float32) for part in range(3)))


@pytest.mark.parametrize("by_class", [True, False])
@given(
    seed=st.integers(0, 10**6),
    count=st.integers(1, 25),
    classes=st.integers(1, 4),
    threshold=st.sampled_from([0.1, 0.45, 0.8]),
)
def test_agrees_with_the_plain_rule(by_class: bool, seed: int, count: int, classes: int, threshold: float) -> None:
    rng = np.random.default_rng(seed)
    boxes = rng.uniform(0.2, 0.8, (count, 4)).astype(np.float32)
    objectness = rng.integers(0, 5, count).astype(np.float32) / 4  # few values: ties and zeros abound
    probabilities = (rng.integers(0, 5, (count, classes)) / 4).astype(np.float32)
    candidates = Candidates(boxes, objectness, probabilities)
    ours = (do_nms_sort if by_class else do_nms_obj)(candidates, threshold)
    expected = plain_rule(candidates, threshold, by_class)
    assert np.array_equal(ours.boxes, expected.boxes)
    assert np.array_equal(ours.objectness, expected.objectness)
    assert np.array_equal(ours.probabilities, expected.probabilities)


@pytest.mark.parametrize("suppress", [do_nms_sort, do_nms_obj])
def test_many_boxes_row_by_row(suppress: object, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    boxes = rng.uniform(0.2, 0.8, (300, 4)).astype(np.float32)
    candidates = Candidates(boxes, rng.random(300, np.float32), rng.random((300, 3), np.float32))
    monkeypatch.setattr("undertow.darknet.detection.nms._AT_ONCE", 300)
    at_once = suppress(candidates, 0.4)
    monkeypatch.setattr("undertow.darknet.detection.nms._AT_ONCE", 299)
    monkeypatch.setattr("undertow.darknet.detection.nms._AT_ONCE_FOR_CLASSES", 299)
    row_by_row = suppress(candidates, 0.4)
    assert np.array_equal(at_once.boxes, row_by_row.boxes)
    assert np.array_equal(at_once.probabilities, row_by_row.probabilities)
    assert (at_once.probabilities == 0).any()


@pytest.mark.parametrize("suppress", [do_nms_sort, do_nms_obj])
def test_inputs_stay_as_they_were(suppress: object) -> None:
    boxes = np.tile(np.array([0.5, 0.5, 0.2, 0.2], np.float32), (3, 1))
    candidates = Candidates(boxes, np.array([0.5, 0.9, 0.7], np.float32), np.full((3, 2), 0.4, np.float32))
    result = suppress(candidates, 0.5)
    assert (result.probabilities > 0).sum() == 2
    assert (candidates.probabilities > 0).all()
    assert (candidates.objectness > 0).all()


def test_nothing_to_suppress() -> None:
    empty = Candidates(np.zeros((0, 4), np.float32), np.zeros(0, np.float32), np.zeros((0, 3), np.float32))
    assert len(do_nms_sort(empty, 0.5)) == len(do_nms_obj(empty, 0.5)) == 0


def test_boxes_without_area_are_left_alone() -> None:
    boxes = np.array([[0.5, 0.5, 0, 0], [0.5, 0.5, 0, 0]], np.float32)
    candidates = Candidates(boxes, np.ones(2, np.float32), np.full((2, 1), 0.5, np.float32))
    assert (do_nms_sort(candidates, 0.5).probabilities > 0).all()
