"""A small team of threads that run compiled kernels side by side.

Work is cut into parts by its shape; a part gives the same bits whichever thread does it, so results depend
neither on the number of threads nor on timing. Kernel calls release the GIL, so plain Python threads do.
"""

from __future__ import annotations

import operator
import os
import threading
from collections.abc import Callable

import numpy as np

from undertow.errors import UndertowError
from undertow.kernels.cpu.jobs import QUIT, Jobs, Mailbox, Table, here, native

Task = Callable[[int, int, int], None]

MOST = 1024  # threads; each takes memory and, by the system's rules, a place among those it allows
_HELPER_WAITS = 20000  # rounds, about half a millisecond: longer than the Python code between two operations takes


class Team:
    """`size` threads: the caller and size - 1 helpers. Raises UndertowError where the system allows fewer."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.busy = threading.Lock()
        self.closed = False
        self._lists = [Jobs(1 << 14) for _ in range(size)]
        self.boxes: list[Mailbox] = []
        for number in range(1, size):
            box = Mailbox()
            try:
                threading.Thread(target=_serve, args=(box,), name=f"undertow-{number}", daemon=True).start()
            except RuntimeError as problem:  # the system allows no more
                self.close()
                reason = f"{size} threads cannot be started, the system stops at {number}: {problem}"
                raise UndertowError(reason, remedy=f"ask for fewer; {available()} processors are there") from problem
            self.boxes.append(box)
        self._table = Table(self.boxes)

    def run(self, total: int, task: Task) -> None:
        """task(thread, low, high) over contiguous ranges that make up range(total), one per thread.

        A task does nothing but call kernels: it runs in the calling thread, which notes its kernel calls; then all
        threads make theirs. Callers in several Python threads take turns.
        """
        if here.script is not None:
            here.script.stage(total, task)
            return
        if total <= 1 or self.size == 1:
            if total > 0:
                task(0, 0, total)
            return
        with self.busy:
            if not self.closed:
                self._table.fill(self._noted(total, task))
                self._table.play()
                return
        for number, low, high in self.shares(total):
            task(number, low, high)

    def _noted(self, total: int, task: Task) -> list[Jobs]:
        """The lists of those that take part."""
        lists = self._lists[: min(self.size, total)]
        try:
            for number, low, high in self.shares(total):
                lists[number].clear()
                here.jobs = lists[number]
                task(number, low, high)
        finally:
            here.jobs = None
        return lists

    def shares(self, total: int) -> list[tuple[int, int, int]]:
        """What `task` is called with."""
        members = min(self.size, total)
        return [(k, total * k // members, total * (k + 1) // members) for k in range(members)]

    def close(self) -> None:
        """Let the helpers end once they have nothing to do. Who still has the team does all work alone."""
        with self.busy:
            self.closed = True
            for box in self.boxes:
                native()["tell"](box.address, QUIT)


def _serve(box: Mailbox) -> None:
    native()["serve"](box.address, _HELPER_WAITS)


_team: Team | None = None
_wish: int | None = None
_lock = threading.Lock()


def available() -> int:
    """Number of processors this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def get_threads() -> int:
    """The number of threads kernels use: `set_threads`, else UNDERTOW_THREADS, else all processors."""
    if _wish is not None:
        return _wish
    text = os.environ.get("UNDERTOW_THREADS", "")
    if not text:
        return available()
    if not text.isdecimal() or not 1 <= int(text) <= MOST:
        raise UndertowError(f"UNDERTOW_THREADS is {text!r}", remedy=f"set it to a whole number from 1 to {MOST}")
    return int(text)


def _checked(count: object) -> int:
    try:
        number = 0 if isinstance(count, (bool, np.bool_)) else operator.index(count)  # type: ignore[arg-type]
    except TypeError:
        number = 0
    if not 1 <= number <= MOST:
        remedy = f"give a whole number from 1 to {MOST}, or None for all {available()} processors"
        raise UndertowError(f"set_threads({count!r}): that is no number of threads", remedy=remedy)
    return number


def set_threads(count: int | None) -> None:
    """Use `count` threads from now on, in the whole process; None: back to the default."""
    global _team, _wish
    if count is not None:
        count = _checked(count)
    begin()
    with _lock:
        _wish = count
        if _team is not None and _team.size != get_threads():
            _team.close()
            _team = None


def team() -> Team:
    """The team that the calling thread's operation began with: it has taken memory for so many threads."""
    if here.team is None:
        here.team = _current()
    found: Team = here.team
    return found


def begin() -> None:
    """An operation of the calling thread begins: from now on `team` is the one of the size in force."""
    here.team = None


def _current() -> Team:
    global _team
    current = _team
    if current is None:
        with _lock:
            if _team is None:
                _team = Team(get_threads())
            current = _team
    return current


def _forget() -> None:
    """A forked child has none of its parent's threads."""
    global _team, _lock
    begin()
    _team = None
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
