"""The recorded cases of Caffe's data layers, databases and tools."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.replay.__main__ import replay

CASES = [
    "data_hdf5",
    "data_hdf5_output",
    "data_image_data",
    "data_image_mean",
    "data_leveldb_encoded_png",
    "data_leveldb_raw",
    "data_leveldb_table",
    "data_lmdb_convert_encoded_png",
    "data_lmdb_convert_imageset",
    "data_lmdb_convert_resize",
    "data_lmdb_encoded_jpeg",
    "data_lmdb_encoded_png",
    "data_lmdb_no_label",
    "data_lmdb_overflow_pages",
    "data_memory_data",
    "data_transformer",
    "data_window_data",
    "io_functions",
    "lenet_lmdb",
]


@pytest.mark.reference
@pytest.mark.parametrize("case", CASES)
def test_case(reference_data: Path, case: str) -> None:
    if "leveldb" in case:
        pytest.importorskip("plyvel")
    result = replay("caffe", reference_data / "goldens" / "caffe" / case)
    assert result is not None
    assert result.ok, result.problems


def test_every_case_of_data_is_in_the_list(reference_data: Path) -> None:
    folders = (reference_data / "goldens" / "caffe").glob("data_*")
    assert sorted(path.name for path in folders) == [case for case in CASES if case.startswith("data_")]
