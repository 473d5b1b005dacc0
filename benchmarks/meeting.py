"""How long two threads take to meet: how near their processors are, which changes where a machine is a virtual one."""

from __future__ import annotations

import statistics
import time

import undertow as ut
from undertow.kernels.cpu.scripts import Script
from undertow.kernels.cpu.threads import available, team

_MEETINGS = 2000


def meeting(times: int = 7) -> float | None:
    """Seconds, the median of `times` runs; None on one processor. Leaves the number of threads at its default.

    To meet, both add to one number and read it, so its cache line goes back and forth between them.
    """
    if available() < 2:
        return None
    ut.set_threads(2)
    try:
        script = Script(_meet_often)
        return statistics.median(_seconds(script) for _ in range(times))
    finally:
        ut.set_threads(None)


def _meet_often() -> None:
    for _ in range(_MEETINGS):
        team().run(2, lambda thread, low, high: None)


def _seconds(script: Script) -> float:
    script.play()  # wakes the other thread
    start = time.perf_counter()
    script.play()
    return (time.perf_counter() - start) / _MEETINGS
