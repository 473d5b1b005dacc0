"""The short notation in which the fields of Caffe's messages are written down here.

A message begins at the margin with its name; indented below it come its enums and fields:

    PoolingParameter
      enum PoolMethod MAX=0 AVE=1 STOCHASTIC=2
      1 pool PoolMethod = MAX
      4 pad uint32 = 0
      - kernel_size

A field is its number, name and type, then perhaps `= default` and `deprecated`. After the type, `*` means repeated,
`!` required, `[]` repeated and kept as one NumPy array. `packed` and `unpacked` say how repeated numbers are
written to binary files (arrays: packed unless said otherwise; the rest: unpacked). `- name` takes a field away that
an earlier table has, `- name 1000143` gives it another number: forks use this where its number means something else.
`enum Name A=0 B=1` at the margin is an enum of its own. A line indented by four or more continues the line before;
`#` starts a comment.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NoReturn

from undertow.errors import FormatError

_FIELD = re.compile(
    r"(?P<number>\d+) (?P<name>\w+) (?P<kind>[\w.]+)(?P<label>\*|!|\[\])?(?P<packing> packed| unpacked)?"
    r'(?: = (?P<default>"[^"]*"|\S+))?(?P<deprecated> deprecated)?'
)
_ENUM = re.compile(r"enum (\w+)((?: \w+=-?\d+)+)")
_MOVED = re.compile(r"- (\w+)(?: (\d+))?")
_NAME = re.compile(r"[A-Za-z]\w*")
_LARGEST_NUMBER = (1 << 29) - 1


@dataclass(frozen=True)
class FieldDeclaration:
    """One field line. `default` is its text, quotes included; `label` is "", "*", "!" or "[]"."""

    number: int
    name: str
    kind: str
    label: str = ""
    packed: bool = False
    default: str | None = None
    deprecated: bool = False


@dataclass(frozen=True)
class EnumDeclaration:
    name: str
    numbers: dict[str, int]


@dataclass
class MessageDeclaration:
    name: str
    fields: list[FieldDeclaration] = field(default_factory=list)
    enums: list[EnumDeclaration] = field(default_factory=list)
    moved: dict[str, int | None] = field(default_factory=dict)


def read_notation(text: str, source: str) -> tuple[list[MessageDeclaration], list[EnumDeclaration]]:
    """The messages and the top-level enums of a table.

    source: the name of the table (a fork) for error messages. Raises FormatError with the line.
    """
    messages: list[MessageDeclaration] = []
    enums: list[EnumDeclaration] = []
    for number, line in _joined_lines(text):
        content = line.strip()
        if line[0] != " ":
            if content.startswith("enum "):
                enums.append(_enum(content, source, number))
            elif _NAME.fullmatch(content):
                messages.append(MessageDeclaration(content))
            else:
                _refuse(content, source, number)
        elif not messages:
            _refuse(content, source, number)
        else:
            _add_member(messages[-1], content, source, number)
    return messages, enums


def _joined_lines(text: str) -> list[tuple[int, str]]:
    """Lines with their numbers, without comments and blank ones, continuations joined."""
    lines: list[tuple[int, str]] = []
    for number, raw in enumerate(text.splitlines(), start=1):
        line = re.sub(r"(^|\s)#.*", "", raw).rstrip()
        if not line:
            continue
        if line.startswith("    ") and lines:
            lines[-1] = (lines[-1][0], f"{lines[-1][1]} {line.strip()}")
        else:
            lines.append((number, line))
    return lines


def _add_member(message: MessageDeclaration, content: str, source: str, line: int) -> None:
    if content.startswith("enum "):
        message.enums.append(_enum(content, source, line))
    elif content.startswith("- "):
        moved = _MOVED.fullmatch(content)
        if moved is None:
            _refuse(content, source, line)
        message.moved[moved[1]] = int(moved[2]) if moved[2] else None
    else:
        message.fields.append(_field(content, source, line))


def _enum(content: str, source: str, line: int) -> EnumDeclaration:
    match = _ENUM.fullmatch(content)
    if match is None:
        _refuse(content, source, line)
    pairs = (item.split("=") for item in match[2].split())
    return EnumDeclaration(match[1], {name: int(number) for name, number in pairs})


def _field(content: str, source: str, line: int) -> FieldDeclaration:
    match = _FIELD.fullmatch(content)
    if match is None or not 1 <= int(match["number"]) <= _LARGEST_NUMBER:
        _refuse(content, source, line)
    label = match["label"] or ""
    packing = (match["packing"] or "").strip()
    if label == "[]" and match["kind"] not in ("float", "double"):
        _refuse(content, source, line)
    return FieldDeclaration(
        number=int(match["number"]),
        name=match["name"],
        kind=match["kind"],
        label=label,
        packed=packing == "packed" or (label == "[]" and packing != "unpacked"),
        default=match["default"],
        deprecated=bool(match["deprecated"]),
    )


def _refuse(content: str, source: str, line: int) -> NoReturn:
    raise FormatError(
        f"the fields of '{source}': cannot understand '{content}'",
        line=line,
        remedy="write a message name at the margin, and below it lines such as `  200 my_param MyParameter`",
    )
