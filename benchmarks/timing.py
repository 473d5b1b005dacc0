"""Interleaved timing: every contender once per round, medians over rounds, so that a busy machine hits all alike."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

TURN = 0.1
_PAUSE = 0.02


@dataclass(frozen=True)
class Timed:
    """seconds: of all rounds. spread: of the middle half, as a share of the median: how noisy it was."""

    name: str
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        low, high = np.percentile(self.seconds, [25, 75])
        return float(high - low) / self.median


@dataclass(frozen=True)
class Timing:
    """How to time: so many rounds, by this clock; after `budget` seconds no further round beyond the third begins.

    clock: `time.perf_counter`; on a machine shared with others `time.process_time`, with one thread on both sides.
    """

    rounds: int
    clock: Callable[[], float] = time.perf_counter
    budget: float = float("inf")


def interleaved(contenders: dict[str, Callable[[], object]], timing: Timing, warmup: int = 2) -> dict[str, Timed]:
    """Let every contender have its turn once per round; seconds are those of one run.

    A turn is one run, or of short ones so many in a row that they take TURN seconds, as in a real training loop. Before
    each is a pause: threads of the contender before may still wait for work (OpenMP's of the GNU compiler spin for
    8 ms) and would take a processor away.
    """
    turns = dict.fromkeys(contenders, 1)
    for _ in range(warmup):
        for name, run in contenders.items():
            time.sleep(_PAUSE)
            start = time.perf_counter()
            for _ in range(turns[name]):
                run()
            seconds_each = (time.perf_counter() - start) / turns[name]
            turns[name] = max(turns[name], min(50, int(TURN / seconds_each)))
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    begin = time.monotonic()
    for done in range(timing.rounds):
        if done >= 3 and time.monotonic() - begin > timing.budget:
            break
        for name, run in contenders.items():
            time.sleep(_PAUSE)
            start = timing.clock()
            for _ in range(turns[name]):
                run()
            seconds[name].append((timing.clock() - start) / turns[name])
    return {name: Timed(name, tuple(values)) for name, values in seconds.items()}


def report(title: str, timed: dict[str, Timed], ours: str) -> list[str]:
    """Lines of a table: milliseconds, spread, and each peer's time over ours."""
    lines = [title, f"  {'':28} {'median':>10} {'spread':>8} {'/ ours':>8}"]
    for name, result in timed.items():
        ratio = result.median / timed[ours].median
        lines.append(f"  {name:28} {result.median * 1000:8.1f}ms {result.spread:8.0%} {ratio:8.2f}")
    best = min((t.median for name, t in timed.items() if name != ours), default=float("nan"))
    lines.append(f"  best peer / ours: {best / timed[ours].median:.2f}")
    return lines


def machine() -> str:
    """The machine in a line."""
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as info:
            model = next((line.split(":", 1)[1].strip() for line in info if line.startswith("model name")), model)
    except OSError:
        pass
    load = ", ".join(f"{x:.1f}" for x in os.getloadavg()) if hasattr(os, "getloadavg") else "unknown"
    return f"{model}, {os.cpu_count()} processors, load {load}, Python {platform.python_version()}"
