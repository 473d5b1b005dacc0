"""Files are written whole or not at all, and what goes wrong names the file that was asked for."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from undertow.errors import WriteError
from undertow.files import atomic_write


def test_an_error_leaves_the_old_file_and_nothing_beside(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")

    def write_half() -> None:
        with atomic_write(path, "w") as stream:
            stream.write("half")
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        write_half()
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.txt"]
    assert path.read_text() == "old"


@pytest.mark.parametrize(("target", "named"), [("none/a.txt", "none"), ("folder", "folder")])
def test_errors_name_what_was_asked_for(tmp_path: Path, target: str, named: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="director") as caught, atomic_write(tmp_path / target, "w") as stream:
        stream.write("x")
    assert isinstance(caught.value, WriteError)
    assert caught.value.filename == str(tmp_path / named)
    assert str(caught.value).startswith(f"{tmp_path / target}: cannot be written: ")
    assert ("make the folder" if named == "none" else "this is a folder") in str(caught.value)
    assert ".part" not in str(caught.value)
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder"]


def test_a_name_as_long_as_the_system_allows_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 251 + ".txt")
    with atomic_write(path) as stream:
        stream.write(b"x")
    assert path.read_bytes() == b"x"


def test_an_error_of_the_system_keeps_its_number(tmp_path: Path) -> None:
    reason = r"a: cannot be written: No space left.*make room"
    with pytest.raises(WriteError, match=reason) as caught, atomic_write(tmp_path / "a"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert (caught.value.errno, caught.value.strerror) == (errno.ENOSPC, "No space left on device")
    assert (caught.value.file, caught.value.filename) == (str(tmp_path / "a"),) * 2
    with pytest.raises(OSError, match="another") as raw, atomic_write(tmp_path / "a"):
        raise OSError(errno.EACCES, "another", "b")
    assert not isinstance(raw.value, WriteError)
