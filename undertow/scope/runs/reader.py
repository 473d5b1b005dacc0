"""Reading a run: its header, and its lines thinned out so that a run of any length fits into a page."""

from __future__ import annotations

import csv
import json
import math
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from pathlib import Path

from undertow.errors import FormatError
from undertow.scope.runs.records import FILE, VERSION, Header, Record, line_of, parsed, plain

PathLike = str | os.PathLike[str]
# More iterations, and records of layers, are not sent to a page: every second, fourth... stays.
MOST_ITERATIONS, MOST_LAYERS = 4000, 1000
# A line longer than this is no record of ours.
LONGEST = 4 << 20
_START = re.compile(rb'\{"k":"(\w+)","i":(-?\d{1,15})[,}]')
LOG, MAP = "_log.csv", "_map.csv"


@dataclass
class Thinned:
    """Lines of one kind by iteration, at most `most` (and the last); of all lines every second, fourth... stays.

    step: between the iterations that are recorded at all.
    """

    most: int
    step: int = 1
    every: int = 1
    lines: dict[int, bytes] = field(default_factory=dict)
    last: tuple[int, bytes] | None = None

    def add(self, number: int, line: bytes) -> None:
        self.last = number, line
        if self._stays(number):
            self.lines[number] = line
            while len(self.lines) > self.most:
                self.every *= 2
                self.lines = {i: kept for i, kept in self.lines.items() if self._stays(i)}

    def _stays(self, number: int) -> bool:
        return number // self.step % self.every == 0

    def forget_after(self, number: int) -> None:
        self.lines = {i: line for i, line in self.lines.items() if i <= number}
        self.last = max(self.lines.items(), default=None)

    def all(self) -> list[bytes]:
        lines = dict(self.lines)
        if self.last is not None:
            lines[self.last[0]] = self.last[1]
        return [lines[number] for number in sorted(lines)]


@dataclass
class History:
    """What a page begins with. lines: header first, without line ends. offset: bytes read; None if nothing will follow.

    thinned: 1 where all iterations and layers are there, else every how many-th. damaged: lines left out.
    """

    lines: list[bytes]
    offset: int | None
    thinned: tuple[int, int] = (1, 1)
    damaged: int = 0


def is_run(path: PathLike) -> bool:
    """Whether a path is a run: a folder with run.jsonl, or with one training's NAME_log.csv, or such a file itself."""
    try:
        find_run(path)
    except FormatError:
        return False
    return True


def find_run(path: PathLike) -> Path:
    """The file of a run: run.jsonl, or NAME_log.csv of a training that was not recorded. Raises FormatError."""
    given = Path(path)
    if given.is_file() and (given.name == FILE or given.name.endswith(LOG)):
        return given
    if (given / FILE).is_file():
        return given / FILE
    for found in (sorted(given.glob(f"*/{FILE}")), sorted(given.glob(f"*{LOG}"))):
        if len(found) == 1:
            return found[0]
        if found:
            names = ", ".join(str(one.parent.name if one.name == FILE else one.name) for one in found)
            raise FormatError(f"there are several runs: {names}", file=given, remedy="give one of them")
    reason = "is not there" if not given.exists() else f"holds no run: there is no {FILE} and no NAME{LOG}"
    raise FormatError(f"the folder {reason}", file=given, remedy="give a folder that training with -scope has written")


def header_of(path: PathLike) -> Record | None:
    """The header of a run.jsonl; None where it has none that can be read."""
    with open(path, "rb") as stream:
        found = parsed(stream.readline(LONGEST))
    return found if found is not None and found["k"] == "run" and found.get("version") == VERSION else None


def read_history(path: PathLike) -> History:
    """The lines of the file that `find_run` found. Raises FormatError for a file of another kind or a newer version."""
    path = Path(path)
    return _of_csv(path) if path.name.endswith(LOG) else _of_lines(path)


def history_text(path: PathLike) -> bytes:
    """What a page reads: a line about file, offset, thinning and damage, then the lines of the run."""
    path = Path(path)
    file = identity(path)
    found = read_history(path)
    told = {"file": file, "folder": path.parent.name, "offset": found.offset, "thinned": found.thinned,
            "damaged": found.damaged}  # fmt: skip
    return b"\n".join([json.dumps(told).encode(), *found.lines]) + b"\n"


