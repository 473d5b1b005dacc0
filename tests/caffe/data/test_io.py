"""caffe.io: what scripts rely on, and its errors. The recorded numbers are in `test_replay`."""

from __future__ import annotations

import sys
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from undertow.caffe import io
from undertow.caffe.proto import new_message
from undertow.errors import FormatError, MissingPackage, ShapeError, UndertowError


def test_case_101_order_of_the_steps() -> None:
    """Every pixel RGB 0.2 0.4 0.6; channels swapped, times 255, minus mean, times 0.017."""
    transformer = io.Transformer({"data": (1, 3, 2, 2)})
    transformer.set_input_scale("data", 0.017)
    transformer.set_mean("data", np.array([104.0, 117.0, 123.0]))
    transformer.set_raw_scale("data", 255)
    transformer.set_channel_swap("data", (2, 1, 0))
    transformer.set_transpose("data", (2, 0, 1))
    image = np.broadcast_to(np.array([0.2, 0.4, 0.6], np.float32), (2, 2, 3)).copy()
    found = transformer.preprocess("data", image)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found[:, 1, 0], [0.833, -0.255, -1.224], atol=1e-6)
    np.testing.assert_array_equal(image[0, 0], np.array([0.2, 0.4, 0.6], np.float32))
    np.testing.assert_allclose(transformer.deprocess("data", found), image, atol=1e-6)


def test_messages_there_and_back() -> None:
    pytest.importorskip("google.protobuf")
    array = np.random.default_rng(0).random((2, 3, 4, 5)).astype(np.float32)
    blob = io.array_to_blobproto(array, diff=array + 1)
    assert list(blob.shape.dim) == [2, 3, 4, 5]
    np.testing.assert_array_equal(io.blobproto_to_array(blob), array)
    np.testing.assert_array_equal(io.blobproto_to_array(blob, return_diff=True), array + 1)
    text = io.arraylist_to_blobprotovector_str([array, array[0]])
    for found, expected in zip(io.blobprotovector_str_to_arraylist(text), [array, array[0]], strict=True):
        np.testing.assert_array_equal(found, expected)
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    datum = io.array_to_datum(pixels, 5)
    assert (datum.label, datum.channels, datum.height, datum.width) == (5, 2, 3, 4)
    found = io.datum_to_array(datum)
    np.testing.assert_array_equal(found, pixels)
    assert found.dtype == np.uint8
    assert found.flags.writeable
    assert not io.array_to_datum(pixels).HasField("label")
    np.testing.assert_array_equal(io.datum_to_array(io.array_to_datum(array[0])), array[0])


def test_our_own_messages_are_taken_too() -> None:
    blob = new_message("BlobProto", num=1, channels=1, height=2, width=2, data=[1, 2, 3, 4])
    np.testing.assert_array_equal(io.blobproto_to_array(blob), [[[[1, 2], [3, 4]]]])
    np.testing.assert_array_equal(io.blobproto_to_array(new_message("BlobProto", data=[3])), 3)
    datum = new_message("Datum", channels=1, height=1, width=2, float_data=[0.5, 2])
    np.testing.assert_array_equal(io.datum_to_array(datum), [[[0.5, 2]]])


def test_messages_without_protobuf_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    from undertow.caffe.proto import protobuf

    protobuf._built.clear()
    monkeypatch.setitem(sys.modules, "google.protobuf.descriptor_pb2", None)
    with pytest.raises(MissingPackage, match=r"undertow\[caffe\]"):
        io.array_to_datum(np.zeros((1, 1, 1), np.uint8))


def test_sizes_that_do_not_fit() -> None:
    pytest.importorskip("google.protobuf")
    with pytest.raises(ValueError, match="three axes"):
        io.array_to_datum(np.zeros((2, 2)))
    with pytest.raises(ValueError, match=r"3 values do not fit the shape \(1, 2\)"):
        io.blobproto_to_array(new_message("BlobProto", data=[1, 2, 3], shape={"dim": [1, 2]}))
    with pytest.raises(ShapeError, match="do not fit"):
        io.datum_to_array(new_message("Datum", channels=1, height=2, width=2, data=b"abc"))
    with pytest.raises(FormatError):
        io.blobprotovector_str_to_arraylist(b"\x0a\xff")


def test_transformer_refuses_what_the_original_refuses() -> None:
    transformer = io.Transformer({"data": (1, 3, 4, 5)})
    with pytest.raises(UndertowError, match="image is not one of the net inputs"):
        transformer.preprocess("image", np.zeros((4, 5, 3)))
    with pytest.raises(ShapeError, match="Transpose order"):
        transformer.set_transpose("data", (1, 0))
    with pytest.raises(ShapeError, match="Channel swap"):
        transformer.set_channel_swap("data", (1, 0))
    for mean, reason in ((np.zeros(2), "Mean channels"), (np.zeros((1, 3, 4, 5)), "Mean shape")):
        with pytest.raises(ValueError, match=reason):
            transformer.set_mean("data", mean)


