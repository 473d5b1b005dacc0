"""Findings in label and list files: collected and counted, so that one bad file does not hide the others."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field

from undertow.errors import describe


@dataclass(frozen=True)
class Issue:
    """One finding. kind: a word to count by. dropped: whether a box or a file is left out because of it."""

    kind: str
    reason: str
    file: str
    line: int | None = None
    dropped: bool = False

    def __str__(self) -> str:
        return describe(self.reason, self.file, self.line)


@dataclass
class IssueCounter:
    """Counts findings by kind over many files and keeps the first few; safe to use from several threads.

    files, missing, boxes: label files read, label files absent, boxes kept.
    """

    kept: int = 20
    files: int = 0
    missing: int = 0
    boxes: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    first: list[Issue] = field(default_factory=list)
    _seen: set[str] = field(default_factory=set, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, file: str, boxes: int, issues: tuple[Issue, ...], missing: bool = False) -> None:
        """Count one label file; a file that was counted before is not counted again."""
        with self._lock:
            if file in self._seen:
                return
            self._seen.add(file)
            self.files += not missing
            self.missing += missing
            self.boxes += boxes
            self.counts.update(issue.kind for issue in issues)
            room = self.kept - len(self.first)
            self.first.extend(issues[: max(room, 0)])

    def lines(self) -> list[str]:
        """A summary for people: totals, counts by kind, the first findings."""
        with self._lock:
            lines = [f"{self.files} label files, {self.boxes} boxes, {self.missing} label files missing"]
            lines += [f"  {count} x {kind}" for kind, count in self.counts.most_common()]
            lines += [f"  {issue}" for issue in self.first]
            hidden = sum(self.counts.values()) - len(self.first)
            return [*lines, f"  and {hidden} more"] if hidden > 0 else lines
