"""Lists of pictures with labels: `path label` in every line, as ImageData and convert_imageset read them."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterable
from typing import NamedTuple

from undertow.caffe.data.feed import PathLike, read_lines
from undertow.errors import FormatError, UndertowWarning

_NUMBER = re.compile(r"\s*([+-]?[0-9]+)")


class Line(NamedTuple):
    """path: as it is written. label: a whole number. number: of the line, from 1."""

    path: str
    label: int
    number: int


def slash_missing(root_folder: str, path: str) -> bool:
    """Whether a path is found only with a slash between it and the folder that, in Caffe, is put before it as it is."""
    if not root_folder or root_folder.endswith("/") or os.path.exists(root_folder + path):
        return False
    return os.path.exists(os.path.join(root_folder, path))


def root_remedy(root_folder: str, paths: Iterable[str]) -> str:
    """What to do where none of a program's pictures could be read."""
    if any(slash_missing(root_folder, path) for path in paths):
        return f"end ROOTFOLDER with /: '{root_folder}/'"
    return "check the root folder"


def read_image_list(path: PathLike) -> list[Line]:
    """The pictures of a list. A line is split at its last space, so that paths may hold spaces.

    Blank lines are left out, labels that are no number become 0 and others are cut to whole numbers, as in Caffe; each
    with an UndertowWarning for the first one.
    Raises FormatError with the line for labels beyond 32 bits, and for lists without a picture.
    """
    found: list[Line] = []
    told: dict[str, tuple[int, str]] = {}  # by kind, for the first line of each
    for number, line in enumerate(read_lines(path), 1):
        line = line.removesuffix("\r")
        if not line.strip():
            told.setdefault("blank", (number, "blank lines are left out"))
            continue
        name, space, label = line.rpartition(" ")
        match = _NUMBER.match(label)
        if not space:
            told.setdefault("none", (number, "a line without a label; it is taken as 0"))
        elif match is None:
            told.setdefault("word", (number, f"the label '{label:.40}' is no number; it is taken as 0"))
        elif match.end() < len(label.rstrip()):
            told.setdefault("cut", (number, f"the label {label:.40} is read as {match[1]}: labels are whole numbers"))
        value = int(match[1]) if match else 0
        if not -(2**31) <= value < 2**31:
            raise FormatError(
                f"the label {value} does not fit 32 bits",
                file=path,
                line=number,
                remedy="write labels between -2147483648 and 2147483647",
            )
        found.append(Line(name if space else line, value, number))
    for number, text in told.values():
        warnings.warn(UndertowWarning(f"{path}:{number}: {text}"), stacklevel=2)
    return found
