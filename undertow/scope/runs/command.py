"""Runs on the command line: the page during a training, and afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from undertow.errors import UndertowError
from undertow.scope.runs.page import write_page
from undertow.scope.runs.server import RunServer
from undertow.scope.runs.writer import RunWriter

Say = Callable[[str], None]


@contextmanager
def live_page(port: int | None, say: Say) -> Iterator[Callable[[RunWriter], None]]:
    """Within, the function it gives shows the run of a writer, until the block ends; why it failed is recorded."""
    writers: list[RunWriter] = []
    with ExitStack() as open_until_the_end:

        def show(writer: RunWriter) -> None:
            writers.append(writer)
            try:
                server = open_until_the_end.enter_context(RunServer([writer.folder], port))
            except UndertowError:
                writer.discard()
                raise
            say(f"training to look at: {server.url} (later: undertow scope {writer.folder})")

        try:
            yield show
        except BaseException as problem:
            for writer in writers:
                writer.broke_off(problem)
            raise


def show_runs(paths: Sequence[str], *, port: int | None, html: str | None, open_browser: bool, say: Say) -> None:
    """Serve the page about these runs until interrupted, or write it into a file. Raises FormatError for no runs."""
    if html:
        write_page(paths, html)
        say(f"written: {html}")
        return
    server = RunServer(paths, port)
    say(f"{server.url} (Ctrl-C ends it)")
    server.serve(open_browser=open_browser)
