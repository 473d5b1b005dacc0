"""Drawn pictures: what is where, and that nothing is lost at the edges or in other scripts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import ImageFont

from undertow.darknet.detection.boxes import Box, Detection
from undertow.darknet.detection.draw import class_color, draw_detections, save_image
from undertow.darknet.detection.lettering import lettering
from undertow.data.images import load_image

GREY = np.full((3, 200, 300), 0.5, np.float32)


def seen(
    name: str, box: tuple[float, ...], class_id: int = 0, confidence: float = 0.9, candidate: int = 0
) -> Detection:
    return Detection(name, class_id, confidence, confidence, Box(*box), (300, 200), candidate, np.zeros(1, np.float32))


def changed(drawn: np.ndarray) -> tuple[int, int, int, int]:
    """Left, top, right, bottom of what differs from plain grey."""
    rows, columns = np.nonzero((np.abs(drawn - GREY[0, 0, 0]) > 0.01).any(axis=0))
    return columns.min(), rows.min(), columns.max(), rows.max()


def test_box_stands_where_it_should() -> None:
    drawn = draw_detections(GREY, [seen("dog", (0.5, 0.5, 0.4, 0.5))], 3)
    color = np.array(class_color(0, 3)) / 255
    for row, column in ((100, 90), (100, 210), (150, 150)):  # left, right, bottom
        np.testing.assert_allclose(drawn[:, row, column], color, atol=0.01)
    assert np.array_equal(drawn[:, 100, 150], GREY[:, 0, 0] * 0 + np.float32(128 / 255))
    assert np.array_equal(GREY, np.full_like(GREY, 0.5))


def test_colors_are_those_of_the_original() -> None:
    """By its get_color: class 1 of 3 stands at 1*123457 % 3 = 1, 5/3 of the walk: two thirds from blue to cyan."""
    assert class_color(0, 3) == (255, 0, 255)
    assert class_color(1, 3) == (255, 170, 0)
    assert class_color(0, 1) == (255, 0, 255)
    assert len({class_color(number, 80) for number in range(80)}) == 80


@pytest.mark.parametrize("x", [-0.2, 0.0, 0.5, 0.98, 1.3])
@pytest.mark.parametrize("y", [-0.2, 0.0, 0.5, 0.98, 1.3])
def test_labels_stay_whole_inside_the_picture(x: float, y: float) -> None:
    def extent(center: tuple[float, float]) -> tuple[int, int]:
        left, top, right, bottom = changed(draw_detections(GREY, [seen("dog", (*center, 0.004, 0.006))], 3))
        return right - left, bottom - top

    width, height = extent((0.5, 0.5))
    at_edge = extent((x, y))
    assert 0 <= width - at_edge[0] <= 2
    assert 0 <= height - at_edge[1] <= 3


def test_lines_and_letters_grow_with_the_picture() -> None:
    def label_height(side: int) -> int:
        picture = np.full((3, side, side), 0.5, np.float32)
        found = Detection("dog", 0, 0.9, 0.9, Box(0.5, 0.5, 0.001, 0.001), (side, side), 0, np.zeros(1, np.float32))
        _, top, _, bottom = changed(draw_detections(picture, [found], 3))
        return bottom - top

    assert label_height(100) == pytest.approx(14, abs=4)
    assert 2 < label_height(1500) / label_height(416) < 4


def test_classes_of_one_candidate_share_box_and_label() -> None:
    both = [seen("dog", (0.5, 0.5, 0.4, 0.4)), seen("cat", (0.5, 0.5, 0.4, 0.4), 1, 0.3)]
    together = draw_detections(GREY, both, 3)
    assert np.array_equal(together[:, 100, 90], draw_detections(GREY, both[:1], 3)[:, 100, 90])
    apart = draw_detections(GREY, [both[0], seen("cat", (0.5, 0.5, 0.4, 0.4), 1, 0.3, candidate=1)], 3)
    assert not np.array_equal(together, apart)


def test_the_surest_is_drawn_last() -> None:
    pair = [seen("a", (0.5, 0.5, 0.4, 0.4), 0, 0.9, 0), seen("b", (0.5, 0.5, 0.4, 0.4), 1, 0.5, 1)]
    for order in (pair, pair[::-1]):
        drawn = draw_detections(GREY, order, 3)
        np.testing.assert_allclose(drawn[:, 100, 90], np.array(class_color(0, 3)) / 255, atol=0.01)


@pytest.mark.parametrize(
    "box", [(0.5, 0.5, 9, 9), (0.5, 0.5, 0, 0), (0.5, 0.5, -1, -1), (5, 5, 1, 1), (0.5, 0.5, np.inf, np.nan)]
)
def test_boxes_of_any_kind_can_be_drawn(box: tuple[float, ...]) -> None:
    assert draw_detections(GREY, [seen("dog", box)], 3).shape == GREY.shape


def test_grey_and_tiny_pictures() -> None:
    assert draw_detections(GREY[:1], [seen("dog", (0.5, 0.5, 0.5, 0.5))], 3).shape == GREY.shape
    one = np.zeros((3, 1, 1), np.float32)
    found = Detection("dog", 0, 0.9, 0.9, Box(0.5, 0.5, 1, 1), (1, 1), 0, np.zeros(1, np.float32))
    assert draw_detections(one, [found], 1).shape == (3, 1, 1)


@pytest.mark.parametrize("name", ["Straßenbahn", "кот", "猫", "שלום", "a\nb\tc", "", "🐕"])
def test_names_in_any_script(name: str) -> None:
    plain = draw_detections(GREY, [seen("", (0.5, 0.5, 0.4, 0.4))], 3)
    drawn = draw_detections(GREY, [seen(name, (0.5, 0.5, 0.4, 0.4))], 3)
    assert drawn.shape == GREY.shape
    assert (not name) == np.array_equal(drawn, plain)


def test_letters_no_font_has_become_readable_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("undertow.darknet.detection.lettering._others", tuple)
    assert lettering("Straße café 猫", 12)[1] == "Strasse cafe ?"
    assert lettering("plain", 12)[1] == "plain"


def test_own_font_comes_first(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"resource|file"):
        draw_detections(GREY, [seen("dog", (0.5, 0.5, 0.4, 0.4))], 3, font=tmp_path / "none.ttf")
    found = [name for name in ("DejaVuSansMono.ttf", "DejaVuSans.ttf") if _exists(name)]
    for name in found:
        assert lettering("dog", 12, name)[0].getname()[0].startswith("DejaVu")


def _exists(name: str) -> bool:
    try:
        ImageFont.truetype(name, 12)
    except OSError:
        return False
    return True


def test_drawn_pictures_can_be_saved(tmp_path: Path) -> None:
    drawn = draw_detections(GREY, [seen("dog", (0.5, 0.5, 0.4, 0.4))], 3)
    save_image(drawn, tmp_path / "predictions.png")
    assert np.array_equal(load_image(tmp_path / "predictions.png"), drawn)
