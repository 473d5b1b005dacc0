"""The folder that keeps compiled kernels between runs, and the one place that tells the user about it.

Kernels are compiled once per machine: the folder's name contains the versions of Numba and llvmlite, the
processor, the vector width and a hash of the kernels' source. Place: `UNDERTOW_CACHE`, or
`$XDG_CACHE_HOME/undertow`, or `~/.cache/undertow`. Where it cannot be written, or where the system knows no such
home folder, kernels are compiled in every run; one notice says so.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from undertow.files import atomic_write
from undertow.kernels.cpu.target import target

_MAGIC = b"undertow kernel 1\n"
_TRIAL, _TRIAL_BYTES = "trial", 1 << 16  # more than most kernels take


class Stored(NamedTuple):
    """A compiled kernel: its symbol in the object code, one letter (i, f) per argument, kernels it calls."""

    entry: str
    signature: str
    requires: tuple[str, ...]
    code: bytes


class Notice(NamedTuple):
    """kind: "compiling" (once per process, before the first compilation), "compiled" (after every kernel; name
    and seconds are set), or "unwritable" (once per process, in place of "compiling" where it is known by then). text:
    one line for people."""

    kind: str
    text: str
    kernel: str = ""
    seconds: float = 0.0


def _to_stderr(notice: Notice) -> None:
    if notice.kind != "compiled":
        sys.stderr.write(f"undertow: {notice.text}\n")


_hook: Callable[[Notice], None] = _to_stderr
_said: set[str] = set()
_lock = threading.Lock()


def on_notice(hook: Callable[[Notice], None] | None) -> Callable[[Notice], None]:
    """Send notices to `hook` (None: one line each to stderr, the default). Returns the hook in use before."""
    global _hook
    before, _hook = _hook, hook or _to_stderr
    return before


def tell(notice: Notice) -> None:
    """Pass a notice on; "compiling" and "unwritable" are passed on once per process, and only one where they clash."""
    with _lock:
        if notice.kind != "compiled":
            if notice.kind in _said or (notice.kind == "compiling" and "unwritable" in _said):
                return
            _said.add(notice.kind)
    _hook(notice)


@cache
def source_hash() -> str:
    """Hash of the kernels' source files and of this file's format."""
    digest = hashlib.sha256(_MAGIC)
    for path in sorted((Path(__file__).parent / "source").glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def root() -> Path:
    """The cache folder of Undertow; it need not exist. It begins with "~" where the system does not know that home."""
    chosen = os.environ.get("UNDERTOW_CACHE")
    if chosen:
        return Path(os.path.expanduser(chosen))
    base = os.environ.get("XDG_CACHE_HOME")
    if base and os.path.isabs(base):
        return Path(base) / "undertow"
    return Path(os.path.expanduser("~")) / ".cache" / "undertow"


@cache
def _key() -> str:
    here = target()
    features = hashlib.sha256(here.features.encode()).hexdigest()[:8]
    numbers = f"numba{version('numba')}-llvmlite{version('llvmlite')}"
    return f"{numbers}-{here.name}-{features}-{4 * here.lanes * 8}bit-{source_hash()}"


def folder() -> Path:
    """Where this machine's kernels lie. Raises OSError where that is in a home that the system does not know."""
    place = root()
    if str(place).startswith("~"):  # nothing of that name in the folder one happens to be in is meant
        raise FileNotFoundError(errno.ENOENT, "no such home folder is known")
    return place / "kernels" / _key()


def read(name: str) -> Stored | None:
    """The stored kernel, or None where there is none or the file is damaged."""
    try:
        data = (folder() / f"{name}.kernel").read_bytes()
    except OSError:
        return None
    head = len(_MAGIC) + 64
    if not data.startswith(_MAGIC) or data[len(_MAGIC) : head] != hashlib.sha256(data[head:]).hexdigest().encode():
        return None
    line, _, code = data[head:].partition(b"\n")
    fields = json.loads(line)
    return Stored(fields["entry"], fields["signature"], tuple(fields["requires"]), code)


def write(name: str, kernel: Stored) -> None:
    """Store a kernel; tells, once, when that is impossible."""
    fields = {
        "entry": kernel.entry,
        "signature": kernel.signature,
        "requires": list(kernel.requires),
    }
    body = json.dumps(fields).encode() + b"\n" + kernel.code
    _store(f"{name}.kernel", _MAGIC + hashlib.sha256(body).hexdigest().encode() + body)


@cache
def try_out() -> None:
    """Find out, and tell, whether kernels can be kept, before many are compiled in vain."""
    if _store(_TRIAL, bytes(_TRIAL_BYTES)):
        with suppress(OSError):
            (folder() / _TRIAL).unlink()


def _store(name: str, data: bytes) -> bool:
    try:
        place = folder()
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        with atomic_write(place / name) as file:
            file.write(data)
    except OSError as error:
        tell(Notice("unwritable", _unwritable(error)))
        return False
    return True


def _unwritable(error: OSError) -> str:
    """One line on what cannot be written, what that means, and what to do."""
    reason = error.strerror or type(error).__name__
    here = "make room there" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "make that a folder you may write to"
    other = "another folder" if os.environ.get("UNDERTOW_CACHE") else "a folder that can be written"
    return (
        f"compiling kernels for this processor, in every run: they cannot be kept in {root()} ({reason}). "
        f"To mend it: {here}, or set UNDERTOW_CACHE to {other}"
    )


def clear() -> None:
    """Remove the stored kernels of this machine and version."""
    with suppress(OSError):
        for path in folder().glob("*.kernel"):
            path.unlink()
