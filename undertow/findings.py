"""What `undertow check` finds: the same form for the files of Darknet and of Caffe."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Level = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """level: "error" (the training would fail or be worthless), "warning", "note". about: cfg, net, solver, weights,
    data, anchors, schedule, memory or time.
    """

    level: Level
    about: str
    text: str


@dataclass
class Report:
    """Findings in the order they were made; numbers: what was counted and measured, by name."""

    findings: list[Finding] = field(default_factory=list)
    numbers: dict[str, Any] = field(default_factory=dict)

    def add(self, level: Level, about: str, text: str) -> None:
        self.findings.append(Finding(level, about, text))

    @property
    def errors(self) -> int:
        return sum(finding.level == "error" for finding in self.findings)
