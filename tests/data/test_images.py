"""Reading and writing pictures: the original's loaders, odd files, damaged files."""

from __future__ import annotations

import contextlib
import io
import struct
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from tests.data import goldens
from undertow.data.images import check_image, image_size, load_image, load_pixels, save_image, to_float, to_pixels
from undertow.errors import FormatError, ShapeError, UndertowWarning

# PNG is lossless, so all decoders agree to the last bit. The standard leaves JPEG's inverse cosine transform and chroma
# interpolation to the decoder: the two recorded ones differ from each other by up to 2 grey levels, ours equals one.
JPEG_LEVELS = 2.0001


@pytest.mark.parametrize("loader", ["load_image", "load_image_stb"])
@pytest.mark.parametrize("channels", [0, 1, 3])
def test_loaders_of_the_original(loader: str, channels: int) -> None:
    golden = goldens.load("darknet", "images")
    seen = 0
    for file in golden.case["files"]:
        key = f"{file}/c{channels}/{loader}"
        if key in golden.arrays:
            golden.close(key, load_image(golden.folder / file, channels), JPEG_LEVELS / 255 if "jpg" in file else 0)
            seen += 1
    assert seen or (loader, channels) == ("load_image", 1)


def write(folder: Path, image: Image.Image, name: str = "a.png", **options: object) -> Path:
    image.save(folder / name, **options)
    return folder / name


def test_values_run_from_0_to_1_red_first(tmp_path: Path) -> None:
    path = write(tmp_path, Image.fromarray(np.array([[[255, 0, 51]]], np.uint8)))
    image = load_image(path)
    assert image.dtype == np.float32
    assert image.flags.c_contiguous
    assert image.ravel().tolist() == [1, 0, np.float32(0.2)]


def test_alpha_is_dropped_and_not_blended(tmp_path: Path) -> None:
    path = write(tmp_path, Image.fromarray(np.array([[[255, 10, 20, 0]]], np.uint8)))
    assert load_pixels(path)[0, 0].tolist() == [255, 10, 20]
    assert load_pixels(path, channels=0)[0, 0].tolist() == [255, 10, 20, 0]


@pytest.mark.parametrize("mode", ["I;16", "I;16B"])
def test_16_bit_grey_gives_its_high_byte(tmp_path: Path, mode: str) -> None:
    order = ">u2" if mode.endswith("B") else "<u2"
    picture = Image.frombytes(mode, (2, 1), np.array([0x12FF, 0xFF00], order).tobytes())
    path = write(tmp_path, picture, "a.png" if mode == "I;16" else "a.tif")
    assert load_pixels(path, channels=1).ravel().tolist() == [0x12, 0xFF]


@pytest.mark.parametrize(("mode", "message"), [("F", "fixed range"), ("I", "16 bits")])
def test_samples_without_a_fixed_range_are_refused(tmp_path: Path, mode: str, message: str) -> None:
    path = write(tmp_path, Image.new(mode, (2, 2), 70000), "a.tif")
    with pytest.raises(FormatError, match=message):
        load_image(path)


def test_palette_and_its_transparent_entry(tmp_path: Path) -> None:
    picture = Image.new("P", (2, 1))
    picture.putpalette([9, 8, 7, 200, 100, 50])
    picture.putpixel((1, 0), 1)
    path = write(tmp_path, picture, transparency=0)
    assert load_pixels(path).tolist() == [[[9, 8, 7], [200, 100, 50]]]
    assert load_pixels(path, channels=0).tolist() == [[[9, 8, 7, 0], [200, 100, 50, 255]]]


def test_animation_gives_its_first_picture(tmp_path: Path) -> None:
    first, second = Image.new("L", (4, 4), 10), Image.new("L", (4, 4), 200)
    path = tmp_path / "a.gif"
    first.save(path, save_all=True, append_images=[second])
    assert set(load_pixels(path, channels=1).ravel().tolist()) == {10}


