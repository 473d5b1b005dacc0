"""noise_param of the SSD fork, against OpenCV."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from undertow.caffe.data.noise import Noise, blurred, eroded, salted
from undertow.caffe.data.transformer import DataTransformer
from undertow.caffe.proto import parse_text
from undertow.errors import FormatError, ShapeError

SIZES = [(40, 53), (64, 64), (17, 90)]


def picture(size: tuple[int, int], rng: np.random.Generator, channels: int = 3) -> np.ndarray:
    """A picture that is dark on one side, with noise."""
    slope = np.linspace(10, 160, size[1])[None, None] + rng.normal(0, 30, (channels, *size))
    return slope.clip(0, 255).astype(np.uint8)


def noise(text: str) -> Noise:
    return Noise(parse_text(text, "NoiseParameter"))


def cv(found: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(found.transpose(1, 2, 0))


@pytest.mark.parametrize("size", SIZES)
def test_equal_to_opencv(size: tuple[int, int], rng: np.random.Generator) -> None:
    cv2 = pytest.importorskip("cv2")
    given = picture(size, rng)
    rows = cv(given)

    def in_light(change: Any) -> np.ndarray:
        planes = cv2.cvtColor(rows, cv2.COLOR_BGR2YCrCb)
        planes[..., 0] = change(np.ascontiguousarray(planes[..., 0]))
        return cv2.cvtColor(planes, cv2.COLOR_YCrCb2BGR)

    cross = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (3, 3), (1, 1))
    grey = cv2.cvtColor(cv2.cvtColor(rows, cv2.COLOR_BGR2GRAY), cv2.COLOR_GRAY2BGR)
    for text, theirs, off in (
        ("decolorize: true", grey, 1),
        ("gauss_blur: true", cv2.GaussianBlur(rows, (7, 7), 1.5), 1),
        ("hist_eq: true", in_light(cv2.equalizeHist), 0),
        ("clahe: true", in_light(cv2.createCLAHE(clipLimit=4).apply), 2),
        ("erode: true", cv2.erode(rows, cross), 0),
        ("inverse: true", cv2.bitwise_not(rows), 0),
        ("convert_to_hsv: true", cv2.cvtColor(rows, cv2.COLOR_BGR2HSV), 1),
        ("decolorize: true erode: true inverse: true", cv2.bitwise_not(cv2.erode(grey, cross)), 1),
    ):
        ours = cv(noise(text).apply(given, None)).astype(int)
        assert np.abs(ours - theirs).max() <= off, text


@pytest.mark.parametrize("size", SIZES)
def test_equal_to_opencv_in_grey(size: tuple[int, int], rng: np.random.Generator) -> None:
    cv2 = pytest.importorskip("cv2")
    given = picture(size, rng, 1)
    for text, theirs, off in (
        ("hist_eq: true", cv2.equalizeHist(given[0]), 0),
        ("clahe: true", cv2.createCLAHE(clipLimit=4).apply(given[0]), 1),
        ("gauss_blur: true", cv2.GaussianBlur(given[0], (7, 7), 1.5), 1),
    ):
        ours = noise(text).apply(given, None)[0].astype(int)
        assert np.abs(ours - theirs).max() <= off, text


def test_by_hand(rng: np.random.Generator) -> None:
    given = np.array([[[0, 63, 64, 255]]], np.uint8)
    assert noise("posterize: true").apply(given, None).tolist() == [[[32, 32, 96, 224]]]
    even = np.full((3, 9, 9), 7, np.uint8)
    for same in (blurred(even), eroded(even), noise("hist_eq: true").apply(even, None)):
        np.testing.assert_array_equal(same, even)
    few = salted(np.zeros((3, 20, 20), np.uint8), 0.1, [1, 2, 3], rng)
    struck = few.any(axis=0)
    assert 25 < struck.sum() <= 40
    assert (few[:, struck].T == [1, 2, 3]).all()


def test_jpeg_loses_little(rng: np.random.Generator) -> None:
    given = blurred(picture((40, 56), rng))
    for quality, most in ((95, 4), (5, 30)):
        loss = np.abs(noise(f"jpeg: {quality}").apply(given, None).astype(int) - given).mean()
        assert 0 < loss < most
    assert noise("jpeg: 50").apply(given[:1], None).shape == (1, 40, 56)


def test_noise_comes_before_the_crop_and_the_mean(rng: np.random.Generator) -> None:
    given = picture((10, 12), rng)
    text = "crop_size: 6 mean_value: 100 noise_param { inverse: true }"
    values = DataTransformer(parse_text(text, "TransformationParameter"), "TEST").transform(given)
    np.testing.assert_array_equal(values, (255 - given[:, 2:8, 3:9]).astype(np.float32) - 100)
    salt = DataTransformer(parse_text(
        "noise_param { saltpepper: true saltpepper_param { fraction: 0.5 value: 9 } }", "TransformationParameter"
    ), "TEST")  # fmt: skip
    assert salt.random
    several = salt.transform(np.stack([given] * 2), rng)
    assert not np.array_equal(several[0], several[1])
    with pytest.raises(ShapeError, match="noise_param needs pictures of bytes"):
        salt.transform(given.astype(np.float32), rng)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("convert_to_lab: true", "convert_to_lab makes floats"),
        ("jpeg: 101", "quality up to 100"),
        ("saltpepper: true", "saltpepper needs values"),
        ("saltpepper: true saltpepper_param { fraction: 2 value: 1 }", "a fraction from 0 to 1"),
    ],
)
def test_what_cannot_be(text: str, reason: str) -> None:
    with pytest.raises(FormatError, match=reason):
        noise(text)


def test_pictures_that_do_not_fit(rng: np.random.Generator) -> None:
    with pytest.raises(ShapeError, match="need 3 channels, the picture has 1"):
        noise("decolorize: true").apply(picture((4, 4), rng, 1), None)
    with pytest.raises(ShapeError, match="2 values of saltpepper_param for 3 channels"):
        noise("saltpepper: true saltpepper_param { fraction: 0.1 value: 1 value: 2 }").apply(picture((4, 4), rng), rng)
