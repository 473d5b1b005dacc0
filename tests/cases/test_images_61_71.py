"""Cases 61 to 71: pictures that trip other tools."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import pytest

from undertow.darknet.detection.decode import correct_yolo_boxes
from undertow.data.images import load_image, load_pixels
from undertow.data.resize import letterbox_image, resize_image, stretch_image
from undertow.errors import FormatError, UndertowWarning


@pytest.fixture
def cases(reference_data: Path) -> Path:
    return reference_data / "cases"


@pytest.fixture
def odd(reference_data: Path) -> Path:
    return reference_data / "data" / "images" / "odd"


def test_61_exif_orientation(cases: Path) -> None:
    path = cases / "61-image-exif-orientation-6" / "a.jpg"
    raw = load_pixels(path)
    assert raw.shape == (16, 32, 3)
    assert np.array_equal(load_pixels(path, orientation="exif"), np.rot90(raw, -1))
    with pytest.warns(UndertowWarning, match="orientation 6"):
        load_image(path, labelled=True)


def test_62_cmyk(cases: Path, odd: Path) -> None:
    assert load_image(cases / "62-image-cmyk-jpeg" / "a.jpg").shape[0] == 3
    # CMYK without a colour profile has no exact RGB; the naive reading is within a few levels on the average
    difference = np.abs(load_image(odd / "cmyk.jpg") - load_image(odd / "base.png"))
    assert difference.mean() * 255 < 6


def test_64_grey(cases: Path) -> None:
    path = cases / "64-image-grey-png" / "a.png"
    three, one = load_pixels(path, channels=3), load_pixels(path, channels=1)
    assert three.shape[2] == 3
    assert one.shape[2] == 1
    assert (three == one).all()


def test_65_alpha(cases: Path) -> None:
    path = cases / "65-image-alpha-png" / "a.png"
    assert load_pixels(path)[0, 0].tolist() == [255, 0, 0]


def test_67_truncated(cases: Path) -> None:
    path = cases / "67-image-truncated-jpeg" / "a.jpg"
    with pytest.raises(FormatError, match="cut short") as caught:
        load_image(path)
    assert str(path) in str(caught.value)
    assert "To mend it" in str(caught.value)


def test_68_extension_lies(cases: Path) -> None:
    path = cases / "68-image-extension-lies" / "a.jpg"
    assert path.read_bytes().startswith(b"\x89PNG")
    assert load_image(path).shape[0] == 3


def test_70_letterbox_or_stretch(cases: Path) -> None:
    image = load_image(cases / "70-letterbox-or-stretch" / "a.png")
    height, width = image.shape[1:]
    boxed = letterbox_image(image, 32, 32)
    assert (boxed[:, :8] == 0.5).all()
    assert (boxed[:, 24:] == 0.5).all()
    assert np.array_equal(boxed[:, 8:24], resize_image(image, 32, 16))
    assert resize_image(image, 32, 32).shape == (3, 32, 32)
    for letterbox, share in ((True, 0.5), (False, 1.0)):
        whole = np.array([[0.5, 0.5, 1.0, share]])
        back = correct_yolo_boxes(whole, (width, height), (32, 32), letterbox=letterbox)
        np.testing.assert_allclose(back, [[0.5, 0.5, 1, 1]], atol=1e-6)


def test_71_two_bilinear_rules(cases: Path) -> None:
    row = np.array((cases / "71-resize-align-corners" / "x.txt").read_text().split(), np.float32).reshape(1, 1, 4)
    assert resize_image(row, 3, 1).ravel() == pytest.approx([0, 1.5, 3])
    assert stretch_image(row, 3, 1).ravel() == pytest.approx([1 / 6, 1.5, 2 + 5 / 6])


BROKEN = {
    "bad_crc.png": "damaged",
    "claims_60000x60000.png": "more pixels",
    "empty.jpg": "no picture",
    "garbage.png": "no picture",
    "text.jpg": "no picture",
    "truncated.jpg": "cut short",
    "truncated.png": "cut short",
}
# Same picture in another form: lossless ones are equal, the others within what their coding loses on the average.
LOSSLESS = ("icc_profile.png", "interlaced.png", "name_says_jpg_is_png.jpg", "rgb.bmp", "rgb.ppm", "rgb.tga", "rgb.tif")
LOSSY = {
    "UPPER.JPG": 4,
    "name_says_png_is_jpeg.png": 4,
    "progressive.jpg": 4,
    "q1.jpg": 40,
    "rgb.webp": 6,
    "sub422.jpg": 4,
}


def test_odd_pictures(odd: Path) -> None:
    base = load_pixels(odd / "base.png")
    names = {path.name for path in odd.iterdir()} - {"INDEX.tsv"}
    assert names.issuperset({*BROKEN, *LOSSLESS, *LOSSY})
    for name in sorted(names):
        if name in BROKEN:
            with pytest.raises(FormatError, match=BROKEN[name]):
                load_image(odd / name)
            continue
        with pytest.warns(UndertowWarning, match="end marker") if name == "no_eoi.jpg" else contextlib.nullcontext():
            picture = load_pixels(odd / name)
            grey = load_pixels(odd / name, channels=1)
        assert picture.shape[2] == 3
        assert grey.shape == (*picture.shape[:2], 1)
        if name in LOSSLESS:
            assert np.array_equal(picture, base), name
        if name in LOSSY:
            assert np.abs(picture.astype(int) - base).mean() < LOSSY[name], name


@pytest.mark.parametrize("tag", range(1, 9))
def test_odd_orientations(odd: Path, tag: int) -> None:
    upright = load_pixels(odd / "exif_orient1.jpg").astype(int)
    turned = load_pixels(odd / f"exif_orient{tag}.jpg", orientation="exif").astype(int)
    assert turned.shape == upright.shape
    assert np.abs(turned - upright).mean() < 4  # each was coded in its own orientation
