"""`undertow caffe train|test|time|device_query`: the words and flags of Caffe's program `caffe`.

Its log lines go to stderr, as there. On a terminal a line below them shows how far a training is.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from undertow.cli.interrupt import without_reader
from undertow.cli.messages import say
from undertow.cli.scope_flags import SCOPE, recorded
from undertow.cli.words import Command, Flag, UsageError, Words
from undertow.core.modes import precision
from undertow.streams import READER_GONE

if TYPE_CHECKING:
    from undertow.caffe.solver import Solver

_EFFECTS = ("stop", "snapshot", "none")
_NO_GPU = "there is no GPU here: it is computed on the CPU"
_COMMON = (
    Flag("gpu", "text", "devices; accepted, there are none", "0", answer=_NO_GPU),
    Flag("level", "whole", "the net's level (0)", "N", 0),
    Flag("stage", "text", "the net's stages, separated by commas", "NAMES", ""),
    Flag("dialect", "text", "exact: true derivatives; caffe: the original's", "NAME", "exact",
         choices=("exact", "caffe")),
    Flag("python_layers", "switch", "import and run the Python layers that the prototxt names"),
    Flag("fork", "text", "forks whose fields the files have, such as segnet,nvidia (ssd)", "NAMES", "ssd"),
    Flag("threads", "whole", "threads that compute (all processors)", "N", least=1),
    Flag("precision", "text", "which kernels: fast, precise or reference", "NAME", "fast",
         choices=("fast", "precise", "reference")),
    Flag("minloglevel", "whole", "lines to show: 0 all, 1 warnings, 2 errors (0)", "N", least=0),
    Flag("logtostderr", "switch", "accepted: it is always so"),
    Flag("alsologtostderr", "switch", "accepted: it is always so"),
    Flag("log_dir", "text", "write the log into a file of this folder too; caffe.INFO leads to it", "FOLDER", ""),
)  # fmt: skip
_MODEL = Flag("model", "text", "the net's prototxt", "FILE", "")
_ITERATIONS = Flag("iterations", "whole", "how many passes (50)", "N", 50, least=1)
_PHASE = Flag("phase", "text", "TRAIN or TEST (TRAIN)", "NAME", "TRAIN", choices=("TRAIN", "TEST"))
_WEIGHTS = Flag("weights", "text", "caffemodels to begin with, separated by commas", "FILES", "")


def train(words: Words) -> int:
    """caffe train --solver=FILE [--snapshot=FILE | --weights=FILES]"""
    from undertow.caffe.brew import signal_effects, train

    _needed(words, "solver", "the solver's prototxt")
    reader = _Reader()
    with (
        without_reader(reader.left),
        _running(words),
        ExitStack() as stack,
        _live_line() as line,
        recorded(words, reader.watched(_with_csv(words, line, stack))) as watch,
    ):
        stopped_by = train(
            words["solver"],
            snapshot=words["snapshot"] or None,
            weights=words["weights"],
            level=words["level"],
            stages=_stages(words),
            effects=signal_effects(words["sigint_effect"], words["sighup_effect"]),
            options=_options(words),
            watch=watch,
            keep_blobs=words["scope"],
        )
    # A stop that was asked for is a good end, as in Caffe; SIGTERM is the system's wish.
    if reader.gone:
        return READER_GONE
    return 128 + stopped_by if stopped_by == signal.SIGTERM else 0


def test(words: Words) -> int:
    """caffe test --model=FILE --weights=FILES"""
    from undertow.caffe.brew import score_net

    _needed(words, "model", "the net's prototxt")
    _needed(words, "weights", "a caffemodel")
    with _running(words):
        score_net(
            words["model"],
            words["weights"],
            iterations=words["iterations"],
            level=words["level"],
            stages=_stages(words),
            options=_options(words),
        )
    return 0


def time(words: Words) -> int:
    """caffe time --model=FILE"""
    from undertow.caffe.brew import time_net

    _needed(words, "model", "the net's prototxt")
    with _running(words):
        time_net(
            words["model"],
            phase=words["phase"],
            iterations=words["iterations"],
            level=words["level"],
            stages=_stages(words),
            options=_options(words),
        )
    return 0


def device_query(words: Words) -> int:
    """caffe device_query"""
    say(f"{_NO_GPU}; {os.cpu_count()} processors")
    return 0


BREW = (
    Command(
        "caffe train",
        (),
        (
            Flag("solver", "text", "the solver's prototxt", "FILE", ""),
            Flag("snapshot", "text", "a solverstate to go on from", "FILE", ""),
            _WEIGHTS,
            Flag("csv", "text", "write NAME.train and NAME.test while it runs: columns as parse_log.py's", "NAME", ""),
            Flag("sigint_effect", "text", "what Ctrl-C does: stop, snapshot or none (stop)", "NAME", "stop",
                 choices=_EFFECTS),
            Flag("sighup_effect", "text", "what SIGHUP does (snapshot)", "NAME", "snapshot", choices=_EFFECTS),
            *SCOPE,
            *_COMMON,
        ),
        "train or finetune a net",
        train,
    ),
    Command("caffe test", (), (_MODEL, _WEIGHTS, _ITERATIONS, *_COMMON), "score a net in phase TEST", test),
    Command(
        "caffe time",
        (),
        (_MODEL, _ITERATIONS, _PHASE, *_COMMON),
        "time every layer, forward and backward",
        time,
    ),
    Command("caffe device_query", (), (_COMMON[0],), "say what there is to compute on", device_query),
)  # fmt: skip


class _Reader:
    """Whoever reads the log; a training is asked to stop, with its snapshot, when they are gone."""

    def __init__(self) -> None:
        self.gone = self._told = False

    def left(self) -> None:
        self.gone = True

    def watched(self, watch: Callable[[Solver], object]) -> Callable[[Solver], object]:
        """The watcher, after which the solver is asked to stop once nobody reads its log."""

        def both(solver: Solver) -> None:
            usual = solver.request

            def request() -> str:
                if self.gone and not self._told:
                    self._told = True
                    return "stop"
                return usual()

            solver.request = request
            watch(solver)

        return both


def _with_csv(words: Words, watch: Callable[[Solver], object], stack: ExitStack) -> Callable[[Solver], object]:
    """The watcher, and CSV files beside it where they are asked for."""
    if not words["csv"]:
        return watch
    from undertow.caffe.csv_log import csv_log

    def both(solver: Solver) -> None:
        watch(solver)
        stack.enter_context(csv_log(solver, words["csv"], append=bool(words["snapshot"])))

    return both


def _needed(words: Words, flag: str, what: str) -> None:
    if not words[flag]:
        raise UsageError(f"--{flag} is missing", remedy=f"--{flag}=FILE, {what}")


def _stages(words: Words) -> tuple[str, ...]:
    return tuple(name.strip() for name in words["stage"].split(",") if name.strip())


def _options(words: Words) -> dict[str, Any]:
    from undertow.caffe.layers_python import import_layer
    from undertow.caffe.proto.chosen import split_forks

    if words["python_layers"] and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    python = import_layer if words["python_layers"] else None
    return {"dialect": words["dialect"], "python": python, "fork": split_forks(words["fork"])}


@contextmanager
def _running(words: Words) -> Iterator[None]:
    """Log lines on stderr; threads and precision as the flags say."""
    from undertow.caffe import glog

    if words["threads"]:
        from undertow.kernels.select import set_threads

        set_threads(words["threads"])
    glog.start(words["minloglevel"])
    try:
        log_file = glog.written_into(words["log_dir"]) if words["log_dir"] else nullcontext()
        with log_file, precision(words["precision"]):
            yield
    finally:
        glog.stop()


@contextmanager
def _live_line() -> Iterator[Callable[[Solver], object]]:
    """On a terminal a line with iteration, loss, rate and the time left, below the log; elsewhere nothing."""
    if not sys.stderr.isatty():
        yield lambda solver: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from undertow.caffe.glog import shown_by

    console = Console(stderr=True)
    progress = Progress(
        TextColumn("iteration"), MofNCompleteColumn(), BarColumn(bar_width=None), TextColumn("{task.fields[numbers]}"),
        TimeRemainingColumn(), console=console, transient=True, redirect_stderr=False,
    )  # fmt: skip

    def watch(solver: Solver) -> None:
        task = progress.add_task("", total=int(solver.param.max_iter), numbers="")

        def show() -> None:
            progress.update(task, completed=solver.iter, numbers=f"loss {solver.loss.value:.4g}  rate {solver.lr:.3g}")

        solver.after_iteration.append(show)

    def above(line: str) -> None:
        console.print(line, markup=False, highlight=False, soft_wrap=True)

    with shown_by(above), progress:
        yield watch
