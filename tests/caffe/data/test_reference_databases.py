"""Real databases and Caffe's own HDF5 test files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.caffe.data.samples import data_net
from undertow.caffe.data import datum_pixels, open_database, parse_datum, read_mean
from undertow.data.mnist import read_idx

pytestmark = pytest.mark.reference


@pytest.fixture(scope="module")
def databases(reference_data: Path) -> Path:
    return reference_data / "data" / "db"


@pytest.fixture(scope="module")
def digits(reference_data: Path) -> tuple[np.ndarray, np.ndarray]:
    folder = reference_data / "data" / "mnist"
    return read_idx(folder / "t10k-images-idx3-ubyte.gz"), read_idx(folder / "t10k-labels-idx1-ubyte.gz")


@pytest.mark.parametrize(
    ("name", "count"),
    [("t10k_first500_lmdb", 500), ("t10k_first500_leveldb", 500), ("t10k_first100_encoded_png_lmdb", 100)],
)
def test_mnist_in_every_form(databases: Path, digits: tuple[np.ndarray, np.ndarray], name: str, count: int) -> None:
    backend = "LEVELDB" if name.endswith("leveldb") else "LMDB"
    folder = databases / "mnist_small" / name
    before = sorted((path.name, path.stat().st_mtime_ns) for path in folder.iterdir())
    records = list(open_database(folder, backend).records())
    assert len(records) == count
    assert [key for key, _ in records] == sorted(key for key, _ in records)
    found = [parse_datum(value) for _, value in records]
    np.testing.assert_array_equal(np.concatenate([datum_pixels(datum) for datum in found]), digits[0][:count])
    np.testing.assert_array_equal([datum.label for datum in found], digits[1][:count])
    assert sorted((path.name, path.stat().st_mtime_ns) for path in folder.iterdir()) == before


def test_mean_of_the_training_set(reference_data: Path, databases: Path) -> None:
    mean = read_mean(databases / "mnist_small" / "mnist_train_mean.binaryproto")
    images = read_idx(reference_data / "data" / "mnist" / "train-images-idx3-ubyte.gz")
    np.testing.assert_allclose(mean[0], images.mean(0), rtol=1e-4, atol=1e-3)


def test_caffes_own_hdf5_data(databases: Path, tmp_path: Path) -> None:
    """What Caffe's test of its HDF5 layer expects: values count up over two files, the second of them gzipped."""
    files = [databases / "caffe_test_data" / name for name in ("sample_data.h5", "sample_data_2_gzip.h5")]
    (tmp_path / "list.txt").write_text("\n".join(map(str, files)))
    net = data_net(
        f'type: "HDF5Data" hdf5_data_param {{ source: "{tmp_path / "list.txt"}" batch_size: 5 }}',
        tops='top: "data" top: "label" top: "label2"',
    )
    assert [net.blobs[name].shape for name in ("data", "label", "label2")] == [(5, 8, 6, 5), (5, 1), (5, 1)]
    for number in range(10):
        net.forward()
        row, file = number % 2 * 5, number % 4 // 2
        np.testing.assert_array_equal(net.blobs["label"].data.ravel(), row + 1 + np.arange(5))
        np.testing.assert_array_equal(net.blobs["label2"].data.ravel(), row + 2 + np.arange(5))
        expected = np.arange(5 * 240).reshape(5, 8, 6, 5) + row * 240 + file * 2400
        np.testing.assert_array_equal(net.blobs["data"].data, expected)
