"""`undertow check`: what is wrong with a cfg or prototxt, its data and weights, before hours are lost."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from undertow.cli.words import Command, Flag, UsageError, Words

if TYPE_CHECKING:
    from undertow.findings import Report

_COLOURS = {"error": "red", "warning": "yellow", "note": "green"}


def check(words: Words) -> int:
    """check FILE [DATA] [WEIGHTS]; 0 when nothing stands in the way of a training, 1 when something does."""
    from undertow.inspect.sources import is_prototxt

    report = _of_caffe(words) if is_prototxt(words["FILE"]) else _of_darknet(words)
    if words["json"]:
        print(json.dumps({"findings": [asdict(finding) for finding in report.findings], "numbers": report.numbers}))
    else:
        _show(report)
    return 1 if report.errors else 0


def _of_darknet(words: Words) -> Report:
    from undertow.darknet.check import check as checked

    return checked(
        words["FILE"],
        words["DATA"] or None,
        words["WEIGHTS"] or None,
        measure=not words["quick"],
        tokenized=words["tokenized"],
    )


def _of_caffe(words: Words) -> Report:
    from undertow.caffe.check import check as checked
    from undertow.caffe.layers_python import import_layer

    if words["WEIGHTS"]:
        raise UsageError(
            f"check: '{words['WEIGHTS']}' is one word too many: a prototxt names its data itself",
            remedy="undertow check FILE.prototxt [FILE.caffemodel]",
        )
    return checked(words["FILE"], words["DATA"] or None, python=import_layer if words["python_layers"] else None)


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
    ("FILE", "[DATA]", "[WEIGHTS]"),
    (
        Flag("json", "switch", "findings and numbers as JSON"),
        Flag("quick", "switch", "of a cfg: estimate the time of an iteration instead of measuring it"),
        Flag("tokenized", "switch", "of a cfg for texts: DATA holds numbers with blanks between them"),
        Flag("python_layers", "switch", "of a prototxt: import the Python layers that it names"),
    ),
    "what is wrong with a cfg, its .data file (of a net for texts: its text) and weights, or with a solver's or net's "
    "prototxt and a caffemodel, before hours are lost; 1 when a training would fail",
    check,
)
