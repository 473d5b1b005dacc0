"""Writing files so that a crash never leaves half of one."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from undertow.errors import WriteError


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str], mode: str = "wb", **options: Any) -> Iterator[IO[Any]]:
    """Open a file beside `path`; when the block ends well, sync it and rename it onto `path`.

    If the block raises, the old file stays as it was and nothing is left behind.
    mode: "wb" or "w"; options go to `open` (encoding, newline).
    Raises WriteError, an OSError too, that names `path`, never the file beside it.
    """
    target = Path(path)
    try:
        descriptor, beside = tempfile.mkstemp(prefix=_beginning(target), suffix=".part", dir=target.parent)
    except OSError as problem:
        problem.filename = os.fspath(target if target.parent.is_dir() else target.parent)
        raise _cannot_write(target, problem) from problem
    try:
        with open(descriptor, mode, **options) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(beside, _usual_permissions(target))
        os.replace(beside, target)
        _sync_folder(target.parent)
    except BaseException as problem:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(beside)
        if isinstance(problem, OSError) and problem.filename in (None, beside):
            problem.filename = os.fspath(target)
            raise _cannot_write(target, problem) from problem
        raise


def _cannot_write(target: Path, problem: OSError) -> WriteError:
    if target.is_dir():
        remedy = "name a file; this is a folder"
    elif problem.errno in (errno.ENOSPC, errno.EDQUOT):
        remedy = "make room on the disk"
    elif not target.parent.is_dir():
        remedy = f"make the folder '{target.parent}', or name a file in one that is there"
    else:
        remedy = f"look at the name, the room on the disk, and whether you may write into '{target.parent}'"
    return WriteError(target, problem, remedy)


def move(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Rename within a folder, over what stands at `target`, so that it survives a power cut."""
    os.replace(source, target)
    _sync_folder(Path(target).parent)


def keep_copy(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Let `target`, in the same folder, be the file that `source` is now; at no moment is either of them missing.

    A second name where the file system has such, which takes no space; else a copy. `source` must be replaced as a
    whole later (see `atomic_write`), not written into.
    """
    beside = f"{os.fspath(target)}.part"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(beside)
    try:
        os.link(source, beside)
    except FileNotFoundError:
        raise
    except OSError:  # no second names here
        with open(source, "rb") as stream, atomic_write(target) as copy:
            shutil.copyfileobj(stream, copy)
        return
    move(beside, target)
    # Renaming onto another name of the same file does nothing, and leaves both.
    with contextlib.suppress(FileNotFoundError):
        os.unlink(beside)


def remove_leftovers(folder: str | os.PathLike[str], names: str) -> list[Path]:
    """Remove what `atomic_write` left half written in a folder when its process was killed; the files removed.

    names: a regular expression for the whole names that were to be written. Nobody else may be writing these now.
    """
    pattern = re.compile(rf"\.(?:{names})\.[^.]+\.part")
    removed = []
    with contextlib.suppress(OSError):
        for entry in list(Path(folder).iterdir()):
            if pattern.fullmatch(entry.name):
                entry.unlink()
                removed.append(entry)
    return removed


def _beginning(target: Path) -> str:
    # Not the whole name: with what is added here, a long one would be too long for the file system.
    return f".{target.name[:40]}."


def _usual_permissions(target: Path) -> int:
    """mkstemp makes files private; give back what a plain open would have given."""
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _sync_folder(folder: Path) -> None:
    """Make the rename itself survive a power cut, where the system can sync folders."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
