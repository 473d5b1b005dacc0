"""Datasets: wrappers, the split, idx files (whole, cut, lying), MNIST, and the small ones."""

from __future__ import annotations

import gzip
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from undertow.data import ArrayDataset, MappedDataset, Subset, digits, mnist, read_idx, sine, spirals, split
from undertow.data.datasets import describe
from undertow.errors import FormatError, MissingPackage, ShapeError, UndertowWarning


def idx_bytes(array: np.ndarray, code: int) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, code, array.ndim, *array.shape) + array.tobytes()


def test_rows_of_arrays() -> None:
    pairs = ArrayDataset(np.arange(6).reshape(3, 2), np.array([5, 6, 7]))
    assert len(pairs) == 3
    row, label = pairs[1]
    assert (row.tolist(), label) == ([2, 3], 6)
    assert ArrayDataset(np.arange(3))[2] == 2
    with pytest.raises(ShapeError, match=r"one length, got \(3,\), \(4, 2\)"):
        ArrayDataset(np.zeros(3), np.zeros((4, 2)))
    with pytest.raises(ShapeError, match="got none"):
        ArrayDataset()


def test_wrappers_pass_on_where_an_item_comes_from() -> None:
    class Named(ArrayDataset):
        def describe(self, index: int) -> str:
            return f"row {index}"

    chosen = Subset(MappedDataset(Named(np.arange(5)), lambda x: 10 * x), [4, 2])
    assert [chosen[i] for i in range(len(chosen))] == [40, 20]
    assert describe(chosen, 0) == "row 4"
    assert describe(ArrayDataset(np.arange(2)), 0) == ""


def test_split_is_a_partition_that_follows_from_the_seed() -> None:
    data = ArrayDataset(np.arange(50))
    train, test = split(data, 0.3, seed=4)
    assert (len(train), len(test)) == (35, 15)
    assert sorted([*train.indexes, *test.indexes]) == list(range(50))
    assert split(data, 0.3, seed=4)[1].indexes.tolist() == test.indexes.tolist()
    assert split(data, 0.3, seed=5)[1].indexes.tolist() != test.indexes.tolist()
    with pytest.raises(ValueError, match="share between 0 and 1"):
        split(data, 3)


@pytest.mark.parametrize(
    ("code", "dtype"), [(8, ">u1"), (9, ">i1"), (0x0B, ">i2"), (0x0C, ">i4"), (0x0D, ">f4"), (0x0E, ">f8")]
)
@pytest.mark.parametrize("zipped", [False, True])
def test_idx_files_of_every_type(code: int, dtype: str, zipped: bool, tmp_path: Path) -> None:
    array = np.arange(24).reshape(2, 3, 4).astype(dtype)
    content = idx_bytes(array, code)
    path = tmp_path / "x.idx"
    path.write_bytes(gzip.compress(content) if zipped else content)
    loaded = read_idx(path)
    assert loaded.dtype == np.dtype(dtype).newbyteorder("=")
    assert loaded.dtype.isnative
    np.testing.assert_array_equal(loaded, array)


@pytest.mark.parametrize("zipped", [False, True])
def test_an_idx_file_cut_anywhere_is_refused(zipped: bool, tmp_path: Path) -> None:
    content = idx_bytes(np.arange(12, dtype=np.uint8).reshape(3, 4), 8)
    content = gzip.compress(content) if zipped else content
    path = tmp_path / "x.idx"
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(FormatError, match=r"x\.idx"):
            read_idx(path)


