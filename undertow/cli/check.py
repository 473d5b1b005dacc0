"""`undertow check`: what is wrong with a cfg, its data set and weights, before hours are lost."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from undertow.cli.words import Command, Flag, UsageError, Words

if TYPE_CHECKING:
    from undertow.darknet.check import Report

_COLOURS = {"error": "red", "warning": "yellow", "note": "green"}


def check(words: Words) -> int:
    """check CFG [DATA] [WEIGHTS]; 0 when nothing stands in the way of a training, 1 when something does."""
    from undertow.darknet.check import check as checked

    if Path(words["CFG"]).suffix in (".prototxt", ".pt"):
        raise UsageError(
            f"{words['CFG']} is a file of Caffe; check reads those of Darknet",
            remedy="undertow explain FILE reads a net, undertow caffe train --solver=FILE a solver",
        )
    report = checked(words["CFG"], words["DATA"] or None, words["WEIGHTS"] or None, measure=not words["quick"])
    if words["json"]:
        print(json.dumps({"findings": [asdict(finding) for finding in report.findings], "numbers": report.numbers}))
    else:
        _show(report)
    return 1 if report.errors else 0


def _show(report: Report) -> None:
    if not sys.stdout.isatty():
        for finding in report.findings:
            print(f"{finding.level}: {finding.about}: {finding.text}")
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for name in ("", "about", "what"):
        table.add_column(name, overflow="fold")
    for finding in report.findings:
        table.add_row(Text(finding.level, style=_COLOURS[finding.level]), finding.about, Text(finding.text))
    Console().print(table)


CHECK = Command(
    "check",
    ("CFG", "[DATA]", "[WEIGHTS]"),
    (
        Flag("json", "switch", "findings and numbers as JSON"),
        Flag("quick", "switch", "estimate the time of an iteration instead of measuring it"),
    ),
    "what is wrong with a cfg, its data set and weights, before hours are lost; 1 when a training would fail",
    check,
)
