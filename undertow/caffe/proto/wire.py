"""Reading protobuf's binary format (caffemodel, solverstate, Datum, binaryproto).

Arrays of floats stay views of the buffer they are read from, usually a mapped file: nothing is copied and no size is
too large. Lengths are checked against what is left before anything is taken. Errors name the offset and the path of
the field. Fields that the schema does not have, or that are written in a form it does not allow, are kept as
`UnknownField`s.
"""

from __future__ import annotations

import os
import struct
from typing import Any

import numpy as np

from undertow.caffe.proto.message import Message, UnknownField
from undertow.caffe.proto.schema import Field, MessageType
from undertow.caffe.proto.values import ARRAY_DTYPES
from undertow.caffe.proto.wire_writer import varint
from undertow.errors import FormatError

Buffer = bytes | bytearray | memoryview

_DEEPEST = 100
_FORMATS = {
    "fixed32": struct.Struct("<I"), "sfixed32": struct.Struct("<i"), "float": struct.Struct("<f"),
    "fixed64": struct.Struct("<Q"), "sfixed64": struct.Struct("<q"), "double": struct.Struct("<d"),
}  # fmt: skip
_WIDTHS = {1: 8, 5: 4}
_MASK64 = (1 << 64) - 1
_VIEWED_RUN = 16


def parse_bytes(
    data: Buffer,
    descriptor: MessageType,
    *,
    file: str | os.PathLike[str] | None = None,
) -> Message:
    """The message that some bytes hold. Its arrays are read-only views of `data`.

    Raises FormatError with the offset and the path of the field.
    """
    view = memoryview(data).cast("B").toreadonly()
    message = Message(descriptor)
    _Reader(view, file).read_message(message, 0, len(view), 0)
    return message


_REMEDY = "take another copy: this one is cut off, damaged, or a file of another kind"


