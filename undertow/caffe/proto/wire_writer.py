"""Writing protobuf's binary format: fields by number, as Caffe's own serializer does, unknown fields last."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from undertow.caffe.proto.message import Message
from undertow.caffe.proto.schema import Field
from undertow.errors import FormatError, UndertowWarning

Chunk = bytes | memoryview

_MASK64 = (1 << 64) - 1
_JOINED = 4096


def varint(value: int) -> bytes:
    """A number below 2^64 in protobuf's variable-length form; negative ones take ten bytes."""
    value &= _MASK64
    result = bytearray()
    while value > 0x7F:
        result.append(value & 0x7F | 0x80)
        value >>= 7
    result.append(value)
    return bytes(result)


def _zigzag(value: int) -> bytes:
    return varint(value << 1 if value >= 0 else (-value << 1) - 1)


_ENCODERS: dict[str, Callable[[Any], bytes]] = {
    "int32": varint, "int64": varint, "uint32": varint, "uint64": varint, "bool": varint,
    "sint32": _zigzag, "sint64": _zigzag,
    "fixed32": struct.Struct("<I").pack, "sfixed32": struct.Struct("<i").pack, "float": struct.Struct("<f").pack,
    "fixed64": struct.Struct("<Q").pack, "sfixed64": struct.Struct("<q").pack, "double": struct.Struct("<d").pack,
}  # fmt: skip


def to_chunks(message: Message) -> list[Chunk]:
    """The binary form of a message in pieces; large arrays are pieces of their own and are not copied.

    Raises FormatError where a required field is not set. Warns where a message holds unknown fields from a text,
    which have no number and cannot be stored.
    """
    return _Writer().message(message)[0]


class _Writer:
    def message(self, message: Message) -> tuple[list[Chunk], int]:
        """The pieces of a message and their whole length."""
        output = _Chunks()
        by_name = message.descriptor.by_name
        for field in message.descriptor.required:
            if not message.has_field(field.name):
                raise FormatError(
                    f"{message.descriptor.name} lacks {field.name}, which it must have", remedy=f"set {field.name}"
                )
        for name in message.field_names():
            self._field(output, by_name[name], message._values[name])
        for unknown in message.unknown_fields:
            if unknown.number:
                output.add(unknown.raw)
            else:
                warnings.warn(
                    f"line {unknown.line}: {unknown.name} is in no schema and is not stored in the binary form",
                    UndertowWarning,
                    stacklevel=4,
                )
        return output.finish()

    def _field(self, output: _Chunks, field: Field, value: Any) -> None:
        if field.array:
            self._array(output, field, value)
        elif field.packed:
            data = b"".join(self._scalar(field, item) for item in value)
            output.add(varint(field.number << 3 | 2) + varint(len(data)) + data)
        else:
            tag = varint(field.number << 3 | field.wire_type)
            for item in value if field.repeated else (value,):
                self._single(output, field, tag, item)

    def _single(self, output: _Chunks, field: Field, tag: bytes, item: Any) -> None:
        if field.kind == "message":
            chunks, length = self.message(item)
            output.add(tag + varint(length))
            output.extend(chunks)
        elif field.kind in ("string", "bytes"):
            data = item if isinstance(item, bytes) else item.encode("utf-8", "surrogateescape")
            output.add(tag + varint(len(data)))
            output.add(data)
        else:
            output.add(tag + self._scalar(field, item))

    def _scalar(self, field: Field, item: Any) -> bytes:
        return varint(field.enum.numbers[item]) if field.enum is not None else _ENCODERS[field.kind](item)

    def _array(self, output: _Chunks, field: Field, values: np.ndarray) -> None:
        if field.packed:
            output.add(varint(field.number << 3 | 2) + varint(values.nbytes))
            output.add(np.ascontiguousarray(values).view(np.uint8).data)
        else:
            tag = np.frombuffer(varint(field.number << 3 | field.wire_type), np.uint8)
            rows = np.empty((len(values), len(tag) + values.itemsize), np.uint8)
            rows[:, : len(tag)] = tag
            rows[:, len(tag) :] = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), -1)
            output.add(rows.reshape(-1).data)


class _Chunks:
    """Pieces in order: small ones are joined, large ones kept as they are."""

    def __init__(self) -> None:
        self.pieces: list[Chunk] = []
        self.small = bytearray()
        self.length = 0

    def add(self, piece: Chunk) -> None:
        self.length += len(piece)
        if len(piece) <= _JOINED:
            self.small += piece
        else:
            self._flush()
            self.pieces.append(piece)

    def extend(self, pieces: list[Chunk]) -> None:
        for piece in pieces:
            self.add(piece)

    def _flush(self) -> None:
        if self.small:
            self.pieces.append(bytes(self.small))
            self.small = bytearray()

    def finish(self) -> tuple[list[Chunk], int]:
        self._flush()
        return self.pieces, self.length
