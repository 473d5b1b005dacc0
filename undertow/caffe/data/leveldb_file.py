"""Reading LevelDB databases: manifest, logs and tables, mapped into memory, every offset checked.

The C++ library locks a database and tidies it whenever it is opened, so one program at a time can train from it, and
none on a read-only disk. This reader needs no package and changes nothing. Like Caffe's it takes values as they are:
checksums are not recomputed.

A folder holds CURRENT (the name of the manifest), the manifest (which tables there are, which logs are not in them
yet), logs (`*.log`: batches of changes) and tables (`*.ldb`, `*.sst`: sorted blocks, usually compressed by Snappy).
"""

from __future__ import annotations

import contextlib
import heapq
import os
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from undertow.caffe.data.leveldb_blocks import (
    Bytes,
    DamagedError,
    Reader,
    block_entries,
    log_records,
    table_block,
    table_index,
)
from undertow.caffe.proto.files import map_file
from undertow.errors import FormatError

_COMPARATOR = b"leveldb.BytewiseComparator"
_VALUE = 1
_REMEDY = "make the database again, or convert it to LMDB"


class Entry(NamedTuple):
    """One change: of two with a key, the one with the higher number counts. value: None where the key was deleted."""

    key: bytes
    number: int
    value: Bytes | None


class _Table(NamedTuple):
    level: int
    number: int
    smallest: bytes


class _Version(NamedTuple):
    """What the manifest says: the tables, from which number on logs count, and one log before that (0: none)."""

    tables: dict[int, _Table]
    log: int
    previous_log: int


class LevelDbFile:
    """One database, read only. source: its folder. Raises FormatError with the file where it is damaged."""

    entries = 0

    def __init__(self, source: str | os.PathLike[str]) -> None:
        self.path = Path(source)
        current = self.path / "CURRENT"
        if not current.is_file():
            raise FormatError(
                "this is no LevelDB database (a folder with a file CURRENT)",
                file=source,
                remedy="name the database and its backend as they were made: LMDB or LEVELDB",
            )
        name = bytes(map_file(current)[:100]).decode("ascii", "replace").strip()
        if not re.fullmatch(r"MANIFEST-[0-9]+", name):
            raise FormatError(f"'{name[:40]}' is no name of a manifest", file=current, remedy=_REMEDY)
        with _named(self.path / name):
            version = _version(map_file(self.path / name))
        self._levels = _by_level(version)
        self._recent = sorted(self._logged(version).values())

    def _logged(self, version: _Version) -> dict[bytes, Entry]:
        """The newest change of each key in the logs that are not in tables yet."""
        found: dict[bytes, Entry] = {}
        numbers = sorted(int(path.stem) for path in self.path.glob("*.log") if path.stem.isdigit())
        for number in numbers:
            if number < version.log and number != version.previous_log:
                continue
            path = self.path / f"{number:06d}.log"
            with _named(path):
                for record in log_records(map_file(path)):
                    for entry in _batch(record):
                        if entry.key not in found or found[entry.key].number <= entry.number:
                            found[entry.key] = entry
        return found

    def records(self, first: bytes = b"") -> Iterator[tuple[bytes, memoryview]]:
        """Keys and values in order, from the first key that is not below `first`."""
        recent = (entry for entry in self._recent if entry.key >= first)
        parts = [self._tables(tables, first) for tables in self._levels]
        last = None
        for entry in heapq.merge(recent, *parts, key=lambda entry: (entry.key, -entry.number)):
            if entry.key == last:
                continue
            last = entry.key
            if entry.value is not None:
                yield entry.key, memoryview(entry.value)

    def _tables(self, tables: list[_Table], first: bytes) -> Iterator[Entry]:
        """The entries of tables that follow one another."""
        following = [table.smallest for table in tables[1:]]
        skipped = sum(smallest <= first for smallest in following) if first else 0
        return chain.from_iterable(self._table(table, first) for table in tables[skipped:])

    def _table(self, table: _Table, first: bytes) -> Iterator[Entry]:
        paths = [self.path / f"{table.number:06d}.{suffix}" for suffix in ("ldb", "sst")]
        path = next((path for path in paths if path.is_file()), paths[0])
        with _named(path):
            data = map_file(path)
            for last, handle in table_index(data):
                if last[:-8] < first:
                    continue
                for internal, value in block_entries(table_block(data, handle)):
                    entry = _entry(internal, value)
                    if entry.key >= first:
                        yield entry


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """Within, damage becomes a FormatError that names the file."""
    try:
        yield
    except DamagedError as error:
        raise FormatError(error.reason, file=path, offset=error.offset, remedy=_REMEDY) from error


def _version(data: memoryview) -> _Version:
    """All edits of a manifest, applied."""
    tables: dict[int, _Table] = {}
    log = previous = 0
    for record in log_records(data):
        reader = Reader(record)
        while reader.left:
            tag = reader.varint()
            if tag == 1:
                name = bytes(reader.text())
                if name != _COMPARATOR:
                    raise DamagedError(f"keys in an unusual order ({name[:60].decode(errors='replace')})", 0)
            elif tag == 2:
                log = reader.varint()
            elif tag == 9:
                previous = reader.varint()
            elif tag in (3, 4):
                reader.varint()
            elif tag == 5:
                reader.varint()
                reader.text()
            elif tag == 6:
                reader.varint()
                tables.pop(reader.varint(), None)
            elif tag == 7:
                level, number, _ = reader.varint(), reader.varint(), reader.varint()
                smallest, _ = bytes(reader.text()), reader.text()
                tables[number] = _Table(level, number, smallest[:-8])
            else:
                raise DamagedError(f"a change of unknown kind {tag}", 0)
    return _Version(tables, log, previous)


def _by_level(version: _Version) -> list[list[_Table]]:
    """Tables that follow one another together: each of level 0 alone, those of the other levels in order."""
    single = [[table] for table in version.tables.values() if table.level == 0]
    levels = sorted({table.level for table in version.tables.values()} - {0})
    sorted_ones = [
        sorted((table for table in version.tables.values() if table.level == level), key=lambda table: table.smallest)
        for level in levels
    ]
    return single + sorted_ones


def _batch(record: Bytes) -> Iterator[Entry]:
    """The changes of one batch in a log."""
    reader = Reader(record)
    number, count = reader.fixed(8), reader.fixed(4)
    for index in range(count):
        kind = reader.fixed(1)
        if kind > _VALUE:
            raise DamagedError(f"a change of unknown kind {kind} in a log", 0)
        key = bytes(reader.text())
        yield Entry(key, number + index, reader.text() if kind == _VALUE else None)
    if reader.left:
        raise DamagedError(f"{reader.left} bytes after the {count} changes of a batch", 0)


def _entry(internal: bytes, value: Bytes) -> Entry:
    if len(internal) < 8:
        raise DamagedError("a key without its number", 0)
    kind, number = internal[-8], int.from_bytes(internal[-7:], "little")
    if kind > _VALUE:
        raise DamagedError(f"a change of unknown kind {kind} in a table", 0)
    return Entry(internal[:-8], number, value if kind == _VALUE else None)
