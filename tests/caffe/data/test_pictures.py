"""Pictures as OpenCV reads and resizes them: against OpenCV where it is installed, and against own formulas."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.caffe.data.samples import pictures
from undertow.caffe.data import decode, encode_picture, read_picture, resize_picture
from undertow.caffe.io import load_image
from undertow.data.resize import stretch_image
from undertow.errors import FormatError, ShapeError


def encoded(mode: str, form: str = "PNG", seed: int = 1, **options: object) -> bytes:
    channels = len(Image.new(mode, (1, 1)).getbands())
    array = np.random.default_rng(seed).integers(0, 256, (9, 13, channels)).astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(array.squeeze(), mode).save(stream, form, **options)
    return stream.getvalue()


def opencv(data: bytes, color: bool | None) -> np.ndarray:
    cv2 = pytest.importorskip("cv2")
    flag = cv2.IMREAD_UNCHANGED if color is None else cv2.IMREAD_COLOR if color else cv2.IMREAD_GRAYSCALE
    image = cv2.imdecode(np.frombuffer(data, np.uint8), flag)
    return image[None] if image.ndim == 2 else image.transpose(2, 0, 1)


@pytest.mark.parametrize("color", [True, False, None])
@pytest.mark.parametrize(
    ("mode", "form"),
    [("L", "PNG"), ("RGB", "PNG"), ("RGBA", "PNG"), ("LA", "PNG"), ("L", "JPEG"), ("RGB", "JPEG"), ("RGB", "BMP")],
)
def test_decoding_equals_opencv(mode: str, form: str, color: bool | None) -> None:
    data = encoded(mode, form)
    np.testing.assert_array_equal(decode(data, color), opencv(data, color))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_equals_opencv(orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded("RGB", "JPEG", exif=exif.tobytes())
    for color in (True, False, None):
        np.testing.assert_array_equal(decode(data, color), opencv(data, color))


def test_grey_of_a_png_by_its_formula() -> None:
    image = pictures(1)[0]
    blue, green, red = image.astype(int)
    expected = (9797 * red + 19234 * green + 3737 * blue) >> 15
    np.testing.assert_array_equal(decode(encode_picture(image, "png"), False)[0], expected)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((10, 12), (7, 15)),
        ((10, 12), (20, 24)),
        ((10, 12), (5, 6)),
        ((1, 1), (4, 4)),
        ((33, 17), (3, 40)),
        ((5, 9), (1, 1)),
    ],
)
def test_resizing_is_bilinear_to_within_rounding(before: tuple[int, int], after: tuple[int, int]) -> None:
    image = pictures(1, (3, *before))[0]
    exact = stretch_image(image, after[1], after[0])
    if before == (10, 12) and after == (5, 6):
        exact = image.reshape(3, 5, 2, 6, 2).mean((2, 4))
    assert np.abs(resize_picture(image, *after) - exact).max() < 1.01


def test_resizing_equals_opencv() -> None:
    cv2 = pytest.importorskip("cv2")
    rng = np.random.default_rng(3)
    for _ in range(60):
        rows, columns, height, width = (int(n) for n in rng.integers(1, 50, 4))
        image = rng.integers(0, 256, (3, rows, columns)).astype(np.uint8)
        theirs = cv2.resize(image.transpose(1, 2, 0), (width, height)).transpose(2, 0, 1)
        np.testing.assert_array_equal(resize_picture(image, height, width), theirs)


def test_an_empty_size_is_refused() -> None:
    with pytest.raises(ShapeError, match="cannot be resized"):
        resize_picture(pictures(1)[0], 0, 4)


@pytest.mark.parametrize("encoding", ["png", "bmp", "PNG", ".png"])
def test_encoding_without_loss(encoding: str) -> None:
    image = pictures(1)[0]
    np.testing.assert_array_equal(decode(encode_picture(image, encoding)), image)
    np.testing.assert_array_equal(decode(encode_picture(image[:1], encoding), None), image[:1])


def test_encoding_as_jpeg_is_near() -> None:
    smooth = np.linspace(0, 255, 3 * 32 * 32).reshape(3, 32, 32).astype(np.uint8)
    assert np.abs(decode(encode_picture(smooth, "jpg")).astype(int) - smooth).max() < 12
    with pytest.raises(FormatError, match=r"no encoding 'gift'.*png"):
        encode_picture(smooth, "gift")


@pytest.mark.parametrize(
    ("data", "reason"),
    [(b"", "no picture"), (b"hello", "no picture"), (encoded("RGB")[:-40], "cut short"), (encoded("RGB")[:30], "")],
)
def test_damaged_pictures(tmp_path: Path, data: bytes, reason: str) -> None:
    (tmp_path / "a.png").write_bytes(data)
    with pytest.raises(FormatError, match=rf"a\.png: .*{reason}"):
        read_picture(tmp_path / "a.png")
    with pytest.raises(FormatError, match="cannot be opened"):
        read_picture(tmp_path / "b.png")


def test_headers_that_claim_too_much(tmp_path: Path) -> None:
    data = bytearray(encoded("RGB"))
    width = data.index(b"IHDR") + 4
    data[width : width + 8] = struct.pack(">II", 60000, 60000)
    data[width + 13 : width + 17] = struct.pack(">I", zlib.crc32(data[width - 4 : width + 13]))
    (tmp_path / "a.png").write_bytes(data)
    for read in (read_picture, load_image):
        with pytest.raises(FormatError, match=r"a\.png: the picture claims .* pixels.*at most 89478485 pixels"):
            read(tmp_path / "a.png")
    with pytest.raises(FormatError, match="record 5: the picture claims 13 x 9 pixels"):
        decode(encoded("RGB"), what="record 5", max_pixels=100)
