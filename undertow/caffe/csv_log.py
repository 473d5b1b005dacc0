"""A training's numbers as CSV files, with the columns that Caffe's parse_log.py makes of a log, while it runs."""

from __future__ import annotations

import csv
import math
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

from undertow.caffe.solver import Solver
from undertow.caffe.solver_report import output_scores
from undertow.errors import UndertowError
from undertow.files import atomic_write

Score = tuple[str, float, float]


@contextmanager
def csv_log(solver: Solver, prefix: str, *, append: bool = False) -> Iterator[None]:
    """Within, write PREFIX.train at every display and PREFIX.test (PREFIX.test1, ... for more test nets) at every test.

    Columns: NumIters, Seconds, LearningRate, then the net's outputs. append: go on with files that are there, whose
    rows from the first new one's iteration on are dropped. Raises UndertowError where they cannot be written.
    """
    started, files = time.perf_counter(), _Files(prefix, append)
    rates = [solver.lr]

    def iterated() -> None:
        iteration, display = solver.iter - 1, int(solver.param.display)
        if display > 0 and iteration % display == 0:
            files.write("train", iteration, time.perf_counter() - started, rates[0], output_scores(solver.net))
        rates[0] = solver.lr

    def tested(index: int, scores: Sequence[Score]) -> None:
        name = f"test{index or ''}"
        files.write(name, solver.iter, time.perf_counter() - started, solver.lr, scores)

    solver.after_iteration.append(iterated)
    solver.after_test.append(tested)
    try:
        yield
    finally:
        solver.after_iteration.remove(iterated)
        solver.after_test.remove(tested)
        files.close()


class _Files:
    def __init__(self, prefix: str, append: bool) -> None:
        self.prefix, self.append = prefix, append
        self._streams: dict[str, TextIO] = {}

    def write(self, name: str, iteration: int, seconds: float, rate: float, scores: Iterable[Score]) -> None:
        scores = list(scores)
        if name not in self._streams:
            path = f"{self.prefix}.{name}"
            new = not (self.append and os.path.exists(path))
            try:
                if not new:
                    _drop_from(path, iteration)
                self._streams[name] = open(path, "w" if new else "a", encoding="utf-8", newline="")  # noqa: SIM115
            except OSError as problem:
                raise UndertowError(
                    f"{path} cannot be written: {problem.strerror}", remedy="look at --csv"
                ) from problem
            if new:
                self._row(name, ["NumIters", "Seconds", "LearningRate", *columns(scores)])
        values = [f"{value:g}" for _, _, value in scores]
        self._row(name, [f"{iteration:.1f}", f"{seconds:.6f}", f"{rate:g}", *values])

    def _row(self, name: str, values: list[str]) -> None:
        csv.writer(self._streams[name], lineterminator="\n").writerow(values)
        self._streams[name].flush()

    def close(self) -> None:
        for stream in self._streams.values():
            stream.close()


def _drop_from(path: str, iteration: int) -> None:
    """Leave out the rows of this iteration and later ones: the training goes on from a snapshot before them."""
    with open(path, encoding="utf-8", newline="") as stream:
        head, *rows = stream.read().splitlines(keepends=True) or [""]
    with atomic_write(path, "w", encoding="utf-8", newline="") as target:
        target.writelines([head, *(row for row in rows if _number(row) < iteration)])


def _number(row: str) -> float:
    """The iteration of a row; one that was cut off counts as later than all."""
    try:
        return float(row.split(",", 1)[0]) if row.endswith("\n") else math.inf
    except ValueError:
        return math.inf


def columns(scores: Sequence[Score]) -> list[str]:
    """The names of outputs, with a number behind those that stand more than once."""
    names = [name for name, _, _ in scores]
    return [name if names.index(name) == i else f"{name}.{names[:i].count(name)}" for i, name in enumerate(names)]
