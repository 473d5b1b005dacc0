"""The page about one or two runs, served on this machine while it is open.

Runs are read from their files as they grow, in the server's own threads: a training that writes one never waits for a
browser, and nothing is kept in memory for a page that is slow.

    /                       the page
    /run?number=N           the lines of a run, thinned out; the first line tells offset and thinning
    /events?number=N&from=B&file=F
                            server-sent events: every line that is added behind byte B of the file that /run told of
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path

from undertow.errors import UndertowError
from undertow.scope.runs.page import PAGE
from undertow.scope.runs.reader import LONGEST, find_run, history_text, identity, read_history
from undertow.scope.runs.records import FILE
from undertow.scope.server import Reply, Route, Server, Stream, routes_of

USUAL_PORT = 8710
# Open pages; each has a thread that waits for new lines.
MOST_PAGES = 24
# Seconds: between two looks at a file, between two signs of life, and at most for the last lines.
_LOOK_EVERY, _SIGN_OF_LIFE, _FAREWELL = 0.3, 10.0, 2.0


class RunServer:
    """Serves these runs until `close`; as a context manager, or with `start`.

    paths: see `find_run`. port: None for USUAL_PORT, or any that is free where that is taken; 0 for any.
    Raises FormatError for a path that is no run, UndertowError for a port that cannot be used.
    """

    def __init__(self, paths: Sequence[str | os.PathLike[str]], port: int | None = None) -> None:
        self.files = [find_run(path) for path in paths]
        for file in self.files:
            read_history(file)
        self._closing = threading.Event()
        self._pages = threading.BoundedSemaphore(MOST_PAGES)
        routes = {
            **routes_of(PAGE, {"live": len(self.files)}),
            "/run": self._run,
            "/events": self._events,
        }
        self._server = _server(routes, port)

    @property
    def url(self) -> str:
        """Where the page is."""
        return self._server.url

    def __enter__(self) -> RunServer:
        self._server.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        """Tell the open pages the last lines, and that nothing more will come; slow ones are not waited for."""
        self._closing.set()
        end = time.monotonic() + _FAREWELL
        for _ in range(MOST_PAGES):
            if not self._pages.acquire(timeout=max(0.0, end - time.monotonic())):
                break
        self._server.__exit__(None, None, None)

    def serve(self, *, open_browser: bool) -> None:
        """Serve until interrupted."""
        try:
            self._server.serve(open_browser=open_browser)
        finally:
            self._closing.set()

    def _file(self, query: Mapping[str, str]) -> Path:
        number = query.get("number", "")
        if number not in map(str, range(len(self.files))):
            raise UndertowError(f"there is no run '{number[:20]}' here")
        return self.files[int(number)]

    def _run(self, query: Mapping[str, str]) -> Reply:
        try:
            return Reply(history_text(self._file(query)), "text/plain; charset=utf-8")
        except OSError as problem:
            raise UndertowError(f"the run cannot be read: {problem.strerror or problem}") from problem

    def _events(self, query: Mapping[str, str]) -> Stream:
        file, start = self._file(query), query.get("from", "0")
        if file.name != FILE or not (start.isascii() and start.isdigit() and len(start) < 16):
            raise UndertowError("there is nothing to follow")
        return Stream(self._following(file, int(start), query.get("file", "")))

    def _following(self, file: Path, offset: int, known: str) -> Generator[bytes, None, None]:
        if not self._pages.acquire(blocking=False):
            yield b"event: full\ndata: {}\n\n"
            return
        try:
            yield from self._lines(file, offset, known)
        finally:
            self._pages.release()

    def _lines(self, file: Path, offset: int, known: str) -> Iterator[bytes]:
        """Lines as they come, until the server closes or the file becomes another one."""
        first = identity(file)
        yield b": begins\n\n"
        if first != known:
            yield b"event: restart\ndata: {}\n\n"
            return
        with open(file, "rb") as stream:
            stream.seek(offset)
            told, last_round = time.monotonic(), False
            while True:
                line = stream.readline(LONGEST)
                if line.endswith(b"\n"):
                    offset += len(line)
                    if line.strip():
                        yield b"id: %d\ndata: %s\n\n" % (offset, line.strip())
                    continue
                stream.seek(offset)
                if identity(file) != first:
                    yield b"event: restart\ndata: {}\n\n"
                    return
                if last_round:
                    yield b"event: closed\ndata: {}\n\n"
                    return
                # What was written before the end is sent, too.
                last_round = self._closing.wait(_LOOK_EVERY)
                if time.monotonic() - told > _SIGN_OF_LIFE:
                    told = time.monotonic()
                    yield b": here\n\n"


def _server(routes: Mapping[str, Route], port: int | None) -> Server:
    if port is not None:
        return Server(routes, port)
    try:
        return Server(routes, USUAL_PORT)
    except UndertowError:
        return Server(routes, 0)