@pytest.mark.parametrize("tag", range(1, 9))
def test_exif_orientation(tmp_path: Path, rng: np.random.Generator, tag: int) -> None:
    stored = rng.integers(0, 256, (3, 5, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x0112] = tag
    path = write(tmp_path, Image.fromarray(stored), exif=exif)
    with Image.open(path) as picture:
        turned = np.asarray(ImageOps.exif_transpose(picture))
    assert np.array_equal(load_pixels(path), stored)
    assert np.array_equal(load_pixels(path, orientation="exif"), turned)
    assert image_size(path) == (5, 3)
    assert image_size(path, "exif") == turned.shape[1::-1]


def test_tiff_is_always_upright(tmp_path: Path, rng: np.random.Generator) -> None:
    stored = rng.integers(0, 256, (3, 5, 3), dtype=np.uint8)
    path = write(tmp_path, Image.fromarray(stored), "a.tif", tiffinfo={0x0112: 6})
    for orientation in ("raw", "exif"):
        assert np.array_equal(load_pixels(path, orientation=orientation, labelled=True), np.rot90(stored, -1))
        assert image_size(path, orientation) == (3, 5)


def test_labelled_picture_with_a_rotation_tag_warns(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    path = write(tmp_path, Image.new("RGB", (4, 2)), "a.jpg", exif=exif)
    with pytest.warns(UndertowWarning, match=r"a\.jpg.*orientation 6"):
        load_image(path, labelled=True)
    load_image(path)
    load_image(path, orientation="exif", labelled=True)


def png_claiming(width: int, height: int) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(b"\0" * 100)), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("size", [(60000, 60000), (9460, 9460), (2**31 - 1, 2**31 - 1)])
def test_bombs_are_refused_by_their_header(tmp_path: Path, size: tuple[int, int]) -> None:
    path = tmp_path / "bomb.png"
    path.write_bytes(png_claiming(*size))
    with pytest.raises(FormatError, match=r"bomb\.png.*claims more pixels"):
        load_image(path)


def test_limit_can_be_lowered(tmp_path: Path) -> None:
    path = write(tmp_path, Image.new("L", (20, 10)))
    load_image(path, max_pixels=200)
    with pytest.raises(FormatError, match="20 x 10"):
        load_image(path, max_pixels=199)


@pytest.mark.parametrize("size", [load_image, image_size])
def test_missing_files_folders_and_other_content(tmp_path: Path, size: object) -> None:
    (tmp_path / "text.jpg").write_text("hello")
    for name, message in [("gone.jpg", "No such file"), (".", "directory"), ("text.jpg", "no picture")]:
        with pytest.raises(FormatError, match=message) as caught:
            size(tmp_path / name)
        assert str(tmp_path) in str(caught.value)


def test_unknown_arguments() -> None:
    with pytest.raises(ShapeError, match="not 2"):
        load_image("a.png", channels=2)
    with pytest.raises(ValueError, match="orientation"):
        load_image("a.png", orientation="up")


@pytest.mark.parametrize("tag", [0, 9, 65535])
def test_orientations_that_do_not_exist(tmp_path: Path, tag: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = tag
    path = write(tmp_path, Image.new("RGB", (4, 2)), "a.jpg", exif=exif)
    assert load_pixels(path, orientation="exif", labelled=True).shape == (2, 4, 3)


KINDS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF")


@pytest.fixture(scope="module")
def encoded() -> dict[str, bytes]:
    picture = Image.fromarray(np.random.default_rng(3).integers(0, 256, (24, 31, 3), dtype=np.uint8))
    files = {}
    for kind in KINDS:
        stream = io.BytesIO()
        exif = Image.Exif()
        exif[0x0112], exif[0x010E] = 6, "a picture"
        picture.save(stream, kind, exif=exif, **({"compression": "tiff_lzw"} if kind == "TIFF" else {}))
        files[kind] = stream.getvalue()
    return files


@settings(max_examples=150, deadline=None)
@given(kind=st.sampled_from(KINDS), where=st.floats(0, 1), byte=st.integers(-1, 255))
@pytest.mark.filterwarnings("ignore")
def test_damaged_files_give_a_picture_or_a_format_error(
    encoded: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory, kind: str, where: float, byte: int
) -> None:
    content = bytearray(encoded[kind])
    place = int(where * (len(content) - 1))
    if byte < 0:
        del content[place:]
    else:
        content[place] = byte
    path = tmp_path_factory.getbasetemp() / "damaged"
    path.write_bytes(content)
    with contextlib.suppress(FormatError):
        image = load_image(path, orientation="exif", max_pixels=10**6)
        assert image.shape[0] == 3
        assert np.isfinite(image).all()
        assert image_size(path, "exif") == image.shape[:0:-1]


def test_floats_and_pixels_are_inverse(rng: np.random.Generator) -> None:
    pixels = rng.integers(0, 256, (5, 7, 3), dtype=np.uint8)
    assert np.array_equal(to_pixels(to_float(pixels)), pixels)
    assert to_pixels(np.array([[[-1.0, 2.0]]])).ravel().tolist() == [0, 255]
    with pytest.raises(ShapeError):
        to_pixels(np.zeros((2, 2)))


@pytest.mark.parametrize("name", ["a.png", "a.bmp", "é b.PNG"])
@pytest.mark.parametrize("channels", [1, 3])
def test_saved_pictures_read_back(tmp_path: Path, rng: np.random.Generator, name: str, channels: int) -> None:
    image = to_float(rng.integers(0, 256, (5, 7, channels), dtype=np.uint8))
    save_image(image, tmp_path / name)
    assert np.array_equal(load_image(tmp_path / name, channels=0), image)
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_saving_refuses_what_it_cannot_write(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="png"):
        save_image(np.zeros((3, 2, 2)), tmp_path / "a.xyz")
    with pytest.raises(ShapeError, match="channels"):
        save_image(np.zeros((2, 2, 2)), tmp_path / "a.png")
    assert list(tmp_path.iterdir()) == []


def _jpeg(rng: np.random.Generator, mode: str, **options: object) -> bytes:
    pixels = rng.integers(0, 256, (29, 37, 3), np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(stream, "JPEG", **options)
    return stream.getvalue()


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("quality", [1, 75, 100])
def test_a_jpeg_that_lacks_only_its_end_marker_is_read(
    tmp_path: Path, rng: np.random.Generator, mode: str, quality: int
) -> None:
    whole, path = _jpeg(rng, mode, quality=quality), tmp_path / "a.jpg"
    path.write_bytes(whole)
    for channels in (3, 1):
        path.write_bytes(whole)
        expected = load_pixels(path, channels)
        for cut in (1, 2):
            path.write_bytes(whole[:-cut])
            with warnings.catch_warnings():  # Pillow needs no end marker of some small files
                warnings.filterwarnings("ignore", r".*a\.jpg: the JPEG file lacks its end marker", UndertowWarning)
                assert np.array_equal(load_pixels(path, channels), expected)


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"restart_marker_blocks": 2}, {"quality": 100}])
def test_a_jpeg_that_is_cut_in_its_data_is_refused(
    tmp_path: Path, rng: np.random.Generator, options: dict[str, object]
) -> None:
    """From the last two bytes of the data on: the very last may hold nothing but padding."""
    whole, path = _jpeg(rng, "RGB", **options), tmp_path / "a.jpg"
    for cut in (*range(4, 30), len(whole) // 2):
        path.write_bytes(whole[:-cut])
        with pytest.raises(FormatError, match="cut short"):
            load_pixels(path)


@pytest.mark.parametrize("form", ["jpg", "png", "webp", "bmp", "gif"])
def test_pictures_that_are_cut_short_are_noticed_quickly(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"a.{form}"
    pixels = np.random.default_rng(0).integers(0, 256, (40, 60, 3), np.uint8)
    Image.fromarray(pixels).save(path)
    assert check_image(path) == (60, 40)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 2 // 3])
    with pytest.raises(FormatError, match=path.name):
        check_image(path)


def test_what_stands_behind_the_end_of_a_picture_does_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    Image.fromarray(np.zeros((8, 9, 3), np.uint8)).save(path)
    path.write_bytes(path.read_bytes() + b"a film" * 1000)
    assert check_image(path) == (9, 8)