def identity(path: PathLike) -> str:
    """What tells a file from another one that takes its name; "" where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return ""
    return f"{found.st_dev}-{found.st_ino}"


def _of_lines(path: Path) -> History:
    header = header_of(path)
    if header is not None and (missing := [one.name for one in fields(Header) if one.name not in header]):
        raise FormatError(
            f"the header of this record has no {', '.join(missing)}", file=path, line=1,
            remedy="give a folder that training with -scope has written",
        )  # fmt: skip
    if header is None:
        raise FormatError(
            "this is no record of a training, or one of another version", file=path, line=1,
            remedy=f"the first line is the header, version {VERSION}",
        )  # fmt: skip
    iterations = Thinned(MOST_ITERATIONS)
    layers = Thinned(MOST_LAYERS, step=max(1, header["every"]) if isinstance(header.get("every"), int) else 1)
    others: list[tuple[int, bytes]] = []
    damaged = offset = 0
    with open(path, "rb") as stream:
        head = stream.readline(LONGEST)
        offset = len(head)
        for line in whole_lines(stream):
            offset += len(line)
            text = line.strip()
            if not text:
                continue
            kind, number = _start(text)
            if kind == "iteration":
                iterations.add(number, text)
            elif kind == "layers":
                layers.add(number, text)
            elif kind == "from":
                for kept in (iterations, layers):
                    kept.forget_after(number)
                others = [(i, other) for i, other in others if i <= number and _start(other)[0] != "end"]
            elif kind is not None:
                others.append((number, text))
            else:
                damaged += 1
    lines = [*iterations.all(), *layers.all(), *(line for _, line in others)]
    whole = [line for line in lines if parsed(line) is not None]
    damaged += len(lines) - len(whole)
    return History([head.strip(), *whole], offset, (iterations.every, layers.every), damaged)


def whole_lines(stream: Iterator[bytes]) -> Iterator[bytes]:
    """Lines that have an end; the one that is being written, or never was finished, is left out."""
    for line in stream:
        if line.endswith(b"\n"):
            yield line


def _start(line: bytes) -> tuple[str | None, int]:
    """Kind and iteration, from the beginning of a line where it is ours; None for one that is no record."""
    found = _START.match(line)
    if found is not None and line.endswith(b"}"):
        return found[1].decode(), int(found[2])
    record = parsed(line)
    return (None, 0) if record is None or record["k"] == "run" else (record["k"], record.get("i", 0))


# --- trainings that were not recorded: loss and mAP from their CSV ---------------------------------------------


def _of_csv(path: Path) -> History:
    name = path.name.removesuffix(LOG)
    started = datetime.fromtimestamp(path.stat().st_mtime).isoformat(timespec="seconds")
    iterations = Thinned(MOST_ITERATIONS)
    for row in _rows(path, ("iteration", "loss", "average_loss", "rate", "seconds", "images")):
        waited, width = row.get("waited", 0.0), row.get("width", 0.0)
        values = {
            "loss": row["loss"], "average": row["average_loss"], "rate": row["rate"], "seconds": row["seconds"],
            "waited": waited, "images": row["images"], "width": width, "height": row.get("height", 0.0),
        }  # fmt: skip
        iterations.add(int(row["iteration"]), _line("iteration", row, {k: plain(v) for k, v in values.items()}))
    measures = []
    beside = path.with_name(f"{name}{MAP}")
    for row in _rows(beside) if beside.is_file() else ():
        values = {"mAP" if key == "map" else key: value for key, value in row.items() if key != "iteration"}
        measures.append(_line("measure", row, {"values": {k: plain(v) for k, v in values.items()}}))
    last = max(iterations.lines, default=0)
    header = Header(name, "darknet", name, started, "read from its CSV; only -scope records layers", last)
    return History([line_of(header.record()).encode(), *iterations.all(), *measures], None, (iterations.every, 1))


def _line(kind: str, row: dict[str, float], values: Record) -> bytes:
    return json.dumps({"k": kind, "i": int(row["iteration"]), **values}, separators=(",", ":")).encode()


def _rows(path: Path, needed: Sequence[str] = ("iteration",)) -> Iterator[dict[str, float]]:
    """Rows of numbers; those that are damaged are left out."""
    with open(path, encoding="utf-8", errors="replace", newline="") as stream:
        for row in csv.DictReader(stream):
            try:
                numbers = {key: float(value) for key, value in row.items()}
            except (TypeError, ValueError):
                continue
            if all(key in numbers for key in needed) and math.isfinite(numbers["iteration"]):
                yield numbers
