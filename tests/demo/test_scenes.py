from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("sklearn", reason="the demo's digits come with scikit-learn")
pytest.importorskip("skimage", reason="the demo's photographs come with scikit-image")

from undertow.demo import scenes
from undertow.demo.scenes import HEIGHT, TEST_PHOTOS, TRAINING_PHOTOS, WIDTH, SceneMaker


def test_scenes_follow_from_seed_and_number() -> None:
    maker = SceneMaker(True)
    scene = maker.scene(7)
    again = SceneMaker(True).scene(7)
    np.testing.assert_array_equal(scene.pixels, again.pixels)
    assert scene.labels == again.labels
    assert not np.array_equal(scene.pixels, maker.scene(8).pixels)
    assert not np.array_equal(scene.pixels, SceneMaker(True, seed=1).scene(7).pixels)


def test_digits_and_photographs_for_testing_are_held_out() -> None:
    learn, held_out = SceneMaker(True), SceneMaker(False)
    assert not set(TRAINING_PHOTOS) & set(TEST_PHOTOS)
    assert len(learn.digits) + len(held_out.digits) == 1797
    seen = {digit.tobytes() for digit in learn.digits}
    # A few digits of the set are the same to the pixel whoever wrote them.
    assert sum(digit.tobytes() in seen for digit in held_out.digits) < 3
    assert set(held_out.targets) == set(range(10))


def test_labels_are_tight_boxes_around_what_was_painted(monkeypatch: pytest.MonkeyPatch) -> None:
    """On flat grey ground the painted pixels are those that differ from it."""
    maker = SceneMaker(True)
    monkeypatch.setattr(maker, "photos", [Image.new("RGB", (WIDTH, HEIGHT), (128, 128, 128))])
    for number in range(5):
        scene = maker.scene(number)
        changed = (np.abs(scene.pixels.astype(int) - 128) > 40).any(axis=2)
        outside = changed.copy()
        for _, x, y, w, h in scene.labels:
            left, right = round((x - w / 2) * WIDTH), round((x + w / 2) * WIDTH)
            top, bottom = round((y - h / 2) * HEIGHT), round((y + h / 2) * HEIGHT)
            inside = changed[top:bottom, left:right]
            for edge in (inside[:2], inside[-2:], inside[:, :2], inside[:, -2:]):
                assert edge.any()
            outside[top:bottom, left:right] = False
        assert not outside.any()
        assert 1 <= len(scene.labels) <= 6


def test_boxes_of_digits_are_apart() -> None:
    maker = SceneMaker(False)
    for number in range(10):
        boxes = [label[1:] for label in maker.scene(number).labels]
        for i, (x, y, w, h) in enumerate(boxes):
            for other_x, other_y, other_w, other_h in boxes[:i]:
                assert abs(x - other_x) > (w + other_w) / 2 or abs(y - other_y) > (h + other_h) / 2


def test_every_ink_is_used_and_set_off_by_its_rim() -> None:
    used = set()
    maker = SceneMaker(True)
    for number in range(12):
        pixels = maker.scene(number).pixels
        used |= {ink for ink in scenes._INKS if (pixels == ink).all(axis=2).sum() > 50}
    assert used == set(scenes._INKS)
