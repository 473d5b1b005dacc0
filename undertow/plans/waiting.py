"""Kernel calls of a replay that wait until somebody needs what they compute, and then are made in one go.

What kernels read and write drives Python's own data out of the processor's caches: the Python code of many units costs
least when it runs before all of their kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from undertow.kernels.cpu.scripts import Script, play_all


class _Entry(NamedTuple):
    script: Script
    again: Callable[[], Script]


class Waiting:
    """Scripts in the order in which they are to be played, and what is to be done in Python behind them."""

    def __init__(self) -> None:
        self._entries: list[_Entry] = []
        self._after: list[Callable[[], None]] = []

    def add(self, script: Script, again: Callable[[], Script]) -> None:
        """again: notes it anew, for the case that it can no longer be played."""
        self._entries.append(_Entry(script, again))

    def after(self, task: Callable[[], None]) -> None:
        """Let something be done once what waits now has been computed."""
        self._after.append(task)

    def finish(self) -> None:
        """Do all of it."""
        entries, self._entries = self._entries, []
        tasks, self._after = self._after, []
        if entries and not play_all([entry.script for entry in entries]):
            for script, again in entries:
                while not script.play():
                    script = again()
        for task in tasks:
            task()

    def clear(self) -> None:
        """Forget it: the replay has failed."""
        self._entries.clear()
        self._after.clear()
