"""A small server for pages on this machine alone: 127.0.0.1, GET only, nothing but the routes it was given."""

from __future__ import annotations

import sys
import threading
import webbrowser
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from undertow.errors import UndertowError
from undertow.scope.assets import Page, json_text

ADDRESS = "127.0.0.1"
# Under another name a page of a stranger could reach this server through the reader's browser (DNS rebinding).
_NAMES = (ADDRESS, "localhost")


@dataclass(frozen=True)
class Reply:
    """An answer. kind: its media type."""

    body: bytes
    kind: str = "application/json"
    status: int = 200


@dataclass(frozen=True)
class Stream:
    """An answer that comes in pieces, as long as the reader stays. pieces:"""

    pieces: Generator[bytes, None, None]
    kind: str = "text/event-stream; charset=utf-8"


Route = Callable[[Mapping[str, str]], Reply | Stream]


def json_reply(data: Any, status: int = 200) -> Reply:
    """JSON as the page reads it; see `json_text`."""
    return Reply(json_text(data).encode(), status=status)


def routes_of(page: Page, data: Any = None) -> dict[str, Route]:
    """The page at / and the files it consists of."""
    text = page.served(data).encode()
    routes: dict[str, Route] = {"/": lambda query: Reply(text, "text/html; charset=utf-8")}
    for path, (content, kind) in page.files().items():
        routes[path] = _constant(Reply(content, f"{kind}; charset=utf-8"))
    return routes


def _constant(reply: Reply) -> Route:
    return lambda query: reply


class Server:
    """Hands out routes: path -> function of the query's fields. An UndertowError in one is answered with its text.

    port: 0 takes a free one; see `url`. As a context manager it serves in a thread.
    Raises UndertowError when the port is taken.
    """

    def __init__(self, routes: Mapping[str, Route], port: int = 0) -> None:
        handler = type("Handler", (_Handler,), {"routes": routes})
        try:
            self._server = _Quiet((ADDRESS, port), handler)
        except (OSError, OverflowError) as problem:
            remedy = "give another port, or none for any that is free"
            raise UndertowError(f"cannot serve on port {port}: {problem}", remedy=remedy) from None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://{ADDRESS}:{self._server.server_address[1]}/"

    def serve(self, *, open_browser: bool) -> None:
        """Serve until interrupted."""
        try:
            if open_browser:
                webbrowser.open(self.url)
            self._server.serve_forever()
        finally:
            self._server.server_close()

    def __enter__(self) -> Server:
        self._thread = threading.Thread(target=self._server.serve_forever, name="undertow-scope", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        if self._thread is not None:
            self._thread.join()


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader who leaves in the middle of an answer is nothing to tell about; anything else is."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    routes: Mapping[str, Route] = {}
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "undertow", ""

    def do_GET(self) -> None:
        host = self.headers.get("Host", "").rpartition(":")[0] or self.headers.get("Host", "")
        if host not in _NAMES:
            self._answer(json_reply({"error": f"this server answers to {ADDRESS} only"}, 403))
            return
        asked = urlsplit(self.path)
        route = self.routes.get(asked.path)
        if route is None:
            self._answer(json_reply({"error": "there is no such page"}, 404))
            return
        try:
            reply = route(dict(parse_qsl(asked.query)))
            if isinstance(reply, Stream):
                self._send(reply)
            else:
                self._answer(reply)
        except UndertowError as problem:
            self._answer(json_reply({"error": str(problem)}, 400))

    def _answer(self, reply: Reply) -> None:
        self.send_response(reply.status)
        for name, value in (
            ("Content-Type", reply.kind),
            ("Content-Length", str(len(reply.body))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(reply.body)

    def _send(self, stream: Stream) -> None:
        self.close_connection = True
        self.send_response(200)
        for name, value in (
            ("Content-Type", stream.kind),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            ("Connection", "close"),
        ):
            self.send_header(name, value)
        self.end_headers()
        with closing(stream.pieces) as pieces:
            for piece in pieces:
                self.wfile.write(piece)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged: the terminal belongs to whoever started the server."""
