"""Darknet's cfg files: sections of `key=value` lines, each kept with its line number.

Read as the original does (src/parser.c read_cfg, src/option_list.c): blanks and tabs count nowhere, lines that
start with `#` or `;` are comments, the first of two equal keys wins. What the original lets pass but nobody means
is refused or reported here, with file and line; `original=True` reads exactly as the 2018 program, and reports.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from undertow.darknet.files.textfiles import lines_of, read_text, report_oddity, show, telling_system_errors
from undertow.errors import FormatError
from undertow.files import atomic_write

# A comment may follow a value when a blank stands before its mark, so that `a#b` can be part of a file name.
_COMMENT = re.compile(r"(?:^|[ \t])[#;].*$", re.DOTALL)
_COMMENT_LINE = re.compile(r"^[ \t]*[#;]")
_BLANKS = str.maketrans("", "", " \t")
_KEY = re.compile(r"[^\s=\[\]#;][^\s=]*")
_SHOWN_PROBLEMS = 5
# The largest cfg that Darknet ships has 30 kB.
_LARGEST = 2 * 1024 * 1024


@dataclass(frozen=True)
class Entry:
    """One `key=value` line.

    value: without blanks, tabs and comment; None for a line without `=` (original reading only).
    line: from 1. raw: the value as it was written, blanks inside included, for file names.
    """

    key: str
    value: str | None
    line: int
    raw: str = ""


@dataclass(frozen=True)
class Section:
    """One `[name]` with its entries, in file order; `name` is as written, without brackets.

    Of equal keys only the first is here.
    """

    name: str
    line: int
    entries: tuple[Entry, ...]
    file: str = "<cfg>"
    strict: bool = False
    original: bool = False

    def find(self, key: str) -> Entry | None:
        """The entry with this key."""
        return next((entry for entry in self.entries if entry.key == key), None)

    def line_of(self, *keys: str) -> int:
        """The line of the first of these keys that is given, else the line of the section."""
        found = (self.find(key) for key in keys)
        return next((entry.line for entry in found if entry is not None), self.line)


@dataclass(frozen=True)
class Config:
    """A cfg file.

    file: its name, for messages. sections: in file order, [net] first.
    strict, original: how it was read; whoever interprets the values goes on in the same way.
    """

    file: str
    sections: tuple[Section, ...]
    strict: bool = False
    original: bool = False

    @property
    def net(self) -> Section:
        """The [net] (or [network]) section, which must come first. Raises FormatError otherwise."""
        first = self.sections[0]
        if first.name not in ("net", "network"):
            raise FormatError(
                f"the first section is [{show(first.name)}], it must be [net] or [network]",
                file=self.file,
                line=first.line,
                remedy="start the file with a [net] section that gives width, height and channels",
            )
        return first

    @property
    def layers(self) -> tuple[Section, ...]:
        """The sections after [net]: layer 0, 1, 2..."""
        return self.sections[1:]

    def to_text(self) -> str:
        """The cfg as text, without comments; reading it gives the same sections and entries."""
        blocks = []
        for section in self.sections:
            pairs = [f"{entry.key}={entry.value}" for entry in section.entries if entry.value is not None]
            blocks.append("\n".join([f"[{section.name}]", *pairs]) + "\n")
        return "\n".join(blocks)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write `to_text()` beside `path` and rename it there. Raises FormatError where that cannot be done."""
        with telling_system_errors(os.fspath(path), "written"), atomic_write(path) as stream:
            stream.write(self.to_text().encode("utf-8", "surrogateescape"))

    def with_values(self, index: int, values: Mapping[str, Any]) -> Config:
        """A copy in which section `index` (0 is [net]) has these values; other keys keep their places."""
        section = self.sections[index]
        kept = [
            Entry(entry.key, format_value(values[entry.key]), entry.line) if entry.key in values else entry
            for entry in section.entries
        ]
        known = {entry.key for entry in kept}
        added = [Entry(key, format_value(value), section.line) for key, value in values.items() if key not in known]
        changed = Section(section.name, section.line, (*kept, *added), section.file, section.strict, section.original)
        sections = (*self.sections[:index], changed, *self.sections[index + 1 :])
        return Config(self.file, sections, self.strict, self.original)


def read_cfg(path: str | os.PathLike[str], strict: bool = False, original: bool = False) -> Config:
    """Read a cfg file.

    strict: oddities that are normally accepted with an UndertowWarning (equal keys, unknown keys, text after a
        number) are errors.
    original: read as the 2018 program does, its mistakes included (a comment after a value belongs to the value,
        keys without a value count as absent, a word where a number belongs is 0), with a warning for each.
    Raises FormatError with file, line, reason and remedy.
    """
    return parse_cfg(read_text(path, _LARGEST), os.fspath(path), strict=strict, original=original)


def parse_cfg(text: str, file: str = "<cfg>", *, strict: bool = False, original: bool = False) -> Config:
    """Like `read_cfg`, from text."""
    reader = _Reader(file, strict, original)
    for number, line in enumerate(lines_of(text), start=1):
        reader.take(line, number)
    return reader.finish(bool(text.strip()))


def parse_entries(text: str, file: str, name: str, *, strict: bool = False) -> Section:
    """`key=value` lines without section headers, as .data files hold them, as one section called `name`."""
    reader = _Reader(file, strict, original=False, headers=False)
    reader.sections.append(Section(name, 1, (), file, strict))
    for number, line in enumerate(lines_of(text), start=1):
        reader.take(line, number)
    return reader.finish(has_text=True).sections[0]


