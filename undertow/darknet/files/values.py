"""Numbers and lists in cfg values: what C's atoi and atof make of a text, with everything odd about it told.

`atoi("8#eight")` is 8, `atoi("2.9")` is 2, `atof("1e-2x")` is 0.01, `atoi("leaky")` is 0. The first three are
accepted with a warning, the last is an error unless the file is read as the original reads it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import TypeVar

from undertow.darknet.files.cfg import Entry, Section
from undertow.darknet.files.textfiles import report_oddity, show
from undertow.errors import FormatError

_INTEGER = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_INT32 = 2**31
_FLOAT32_MAX = 3.4028234663852886e38
_MOST_DIGITS = 400  # more of them stand for no number anyone means, and cost time

Number = TypeVar("Number", int, float)


def integer_value(section: Section, entry: Entry) -> int:
    """The value as a 32-bit integer. Raises FormatError with file and line where it is none."""
    return _read_integer(section, entry, entry.value or "")


def float_value(section: Section, entry: Entry) -> float:
    """The value as a finite number in the range of float32. Raises FormatError where it is none."""
    return _read_float(section, entry, entry.value or "")


def flag_value(section: Section, entry: Entry) -> bool:
    """The value as an integer, true unless 0."""
    return integer_value(section, entry) != 0


def integers_value(section: Section, entry: Entry) -> tuple[int, ...]:
    """A list of integers with commas between them."""
    return _read_list(section, entry, _read_integer)


def floats_value(section: Section, entry: Entry) -> tuple[float, ...]:
    """A list of numbers with commas between them."""
    return _read_list(section, entry, _read_float)


def text_value(section: Section, entry: Entry) -> str:
    """The value as it is, without blanks."""
    return entry.value or ""


def choice_value(section: Section, entry: Entry, choices: Sequence[str], fallback: str) -> str:
    """One of `choices`. The original takes `fallback` for an unknown word; so does original reading, with a warning."""
    text = entry.value or ""
    if text in choices:
        return text
    reason = f"unknown {entry.key} '{show(text)}'"
    if section.original:
        reason += f"; the original takes {fallback}"
        report_oddity(reason, strict=section.strict, file=section.file, line=entry.line)
        return fallback
    raise value_error(section, entry, reason, suggestion(text, choices) or f"use one of: {', '.join(choices)}")


def suggestion(text: str, known: Sequence[str]) -> str | None:
    """`did you mean ...?` for the nearest known name, None when nothing is near."""
    near = get_close_matches(text[:64], known, n=1, cutoff=0.6)
    return f"did you mean '{near[0]}'?" if near else None


def value_error(section: Section, entry: Entry, reason: str, remedy: str | None = None) -> FormatError:
    """A FormatError at the line of an entry."""
    return FormatError(reason, file=section.file, line=entry.line, remedy=remedy)


def _read_integer(section: Section, entry: Entry, text: str) -> int:
    match = _INTEGER.match(text)
    if match is None:
        return _no_number(section, entry, text, 0, "a whole number")
    digits = match.group()
    value = int(digits) if len(digits) <= _MOST_DIGITS else _INT32
    if not -_INT32 <= value < _INT32:
        raise value_error(
            section, entry, f"{entry.key}={show(digits)} does not fit into 32 bits", "give a value below 2147483648"
        )
    _tell_trailing(section, entry, text[match.end() :], digits)
    return value


def _read_float(section: Section, entry: Entry, text: str) -> float:
    match = _DECIMAL.match(text)
    if match is None:
        return _no_number(section, entry, text, 0.0, "a number")
    value = float(match.group()) if match.end() <= _MOST_DIGITS else math.inf
    if not math.isfinite(value) or abs(value) > _FLOAT32_MAX:
        raise value_error(
            section, entry, f"{entry.key}={show(match.group())} is too large for a 32-bit float", "give a finite number"
        )
    _tell_trailing(section, entry, text[match.end() :], match.group())
    return value


def _no_number(section: Section, entry: Entry, text: str, zero: Number, wanted: str) -> Number:
    reason = f"{entry.key}={show(text)} is not {wanted}"
    if not section.original:
        raise value_error(section, entry, reason, f"give {wanted}")
    report_oddity(f"{reason}; the original takes 0", strict=section.strict, file=section.file, line=entry.line)
    return zero


def _tell_trailing(section: Section, entry: Entry, rest: str, used: str) -> None:
    if rest:
        reason = f"'{show(rest)}' after the number in {entry.key}={show(used + rest)} is ignored, {show(used)} is used"
        report_oddity(reason, strict=section.strict, file=section.file, line=entry.line, remedy="remove it")


def _read_list(section: Section, entry: Entry, read: Callable[[Section, Entry, str], Number]) -> tuple[Number, ...]:
    items = (entry.value or "").split(",")
    if not all(items) and not section.original:
        if items[-1] == "" and all(items[:-1]):
            reason = f"value list of '{entry.key}' ended with a comma; continued lines are not part of the format"
        else:
            reason = f"value {items.index('') + 1} of the list '{entry.key}' is empty"
        raise value_error(section, entry, reason, "write all values on one line with single commas between them")
    return tuple(read(section, entry, item) for item in items)
