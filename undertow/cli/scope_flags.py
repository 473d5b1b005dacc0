"""The flags of trainings that can be looked at in the browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from undertow.cli.messages import say
from undertow.cli.words import Flag, UsageError, Words

if TYPE_CHECKING:
    from undertow.caffe.solver import Solver
    from undertow.scope.runs.caffe import SolverRecorder
    from undertow.scope.runs.writer import RunWriter

Show = Callable[["RunWriter"], None]
Watch = Callable[["Solver"], object]

SCOPE = (
    Flag("scope", "switch", "record loss, rate, measures and every layer's statistics, and show them in the browser"),
    Flag("scope_every", "whole", "with -scope: look at the layers every N iterations (20 to 400 times in a run)", "N",
         least=1),
    Flag("scope_folder", "text", "with -scope: where the run is recorded (NAME_run beside the weights)", "FOLDER"),
    Flag("scope_port", "whole", "with -scope: port of the page on 127.0.0.1; 0 for any (8710, or any)", "N", least=0,
         most=65535),
)  # fmt: skip


@contextmanager
def scope_page(words: Words) -> Iterator[Show | None]:
    """What shows a recorded run as long as the block lasts; None without -scope."""
    if not words["scope"]:
        idle = [flag.name for flag in words.given if flag.name.startswith("scope_")]
        if idle:
            raise UsageError(f"-{idle[0]} is for -scope, which is not given", remedy=f"-scope -{idle[0]} ...")
        yield None
        return
    from undertow.scope.runs.command import live_page

    with live_page(words["scope_port"], say) as show:
        yield show


@contextmanager
def recorded(words: Words, watch: Watch) -> Iterator[Watch]:
    """With -scope, `watch` and besides the recording of a solver's run; else `watch`."""
    with scope_page(words) as show:
        if show is None:
            yield watch
            return
        from undertow.scope.runs.caffe import SolverRecorder

        recorders: list[SolverRecorder] = []

        def both(solver: Solver) -> None:
            watch(solver)
            recorders.append(SolverRecorder(solver, words["scope_folder"], words["scope_every"], show))

        yield both
        for recorder in recorders:
            recorder.ended()
