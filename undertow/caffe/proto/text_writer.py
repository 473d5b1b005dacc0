"""Writing protobuf's text format as Caffe prints it: fields by number, two blanks per level."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from undertow.caffe.proto.message import Message
from undertow.caffe.proto.schema import Field

_ESCAPES = {
    0x0A: "\\n", 0x0D: "\\r", 0x09: "\\t", 0x22: '\\"', 0x27: "\\'", 0x5C: "\\\\",
}  # fmt: skip


def print_text(message: Message, longest_array: int | None = None) -> str:
    """The text of a message.

    longest_array: show at most so many values of each array, and in a comment how many are left out. Unknown fields
    from binary files, which the format has no place for, appear as comments; those from text, as they were written.
    """
    return "".join(_lines(message, "", longest_array))


def _lines(message: Message, indent: str, longest: int | None) -> Iterator[str]:
    by_name = message.descriptor.by_name
    for name in message.field_names():
        field = by_name[name]
        value = message._values[name]
        values = value[:longest] if field.array else (value if field.repeated else (value,))
        for item in values:
            if field.message is not None:
                yield f"{indent}{name} {{\n"
                yield from _lines(item, indent + "  ", longest)
                yield f"{indent}}}\n"
            else:
                yield f"{indent}{name}: {_scalar(field, item)}\n"
        if field.array and len(values) < len(value):
            yield f"{indent}# {len(value) - len(values)} more values of {name}\n"
    for unknown in message.unknown_fields:
        if unknown.number:
            yield f"{indent}# unknown field {unknown.number}: {len(unknown.raw)} bytes\n"
        else:
            yield f"{indent}{unknown.raw.decode('utf-8', 'surrogateescape')}\n"


def _scalar(field: Field, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return quote(value)
    if field.kind == "string":
        return quote(str(value).encode("utf-8", "surrogateescape"))
    if isinstance(value, float | np.floating):
        return format_float(float(value)) if field.kind == "float" else _format_double(float(value))
    return str(value)


def quote(data: bytes) -> str:
    """A string literal: printable ASCII as it is, everything else escaped as protobuf does (octal)."""
    body = (_ESCAPES.get(byte) or (chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}") for byte in data)
    return f'"{"".join(body)}"'


def format_float(value: float) -> str:
    """The shortest decimal that reads back as the same float32: 6 digits if they do, up to 9."""
    if not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    wanted = np.float32(value)
    for digits in (6, 7, 8):
        text = f"{value:.{digits}g}"
        with np.errstate(over="ignore"):
            if np.float32(float(text)) == wanted:
                return text
    return f"{value:.9g}"


def _format_double(value: float) -> str:
    if not math.isfinite(value):
        return format_float(value)
    text = f"{value:.15g}"
    return text if float(text) == value else f"{value:.17g}"
