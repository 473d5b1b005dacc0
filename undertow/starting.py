"""Ctrl-C while the command `undertow` is still being imported: one line and the usual status, no traceback.

Imported before all else, so it may import nothing large itself. Programs that import undertow are left alone.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

INTERRUPTED = 130


def is_the_command() -> bool:
    """Whether this process is `undertow` or `python -m undertow`."""
    first = sys.argv[0] if sys.argv else ""
    if first == "-m":  # Python is looking for the module
        words = sys.orig_argv
        return words[words.index("-m") + 1 :][:1] == ["undertow"] if "-m" in words else "-mundertow" in words
    return os.path.basename(first).lower() in ("undertow", "undertow.exe", "undertow-script.py")


def _end(number: int, frame: FrameType | None) -> None:
    os.write(2, b"interrupted\n")
    os._exit(INTERRUPTED)  # nothing has been done yet that would have to be tidied up


def guard() -> None:
    """Answer Ctrl-C by ending at once, until `begun`; where it is ignored it stays ignored."""
    if is_the_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def begun() -> None:
    """From here on Ctrl-C is a KeyboardInterrupt again, which somebody catches."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


guard()
