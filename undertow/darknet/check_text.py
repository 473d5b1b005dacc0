"""What is wrong with the text that a recurrent net is to learn from, for `check`."""

from __future__ import annotations

import os
import warnings

import numpy as np

from undertow.darknet.files.datafile import read_data
from undertow.darknet.files.shapes import NetworkShapes
from undertow.darknet.learning.text import check_text_net, read_characters, read_tokenized
from undertow.errors import UndertowError, UndertowWarning
from undertow.findings import Report

_RECURRENT = {"rnn", "gru", "lstm", "crnn", "conv_lstm"}
_DATA_FILES = (".data", ".json", ".cfg", ".names")


def is_meant_as_text(file: str | os.PathLike[str], shapes: NetworkShapes) -> bool:
    """Whether a recurrent net that takes pictures was given a text to learn: a file that is no .data file."""
    name = os.fspath(file)
    if not any(shape.type in _RECURRENT for shape in shapes) or name.endswith(_DATA_FILES) or not os.path.isfile(name):
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UndertowWarning)  # about keys; told when it is looked at as what it is
            read_data(name)
    except UndertowError:
        return True
    return False


def check_text(report: Report, file: str | os.PathLike[str], shapes: NetworkShapes, tokenized: bool) -> bool:
    """Findings about a text: its length, what the net takes of it, how often the training goes through it.

    Returns whether it is a text.
    """
    name = os.fspath(file)
    if name.endswith(_DATA_FILES):
        report.add(
            "warning",
            "data",
            f"{name} is not looked at: {shapes.file} reads no pictures. To mend it: give the text that it is to learn "
            "from, the -file of rnn train",
        )
        return False
    try:
        check_text_net(shapes)
        tokens = (read_tokenized if tokenized else read_characters)(file, shapes.inputs)
    except UndertowError as problem:
        report.add("error", "data", str(problem))
        return True
    what, different = "tokens" if tokenized else "characters", len(np.unique(tokens))
    report.numbers[name] = {"characters": len(tokens), "different": different}
    report.add("note", "data", f"{name}: {len(tokens):,} {what}, {different} different ones of {shapes.inputs}")
    options = shapes.net
    taken = options.batch * options.time_steps
    rounds = options.max_batches * taken / len(tokens)
    report.numbers["rounds"] = rounds
    report.add(
        "note", "schedule", f"{len(tokens) / taken:.1f} iterations take as much as the text holds, {rounds:.1f} rounds"
    )
    if len(tokens) < options.time_steps:
        report.add(
            "warning", "data", f"{name} is shorter than time_steps={options.time_steps}: each pass goes round in it"
        )
    if 0 < rounds < 1:
        report.add(
            "warning",
            "schedule",
            f"max_batches={options.max_batches} ends before the net saw as much as the text holds",
        )
    return True