class _Reader:
    def __init__(self, data: memoryview, file: str | os.PathLike[str] | None) -> None:
        self.data = data
        self.bytes = np.frombuffer(data, np.uint8)
        self.file = file
        self.path: list[str] = []

    def error(self, reason: str, offset: int, field: str = "") -> FormatError:
        """An error at an offset; the path is that of the message being read and the field in it."""
        path = ".".join([*self.path, field] if field else self.path)
        reason = f"{reason} ({path})" if path else reason
        return FormatError(reason, file=self.file, offset=offset, remedy=_REMEDY)

    def varint(self, position: int, end: int, what: str) -> tuple[int, int]:
        """A varint of at most 64 bits and the position after it."""
        value = shift = 0
        start = position
        while position < end and shift < 70:
            byte = self.data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & _MASK64, position
            shift += 7
        reason = f"{what} has no end" if shift < 70 else f"{what} is longer than ten bytes"
        raise self.error(reason, start)

    def read_message(self, message: Message, position: int, end: int, depth: int) -> None:
        """The fields between two positions, added to a message."""
        if depth > _DEEPEST:
            raise self.error(f"messages inside each other more than {_DEEPEST} deep", position)
        by_number = message.descriptor.by_number
        arrays: dict[str, _ArrayParts] = {}
        while position < end:
            start = position
            tag, position = self.varint(position, end, "a field number")
            number, wire_type = tag >> 3, tag & 7
            if number == 0 or tag > 0xFFFFFFFF:
                raise self.error(f"{number} is no field number", start)
            field = by_number.get(number)
            if field is not None and field.array and wire_type in (2, field.wire_type):
                parts = arrays.setdefault(field.name, _ArrayParts(field))
                position = self._read_array(parts, start, position, end, wire_type)
            elif field is not None and wire_type == field.wire_type:
                position = self._read_field(message, field, start, position, end, depth)
            elif field is not None and field.repeated and wire_type == 2 and field.wire_type != 2:
                position = self._read_packed(message, field, start, position, end)
            else:
                position = self._keep_unknown(message, number, wire_type, start, position, end)
        for parts in arrays.values():
            message._merge_field(parts.field, parts.finish())
        for field in message.descriptor.required:
            if not message.has_field(field.name):
                raise self.error(f"{message.descriptor.name} lacks {field.name}, which it must have", end)

    def _length(self, number: int, name: str, position: int, end: int) -> tuple[int, int]:
        """The start and end of a length-delimited value."""
        length, start = self.varint(position, end, f"the length of field {number}")
        if length > end - start:
            raise self.error(f"field {number} claims {length} bytes, {end - start} left", position, name)
        return start, start + length

    # Known fields.

    def _read_field(self, message: Message, field: Field, start: int, position: int, end: int, depth: int) -> int:
        if field.wire_type != 2:
            value, position = self._scalar(field, position, end)
            self._store(message, field, value, start, position)
            return position
        begin, stop = self._length(field.number, field.name, position, end)
        if field.kind == "message":
            self._read_child(message, field, begin, stop, depth)
        else:
            raw = bytes(self.data[begin:stop])
            value = raw if field.kind == "bytes" else raw.decode("utf-8", "surrogateescape")
            self._store(message, field, value, start, stop)
        return stop

    def _read_child(self, message: Message, field: Field, begin: int, stop: int, depth: int) -> None:
        if field.repeated:
            step = f"{field.name}[{len(getattr(message, field.name))}]"
            child = message.add(field.name)
        else:
            step = field.name
            child = message.mutable(field.name)
        self.path.append(step)
        self.read_message(child, begin, stop, depth + 1)
        self.path.pop()

    def _scalar(self, field: Field, position: int, end: int) -> tuple[Any, int]:
        """One number; None for an enum number that has no name."""
        form = _FORMATS.get(field.kind)
        if form is not None:
            if position + form.size > end:
                raise self.error(f"field {field.number} needs {form.size} bytes, {end - position} left", position)
            return form.unpack_from(self.data, position)[0], position + form.size
        value, position = self.varint(position, end, f"the value of field {field.number}")
        return _from_varint(field, value), position

    def _store(self, message: Message, field: Field, value: object, start: int, stop: int) -> None:
        if value is None:
            # As in protobuf, an enum number without a name counts as an unknown field.
            message.keep_unknown(UnknownField(field.number, 0, bytes(self.data[start:stop]), start))
        elif field.repeated:
            list.append(getattr(message, field.name), value)
        else:
            message._values[field.name] = value

    def _read_packed(self, message: Message, field: Field, start: int, position: int, end: int) -> int:
        position, stop = self._length(field.number, field.name, position, end)
        values = getattr(message, field.name)
        while position < stop:
            before = position
            value, position = self._scalar(field, position, stop)
            if value is None:
                tag = varint(field.number << 3)
                raw = tag + bytes(self.data[before:position])
                message.keep_unknown(UnknownField(field.number, 0, raw, before))
            else:
                list.append(values, value)
        return stop

    def _read_array(self, parts: _ArrayParts, start: int, position: int, end: int, wire_type: int) -> int:
        """Floats: a packed block, or a run of single values with their tags between them."""
        field = parts.field
        width = parts.dtype.itemsize
        if wire_type == 2:
            position, stop = self._length(field.number, field.name, position, end)
            if (stop - position) % width:
                raise self.error(f"{stop - position} bytes are no whole number of {field.kind}s", position, field.name)
            parts.add(np.frombuffer(self.data, parts.dtype, (stop - position) // width, position))
            return stop
        if position + width > end:
            raise self.error(f"field {field.number} needs {width} bytes, {end - position} left", position, field.name)
        tag = self.bytes[start:position]
        stride = len(tag) + width
        count = self._run_length(tag, start, end, stride)
        parts.add(np.ndarray((count,), parts.dtype, self.data, position, (stride,)))
        return start + count * stride

    def _run_length(self, tag: np.ndarray, start: int, end: int, stride: int) -> int:
        """How many values of one field follow each other; looks ahead in growing steps."""
        most = (end - start) // stride
        count, step = 1, _VIEWED_RUN
        while count < most:
            step = min(step * 4, most - count)
            begin = start + count * stride
            same = self.bytes[begin : begin + step * stride].reshape(step, stride)[:, : len(tag)] == tag
            wrong = np.flatnonzero(~same.all(axis=1))
            if len(wrong):
                return count + int(wrong[0])
            count += step
        return count

    # Unknown fields.

    def _keep_unknown(self, message: Message, number: int, wire_type: int, start: int, position: int, end: int) -> int:
        stop = self._skip(number, wire_type, start, position, end)
        message.keep_unknown(UnknownField(number, wire_type, bytes(self.data[start:stop]), start))
        return stop

    def _skip(self, number: int, wire_type: int, start: int, position: int, end: int) -> int:
        """The position after a value of any wire type. Groups, long out of use, are skipped whole."""
        groups: list[int] = []
        while True:
            if wire_type == 0:
                _, position = self.varint(position, end, f"the value of field {number}")
            elif wire_type in _WIDTHS:
                position += _WIDTHS[wire_type]
                if position > end:
                    raise self.error(f"field {number} is cut off", start)
            elif wire_type == 2:
                _, position = self._length(number, f"field {number}", position, end)
            elif wire_type == 3 and len(groups) < _DEEPEST:
                groups.append(number)
            elif wire_type == 4 and groups and groups[-1] == number:
                groups.pop()
            else:
                kind = {3: "too many groups inside each other", 4: "the end of a group that did not begin"}
                raise self.error(f"field {number}: {kind.get(wire_type, f'there is no wire type {wire_type}')}", start)
            if not groups:
                return position
            start = position
            tag, position = self.varint(position, end, f"the group of field {groups[-1]}")
            number, wire_type = tag >> 3, tag & 7


class _ArrayParts:
    """The pieces of one array field. One piece stays a view; more are gathered as bytes, not as many small arrays."""

    __slots__ = ("dtype", "field", "first", "gathered")

    def __init__(self, field: Field) -> None:
        self.field = field
        self.dtype: np.dtype[Any] = ARRAY_DTYPES[field.kind]
        self.first: np.ndarray | None = None
        self.gathered: bytearray | None = None

    def add(self, values: np.ndarray) -> None:
        if self.first is None:
            self.first = values
        else:
            if self.gathered is None:
                self.gathered = bytearray(self.first.tobytes())
            self.gathered += values.tobytes()

    def finish(self) -> np.ndarray:
        if self.gathered is not None or self.first is None:
            return np.frombuffer(bytes(self.gathered or b""), self.dtype)
        return self.first


def _from_varint(field: Field, value: int) -> object:
    """A varint as its kind takes it: 64 bits are cut to 32, as protobuf does."""
    kind = field.kind
    if kind == "bool":
        return value != 0
    if kind == "uint64":
        return value
    if kind == "uint32":
        return value & 0xFFFFFFFF
    if kind == "sint32":
        value &= 0xFFFFFFFF
    if kind in ("sint32", "sint64"):
        return (value >> 1) ^ -(value & 1)
    if kind == "int64":
        return value - (1 << 64) if value >> 63 else value
    value &= 0xFFFFFFFF
    value = value - (1 << 32) if value >> 31 else value
    return value if field.enum is None else field.enum.names.get(value)
