"""A small team of threads that run compiled kernels side by side.

Work is cut into parts by its shape; a part gives the same bits whichever thread does it, so results depend
neither on the number of threads nor on timing. Kernel calls release the GIL, so plain Python threads do.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable

from undertow.errors import UndertowError

Task = Callable[[int, int, int], None]


class Team:
    """`size` threads: the caller and size - 1 helpers."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._busy = threading.Lock()
        self._todo: list[queue.SimpleQueue[tuple[Task, int, int] | None]] = []
        self._done: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        for number in range(1, size):
            todo: queue.SimpleQueue[tuple[Task, int, int] | None] = queue.SimpleQueue()
            self._todo.append(todo)
            threading.Thread(target=self._work, args=(number, todo), name=f"undertow-{number}", daemon=True).start()

    def _work(self, number: int, todo: queue.SimpleQueue[tuple[Task, int, int] | None]) -> None:
        while (job := todo.get()) is not None:
            task, low, high = job
            error: BaseException | None = None
            try:
                task(number, low, high)
            except BaseException as caught:
                error = caught
            self._done.put(error)

    def run(self, total: int, task: Task) -> None:
        """task(thread, low, high) over contiguous ranges that make up range(total), one per thread.

        Callers in several Python threads take turns.
        """
        if total <= 1 or self.size == 1:
            if total > 0:
                task(0, 0, total)
            return
        with self._busy:
            members = min(self.size, total)
            bounds = [total * k // members for k in range(members + 1)]
            for k in range(1, members):
                self._todo[k - 1].put((task, bounds[k], bounds[k + 1]))
            errors: list[BaseException] = []
            try:
                task(0, 0, bounds[1])
            except BaseException as caught:
                errors.append(caught)
            for _ in range(1, members):
                error = self._done.get()
                if error is not None:
                    errors.append(error)
        if errors:
            raise errors[0]

    def close(self) -> None:
        """Let the helpers end once they have nothing to do."""
        for todo in self._todo:
            todo.put(None)


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
    if not text.isdigit() or int(text) < 1:
        raise UndertowError(f"UNDERTOW_THREADS is {text!r}", remedy="set it to a number from 1 up")
    return int(text)


def set_threads(count: int | None) -> None:
    """Use `count` threads from now on, in the whole process; None: back to the default."""
    global _team, _wish
    if count is not None and count < 1:
        raise UndertowError(f"set_threads({count}): at least one thread is needed")
    with _lock:
        _wish = count
        if _team is not None and _team.size != get_threads():
            _team.close()
            _team = None


def team() -> Team:
    """The team of the size in force."""
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
    _team = None
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