def make_config(sections: Iterable[tuple[str, Mapping[str, Any]]], file: str = "<made>") -> Config:
    """A Config from section names and their values (numbers, flags, texts, lists of numbers)."""
    lines = []
    for name, values in sections:
        lines.append(f"[{name}]")
        lines.extend(f"{key}={format_value(value)}" for key, value in values.items())
    return parse_cfg("\n".join(lines), file, strict=True)


def format_value(value: Any) -> str:
    """A Python value as a cfg writes it: flags as 0 and 1, lists with commas."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, (list, tuple)):
        return ",".join(format_value(item) for item in value)
    text = repr(value) if isinstance(value, float) else str(value)
    if not text.strip() or "\n" in text or "\r" in text:
        raise FormatError(
            f"{text!a} cannot be written as a value of a cfg",
            remedy="give a value of printable characters without # and ;",
        )
    return text


@dataclass
class _Problem:
    line: int
    reason: str
    remedy: str


@dataclass
class _Reader:
    """Collects sections and problems line by line; all problems of a file are told at once."""

    file: str
    strict: bool
    original: bool
    headers: bool = True
    sections: list[Section] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    first_lines: dict[str, int] = field(default_factory=dict)
    duplicates: set[str] = field(default_factory=set)
    problems: list[_Problem] = field(default_factory=list)

    def take(self, line: str, number: int) -> None:
        written = line if self.original and not _COMMENT_LINE.match(line) else _COMMENT.sub("", line)
        stripped = written.translate(_BLANKS)
        if not stripped:
            return
        if stripped.startswith("[") and self.headers:
            self._start_section(stripped, number)
        elif not self.sections:
            self._outside_section(stripped, number)
        else:
            self._add_entry(stripped, written, number)

    def finish(self, has_text: bool) -> Config:
        self._close_section()
        if not self.sections and not self.problems:
            reason = "the file has no section" if has_text else "the file is empty"
            raise FormatError(reason, file=self.file, remedy="give a cfg file, which starts with [net]")
        if self.problems:
            raise self._error()
        return Config(self.file, tuple(self.sections), self.strict, self.original)

    def _start_section(self, stripped: str, number: int) -> None:
        self._close_section()
        name = stripped[1:-1]
        if not stripped.endswith("]") or not name or "[" in name or "]" in name:
            self._problem(number, f"'{show(stripped)}' is not a section header", "write it as [name] on its own line")
        self.entries, self.first_lines, self.duplicates = [], {}, set()
        self.sections.append(Section(name, number, (), self.file, self.strict, self.original))

    def _close_section(self) -> None:
        if self.sections:
            last = self.sections[-1]
            self.sections[-1] = Section(
                last.name, last.line, tuple(self.entries), self.file, self.strict, self.original
            )

    def _outside_section(self, stripped: str, number: int) -> None:
        if not self.problems:  # the first one says it all
            what = "a key" if "=" in stripped else "text"
            reason = f"{what} outside a section: '{show(stripped)}' comes before any [section]"
            self._problem(number, reason, "start the file with [net]")

    def _add_entry(self, stripped: str, written: str, number: int) -> None:
        key, equals, value = stripped.partition("=")
        if not equals or not value:
            if not self._without_value(key, bool(equals), number):
                return
        elif not _KEY.fullmatch(key):
            self._problem(number, f"'{show(key)}' cannot be a key", "write key=value")
            return
        if key in self.first_lines:
            self._duplicate(key, number)
            return
        self.first_lines[key] = number
        raw = written.partition("=")[2].strip()
        self.entries.append(Entry(key, value if equals else None, number, raw))

    def _without_value(self, key: str, equals: bool, number: int) -> bool:
        """A line without `=` or without a value; True when it still becomes an entry."""
        previous = self.entries[-1] if self.entries else None
        if not equals and previous is not None and (previous.value or "").endswith(","):
            reason = f"value list ended with a comma (line {previous.line}); continued lines are not part of the format"
            remedy = f"write all values of '{show(previous.key)}' on line {previous.line}"
        elif equals:
            reason, remedy = f"key '{show(key)}' has no value", "give the value after '=' or remove the line"
        else:
            reason, remedy = f"'{show(key)}' has no '='", "write key=value, or start the line with # for a comment"
        if not self.original:
            self._problem(number, reason, remedy)
            return False
        report_oddity(
            f"{reason}; the original takes the default", strict=self.strict, file=self.file, line=number, remedy=remedy
        )
        return not equals  # the original remembers a line without `=`, and it hides later lines with that key

    def _duplicate(self, key: str, number: int) -> None:
        """Tell the second of equal keys; of further ones there is nothing new to say."""
        if key in self.duplicates:
            return
        self.duplicates.add(key)
        section, first = self.sections[-1].name, self.first_lines[key]
        reason = f"key '{show(key)}' stands twice in [{show(section)}], in lines {first} and {number}"
        if self.strict:
            self._problem(number, reason, "keep one of them")
        else:
            reason += "; the first value counts"
            report_oddity(reason, strict=False, file=self.file, line=number, remedy="keep one of them")

    def _problem(self, line: int, reason: str, remedy: str) -> None:
        self.problems.append(_Problem(line, reason, remedy))

    def _error(self) -> FormatError:
        first, *others = self.problems
        parts = [first.reason, *(f"line {p.line}: {p.reason}" for p in others[: _SHOWN_PROBLEMS - 1])]
        if len(others) >= _SHOWN_PROBLEMS:
            parts.append(f"and {len(others) - _SHOWN_PROBLEMS + 1} more")
        return FormatError("; ".join(parts), file=self.file, line=first.line, remedy=first.remedy)
