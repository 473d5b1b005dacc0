"""The command `undertow`.

Exit status: 0 when all went well, 2 for anything wrong with what was given, 130 after Ctrl-C, 143 after SIGTERM, 141
when whoever read the output is gone (`| head`).
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence

from undertow.cli.messages import fail, say, shown_warnings
from undertow.errors import UndertowError
from undertow.starting import INTERRUPTED, begun
from undertow.streams import READER_GONE, let_go_of_lost_streams


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (sys.argv's unless given); returns the exit status."""
    status = _run(arguments)
    return READER_GONE if let_go_of_lost_streams() and status == 0 else status


def _run(arguments: Sequence[str] | None) -> int:
    _take_any_name()
    try:
        begun()
        # Within the try: Ctrl-C may come while the commands are being imported.
        from undertow.cli.commands import run

        with shown_warnings():
            return run(list(sys.argv[1:] if arguments is None else arguments))
    except UndertowError as problem:
        fail(str(problem))
    except KeyboardInterrupt:
        say("interrupted")
        return INTERRUPTED
    except MemoryError as problem:
        fail(f"not enough memory: {problem}. To mend it: a smaller batch or smaller pictures, or more subdivisions")
    except BrokenPipeError:
        return READER_GONE
    except OSError as problem:
        what = "cannot be used, " if problem.filename else ""
        fail(
            f"{problem.filename or 'the system'}: {what}{problem.strerror or problem}. "
            "To mend it: check the path, its permissions and the space on the disk"
        )
    return 2


def _take_any_name() -> None:
    """Names of classes and files that the terminal's encoding lacks are shown escaped and read as they are."""
    for stream, errors in ((sys.stdout, "backslashreplace"), (sys.stdin, "surrogateescape")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=errors)
