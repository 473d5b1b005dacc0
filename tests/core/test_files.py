"""Files are written whole or not at all, and what goes wrong names the file that was asked for."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from undertow.errors import WriteError
from undertow.files import atomic_write, remove_leftovers, unfinished


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


WRITES_FOREVER = """
import sys, time
from pathlib import Path
from undertow.files import unfinished
with unfinished(Path(sys.argv[1]), folder=sys.argv[2] == "folder", ending=sys.argv[3]) as beside:
    print("begun", flush=True)
    time.sleep(600)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="files in use are known by locks that Windows does not have")
@pytest.mark.parametrize(("kind", "ending"), [("file", ""), ("file", ".mp4"), ("folder", "")])
def test_what_a_killed_process_left_is_removed_and_not_before(tmp_path: Path, kind: str, ending: str) -> None:
    words = [sys.executable, "-c", WRITES_FOREVER, str(tmp_path / "a.weights"), kind, ending]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        (half,) = tmp_path.iterdir()
        assert half.name.startswith(".a.weights.")
        assert half.name.endswith(".undertow.part" + ending)
        assert remove_leftovers(tmp_path) == []
        with atomic_write(tmp_path / "another") as stream:
            stream.write(b"x")
        process.send_signal(signal.SIGKILL)
    assert half.exists()
    assert remove_leftovers(tmp_path) == [half]
    assert [path.name for path in tmp_path.iterdir()] == ["another"]


def test_the_first_writing_into_a_folder_removes_leftovers_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mine = ".a.backup.abcd_123.undertow.part"
    others = [".a.backup.abcd1234.part", "a.undertow.part", ".undertow.part", ".a.part", ".x.abcd1234.undertow.partly"]
    for name in (mine, *others):
        (tmp_path / name).write_text("half")
    for _ in range(2):
        with atomic_write(tmp_path / "b") as stream:
            stream.write(b"x")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*others, "b"])
    assert [record.message for record in caplog.records] == [
        f"removed from {tmp_path} what a killed run left half written: {mine}"
    ]


def test_a_file_that_is_taken_for_a_leftover_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from undertow import files

    lock = files._lock
    removed: list[Path] = []

    def late(path: Path, *, wait: bool) -> int | None:
        if wait and not removed:
            removed.extend(remove_leftovers(tmp_path))
        return lock(path, wait=wait)

    monkeypatch.setattr(files, "_lock", late)
    with atomic_write(tmp_path / "a") as stream:
        stream.write(b"whole")
    assert len(removed) == 1
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"whole"]


def test_where_nothing_can_be_locked_files_are_written_and_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from undertow import files

    class Refuses:
        LOCK_EX = LOCK_NB = 0

        @staticmethod
        def flock(*given: object) -> None:
            raise OSError(errno.ENOLCK, "no locks here")

    monkeypatch.setattr(files, "fcntl", Refuses)
    with unfinished(tmp_path / "a") as beside:
        beside.write_text("whole")
        assert remove_leftovers(tmp_path) == []
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.skipif(sys.platform == "win32", reason="no such pipes there")
@pytest.mark.parametrize("mode", ["wb", "w"])
def test_pipes_are_written_into_and_stay(tmp_path: Path, mode: str) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    with atomic_write(pipe, mode) as stream:
        stream.write(b"abc" if mode == "wb" else "abc")
    reader.join()
    assert got == [b"abc"]
    assert pipe.is_fifo()
    assert [entry.name for entry in tmp_path.iterdir()] == ["pipe"]


@pytest.mark.skipif(sys.platform == "win32", reason="no such pipes there")
def test_what_needs_a_file_is_refused_for_a_pipe(tmp_path: Path) -> None:
    """Files that are written to and fro (HDF5), and those that other programs fill under their names (videos)."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(WriteError, match=r"to and fro.*name a file"), atomic_write(pipe, "w+b"):
        pass
    with pytest.raises(WriteError, match=r"a pipe.*name a file"), unfinished(pipe):
        pass
    assert pipe.is_fifo()


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="needs Linux's devices")
def test_devices_are_never_replaced(tmp_path: Path) -> None:
    with atomic_write("/dev/null") as stream:
        stream.write(b"x")
    with pytest.raises(WriteError, match="/dev/full: cannot be written: No space left"), atomic_write("/dev/full") as s:
        s.write(b"x")
    (tmp_path / "link").symlink_to("/dev/full")
    with pytest.raises(WriteError, match="link: cannot"), atomic_write(tmp_path / "link") as s:
        s.write(b"x")
    assert Path("/dev/full").is_char_device()
    assert Path("/dev/null").is_char_device()
    assert (tmp_path / "link").is_symlink()


@pytest.mark.skipif(not Path("/dev/stdout").is_symlink(), reason="needs Linux's streams")
@pytest.mark.parametrize("redirected", [True, False])
def test_stdout_by_its_name(tmp_path: Path, redirected: bool) -> None:
    code = "from undertow.files import atomic_write\nwith atomic_write('/dev/stdout') as s: s.write(b'abc')"
    with open(tmp_path / "out", "wb") as out:
        stream = out if redirected else subprocess.PIPE
        done = subprocess.run([sys.executable, "-c", code], stdout=stream, check=True)
    assert (tmp_path / "out").read_bytes() == (b"abc" if redirected else b"")
    assert redirected or done.stdout == b"abc"
    assert Path("/dev/stdout").is_symlink()


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
@pytest.mark.parametrize("there", [True, False])
def test_links_are_followed(tmp_path: Path, there: bool) -> None:
    (tmp_path / "far").mkdir()
    real, link = tmp_path / "far" / "real.txt", tmp_path / "link.txt"
    if there:
        real.write_text("old")
        real.chmod(0o640)
    link.symlink_to("far/real.txt")
    with atomic_write(link, "w") as stream:
        stream.write("half")
        assert [entry.parent.name for entry in tmp_path.rglob("*.part")] == ["far"]
    assert link.is_symlink()
    assert real.read_text() == "half"
    if there:
        assert real.stat().st_mode & 0o777 == 0o640
    with pytest.raises(RuntimeError), atomic_write(link, "w"):
        raise RuntimeError
    assert real.read_text() == "half"
    assert [entry.name for entry in (tmp_path / "far").iterdir()] == ["real.txt"]


def test_written_files_have_usual_permissions(tmp_path: Path) -> None:
    usual = os.umask(0o027)
    try:
        with atomic_write(tmp_path / "a") as stream:
            stream.write(b"x")
        with unfinished(tmp_path / "b", folder=True):
            pass
    finally:
        os.umask(usual)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "b").stat().st_mode & 0o777 == 0o750
