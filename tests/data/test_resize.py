"""Sizes, crops and places: the original's numbers, and OpenCV's rule by its formula."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data import goldens
from undertow.data import colour, resize, rotate
from undertow.errors import ShapeError

# One unit in the last place of float32 near 1, twice: the original was compiled to reorder its sums.
ROUNDING = 2.5e-7
# Real positions up to 13 are rounded to float32, so a sample may be taken 1e-6 of a pixel aside.
POSITIONS = 2e-6
# A hue counted in sixths of the circle, up to 6, is rounded to float32 twice on the way.
HUES = 1e-6


@pytest.mark.parametrize("program", ["darknet", "alexeyab"])
def test_resize_and_letterbox_of_the_original(program: str) -> None:
    golden = goldens.load(program, "images" if program == "darknet" else "image_ops")
    seen = 0
    for key in golden.arrays:
        folder, _, name = key.rpartition("/")
        operation, _, size = name.partition("_")
        if operation in ("resize", "letterbox"):
            function = getattr(resize, f"{operation}_image")
            picture = golden.arrays[f"{folder}/image" if folder else "image"]
            golden.close(key, function(picture, *map(int, size.split("x"))), ROUNDING)
            seen += 1
    assert seen >= 16


def operations() -> dict[str, object]:
    square = lambda a: resize.center_crop_image(a, 6, 6)  # noqa: E731
    return {
        "flip_image": resize.flip_image,
        "rgb_to_hsv": colour.rgb_to_hsv,
        "hsv_round_trip": lambda a: colour.hsv_to_rgb(colour.rgb_to_hsv(a)),
        "distort_h.1_s1.5_v.8": lambda a: colour.distort_image(a, 0.1, 1.5, 0.8),
        "distort_h-.07_s.6_v1.4": lambda a: colour.distort_image(a, -0.07, 0.6, 1.4),
        "rgbgr_image": colour.rgbgr_image,
        "normalize_image": colour.normalize_image,
        "center_crop_6x6_rotate_image_cw_1": lambda a: resize.rotate_image_cw(square(a), 1),
        "center_crop_6x6_rotate_image_cw_3": lambda a: resize.rotate_image_cw(square(a), 3),
        "resize_max_20": lambda a: resize.resize_max(a, 20),
        "resize_min_20": lambda a: resize.resize_min(a, 20),
        "center_crop_8x8": lambda a: resize.center_crop_image(a, 8, 8),
        "center_crop_7x5": lambda a: resize.center_crop_image(a, 7, 5),
        "crop_2_1_6x5": lambda a: resize.crop_image(a, 2, 1, 6, 5),
        "crop_outside_-3_-2_20x15": lambda a: resize.crop_image(a, -3, -2, 20, 15),
        "rotate_crop_r0_s1_8x8": lambda a: rotate.rotate_crop_image(a, 0, 1, 8, 8),
        "rotate_crop_r.3_s1.4_8x8_dx1_dy-2_a1.2": lambda a: rotate.rotate_crop_image(a, 0.3, 1.4, 8, 8, 1, -2, 1.2),
        "rotate_crop_r-.5_s.8_10x6_dx-1_dy2_a.75": lambda a: rotate.rotate_crop_image(a, -0.5, 0.8, 10, 6, -1, 2, 0.75),
        "rotate_image_.4": lambda a: rotate.rotate_image(a, 0.4),
        "grayscale_image": colour.grayscale_image,
        "threshold_image_.5": lambda a: colour.threshold_image(a, 0.5),
    }


@pytest.mark.parametrize("name", operations())
def test_operations_of_the_original(name: str) -> None:
    golden = goldens.load("darknet", "image_ops")
    tolerance = {"rotate": POSITIONS, "distort": HUES}.get(name.split("_")[0], ROUNDING)
    golden.close(name, operations()[name](golden.arrays["image"]), tolerance)


@pytest.mark.parametrize(("width", "height", "dx", "dy"), [(12, 10, 2, 3), (20, 24, -4, -5), (16, 16, 0, 0)])
def test_place_image_of_the_original(width: int, height: int, dx: int, dy: int) -> None:
    golden = goldens.load("darknet", "image_ops")
    canvas = np.full((3, 16, 16), 0.5, np.float32)
    resize.place_image(golden.arrays["image"], width, height, dx, dy, canvas)
    golden.close(f"place_{width}x{height}_{dx}_{dy}_on_16x16", canvas, POSITIONS)


SMALL, LARGE, SHIFT = st.integers(1, 9), st.integers(1, 20), st.integers(-25, 25)


@given(SMALL, SMALL, LARGE, LARGE, SHIFT, SHIFT)
def test_place_image_is_bilinear_sampling(w: int, h: int, width: int, height: int, dx: int, dy: int) -> None:
    picture = np.random.default_rng(w * 10 + h).random((2, h, w), np.float32)
    canvas = np.full((2, 12, 11), 0.25, np.float32)
    expected = canvas.copy()
    resize.place_image(picture, width, height, dx, dy, canvas)
    x = np.arange(width, dtype=np.float32) / np.float32(width) * np.float32(w)
    y = np.arange(height, dtype=np.float32) / np.float32(height) * np.float32(h)
    sampled = rotate.sample_bilinear(picture, *np.meshgrid(x, y))
    resize.embed_image(sampled, expected, dx, dy)
    np.testing.assert_allclose(canvas, expected, atol=1e-6)


def test_placing_nothing_leaves_the_canvas() -> None:
    canvas = np.full((1, 3, 3), 0.5, np.float32)
    resize.place_image(np.ones((1, 2, 2), np.float32), 0, 3, 0, 0, canvas)
    assert (canvas == 0.5).all()


@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 30), st.integers(1, 30))
def test_exact_resize_aligns_the_corners(w: int, h: int, width: int, height: int) -> None:
    picture = np.random.default_rng(w * 31 + h).random((1, h, w), np.float32)
    x = np.linspace(0, w - 1, width) if width > 1 else np.array([w - 1.0])
    y = np.linspace(0, h - 1, height) if height > 1 else np.array([h - 1.0])
    columns = np.stack([np.interp(x, np.arange(w), row) for row in picture[0].astype(np.float64)])
    expected = np.stack([np.interp(y, np.arange(h), column) for column in columns.T], axis=1)
    np.testing.assert_allclose(resize.resize_image(picture, width, height, exact=True)[0], expected, atol=1e-5)


def test_dark_last_row_of_the_original() -> None:
    """14 rows to 23: 22 * float32(13/22) < 13, so the original mixes the last row from the wrong two."""
    white = np.ones((1, 14, 6), np.float32)
    rows = resize.resize_image(white, 6, 23)[0, :, 0]
    assert rows[-1] < 1e-5
    assert (rows[:-1] > 0.999).all()
    assert (resize.resize_image(white, 6, 23, exact=True) > 0.999).all()


@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 30), st.integers(1, 30))
def test_stretch_is_the_half_pixel_rule(w: int, h: int, width: int, height: int) -> None:
    picture = np.random.default_rng(w * 17 + h).random((1, h, w), np.float32)
    x = (np.arange(width) + 0.5) * w / width - 0.5
    y = (np.arange(height) + 0.5) * h / height - 0.5
    columns = np.stack([np.interp(x, np.arange(w), row) for row in picture[0].astype(np.float64)])
    expected = np.stack([np.interp(y, np.arange(h), column) for column in columns.T], axis=1)
    np.testing.assert_allclose(resize.stretch_image(picture, width, height)[0], expected, atol=1e-5)


@pytest.mark.parametrize("function", [resize.resize_image, resize.stretch_image])
def test_uint8_pictures_give_the_same(function: object, rng: np.random.Generator) -> None:
    pixels = rng.integers(0, 256, (3, 9, 14), dtype=np.uint8)
    np.testing.assert_allclose(function(pixels, 20, 11) / 255, function(pixels / np.float32(255), 20, 11), atol=1e-6)


@pytest.mark.parametrize(("picture", "net", "inner"), [
    ((640, 480), (416, 416), (416, 312)),
    ((480, 640), (416, 416), (312, 416)),
    ((100, 100), (64, 32), (32, 32)),
    ((3000, 1), (32, 32), (32, 1)),
    ((1, 3000), (32, 32), (1, 32)),
])  # fmt: skip
def test_letterbox_size(picture: tuple[int, int], net: tuple[int, int], inner: tuple[int, int]) -> None:
    assert resize.letterbox_size(*picture, *net) == inner


@pytest.mark.parametrize("size", [(0, 5), (5, -1)])
def test_empty_sizes_are_refused(size: tuple[int, int]) -> None:
    with pytest.raises(ShapeError, match="cannot be resized"):
        resize.resize_image(np.zeros((3, 2, 2), np.float32), *size)
    with pytest.raises(ShapeError, match="none of them 0"):
        resize.resize_image(np.zeros((3, 0, 2), np.float32), 3, 3)
    with pytest.raises(ShapeError, match="channels, height, width"):
        resize.stretch_image(np.zeros((2, 2), np.float32), 3, 3)


def test_inputs_stay_as_they_were(rng: np.random.Generator) -> None:
    picture = rng.random((3, 6, 8), np.float32)
    before = picture.copy()
    for result in (
        resize.resize_image(picture, 8, 6),
        resize.flip_image(picture),
        resize.crop_image(picture, 0, 0, 8, 6),
        resize.rotate_image_cw(picture, 0),
        colour.distort_image(picture, 0.1, 2, 2),
    ):
        result[...] = 7
    assert np.array_equal(picture, before)
