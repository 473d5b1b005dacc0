"""Anchors from boxes: at least as good as AlexeyAB's k-means, and the same every time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from undertow.darknet.detection.anchors import calc_anchors, iou_of_sizes
from undertow.darknet.files.labels import LabelReader
from undertow.darknet.learning.dataset import read_all_labels
from undertow.errors import UndertowError

Array = np.ndarray[Any, Any]


def forks(sizes: Array, count: int, seed: int) -> Array:
    """matrix.c do_kmeans: begins with boxes drawn at random, ends where no box changes its anchor."""
    centers = sizes[np.random.default_rng(seed).permutation(len(sizes))[:count]].copy()
    before = np.full(len(sizes), -1)
    for _ in range(1000):
        nearest = np.array([max(range(count), key=lambda k: iou(size, centers[k])) for size in sizes])
        if np.array_equal(nearest, before):
            break
        before = nearest
        for k in range(count):
            if (nearest == k).any():
                centers[k] = sizes[nearest == k].mean(axis=0)
    return centers


def iou(one: Array, other: Array) -> float:
    shared = min(one[0], other[0]) * min(one[1], other[1])
    return float(shared / (one[0] * one[1] + other[0] * other[1] - shared))


def mean_iou(sizes: Array, anchors: Array) -> float:
    return float(np.mean([max(iou(size, anchor) for anchor in anchors) for size in sizes]))


@pytest.fixture
def sizes(rng: np.random.Generator) -> Array:
    """Three clusters of boxes."""
    centers = np.repeat([(20.0, 40.0), (90.0, 60.0), (200.0, 250.0)], 40, axis=0)
    return centers * np.exp(rng.standard_normal(centers.shape) * 0.25)


def test_iou_of_sizes(sizes: Array) -> None:
    expected = [[iou(one, other) for other in sizes[:4]] for one in sizes[:9]]
    assert np.allclose(iou_of_sizes(sizes[:9], sizes[:4]), expected)


@pytest.mark.parametrize("count", [1, 3, 6])
def test_no_worse_than_the_forks_best_of_eight(sizes: Array, count: int) -> None:
    found = calc_anchors(sizes, count, fine=True)
    assert found.average_iou == pytest.approx(mean_iou(sizes, found.sizes), abs=1e-9)
    assert found.average_iou >= max(mean_iou(sizes, forks(sizes, count, seed)) for seed in range(8))
    assert found.counts.sum() == len(sizes)
    assert (np.diff(found.sizes.prod(axis=1)) >= 0).all()


def test_blood_cells(reference_data: Path) -> None:
    folder = reference_data / "detection" / "bccd"
    folder = folder if folder.exists() else reference_data / "data" / "detection" / "bccd"
    images = [str(folder / line) for line in (folder / "train.txt").read_text().split()][:60]
    boxes = np.concatenate(read_all_labels(images, LabelReader(3)))[:, 2:4] * 416
    found = calc_anchors(boxes, 6)
    assert found.average_iou >= max(mean_iou(boxes, np.rint(forks(boxes, 6, seed))) for seed in range(3))


def test_the_same_every_time_and_in_whole_pixels(sizes: Array) -> None:
    one, other = calc_anchors(sizes, 5), calc_anchors(sizes[::-1].copy(), 5)
    assert one.text() == other.text()
    assert np.array_equal(one.sizes, np.rint(one.sizes))
    assert calc_anchors(sizes / 30, 2, fine=True).text().count(".") == 4


def test_too_many_anchors_are_refused() -> None:
    with pytest.raises(UndertowError, match=r"3 anchors for boxes of 2 different sizes.*at most 2"):
        calc_anchors(np.array([[4.0, 5.0], [4.0, 5.0], [9.0, 9.0]]), 3)
