"""Log lines as Caffe's logging library writes them, so that programs which read its logs go on working.

I0210 13:39:22.381027 25210 solver.cpp:218] Iteration 100 ...

The package itself only hands texts to the logger "undertow.caffe"; `start` shows them. The place in front of the
bracket is the one in Caffe's source that the line is known from.
"""

from __future__ import annotations

import logging
import os
import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TextIO

from undertow.errors import UndertowError

LOGGER = logging.getLogger("undertow.caffe")
_LEVELS = (logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)
_LETTERS = {logging.DEBUG: "I", logging.INFO: "I", logging.WARNING: "W", logging.ERROR: "E", logging.CRITICAL: "F"}


def log(text: str, place: str = "net.cpp:0", level: int = logging.INFO) -> None:
    """Say something, as if it came from this place of Caffe's source."""
    LOGGER.log(level, "%s", text, extra={"place": place})


class GlogFormatter(logging.Formatter):
    """Letter of the level, month and day, time, process, place, text."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created)
        place = getattr(record, "place", "net.cpp:0")
        letter = _LETTERS.get(record.levelno, "I")
        return f"{letter}{time:%m%d %H:%M:%S.%f} {record.process or 0:5d} {place}] {record.getMessage()}"


class _Handler(logging.StreamHandler[TextIO]):
    """Writes to the stream that is stderr at the time, which tests and notebooks exchange; or into `sink`."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self.setFormatter(GlogFormatter())
        self.sink: Callable[[str], object] | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if self.sink is not None:
            self.sink(self.format(record))
            return
        self.stream = sys.stderr
        super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Let it be known that nobody reads the log any more; logging would go on in silence."""
        if isinstance(sys.exc_info()[1], BrokenPipeError):
            raise
        super().handleError(record)


_handler = _Handler()


def start(level: int | None = None) -> None:
    """Show lines of this level and above on stderr: 0 all, 1 warnings, 2 errors, 3 nothing but the end.

    None takes it from the variable GLOG_minloglevel, as Caffe does, or shows all.
    """
    if level is None:
        given = os.environ.get("GLOG_minloglevel", "0")  # noqa: SIM112 its name in glog
        level = int(given) if given.isdigit() else 0
    LOGGER.setLevel(_LEVELS[min(max(level, 0), 3)])
    if _handler not in LOGGER.handlers:
        LOGGER.addHandler(_handler)
        LOGGER.propagate = False


@contextmanager
def shown_by(sink: Callable[[str], object]) -> Iterator[None]:
    """Within, finished lines go to this function instead of stderr."""
    before, _handler.sink = _handler.sink, sink
    try:
        yield
    finally:
        _handler.sink = before


@contextmanager
def written_into(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """Within, shown lines go into a file of this folder too, named and begun as glog does; `caffe.INFO` leads to it.

    Raises UndertowError where the folder cannot be written to.
    """
    now, machine = datetime.now(), platform.node() or "(unknown)"
    user = os.environ.get("USER") or "invalid-user"
    path = Path(folder) / f"caffe.{machine}.{user}.log.INFO.{now:%Y%m%d-%H%M%S}.{os.getpid()}"
    head = (
        f"Log file created at: {now:%Y/%m/%d %H:%M:%S}",
        f"Running on machine: {machine}",
        "Log line format: [IWEF]mmdd hh:mm:ss.uuuuuu threadid file:line] msg",
    )
    try:
        path.write_text("\n".join([*head, ""]), encoding="utf-8")
        link = path.with_name("caffe.INFO")
        link.unlink(missing_ok=True)
        link.symlink_to(path.name)
    except OSError as problem:
        raise UndertowError(
            f"no log can be written into {os.fspath(folder)}: {problem.strerror}",
            remedy="make the folder, or leave out --log_dir",
        ) from problem
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(GlogFormatter())
    LOGGER.addHandler(handler)
    try:
        yield path
    finally:
        LOGGER.removeHandler(handler)
        handler.close()


def stop() -> None:
    """Show nothing more."""
    LOGGER.removeHandler(_handler)
    LOGGER.propagate = True
    LOGGER.setLevel(logging.NOTSET)


def number(value: float) -> str:
    """A number as C++ streams print it: six significant digits."""
    return f"{float(value):g}"
