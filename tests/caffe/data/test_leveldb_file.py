"""The LevelDB reader against the C++ library, and on damaged files."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from undertow.caffe.data.leveldb_blocks import DamagedError, unsnap
from undertow.caffe.data.leveldb_file import LevelDbFile
from undertow.errors import FormatError

plyvel = pytest.importorskip("plyvel")


def records_of(path: Path, first: bytes = b"") -> list[tuple[bytes, bytes]]:
    return [(key, bytes(value)) for key, value in LevelDbFile(path).records(first)]


def written(path: Path, changes: int, **options: object) -> list[tuple[bytes, bytes]]:
    """A database of many changes, some of them deletions; its records as the library reads them from a copy."""
    rng = np.random.default_rng(changes)
    database = plyvel.DB(str(path), create_if_missing=True, **options)
    for _ in range(changes):
        key = b"%05d" % rng.integers(0, changes // 2)
        if rng.random() < 0.2:
            database.delete(key)
        else:
            database.put(key, rng.bytes(int(rng.integers(0, 40))) * int(rng.integers(1, 40)))
    database.close()
    copy = path.with_name("copy")
    shutil.copytree(path, copy)
    database = plyvel.DB(str(copy))
    found = list(database)
    database.close()
    shutil.rmtree(copy)
    return found


SMALL_TABLES = {"write_buffer_size": 1 << 16, "block_size": 2048}


@pytest.mark.parametrize(
    ("changes", "options"),
    [
        (3000, {}),
        (8000, SMALL_TABLES),
        (3000, {**SMALL_TABLES, "compression": None}),
        (300, {"block_restart_interval": 1}),
        (2, {}),
    ],
)
def test_records_equal_the_librarys(tmp_path: Path, changes: int, options: dict[str, object]) -> None:
    records = written(tmp_path / "db", changes, **options)
    assert records_of(tmp_path / "db") == records
    keys = [key for key, _ in records]
    for index in range(0, len(records), max(1, len(records) // 12)):
        assert records_of(tmp_path / "db", keys[index]) == records[index:]
        assert records_of(tmp_path / "db", keys[index] + b"\0") == records[index + 1 :]


def test_several_levels_are_there(tmp_path: Path) -> None:
    written(tmp_path / "db", 5000, **SMALL_TABLES)
    assert len(LevelDbFile(tmp_path / "db")._levels) > 1


def test_a_log_whose_end_was_never_written(tmp_path: Path) -> None:
    records = written(tmp_path / "db", 300)
    (log,) = (tmp_path / "db").glob("*.log")
    log.write_bytes(log.read_bytes()[:-3])
    found = records_of(tmp_path / "db")
    assert len(found) > 0
    assert len(set(found) ^ set(records)) <= 2


@pytest.mark.parametrize("file", ["CURRENT", "MANIFEST-*", "*.ldb"])
def test_missing_files_are_named(tmp_path: Path, file: str) -> None:
    written(tmp_path / "db", 2000, **SMALL_TABLES)
    path = next((tmp_path / "db").glob(file))
    path.unlink()
    with pytest.raises(FormatError, match="no LevelDB database" if file == "CURRENT" else path.stem):
        records_of(tmp_path / "db")


def test_manifests_elsewhere_are_refused(tmp_path: Path) -> None:
    written(tmp_path / "db", 2)
    (tmp_path / "db" / "CURRENT").write_text("../MANIFEST-000001\n")
    with pytest.raises(FormatError, match="is no name of a manifest"):
        records_of(tmp_path / "db")


def test_damaged_files_give_records_or_errors(tmp_path: Path) -> None:
    written(tmp_path / "db", 1500, **SMALL_TABLES)
    rng = np.random.default_rng(4)
    files = [path for path in sorted((tmp_path / "db").iterdir()) if path.name not in ("LOCK", "LOG")]
    whole = sum(path.stat().st_size for path in files)
    refused = 0
    for number in range(200):
        path = files[number % len(files)]
        content = path.read_bytes()
        damaged = bytearray(content)
        for _ in range(int(rng.integers(1, 8))):
            damaged[int(rng.integers(len(content)))] = int(rng.integers(256))
        path.write_bytes(damaged[: int(rng.integers(len(damaged)))] if rng.random() < 0.2 else damaged)
        try:
            assert sum(len(value) for _, value in records_of(tmp_path / "db")) < 100 * whole
        except FormatError:
            refused += 1
        path.write_bytes(content)
    assert 20 < refused < 200


def test_snappy_by_hand() -> None:
    """All kinds of elements: short and long texts, copies with one, two and four bytes of distance, overlapping."""
    text = bytes(range(256)) * 2
    assert unsnap(b"\x05\x10hello") == b"hello"
    assert unsnap(b"\x0a\x10hello\x05\x05") == b"hellohello"[:5] + b"hello"
    assert unsnap(b"\x09\x00a\x1e\x01\x00") == b"a" * 9
    assert unsnap(b"\x0a\x04ab\x1f\x02\x00\x00\x00") == b"ab" * 5
    assert unsnap(b"\x80\x04\xf4\xff\x01" + text) == text
    assert unsnap(b"\x00") == b""


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x05\x10hell", "end too early"),
        (b"\x04\x10hello", "should give 4 bytes and give 5"),
        (b"\x0a\x10hello\x05\x06", "refer 6 bytes back, there are 5"),
        (b"\x0a\x10hello\x05\x00", "refer 0 bytes back"),
        (b"\xff\xff\xff\xff\x0f\x10hello", "cannot hold"),
        (b"\x05\x10hello\x06", "end too early"),
        (b"\x80", "no end"),
    ],
)
def test_damaged_snappy(data: bytes, reason: str) -> None:
    with pytest.raises(DamagedError, match=reason):
        unsnap(data)
