"""The loop of the fuzz tests, with its limits of memory and time.

Input number n of a target follows from (seed, target, n) alone, so that a finding can be repeated by itself.
"""

from __future__ import annotations

import random
import resource
import signal
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from undertow.errors import UndertowError, UndertowWarning

SECONDS = 5.0  # for one input; usual are milliseconds
MEMORY = 512 * 2**20  # beyond what the process has when it is ready


class TooSlow(BaseException):
    """An input took longer than `SECONDS`; no reader may catch this."""


@dataclass(frozen=True)
class Target:
    """One kind of input. prepare(random, folder): makes it and returns what reads it. weight: its share of inputs."""

    name: str
    prepare: Callable[[random.Random, Path], Callable[[], object]]
    weight: int = 1


@dataclass
class Finding:
    """An input that ended in something else than a result or an error of the project."""

    target: str
    number: int
    problem: str


@dataclass
class Report:
    """How many inputs of each target gave a result or an error, and the findings."""

    results: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    slowest: tuple[float, str] = (0.0, "")

    @property
    def count(self) -> int:
        return sum(self.results.values()) + sum(self.errors.values()) + len(self.findings)

    def lines(self) -> list[str]:
        """What the log of a run says."""
        names = sorted({*self.results, *self.errors})
        counts = [f"{name}: {self.results[name]} results, {self.errors[name]} errors" for name in names]
        found = [f"FOUND {one.target} {one.number}: {one.problem}" for one in self.findings]
        return [*counts, f"slowest: {self.slowest[0]:.2f} s, {self.slowest[1]}", f"{self.count} inputs", *found]


def fuzz(
    targets: Sequence[Target],
    count: int,
    seed: int,
    folder: Path,
    *,
    first: int = 0,
    most: int = 20,
    before: Callable[[str, int], None] = lambda target, number: None,
) -> Report:
    """Feed `count` inputs, from number `first` on, to the targets; end early after `most` findings.

    before: is told each input, so that something is known when the process dies of it.
    """
    report = Report()
    turns = [target for target in targets for _ in range(target.weight)]
    _limit_memory()
    signal.signal(signal.SIGALRM, _too_slow)
    for number in range(first, first + count):
        target = turns[number % len(turns)]
        before(target.name, number)
        _feed(target, number, seed, folder, report)
        if len(report.findings) >= most:
            break
    return report


def _feed(target: Target, number: int, seed: int, folder: Path, report: Report) -> None:
    use = target.prepare(random.Random(f"{seed}/{target.name}/{number}"), folder)
    started = time.perf_counter()
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", UndertowWarning)
            use()
        signal.setitimer(signal.ITIMER_REAL, 0)
        report.results[target.name] += 1
    except UndertowError as problem:
        signal.setitimer(signal.ITIMER_REAL, 0)
        report.errors[target.name] += 1
        if not str(problem):
            report.findings.append(Finding(target.name, number, "an error that says nothing"))
    except BaseException as problem:
        signal.setitimer(signal.ITIMER_REAL, 0)
        if isinstance(problem, KeyboardInterrupt):
            raise
        where = traceback.extract_tb(problem.__traceback__)
        places = " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(where[-6:]))
        report.findings.append(Finding(target.name, number, f"{type(problem).__name__}: {problem} ({places})"))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    taken = time.perf_counter() - started
    if taken > report.slowest[0]:
        report.slowest = (taken, f"{target.name} {number}")


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, hard))


def _too_slow(number: int, frame: FrameType | None) -> None:
    raise TooSlow(f"more than {SECONDS:g} seconds")
