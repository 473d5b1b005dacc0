"""HDF5Data and HDF5Output: large files by batches, damaged and unsuitable ones, what is written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.caffe.data.samples import data_net
from undertow.caffe.data.feed_hdf5 import Hdf5Feed
from undertow.caffe.net import Net
from undertow.caffe.proto import parse_text
from undertow.errors import FormatError, UndertowError

h5py = pytest.importorskip("h5py")


def test_case_100_more_than_2_to_31_values(tmp_path: Path) -> None:
    """Rows on both sides of the 2**31st value; the rest was never written and takes no room."""
    rows, width = 2**21 + 10, 2**10
    with h5py.File(tmp_path / "large.h5", "w") as file:
        data = file.create_dataset("data", (rows, width), "f4", chunks=(64, width), compression="gzip")
        data[rows - 3] = 7
    assert rows * width > 2**31
    feed = Hdf5Feed([tmp_path / "large.h5"], ["data"], 4)
    feed.row = rows - 4
    (batch,) = feed.load()
    assert batch.shape == (4, width)
    assert batch[:, 0].tolist() == [0, 7, 0, 0]
    shuffled = Hdf5Feed([tmp_path / "large.h5"], ["data"], 4, shuffle=True)
    assert shuffled.load()[0].nbytes == 4 * width * 4


def test_integers_and_doubles_become_the_nets_type(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["data"] = np.array([[2**24 + 1, -3]], np.int32)
        file["label"] = np.array([0.1])
    for dtype in (np.float32, np.float64):
        data, label = Hdf5Feed([tmp_path / "a.h5"], ["data", "label"], 1, dtype=dtype).load()
        np.testing.assert_array_equal(data, np.array([[2**24 + 1, -3]]).astype(dtype))
        np.testing.assert_array_equal(label, np.array([0.1]).astype(dtype))


def test_rows_out_of_order_come_in_their_order(tmp_path: Path) -> None:
    values = np.random.default_rng(0).random((50, 3)).astype(np.float32)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("data", data=values, chunks=(7, 3), compression="gzip")
        file["label"] = np.arange(50)
    data, label = Hdf5Feed([tmp_path / "a.h5"], ["data", "label"], 50, shuffle=True, seed=4).load()
    assert sorted(label) == list(range(50))
    assert label.tolist() != list(range(50))
    np.testing.assert_array_equal(data, values[label.astype(int)])


@pytest.mark.parametrize(
    ("datasets", "reason"),
    [
        ({"other": np.zeros((2, 2))}, "there is no dataset 'data'.*'other'"),
        ({"data": np.float32(3)}, "needs an axis of rows"),
        ({"data": np.zeros((0, 2))}, "has no rows"),
        ({"data": np.array([b"text"])}, "holds no numbers"),
        ({"data": np.zeros((2, 2)), "label": np.zeros(3)}, "'label' has 3 rows, 'data' has 2"),
    ],
)
def test_unsuitable_files(tmp_path: Path, datasets: dict[str, np.ndarray], reason: str) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name, values in datasets.items():
            file[name] = values
    names = list(datasets) if "label" in datasets else ["data"]
    with pytest.raises(FormatError, match=rf"a\.h5: .*{reason}"):
        Hdf5Feed([tmp_path / "a.h5"], names, 1)


def test_files_whose_rows_differ(tmp_path: Path) -> None:
    for name, width in (("a", 2), ("b", 3)):
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            file["data"] = np.zeros((2, width))
    feed = Hdf5Feed([tmp_path / "a.h5", tmp_path / "b.h5"], ["data"], 2)
    feed.load()
    with pytest.raises(FormatError, match=r"b\.h5: rows of shapes \[\(3,\)\], the first file has \[\(2,\)\]"):
        feed.load()


def test_a_claim_beyond_the_file_is_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("data", (2, 2**40), "f4", chunks=(1, 2**20))
    with pytest.raises(FormatError, match="more than the file can hold"):
        Hdf5Feed([tmp_path / "a.h5"], ["data"], 2)


def test_damaged_files_give_rows_or_errors(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("data", data=rng.random((20, 4)), chunks=(5, 4), compression="gzip")
        file["label"] = np.arange(20.0)
    content = (tmp_path / "a.h5").read_bytes()
    refused = 0
    for number in range(150):
        damaged = bytearray(content)
        for _ in range(int(rng.integers(1, 6))):
            damaged[int(rng.integers(len(content)))] = int(rng.integers(256))
        path = tmp_path / f"bad{number}.h5"
        path.write_bytes(damaged[: int(rng.integers(1, len(damaged)))] if number % 4 == 0 else damaged)
        try:
            feed = Hdf5Feed([path], ["data", "label"], 6)
            assert sum(array.size for array in feed.load()) < 100_000
            feed.close()
        except UndertowError:
            refused += 1
    assert 20 < refused < 150


OUTPUT = """
layer {{ name: "in" type: "Input" top: "data" top: "label"
        input_param {{ shape {{ dim: 3 dim: 2 dim: 5 }} shape {{ dim: {labels} }} }} }}
layer {{ name: "out" type: "HDF5Output" bottom: "data" bottom: "label" hdf5_output_param {{ file_name: "{file}" }} }}
"""


def test_output_is_written_anew_each_time_with_four_axes(tmp_path: Path) -> None:
    net = Net(parse_text(OUTPUT.format(labels=3, file=tmp_path / "out.h5"), "NetParameter"), "TEST")
    for number in (1, 2):
        net.blobs["data"].data[...] = np.arange(30).reshape(3, 2, 5) * number
        net.blobs["label"].data[...] = [number, 2, 3]
        net.forward()
        with h5py.File(tmp_path / "out.h5") as file:
            assert file["label"].shape == (3, 1, 1, 1)
            assert file["label"][0, 0, 0, 0] == number
            np.testing.assert_array_equal(file["data"][()], np.arange(30).reshape(3, 2, 5, 1) * number)
            assert file["data"].dtype == np.float32
    assert [path.name for path in tmp_path.iterdir()] == ["out.h5"]


def test_output_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(UndertowError, match=r"'out' \(HDF5Output\): the bottoms have 3 and 4 rows"):
        Net(parse_text(OUTPUT.format(labels=4, file="x.h5"), "NetParameter"), "TEST")
    net = Net(parse_text(OUTPUT.format(labels=3, file=tmp_path / "no" / "x.h5"), "NetParameter"), "TEST")
    with pytest.raises(UndertowError, match=r"'out' \(HDF5Output\): .*cannot be written"):
        net.forward()


def test_a_list_of_no_files(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n \n")
    with pytest.raises(FormatError, match=r"empty\.txt: the list is empty"):
        data_net(f'type: "HDF5Data" hdf5_data_param {{ source: "{tmp_path}/empty.txt" batch_size: 1 }}')
