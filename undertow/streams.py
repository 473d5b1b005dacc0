"""The end of a program whose output nobody reads any more (`| head`): quiet, with the status that shells expect."""

from __future__ import annotations

import contextlib
import os
import select
import sys
from collections.abc import Callable

READER_GONE = 128 + 13  # SIGPIPE, which ends programs that take no care


def let_go_of_lost_streams() -> bool:
    """Whether there is output that nobody reads any more; Python would complain of it when it closes the stream."""
    lost = False
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            lost = True
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        except (AttributeError, OSError, ValueError):
            pass  # there is no such stream, or it is closed or full: nothing was lost to a reader
    return lost


def _has_lost_reader() -> bool:
    """Whether nobody reads stdout or stderr, where the system can tell; nothing may be left in them to fail again."""
    if not hasattr(select, "poll"):
        return False
    poll = select.poll()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # as above
            poll.register(stream.fileno(), 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def run_to_end(program: Callable[[], int | None]) -> int:
    """Run a program; its exit status, READER_GONE where whoever read its output is gone.

    A broken pipe of the program's own, and its other exceptions, are handed on.
    """
    try:
        status = program() or 0
    except BrokenPipeError:
        if not let_go_of_lost_streams() and not _has_lost_reader():
            raise
        return READER_GONE
    except SystemExit as end:
        if let_go_of_lost_streams() and end.code in (None, 0):
            return READER_GONE
        raise
    return READER_GONE if let_go_of_lost_streams() and status == 0 else status
