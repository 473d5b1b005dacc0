"""Databases of records, as Data layers read them and Caffe's tools write them: LMDB and LevelDB."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from undertow.caffe.data.leveldb_file import LevelDbFile
from undertow.caffe.data.lmdb_file import FILE_NAME, LmdbFile
from undertow.errors import FormatError, MissingPackage
from undertow.files import sync, unfinished

PathLike = str | os.PathLike[str]
Put = Callable[[bytes, bytes], None]

BACKENDS = ("LMDB", "LEVELDB")
PER_TRANSACTION = 1000
_FIRST_MAP_SIZE = 10 * 1024 * 1024


class Database(Protocol):
    """Records in the order of their keys.

    records(first): keys and values from the first key that is not below `first`; values are good until the next one.
    path: for messages. entries: how many records there are, 0 where that is not known.
    """

    entries: int

    @property
    def path(self) -> PathLike: ...

    def records(self, first: bytes = b"") -> Iterator[tuple[bytes, memoryview]]: ...


def _plyvel() -> Any:
    try:
        import plyvel
    except ImportError:
        raise MissingPackage("plyvel", "leveldb", "writing a LevelDB database") from None
    return plyvel


def open_database(source: PathLike, backend: str = "LMDB") -> Database:
    """Open a database to read. backend: "LMDB" or "LEVELDB", in any case.

    Nothing is written beside it, and any number of readers may have it open. Raises FormatError where it is missing or
    damaged.
    """
    check_backend(backend)
    if not Path(source).exists():
        raise FormatError("there is no such database", file=source, remedy="check the path (it is a folder)")
    marks = {"LMDB": FILE_NAME, "LEVELDB": "CURRENT"}
    for name, mark in marks.items():
        if name != backend.upper() and (Path(source) / mark).is_file():
            remedy = f"say backend: {name} in a prototxt, --backend={name.lower()} in a command"
            raise FormatError(f"this is a database of the other kind, {name}", file=source, remedy=remedy)
    if backend.upper() == "LEVELDB":
        return LevelDbFile(source)
    if Path(source).is_dir() and not (Path(source) / FILE_NAME).is_file():
        raise FormatError(
            f"this folder is no LMDB database: it has no file {FILE_NAME}", file=source,
            remedy="name the folder that convert_imageset or another tool has made",
        )  # fmt: skip
    return LmdbFile(source)


def check_backend(backend: str) -> None:
    """Raises FormatError for a backend that does not exist."""
    if backend.upper() not in BACKENDS:
        raise FormatError(f"there is no backend '{backend}'", remedy="use lmdb or leveldb")


# --- writing ----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def new_database(path: PathLike, backend: str = "LMDB") -> Iterator[Put]:
    """A function `put(key, value)` that fills a new database, which appears under its name when the block ends well.

    It is built in a folder beside and renamed, so that no half of one is ever found. Raises FormatError when something
    of that name exists already, as Caffe's tools do.
    """
    check_backend(backend)
    target = Path(path)
    if target.exists() or target.is_symlink():
        raise FormatError("exists already; databases are not added to", file=path, remedy="remove it or choose a name")
    if not target.absolute().parent.is_dir():
        raise FormatError("the folder for the database does not exist", file=path, remedy="make the folder first")
    with unfinished(target.absolute(), folder=True) as beside:
        with _lmdb_writer(beside) if backend.upper() == "LMDB" else _leveldb_writer(beside) as put:
            yield put
        for item in (*beside.iterdir(), beside):
            sync(item)


@contextlib.contextmanager
def _lmdb_writer(folder: Path) -> Iterator[Put]:
    try:
        import lmdb
    except ImportError:
        raise MissingPackage("lmdb", "caffe", "writing an LMDB database") from None
    environment = lmdb.open(os.fspath(folder), map_size=_FIRST_MAP_SIZE, lock=False, sync=False)
    waiting: list[tuple[bytes, bytes]] = []

    def commit() -> None:
        """Write what waits; the map doubles until it fits, as in Caffe."""
        while True:
            try:
                with environment.begin(write=True) as transaction:
                    for key, value in waiting:
                        transaction.put(key, value)
                break
            except lmdb.MapFullError:
                environment.set_mapsize(environment.info()["map_size"] * 2)
        waiting.clear()

    def put(key: bytes, value: bytes) -> None:
        if not 0 < len(key) <= environment.max_key_size():
            raise FormatError(
                f"a key of {len(key)} bytes ('{key[:40].decode(errors='replace')}...'): LMDB takes at most "
                f"{environment.max_key_size()}",
                remedy="shorten the paths in the list, and put the common part into the root folder",
            )
        waiting.append((key, value))
        if len(waiting) >= PER_TRANSACTION:
            commit()

    try:
        yield put
        commit()
        environment.sync(True)
    finally:
        environment.close()


@contextlib.contextmanager
def _leveldb_writer(folder: Path) -> Iterator[Put]:
    plyvel = _plyvel()
    database = plyvel.DB(
        os.fspath(folder), create_if_missing=True, block_size=65536, write_buffer_size=64 * 1024 * 1024
    )
    batch = database.write_batch()
    waiting = 0

    def put(key: bytes, value: bytes) -> None:
        nonlocal batch, waiting
        batch.put(key, value)
        waiting += 1
        if waiting >= PER_TRANSACTION:
            batch.write()
            batch, waiting = database.write_batch(), 0

    try:
        yield put
        batch.write()
    finally:
        database.close()
