"""Kernel calls of a whole team of threads, noted once and made again and again without Python in between.

Between two stages of a script the threads wait for each other in native code, about a microsecond. What it saves is the
Python code that works out the calls, which the data of the kernels drive out of the processor's caches each time.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from undertow.kernels.cpu.jobs import Jobs, Row, Table, here, native
from undertow.kernels.cpu.raw.tensor import scratch
from undertow.kernels.cpu.threads import Task, begin, team


class Script:
    """The kernel calls that `note` makes, now noted instead of being made; `play` makes them.

    note: Python code whose only effect is to call kernels, with addresses that stay valid for as long as the script is
    used, or that it takes from the calling thread's scratch memory. It may be called several times.
    """

    def __init__(self, note: Callable[[], None]) -> None:
        begin()
        self._team = team()
        self._version = -1
        while self._version != scratch().version:  # noting may make the scratch memory grow, and then it moves
            self._version = scratch().version
            self._note(note)
        self._drop_last_meeting()
        self._table.fill(self._lists)

    def play(self) -> bool:
        """Make the calls; returns when all are done. Callers in several Python threads take turns.

        False, and nothing is done, where the calling thread has another team or scratch memory than at the noting.
        """
        begin()
        if self._team is not team() or self._version != scratch().version:
            return False
        with self._team.busy:
            if self._team.closed:  # just now, by another thread
                return False
            self._table.play()
        return True

    def _note(self, note: Callable[[], None]) -> None:
        self._table = Table(self._team.boxes)
        self._lists = [Jobs(1 << 10) for _ in range(self._team.size)]
        self._held: list[Any] = []
        self._meetings = 0
        self._met_at = 0
        here.script, here.jobs = self, self._lists[0]
        try:
            note()
        finally:
            here.script, here.jobs = None, None

    def hold(self, thing: Any) -> None:
        """Called while the script is noted: a kernel reads what this owns, so it must live as long as the script."""
        self._held.append(thing)

    def stage(self, total: int, task: Task) -> None:
        """Called in the place of `Team.run` while the script is noted."""
        if total <= 1 or self._team.size == 1:
            if total > 0:
                task(0, 0, total)
            return
        if self._lists[0].count > self._met_at:  # the caller alone has done something in between
            self._meet()
        for number, low, high in self._team.shares(total):
            here.jobs = self._lists[number]
            task(number, low, high)
        here.jobs = self._lists[0]
        self._meet()

    def _meet(self) -> None:
        self._meetings += 1
        row = _meeting()
        for jobs in self._lists:
            jobs.add(row, (self._table.counter.ctypes.data, self._meetings * self._team.size))
        self._met_at = self._lists[0].count

    def _drop_last_meeting(self) -> None:
        """Behind the last stage `play` waits."""
        if self._met_at and self._met_at == self._lists[0].count:
            for jobs in self._lists:
                jobs.count -= 1


def play_all(scripts: Sequence[Script]) -> bool:
    """Play one after the other without Python in between; False, and nothing is done, where one of them cannot."""
    begin()
    ours, version = team(), scratch().version
    for script in scripts:
        if script._team is not ours or script._version != version:
            return False
    addresses = np.array([script._table.address for script in scripts], np.int64)
    with ours.busy:
        if ours.closed:
            return False
        native()["play_all"](addresses.ctypes.data, len(scripts))
    return True


@cache
def _meeting() -> Row:
    return Row(int(ctypes.cast(native()["meet"], ctypes.c_void_p).value or 0), "ii")
