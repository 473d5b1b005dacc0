"""Kernel calls of a whole team of threads, noted once and made again and again without Python in between.

Between two stages of a script the threads wait for each other in native code, about a microsecond. What it saves is the
Python code that works out the calls, which the data of the kernels drive out of the processor's caches each time.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from undertow.kernels.cpu.jobs import Jobs, Row, here, native
from undertow.kernels.cpu.raw.tensor import scratch
from undertow.kernels.cpu.threads import Task, team


class Script:
    """The kernel calls that `note` makes, now noted instead of being made; `play` makes them.

    note: Python code whose only effect is to call kernels, with addresses that stay valid for as long as the script is
    used, or that it takes from the calling thread's scratch memory.
    """

    def __init__(self, note: Callable[[], None]) -> None:
        self._team = team()
        self._version = -1
        while self._version != scratch().version:  # noting may make the scratch memory grow, and then it moves
            self._version = scratch().version
            self._note(note)
        self._table = self._make_table()

    def still_holds(self) -> bool:
        """Whether the calling thread may play it: team and scratch memory are those of the noting."""
        return self._team is team() and self._version == scratch().version

    def play(self) -> None:
        """Make the calls; returns when all are done. Callers in several Python threads take turns."""
        with self._team.busy:
            native()["play"](self._table.ctypes.data)

    def _note(self, note: Callable[[], None]) -> None:
        self._lists = [Jobs(1 << 10) for _ in range(self._team.size)]
        self._counter = np.zeros(1, np.int64)
        self._meetings = 0
        self._met_at = 0
        here.script, here.jobs = self, self._lists[0]
        try:
            note()
        finally:
            here.script, here.jobs = None, None

    def stage(self, total: int, task: Task) -> None:
        """Called in the place of `Team.run` while the script is noted."""
        if total <= 1 or self._team.size == 1:
            if total > 0:
                task(0, 0, total)
            return
        if self._lists[0].count > self._met_at:  # the caller alone has done something in between
            self._meet()
        members = min(self._team.size, total)
        for number, jobs in enumerate(self._lists[:members]):
            here.jobs = jobs
            task(number, total * number // members, total * (number + 1) // members)
        here.jobs = self._lists[0]
        self._meet()

    def _meet(self) -> None:
        self._meetings += 1
        row = _meeting()
        for jobs in self._lists:
            jobs.add(row, (self._counter.ctypes.data, self._meetings * self._team.size))
        self._met_at = self._lists[0].count

    def _make_table(self) -> np.ndarray:
        """The script as native code reads it. Behind the last stage nobody waits: `play` does."""
        if self._met_at and self._met_at == self._lists[0].count:
            for jobs in self._lists:
                jobs.count -= 1
        own = self._lists[0]
        helpers = [
            (box.address, jobs.address, jobs.count)
            for box, jobs in zip(self._team.boxes, self._lists[1:], strict=True)
            if jobs.count
        ]
        rows = [number for helper in helpers for number in helper]
        return np.array([self._counter.ctypes.data, len(helpers), own.address, own.count, *rows], np.int64)


_row: Row | None = None


def _meeting() -> Row:
    global _row
    if _row is None:
        import ctypes

        _row = Row(int(ctypes.cast(native()["meet"], ctypes.c_void_p).value or 0), "ii")
    return _row
