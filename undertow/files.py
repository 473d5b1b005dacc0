"""Writing files so that a crash never leaves half of one."""

from __future__ import annotations

import contextlib
import errno
import functools
import logging
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import IO, Any

from undertow.errors import WriteError

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_log = logging.getLogger("undertow.files")

_A_FILE = "name a file on a disk"

# Names of what is being written: `.NAME.abcdefgh.undertow.part`, with the random letters of the module tempfile.
_MARK = ".undertow.part"
_LEFTOVER = re.compile(rf"\..+\.[a-z0-9_]{{8}}{re.escape(_MARK)}(\.[a-z0-9]+)?", re.DOTALL)


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str], mode: str = "wb", **options: Any) -> Iterator[IO[Any]]:
    """Open a file beside `path`; when the block ends well, sync it and rename it onto `path`.

    If the block raises, the old file stays as it was and nothing is left behind; what a killed process leaves is
    removed when another first writes into that folder (see `remove_leftovers`). A link is followed: the file it leads
    to is replaced. Devices, pipes and sockets are never replaced but written into, as far as the block came.
    mode: "wb" or "w", or "w+b", which files alone can do; options go to `open` (encoding, newline).
    Raises WriteError, an OSError too, that names `path`, never the file beside it.
    """
    target = Path(path)
    if is_special(target):
        with _into(target, mode, options) as stream:
            yield stream
        return
    beside = None
    try:
        with unfinished(target) as beside, open(beside, mode, **options) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as problem:
        if beside is None:
            problem.filename = os.fspath(target if target.parent.is_dir() else target.parent)
        elif problem.filename in (None, os.fspath(beside)):
            problem.filename = os.fspath(target)
        else:
            raise
        raise _cannot_write(target, problem) from problem


@contextlib.contextmanager
def _into(target: Path, mode: str, options: dict[str, Any]) -> Iterator[IO[Any]]:
    if "+" in mode:
        raise WriteError(target, OSError(errno.ESPIPE, "this is no file, and cannot be written to and fro"), _A_FILE)
    try:
        with open(target, mode, **options) as stream:
            yield stream
            stream.flush()
    except BrokenPipeError:
        raise
    except OSError as problem:
        if problem.filename not in (None, os.fspath(target)):
            raise
        problem.filename = os.fspath(target)
        raise _cannot_write(target, problem) from problem


def is_special(path: str | os.PathLike[str]) -> bool:
    """Whether what is there is neither file nor folder: a device, a pipe, a socket; or a stream (/dev/stdout)."""
    if os.path.islink(path) and os.path.abspath(path).startswith(("/dev/", "/proc/")):
        return True
    try:
        kind = os.stat(path).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(kind) or stat.S_ISDIR(kind))


@contextlib.contextmanager
def unfinished(target: Path, *, folder: bool = False, ending: str = "") -> Iterator[Path]:
    """A new file or folder beside `target`, private until the block ends well and it is renamed onto `target`.

    A link is followed. It is removed when the block raises. While this process lives it is locked, where the system
    can do so: thereby others know what a killed process has left. ending: of its name, for programs that go by it,
    such as ".mp4". Raises WriteError for a device, pipe or socket.
    """
    if is_special(target):
        raise WriteError(target, OSError(errno.EEXIST, "this is a device, a pipe or a socket"), _A_FILE)
    if target.is_symlink():
        target = Path(os.path.realpath(target))
    _tidy(os.path.abspath(target.parent))
    beside, held = _made(target, folder, ending)
    try:
        yield beside
        os.chmod(beside, _usual_permissions(target, 0o777 if folder else 0o666))
        os.replace(beside, target)
        sync(target.parent)
    except BaseException:
        _remove(beside)
        raise
    finally:
        if held is not None:
            os.close(held)


def remove_leftovers(folder: str | os.PathLike[str]) -> list[Path]:
    """Remove what `unfinished` made in a folder for processes that were killed; what was removed.

    Known by its name, and by a lock that no living process holds on it.
    """
    removed = []
    with contextlib.suppress(OSError):
        for entry in sorted(Path(folder).iterdir()):
            if _LEFTOVER.fullmatch(entry.name) and _is_free(entry) and _remove(entry):
                removed.append(entry)
    return removed


def leftovers_text(removed: Sequence[Path]) -> str:
    """A line that tells what was removed."""
    more = f" and {len(removed) - 1} more" if len(removed) > 1 else ""
    return f"removed from {removed[0].parent} what a killed run left half written: {removed[0].name}{more}"


@functools.cache
def _tidy(folder: str) -> None:
    """Once for each folder that this process writes into."""
    removed = remove_leftovers(folder)
    if removed:
        _log.warning(leftovers_text(removed))


def _made(target: Path, folder: bool, ending: str) -> tuple[Path, int | None]:
    """What is to be filled, and the descriptor that locks it."""
    # Not the whole name: with what is added here, a long one would be too long for the file system.
    make = tempfile.mkdtemp if folder else _make_file
    while True:
        beside = Path(make(prefix=f".{target.name[:40]}.", suffix=_MARK + ending, dir=target.parent))
        held = _lock(beside, wait=True)
        if beside.exists():
            return beside, held
        if held is not None:  # somebody took it for a leftover in the moment before it was locked
            os.close(held)


def _make_file(**place: Any) -> str:
    descriptor, name = tempfile.mkstemp(**place)
    os.close(descriptor)
    return name


def _lock(path: Path, *, wait: bool) -> int | None:
    """A descriptor that holds `path` for this process; None where another has it, or nothing can be locked."""
    if fcntl is None:
        return None
    descriptor = None
    try:
        descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        if descriptor is not None:
            os.close(descriptor)
        return None
    return descriptor


def _is_free(path: Path) -> bool:
    """Whether no living process holds this; where files cannot be locked, one in use cannot be removed either."""
    held = _lock(path, wait=False)
    if held is not None:
        os.close(held)
    return held is not None or fcntl is None


def _remove(path: Path) -> bool:
    try:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    except OSError:
        return False
    return True


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
    sync(Path(target).parent)


def keep_copy(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Let `target`, in the same folder, be the file that `source` is now; at no moment is either of them missing.

    A second name where the file system has such, which takes no space; else a copy. `source` must be replaced as a
    whole later (see `atomic_write`), not written into.
    """
    beside = Path(target).with_name(f".{Path(target).name[:40]}.keptcopy{_MARK}")
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


def _usual_permissions(target: Path, new: int) -> int:
    """What is being filled is private; give back what a plain open would have given."""
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return new & ~mask


def sync(path: Path) -> None:
    """Let a file, or the names in a folder, survive a power cut, where the system can sync folders."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
