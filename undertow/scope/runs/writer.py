"""Writing a run's folder: lines are only ever added, so all but the last are whole whatever stops the training."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from undertow.errors import NonFiniteError, UndertowError, UndertowWarning
from undertow.scope.runs.reader import header_of
from undertow.scope.runs.records import FILE, Header, LayerNumbers, Record, column, line_of, plain

PathLike = str | os.PathLike[str]
# A header may differ in these when a run goes on.
_FREE = ("started", "last", "first", "every", "samples", "how")


class RunWriter:
    """Adds the records of one training to the run.jsonl of a folder.

    header: what runs. Where the folder holds a run of the same net and `header.first` is not 0, that one is gone on
    with: its records of later iterations count no longer. Any other run in the folder is kept, as FOLDER_1, FOLDER_2...
    kept: where to, None if there was none. last: iteration that was recorded. A line that cannot be written is told
    once as a warning, and the training goes on.
    Raises UndertowError where the folder cannot be made.
    """

    def __init__(self, folder: PathLike, header: Header) -> None:
        self.folder, self.header = Path(folder), header
        self.path = self.folder / FILE
        self.kept: Path | None = None
        self.last = header.first
        self.over = False
        self._told = False
        self._whole = True
        try:
            self._open()
        except OSError as problem:
            raise UndertowError(
                f"the run cannot be recorded: {problem.strerror or problem}", file=problem.filename or self.folder,
                remedy="give another folder with -scope_folder, or look at its permissions",
            ) from problem  # fmt: skip

    def _open(self) -> None:
        before = header_of(self.path) if self.path.exists() else None
        goes_on = before is not None and self.header.first > 0 and _same(before, self.header)
        if self.path.exists() and not goes_on:
            self.kept = _set_aside(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        if goes_on:
            # Its last line may have been cut off; a line end more does no harm.
            self._whole = False
            self._add({"k": "from", "i": self.header.first})
        else:
            self._add(self.header.record())
        if self.kept is not None:
            self.note(self.header.first, f"the run that was in this folder before is kept as {self.kept.name}")

    def iteration(self, number: int, values: Mapping[str, float]) -> None:
        """The numbers of one iteration."""
        self.last = number
        self._add({"k": "iteration", "i": number, **{name: plain(value) for name, value in values.items()}})

    def layers(self, number: int, found: LayerNumbers) -> None:
        """The statistics of all layers at an iteration."""
        values = {name: column(found.values[name]) for name in self.header.fields if name in found.values}
        self._add({"k": "layers", "i": number, "values": values, "marks": [list(mark) for mark in found.marks]})

    def measure(self, number: int, values: Mapping[str, float]) -> None:
        """What a validation or test found after an iteration."""
        self._add({"k": "measure", "i": number, "values": {name: plain(value) for name, value in values.items()}})

    def note(self, number: int, text: str) -> None:
        """Something to know about the run."""
        self._add({"k": "note", "i": number, "text": text})

    def end(self, number: int, stopped: bool) -> None:
        """The training ended, or was stopped by request."""
        self._add({"k": "end", "i": number, "stopped": stopped})
        self.over = True
        self.sync()

    def broke_off(self, problem: BaseException) -> None:
        """The training failed in the iteration after the last that was recorded; told once."""
        if self.over:
            return
        self.note(self.last, f"the training broke off: {str(problem) or 'interrupted'}")
        # Of an error that was told with its circumstances, the error itself.
        cause = problem.__cause__ if isinstance(problem.__cause__, NonFiniteError) else problem
        layer = f"layer {cause.layer}: " if isinstance(cause, UndertowError) and cause.layer is not None else ""
        reason = cause.reason if isinstance(cause, UndertowError) else str(cause)
        unsaid = "interrupted" if isinstance(problem, KeyboardInterrupt) else type(problem).__name__
        self._add({"k": "end", "i": self.last + 1, "stopped": True, "reason": f"{layer}{reason}" or unsaid})
        self.over = True
        self.sync()

    def discard(self) -> None:
        """Undo what making it did: the training does not begin after all."""
        if self.header.first > 0 or self.last != self.header.first:
            return
        self.over = True
        with contextlib.suppress(OSError):
            self.path.unlink()
            self.folder.rmdir()
            if self.kept is not None:
                os.replace(self.kept, self.folder)

    def sync(self) -> None:
        """Make sure that what was written survives a power cut: called when a checkpoint was."""
        with contextlib.suppress(OSError), open(self.path, "rb") as stream:
            os.fsync(stream.fileno())

    def _add(self, record: Record) -> None:
        line = line_of(record) + "\n"
        try:
            with open(self.path, "a", encoding="ascii", newline="\n") as stream:
                stream.write(line if self._whole else "\n" + line)
            self._whole = True
        except OSError as problem:
            self._whole = False
            if record["k"] == "run":
                raise
            if not self._told:
                self._told = True
                reason = f"{self.path}: cannot be written ({problem.strerror or problem}); training goes on"
                warnings.warn(UndertowWarning(reason), stacklevel=3)


def _same(before: Record, header: Header) -> bool:
    """Whether both headers are of the same net."""
    now = Header(**asdict(header)).record()
    return all(_as_lists(before.get(key)) == _as_lists(now[key]) for key in now if key not in _FREE)


def _as_lists(value: object) -> object:
    return [_as_lists(part) for part in value] if isinstance(value, (list, tuple)) else value


def _set_aside(folder: Path) -> Path:
    number = 1
    while (aside := folder.with_name(f"{folder.name}_{number}")).exists():
        number += 1
    os.replace(folder, aside)
    return aside
