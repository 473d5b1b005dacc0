"""Lists of class names: one name on each line."""

from __future__ import annotations

import os

from undertow.darknet.files.textfiles import lines_of, read_text, report_oddity
from undertow.errors import FormatError

_LARGEST = 16 * 1024 * 1024


def read_names(path: str | os.PathLike[str], classes: int | None = None, strict: bool = False) -> list[str]:
    """The names of the classes, in order, without blanks and line ends around them.

    Blank lines at the end are not classes. A blank line between names keeps its number as a class without a name, as
    in the original, unless only without it the number of names is right.
    classes: how many there must be. Fewer names are an error, more only a warning, since the original's own lists
    (ImageNet) hold more. strict: warnings are errors.
    Raises FormatError with the counts and the line.
    """
    file = os.fspath(path)
    names = [_clean(line) for line in lines_of(read_text(path, _LARGEST))]
    while names and not names[-1]:
        names.pop()
    if not names:
        raise FormatError("the file holds no names", file=file, remedy="write one class name on each line")
    if "" in names:
        names = _without_blank_lines(names, classes, file, strict)
    if classes is not None:
        _check_count(len(names), classes, file, strict)
    return names


def _clean(line: str) -> str:
    """Names in an older encoding are taken as Latin-1, byte for byte."""
    name = line.strip()
    return name if not _has_surrogates(name) else name.encode("utf-8", "surrogateescape").decode("latin-1")


def _has_surrogates(text: str) -> bool:
    return any("\ud800" <= letter <= "\udfff" for letter in text)


def _without_blank_lines(names: list[str], classes: int | None, file: str, strict: bool) -> list[str]:
    given = [name for name in names if name]
    line = names.index("") + 1
    dropped = classes is not None and len(given) == classes
    consequence = (
        "is left out, since then the number of names is right" if dropped else "counts as a class without name"
    )
    report_oddity(f"a blank line between names {consequence}", strict=strict, file=file, line=line, remedy="remove it")
    return given if dropped else names


def _check_count(count: int, classes: int, file: str, strict: bool) -> None:
    reason = f"classes={classes} but {count} names"
    if count < classes:
        raise FormatError(reason, file=file, remedy="give one name for each class, or correct classes=")
    if count > classes:
        report_oddity(f"{reason}; the first {classes} are used", strict=strict, file=file)
