"""`undertow scope RUN [RUN]`: recorded trainings in the browser."""

from __future__ import annotations

import os

from undertow.cli.messages import say
from undertow.cli.words import Words

# What `undertow scope` takes besides, for networks, and a run has no use for.
_SHARED = ("html", "port", "no-open")


def are_runs(words: Words) -> bool:
    """Whether the words name recorded trainings, not a network."""
    from undertow.scope.runs.reader import is_run

    return bool(words["RUN"]) or os.path.isdir(words["NET"]) or is_run(words["NET"])


def show(words: Words) -> int:
    """Show one run, or two side by side."""
    from undertow.scope.runs.command import show_runs

    for flag in words.given:
        if flag.name not in _SHARED:
            say(f"-{flag.name}: is for networks, and without effect for a run")
    paths = [words["NET"], *filter(None, [words["RUN"]])]
    port = words["port"] if any(flag.name == "port" for flag in words.given) else None
    show_runs(paths, port=port, html=words["html"], open_browser=not words["no-open"], say=say)
    return 0
