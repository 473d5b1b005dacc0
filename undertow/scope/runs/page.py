"""The page about runs, and the file that holds it with everything in it."""

from __future__ import annotations

import os
from collections.abc import Sequence

from undertow.files import atomic_write
from undertow.scope.assets import SHARED, Page
from undertow.scope.runs.reader import find_run, history_text

PAGE = Page(
    "Undertow: training",
    "runs/main",
    styles=("page/base.css", "vendor/uplot.css", "page/runs/runs.css"),
    folders={"runs": SHARED / "runs"},
)


def whole_page(paths: Sequence[str | os.PathLike[str]]) -> str:
    """The page about these runs as one file that needs no network. Raises FormatError for paths that are no runs."""
    return PAGE.whole({"runs": [history_text(find_run(path)).decode() for path in paths]})


def write_page(paths: Sequence[str | os.PathLike[str]], file: str | os.PathLike[str]) -> None:
    """Write `whole_page`."""
    with atomic_write(file, "w", encoding="utf-8", newline="\n") as stream:
        stream.write(whole_page(paths))
