"""Measures the rows, each in a process of its own with both sides in it, and writes the table."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.meeting import meeting
from benchmarks.rows import ROWS, Row, Settings
from benchmarks.timing import Timed, machine
from undertow.errors import UndertowError
from undertow.files import atomic_write

BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
PEERS = ("torch", "onnxruntime", "openvino", "opencv-python-headless", "opencv-python", "numpy", "numba")
LONGEST = 900  # seconds of one row


@dataclass(frozen=True)
class Result:
    """values: medians, in seconds or megabytes, by contender; spreads: see Timed. problem: why there are none.

    meetings: seconds that two threads took to meet before and after, see meeting.py.
    """

    key: str
    date: str
    values: Mapping[str, float]
    spreads: Mapping[str, float]
    rounds: int = 0
    problem: str = ""
    meetings: Sequence[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """Best peer / ours; for memory ours / best peer."""
        best = min(value for name, value in self.values.items() if name != "undertow")
        ours = self.values["undertow"]
        return ours / best if ROWS[self.key].unit == "MB" else best / ours


def measure_here(key: str, settings: Settings) -> Result:
    """Measure one row in this process."""
    before = meeting()
    timed: Mapping[str, Timed] = ROWS[key].run(settings)
    return Result(
        key,
        _now(),
        {name: each.median for name, each in timed.items()},
        {name: each.spread for name, each in timed.items()},
        len(next(iter(timed.values())).seconds),
        meetings=[seconds for seconds in (before, meeting()) if seconds is not None],
    )


def measure(keys: Iterable[str], settings: Settings, say: Callable[[str], None]) -> dict[str, Result]:
    """Measure rows one after the other; a row that cannot be or that fails has a `problem`. say: takes progress."""
    results = {}
    for key in keys:
        missing = ROWS[key].missing()
        start = time.monotonic()
        results[key] = _problem(key, f"skipped: {missing}") if missing else _in_a_process(key, settings)
        say(f"{line(results[key])}   [{time.monotonic() - start:.0f} s]")
    return results


def _in_a_process(key: str, settings: Settings) -> Result:
    command = [sys.executable, "-m", "benchmarks", "row", key, "--threads", str(settings.threads)]
    command += [] if settings.rounds is None else ["--rounds", str(settings.rounds)]
    command += ["--compile"] if settings.compiled else []
    threads = {f"{name}_NUM_THREADS": str(settings.threads) for name in ("OMP", "OPENBLAS", "MKL")}
    try:
        done = subprocess.run(
            command, env=os.environ | threads, capture_output=True, text=True, timeout=LONGEST, check=False
        )
    except subprocess.TimeoutExpired:
        return _problem(key, f"failed: took more than {LONGEST} seconds")
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return _problem(key, f"failed: {last[:300]}")
    return Result(**json.loads(done.stdout.strip().splitlines()[-1]))


def _problem(key: str, problem: str) -> Result:
    return Result(key, _now(), {}, {}, 0, problem)


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")


# --- words --------------------------------------------------------------------------------------------------


def line(result: Result) -> str:
    """A result in a line, for the terminal."""
    row = ROWS[result.key]
    if result.problem:
        return f"{result.key:16} {result.problem}"
    values = ", ".join(f"{name} {quantity(value, row.unit)}" for name, value in result.values.items())
    judged = f"{result.ratio:5.2f} ({verdict(row, result.ratio)})"
    return f"{result.key:16} {judged}  {values}; threads meet in {_met(result)}"


def _met(result: Result) -> str:
    return " and ".join(f"{seconds * 1e9:.0f}" for seconds in result.meetings) + " ns" if result.meetings else "?"


def quantity(value: float, unit: str) -> str:
    """A value with three digits and a fitting unit."""
    if unit == "MB":
        return f"{value:.0f} MB"
    for factor, name in ((1.0, "s"), (1e-3, "ms")):
        if value >= factor:
            return f"{value / factor:.3g} {name}" if value / factor < 999.5 else f"{value / factor:.0f} {name}"
    return f"{value * 1e6:.3g} us"


def verdict(row: Row, ratio: float) -> str:
    """Whether what was asked for is reached."""
    sign = -1 if row.unit == "MB" else 1
    if row.aim is not None and sign * ratio >= sign * row.aim:
        return "aim reached"
    if sign * ratio >= sign * row.at_least:
        return "reached"
    return "short" if sign * ratio >= sign else "lost"


def markdown(results: Mapping[str, Result], threads: int) -> str:
    """The table, with the machine and all versions named."""
    lines = [
        f"Machine: {machine()}; {threads} threads on both sides. {_versions()}.",
        "",
        "| work | Undertow | peers | ratio | asked (aim) | | spread, rounds | threads meet in |",
        "| --- | ---: | --- | ---: | --- | --- | --- | --- |",
    ]
    for key, result in results.items():
        row = ROWS[key]
        most = "at most " if row.unit == "MB" else ""
        asked = f"{most}{row.at_least:g}" + ("" if row.aim is None else f" ({row.aim:g})")
        if result.problem:
            lines.append(f"| {row.work} | | {result.problem.replace('|', '/')} | | {asked} | | | |")
            continue
        peers = "; ".join(f"{n} {quantity(v, row.unit)}" for n, v in result.values.items() if n != "undertow")
        ours = quantity(result.values["undertow"], row.unit)
        noise = f"{max(result.spreads.values()):.0%}, {result.rounds}"
        judged = f"{result.ratio:.2f} | {asked} | {verdict(row, result.ratio)}"
        lines.append(f"| {row.work} | {ours} | {peers} | {judged} | {noise} | {_met(result)} |")
    dates = sorted({result.date for result in results.values()})
    return "\n".join([*lines, "", f"Measured from {dates[0]} to {dates[-1]}." if dates else ""]) + "\n"


def _versions() -> str:
    found = []
    for name in PEERS:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return ", ".join(found)


# --- files --------------------------------------------------------------------------------------------------


def write_markdown(path: Path, text: str) -> None:
    """Between the marks of a page that has them, else as the whole file."""
    page = path.read_text(encoding="utf-8") if path.exists() else ""
    if BEGIN in page and END in page:
        text = f"{page[: page.index(BEGIN)]}{BEGIN}\n\n{text}\n{page[page.index(END) :]}"
    with atomic_write(path) as file:
        file.write(text.encode())


def read_json(path: Path) -> dict[str, Result]:
    """Results written before; rows that are no more are left out. Raises UndertowError where it is another file."""
    if not path.exists():
        return {}
    try:
        found = [Result(**entry) for entry in json.loads(path.read_text(encoding="utf-8"))["rows"]]
    except (ValueError, KeyError, TypeError) as problem:  # no text, no JSON, or other entries
        remedy = "give another name, or remove the file"
        raise UndertowError(f"{path}: these are no results of this table ({problem})", remedy=remedy) from problem
    return {result.key: result for result in found if result.key in ROWS}


def write_json(path: Path, results: Mapping[str, Result], threads: int) -> None:
    """Machine, threads and all rows."""
    content = {"machine": machine(), "threads": threads, "rows": [asdict(result) for result in results.values()]}
    with atomic_write(path) as file:
        file.write(json.dumps(content, indent=1).encode())
