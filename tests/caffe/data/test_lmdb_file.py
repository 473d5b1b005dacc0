"""The LMDB reader against the C library, and on damaged files."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from undertow.caffe.data.lmdb_file import LmdbFile
from undertow.errors import FormatError

lmdb = pytest.importorskip("lmdb")


def write(path: Path, records: list[tuple[bytes, bytes]]) -> Path:
    with (
        lmdb.open(str(path), map_size=1 << 28, lock=False) as environment,
        environment.begin(write=True) as transaction,
    ):
        for key, value in records:
            transaction.put(key, value)
    return path


def records_of(path: Path, first: bytes = b"") -> list[tuple[bytes, bytes]]:
    return [(key, bytes(value)) for key, value in LmdbFile(path).records(first)]


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[tuple[bytes, bytes]]]:
    """A tree of four levels, with values in pages and on overflow pages of several lengths."""
    rng = np.random.default_rng(5)
    lengths = [int(n) for n in rng.choice([0, 1, 30, 1000, 5000, 70000], 4000, p=[0.1, 0.2, 0.4, 0.2, 0.09, 0.01])]
    records = [(b"%08d_" % i + b"k" * int(rng.integers(200, 400)), rng.bytes(n)) for i, n in enumerate(lengths)]
    return write(tmp_path_factory.mktemp("lmdb") / "db", records), records


def test_all_records_in_order(deep: tuple[Path, list[tuple[bytes, bytes]]]) -> None:
    path, records = deep
    with lmdb.open(str(path), readonly=True, lock=False) as environment:
        assert environment.stat()["depth"] >= 4
    assert records_of(path) == records
    assert LmdbFile(path).entries == len(records)


def test_beginning_at_a_key_there_or_not(deep: tuple[Path, list[tuple[bytes, bytes]]]) -> None:
    path, records = deep
    for index in (0, 1, 17, 1999, 3998, 3999):
        assert records_of(path, records[index][0])[0] == records[index]
        between = records[index][0] + b"\0"
        after = records_of(path, between)
        assert [key for key, _ in after] == [key for key, _ in records[index + 1 :]]


def test_rewritten_and_deleted_records(tmp_path: Path) -> None:
    path = write(tmp_path / "db", [(b"%04d" % i, b"old") for i in range(500)])
    with lmdb.open(str(path), lock=False) as environment, environment.begin(write=True) as transaction:
        for i in range(0, 500, 2):
            transaction.delete(b"%04d" % i)
        transaction.put(b"0001", b"new")
    found = records_of(path)
    assert len(found) == 250
    assert found[0] == (b"0001", b"new")


def test_empty_database(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path / "db"), lock=False) as environment, environment.begin(write=True):
        pass
    assert records_of(tmp_path / "db") == []


@pytest.mark.parametrize("content", [b"", b"x", b"not a database" * 1000])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "data.mdb").write_bytes(content)
    with pytest.raises(FormatError, match=r"data\.mdb"):
        LmdbFile(tmp_path)


def test_cut_file_is_refused_where_it_ends(deep: tuple[Path, list[tuple[bytes, bytes]]], tmp_path: Path) -> None:
    content = (deep[0] / "data.mdb").read_bytes()
    (tmp_path / "data.mdb").write_bytes(content[: len(content) // 2])
    with pytest.raises(FormatError, match="beyond the end"):
        list(LmdbFile(tmp_path).records())


def test_pages_in_a_ring_end_with_an_error(deep: tuple[Path, list[tuple[bytes, bytes]]], tmp_path: Path) -> None:
    content = bytearray((deep[0] / "data.mdb").read_bytes())
    file = LmdbFile(deep[0])
    root = file._root * file.page_size
    pointer = struct.unpack_from("<H", content, root + 16)[0]
    struct.pack_into("<HHH", content, root + pointer, file._root & 0xFFFF, file._root >> 16, 0)
    (tmp_path / "data.mdb").write_bytes(content)
    with pytest.raises(FormatError, match="ring"):
        list(LmdbFile(tmp_path).records())


def test_damaged_files_give_records_or_errors(tmp_path: Path) -> None:
    """Random damage, above all where pages say what they hold."""
    rng = np.random.default_rng(11)
    records = [(b"%08d_name" % i, rng.bytes(int(n))) for i, n in enumerate(rng.integers(0, 6000, 120))]
    content = (write(tmp_path / "db", records) / "data.mdb").read_bytes()
    target = tmp_path / "bad" / "data.mdb"
    target.parent.mkdir()
    refused = 0
    for _ in range(400):
        damaged = bytearray(content)
        for _ in range(int(rng.integers(1, 8))):
            page = int(rng.integers(len(content) // 4096)) * 4096
            place = page + int(rng.integers(200)) if rng.random() < 0.8 else int(rng.integers(len(content)))
            damaged[place] = int(rng.integers(256))
        target.write_bytes(damaged[: int(rng.integers(1, len(damaged)))] if rng.random() < 0.2 else damaged)
        try:
            total = sum(len(value) for _, value in LmdbFile(target.parent).records())
            assert total <= len(records) * len(content)
        except FormatError:
            refused += 1
    assert 40 < refused < 400
