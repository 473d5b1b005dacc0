"""HSV against the standard library's colorsys; the original's numbers stand in test_resize."""

from __future__ import annotations

import colorsys

import numpy as np
import pytest

from undertow.data.colour import distort_image, hsv_to_rgb, normalize_image, random_distort, rgb_to_hsv
from undertow.data.crand import GlibcRandom

EDGES = [(0, 0, 0), (1, 1, 1), (0.5, 0.5, 0.5), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0), (0, 1, 1), (1, 0, 1)]


@pytest.fixture
def pixels(rng: np.random.Generator) -> np.ndarray:
    return np.concatenate([np.array(EDGES), rng.random((200, 3))]).T[:, None, :]


def test_rgb_to_hsv(pixels: np.ndarray) -> None:
    expected = np.array([colorsys.rgb_to_hsv(*rgb) for rgb in pixels[:, 0].T]).T
    np.testing.assert_allclose(rgb_to_hsv(pixels)[:, 0], expected, atol=1e-6)


def test_hsv_to_rgb(pixels: np.ndarray) -> None:
    expected = np.array([colorsys.hsv_to_rgb(*hsv) for hsv in pixels[:, 0].T]).T
    np.testing.assert_allclose(hsv_to_rgb(pixels)[:, 0], expected, atol=1e-12)


def test_distort_is_a_change_of_hue_saturation_and_value(pixels: np.ndarray) -> None:
    expected = []
    for rgb in pixels[:, 0].T:
        hue, saturation, value = colorsys.rgb_to_hsv(*rgb)
        changed = colorsys.hsv_to_rgb((hue + 0.3) % 1, saturation * 0.7, value * 1.3)
        expected.append(np.clip(changed, 0, 1))
    np.testing.assert_allclose(distort_image(pixels, 0.3, 0.7, 1.3)[:, 0], np.array(expected).T, atol=1e-6)


def test_grey_stays_grey() -> None:
    grey = np.full((3, 2, 2), 0.4, np.float32)
    np.testing.assert_allclose(distort_image(grey, 0.2, 3, 1.5), 0.6, rtol=1e-6)


def test_random_distort_draws_hue_saturation_exposure() -> None:
    ours, raw = GlibcRandom(4), GlibcRandom(4)
    assert random_distort(ours, 0.1, 1.5, 2) == (raw.uniform(-0.1, 0.1), raw.scale(1.5), raw.scale(2))


def test_flat_pictures_are_not_stretched() -> None:
    flat = np.full((3, 2, 2), 0.4, np.float32)
    assert np.array_equal(normalize_image(flat), flat)