def test_means_of_the_inputs_size_are_kept() -> None:
    transformer = io.Transformer({"data": (1, 3, 4, 5), "grey": (1, 1, 4, 5)})
    mean = np.random.default_rng(0).random((3, 4, 5))
    transformer.set_mean("data", mean)
    assert transformer.mean["data"] is mean
    transformer.set_mean("grey", mean[0])
    np.testing.assert_array_equal(transformer.mean["grey"], mean[0])


@pytest.mark.parametrize(
    ("mode", "value", "color", "grey"),
    [
        ("L", 51, (0.2, 0.2, 0.2), 0.2),
        ("RGB", (255, 0, 51), (1, 0, 0.2), 0.2125 + 0.2 * 0.0721),
        ("RGBA", (255, 0, 51, 7), (1, 0, 0.2), 0.2125 + 0.2 * 0.0721),
        ("I;16", 13107, (0.2, 0.2, 0.2), 0.2),
        ("1", 1, (1, 1, 1), 1),
    ],
)
def test_pictures_of_every_kind(tmp_path: Path, mode: str, value: int, color: tuple[float, ...], grey: float) -> None:
    Image.new(mode, (4, 3), value).save(tmp_path / "a.png")
    image = io.load_image(tmp_path / "a.png")
    assert (image.shape, image.dtype) == ((3, 4, 3), np.float32)
    np.testing.assert_allclose(image[1, 1], color, atol=1e-6)
    single = io.load_image(tmp_path / "a.png", color=False)
    assert (single.shape, single.dtype) == ((3, 4, 1), np.float32)
    np.testing.assert_allclose(single, grey, atol=1e-6)


def test_no_pictures(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"nothing")
    for name in ("a.png", "b.png"):
        with pytest.raises(FormatError, match=f"{name}: .*To mend it") as caught:
            io.load_image(tmp_path / name)
        assert isinstance(caught.value, OSError)
    with pytest.raises(OSError, match="addresses are not opened"):
        io.load_image("http://localhost/a.png")
    with pytest.raises(OSError, match="no picture can be read"):
        io.load_image(BytesIO(b"nothing"))


def test_a_file_that_is_open(tmp_path: Path) -> None:
    Image.fromarray(np.full((2, 3, 3), 51, np.uint8)).save(tmp_path / "a.png")
    found = io.load_image(BytesIO((tmp_path / "a.png").read_bytes()))
    np.testing.assert_allclose(found, np.full((2, 3, 3), 0.2), rtol=1e-6)


@pytest.mark.parametrize("size", [(4, 9), (13, 5), (20, 20)])
def test_resizing_equals_scikit_image(size: tuple[int, int]) -> None:
    transform = pytest.importorskip("skimage.transform")
    image = np.random.default_rng(1).random((10, 12, 3))
    for order in (0, 1, 3):
        for smooth in (True, False):
            low, high = image.min(), image.max()
            unit = (image - low) / (high - low)
            theirs = transform.resize(unit, size, order=order, mode="constant", anti_aliasing=smooth)
            ours = io.resize_image(image, size, order, anti_aliasing=smooth)
            np.testing.assert_allclose(ours, theirs * (high - low) + low, atol=2e-6)


def test_resizing_constant_pictures() -> None:
    found = io.resize_image(np.full((3, 3, 3), 0.25), (5, 4))
    assert (found.shape, found.dtype) == ((5, 4, 3), np.float32)
    assert (found == np.float32(0.25)).all()


def test_oversample_by_hand() -> None:
    image = np.arange(4 * 5).reshape(4, 5, 1)
    crops = io.oversample([image], (2, 2))[..., 0]
    corners = [[[0, 1], [5, 6]], [[3, 4], [8, 9]], [[10, 11], [15, 16]], [[13, 14], [18, 19]], [[6, 7], [11, 12]]]
    np.testing.assert_array_equal(crops[:5], corners)
    np.testing.assert_array_equal(crops[5:], np.array(corners)[:, :, ::-1])
    with pytest.raises(ShapeError, match="do not fit"):
        io.oversample([image], (5, 2))


def test_names_that_the_original_imports() -> None:
    """Scripts write caffe.io.skimage.io.imread(...) and the like."""
    skimage = pytest.importorskip("skimage")
    from scipy import ndimage

    assert io.skimage is skimage
    assert io.skimage.io.imread
    assert io.resize is skimage.transform.resize
    assert io.zoom is ndimage.zoom
    with pytest.raises(AttributeError, match=r"caffe\.io.*'sci'"):
        _ = io.sci


def test_pictures_without_the_axes_to_transpose() -> None:
    transformer = io.Transformer({"data": (1, 1, 4, 4)})
    transformer.set_transpose("data", (2, 0, 1))
    with pytest.raises(ShapeError, match=r"shape \(4, 4\) has no 3 axes .* goes back without set_transpose"):
        transformer.deprocess("data", np.ones((1, 1, 4, 4), np.float32))
    with pytest.raises(ShapeError, match=r"shape \(4, 4\) has no 3 axes"):
        transformer.preprocess("data", np.ones((4, 4), np.float32))