@given(data=st.data())
@settings(max_examples=200, deadline=None)
@pytest.mark.filterwarnings("ignore::undertow.errors.UndertowWarning")
def test_a_changed_byte_never_crashes_the_idx_reader(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    content = bytearray(idx_bytes(np.arange(12, dtype=np.uint8).reshape(3, 4), 8))
    if data.draw(st.booleans()):
        content = bytearray(gzip.compress(bytes(content), mtime=0))
    content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "changed.idx"
    path.write_bytes(content)
    try:
        array = read_idx(path)
    except FormatError:
        return
    assert array.nbytes <= 1032 * len(content)


@pytest.mark.parametrize("zipped", [False, True])
def test_sizes_beyond_the_file_take_no_memory(zipped: bool, tmp_path: Path) -> None:
    content = struct.pack(">HBB3I", 0, 8, 3, 2**31, 2**31, 2**31) + bytes(100)
    path = tmp_path / "x.idx"
    path.write_bytes(gzip.compress(content) if zipped else content)
    with pytest.raises(FormatError, match=r"byte 4: .* more than this file can hold"):
        read_idx(path)


def test_surplus_bytes_are_named(tmp_path: Path) -> None:
    path = tmp_path / "x.idx"
    path.write_bytes(idx_bytes(np.arange(3, dtype=np.uint8), 8) + b"more")
    with pytest.warns(UndertowWarning, match="more bytes than the 3 values need"):
        assert read_idx(path).tolist() == [0, 1, 2]
    with pytest.raises(FormatError, match="byte 11: there are more bytes"):
        read_idx(path, strict=True)


def test_other_files_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "x.idx"
    path.write_bytes(b"\x89PNG and so on")
    with pytest.raises(FormatError, match="not an idx file: its first bytes are 89 50 4e 47"):
        read_idx(path)


def write_mnist(folder: Path, images: np.ndarray, labels: np.ndarray, mark: str = "-") -> None:
    (folder / f"train-images{mark}idx3-ubyte").write_bytes(idx_bytes(images, 8))
    (folder / f"train-labels{mark}idx1-ubyte").write_bytes(idx_bytes(labels, 8))


@pytest.mark.parametrize("mark", ["-", "."])
def test_a_small_mnist(mark: str, tmp_path: Path, rng: np.random.Generator) -> None:
    images = rng.integers(0, 256, (3, 28, 28), dtype=np.uint8)
    write_mnist(tmp_path, images, np.array([7, 0, 9], np.uint8), mark)
    image, label = mnist(tmp_path)[2]
    assert label == 9
    assert image.shape == (1, 28, 28)
    np.testing.assert_allclose(image[0], images[2] / 255, rtol=1e-6)


def test_mnist_parts_that_do_not_belong_together(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"has no train-images-idx3-ubyte and no train-images-idx3-ubyte\.gz"):
        mnist(tmp_path)
    images = np.zeros((3, 28, 28), np.uint8)
    write_mnist(tmp_path, images, np.array([1, 2], np.uint8))
    with pytest.raises(FormatError, match="one digit for each of the 3 images"):
        mnist(tmp_path)
    write_mnist(tmp_path, images, np.array([1, 2, 10], np.uint8))
    with pytest.raises(FormatError, match="one digit for each"):
        mnist(tmp_path)
    write_mnist(tmp_path, images[:, 1:], np.array([1, 2, 3], np.uint8))
    with pytest.raises(FormatError, match="not images of 28x28 bytes"):
        mnist(tmp_path)


@pytest.mark.reference
def test_the_real_mnist(reference_data: Path) -> None:
    test = mnist(reference_data / "data" / "mnist", train=False, strict=True)
    images, labels = test.arrays
    assert images.shape == (10000, 1, 28, 28)
    assert np.bincount(labels).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert (images.min(), images.max()) == (0, 1)


def test_digits_of_scikit_learn() -> None:
    pytest.importorskip("sklearn")
    train, test = digits(), digits(train=False)
    assert len(train) + len(test) == 1797
    assert len(train) == 1437
    image, label = train[0]
    assert (image.shape, image.dtype) == ((1, 8, 8), np.float32)
    assert 0 <= label <= 9
    assert train.arrays[0].max() == 1.0
    large = digits(scale=3, pad=2)[0][0]
    assert large.shape == (1, 28, 28)
    np.testing.assert_array_equal(large[:, 2:-2:3, 2:-2:3], image)
    assert large[0, :2].sum() == 0
    together = {image.tobytes() for image in train.arrays[0]} & {image.tobytes() for image in test.arrays[0]}
    assert len(together) <= 2  # scikit-learn's set has a few equal pictures


def test_missing_scikit_learn_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(MissingPackage, match=r"pip install 'undertow\[demo\]'"):
        digits()


def test_spirals_wind_and_have_equal_arms() -> None:
    points, arms = spirals(arms=3, points=50, noise=0.0).arrays
    assert np.bincount(arms).tolist() == [50, 50, 50]
    radius = np.hypot(*points.T).reshape(3, 50)
    np.testing.assert_allclose(radius, np.broadcast_to(np.linspace(0, 1, 50), (3, 50)), atol=1e-6)
    turned = points[:50] @ np.array([[np.cos(2.0944), -np.sin(2.0944)], [np.sin(2.0944), np.cos(2.0944)]])
    np.testing.assert_allclose(turned, points[50:100], atol=1e-4)  # the second arm is the first, a third further
    assert not np.array_equal(spirals(seed=1).arrays[0], spirals(seed=2).arrays[0])


def test_sine_pairs_follow_one_another() -> None:
    now, later = sine(length=100, periods=2, noise=0.0).arrays
    assert now.shape == later.shape == (100, 1)
    np.testing.assert_array_equal(now[1:], later[:-1])
    np.testing.assert_allclose(later[-1], np.sin(4 * np.pi), atol=1e-6)
    assert sine(noise=0.5, seed=3).arrays[0].std() > sine(noise=0.0).arrays[0].std()
