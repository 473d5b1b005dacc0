"""What the command line says besides results: one line each, on stderr."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator
from typing import TextIO

from undertow.errors import UndertowWarning


def say(text: str) -> None:
    """A line for people; results go to stdout."""
    print(text, file=sys.stderr, flush=True)


def put(data: bytes) -> None:
    """Bytes on stdout as they are, at once; decoded where it takes nothing but text."""
    stream = getattr(sys.stdout, "buffer", None)
    if stream is None:
        sys.stdout.write(data.decode("utf-8", "replace"))
        return
    sys.stdout.flush()
    stream.write(data)
    stream.flush()


def warn(text: str) -> None:
    say(f"warning: {text}")


def fail(text: str) -> None:
    say(f"error: {text}")


@contextlib.contextmanager
def shown_warnings() -> Iterator[None]:
    """Show each UndertowWarning as one line, once; others as Python does."""
    shown: set[str] = set()
    usual = warnings.showwarning

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        text = str(message)
        if not issubclass(category, UndertowWarning):
            usual(message, category, filename, lineno, file, line)
        elif text not in shown:
            shown.add(text)
            warn(text)

    with warnings.catch_warnings():
        warnings.simplefilter("always", UndertowWarning)
        # NumPy's about numbers on the way: what comes of them is looked at, and told in words of the user's files.
        warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"undertow\b")
        warnings.showwarning = show
        yield
