"""A small team of threads that run compiled kernels side by side.

Work is cut into parts by its shape; a part gives the same bits whichever thread does it, so results depend
neither on the number of threads nor on timing. Kernel calls release the GIL, so plain Python threads do.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from undertow.errors import UndertowError
from undertow.kernels.cpu.jobs import QUIT, Jobs, Mailbox, here, native, recording

Task = Callable[[int, int, int], None]

_HELPER_WAITS = 20000  # rounds, about half a millisecond: longer than the Python code between two operations takes


class Team:
    """`size` threads: the caller and size - 1 helpers. Raises UndertowError where the system allows fewer."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.busy = threading.Lock()
        self._own = Jobs()
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
            members = min(self.size, total)
            bounds = [total * k // members for k in range(members + 1)]
            given: list[Mailbox] = []
            try:
                for number, box in enumerate(self.boxes[: members - 1], 1):
                    with recording(box.jobs):
                        task(number, bounds[number], bounds[number + 1])
                    given.append(box)
                    native()["post"](box.address, box.jobs.address, box.jobs.count)
                with recording(self._own):
                    task(0, 0, bounds[1])
                native()["rows"](self._own.address, self._own.count)
            finally:  # whatever happens, nobody may still write to memory that the caller gives away
                for box in given:
                    native()["finish"](box.address)

    def close(self) -> None:
        """Let the helpers end once they have nothing to do."""
        with self.busy:
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
