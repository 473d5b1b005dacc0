"""Interleaved timing: every contender once per round, medians over rounds, so that a busy machine hits all alike."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


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
    """How to time: so many rounds, by this clock."""

    rounds: int
    clock: Callable[[], float]


def interleaved(
    contenders: dict[str, Callable[[], object]], rounds: int, clock: Callable[[], float], warmup: int = 2
) -> dict[str, Timed]:
    """Run every contender once per round, in turns.

    clock: `time.perf_counter`; on a machine shared with others `time.process_time`, with one thread on both sides.
    """
    for _ in range(warmup):
        for run in contenders.values():
            run()
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, run in contenders.items():
            start = clock()
            run()
            seconds[name].append(clock() - start)
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
