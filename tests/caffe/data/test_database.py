"""Writing databases whole or not at all, and opening them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from undertow.caffe.data import new_database, open_database
from undertow.errors import FormatError, MissingPackage

BACKENDS = ["LMDB", "LEVELDB"]


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    pytest.importorskip("plyvel" if request.param == "LEVELDB" else "lmdb")
    return str(request.param)


def contents(path: Path, backend: str, first: bytes = b"") -> list[tuple[bytes, bytes]]:
    return [(key, bytes(value)) for key, value in open_database(path, backend).records(first)]


def test_what_is_put_in_comes_out_in_order(tmp_path: Path, backend: str) -> None:
    """More than the first map of LMDB (10 MiB) and more than one transaction holds."""
    rng = np.random.default_rng(0)
    records = {b"%06d" % i: rng.bytes(12_000) for i in rng.permutation(1500).tolist()}
    with new_database(tmp_path / "db", backend) as put:
        for key, value in records.items():
            put(key, value)
    assert contents(tmp_path / "db", backend) == sorted(records.items())
    assert contents(tmp_path / "db", backend, b"001400") == sorted(records.items())[1400:]
    assert [path.name for path in tmp_path.iterdir()] == ["db"]


def test_an_error_leaves_nothing(tmp_path: Path, backend: str) -> None:
    with pytest.raises(ZeroDivisionError), new_database(tmp_path / "db", backend) as put:
        put(b"1", bytes(1 // 0))
    assert list(tmp_path.iterdir()) == []


def test_existing_ones_are_refused(tmp_path: Path, backend: str) -> None:
    (tmp_path / "db").mkdir()
    with pytest.raises(FormatError, match="exists already"), new_database(tmp_path / "db", backend):
        pass
    with pytest.raises(FormatError, match="does not exist"), new_database(tmp_path / "no" / "db", backend):
        pass


@pytest.mark.skipif(os.name != "posix", reason="kill signals")
def test_killed_while_writing_leaves_no_database(tmp_path: Path, backend: str) -> None:
    code = (
        "import sys, itertools\n"
        "from undertow.caffe.data import new_database\n"
        f"with new_database({str(tmp_path / 'db')!r}, {backend!r}) as put:\n"
        "    for i in itertools.count():\n"
        "        put(b'%09d' % i, bytes(1000))\n"
        "        if i == 3000:\n"
        "            print('under way', flush=True)\n"
    )
    writer = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert writer.stdout is not None
    assert writer.stdout.readline() == b"under way\n"
    time.sleep(0.05)
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    writer.stdout.close()
    assert not (tmp_path / "db").exists()
    with new_database(tmp_path / "db", backend) as put:
        put(b"1", b"one")
    assert contents(tmp_path / "db", backend) == [(b"1", b"one")]
    assert [path.name for path in tmp_path.iterdir()] == ["db"]


def test_a_key_too_long_for_lmdb(tmp_path: Path) -> None:
    pytest.importorskip("lmdb")
    with (
        pytest.raises(FormatError, match=r"a key of 600 bytes.*at most 511"),
        new_database(tmp_path / "db") as put,
    ):
        put(b"k" * 600, b"")


def test_reading_changes_nothing_and_locks_nothing(tmp_path: Path, backend: str) -> None:
    with new_database(tmp_path / "db", backend) as put:
        put(b"1", b"one")
    before = {path.name: path.read_bytes() for path in (tmp_path / "db").iterdir()}
    one, two = open_database(tmp_path / "db", backend), open_database(tmp_path / "db", backend)
    assert [bytes(value) for _, value in one.records()] == [bytes(value) for _, value in two.records()] == [b"one"]
    assert {path.name: path.read_bytes() for path in (tmp_path / "db").iterdir()} == before


def test_the_wrong_backend_is_named(tmp_path: Path) -> None:
    pytest.importorskip("lmdb")
    with new_database(tmp_path / "db") as put:
        put(b"1", b"one")
    with pytest.raises(FormatError, match=r"the other kind, LMDB.*--backend=lmdb"):
        open_database(tmp_path / "db", "LEVELDB")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FormatError, match="no LevelDB database"):
        open_database(tmp_path / "empty", "LEVELDB")
    with pytest.raises(FormatError, match=r"no LMDB database: it has no file data\.mdb"):
        open_database(tmp_path / "empty", "LMDB")
    with pytest.raises(FormatError, match="no backend 'sqlite'"):
        open_database(tmp_path / "db", "sqlite")
    with pytest.raises(FormatError, match="no such database"):
        open_database(tmp_path / "nothing")


@pytest.mark.parametrize(("module", "backend"), [("lmdb", "LMDB"), ("plyvel", "LEVELDB")])
def test_missing_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, backend: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with (
        pytest.raises(MissingPackage, match=rf"{module}.*pip install 'undertow\["),
        new_database(tmp_path / "db", backend),
    ):
        pass
    assert list(tmp_path.iterdir()) == []
