"""Caffe's messages and their fields: one table, put together from Caffe's own part and those of forks.

`get_schema()` gives Caffe 1.0 with the additions of the SSD fork; `get_schema(None)` Caffe 1.0 alone;
`get_schema(("ssd", "fast-rcnn"))` several forks together. Own fields are added with `register_fork`, or for one
call with `get_schema().extended(text, source)`. The notation is that of `undertow.caffe.proto.notation`.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterable, Sequence
from dataclasses import replace

from undertow.caffe.arguments import texts_of
from undertow.caffe.proto.fields_core import CORE
from undertow.caffe.proto.fields_forks import FORKS
from undertow.caffe.proto.fields_layers import LAYERS
from undertow.caffe.proto.fields_old import OLD
from undertow.caffe.proto.notation import EnumDeclaration, FieldDeclaration, MessageDeclaration, read_notation
from undertow.caffe.proto.values import float32
from undertow.errors import FormatError, UndertowError

DEFAULT_FORK = "ssd"

# How a value of a kind is written in binary files: 0 varint, 1 eight bytes, 2 length and bytes, 5 four bytes.
WIRE_TYPES = {
    "int32": 0, "int64": 0, "uint32": 0, "uint64": 0, "sint32": 0, "sint64": 0, "bool": 0, "enum": 0,
    "fixed64": 1, "sfixed64": 1, "double": 1,
    "string": 2, "bytes": 2, "message": 2,
    "fixed32": 5, "sfixed32": 5, "float": 5,
}  # fmt: skip

# Names that message objects use themselves; see `message.Message`.
_TAKEN = frozenset((
    "descriptor", "has_field", "clear_field", "field_names", "mutable", "add", "copy", "copy_from", "merge_from",
    "to_text", "to_bytes", "unknown_fields", "line_of", "keep_unknown",
))  # fmt: skip


class EnumType:
    """An enum: `numbers` by name and `names` by number. `name` is full ("PoolingParameter.PoolMethod")."""

    __slots__ = ("name", "names", "numbers", "sources")

    def __init__(self, name: str) -> None:
        self.name = name
        self.numbers: dict[str, int] = {}
        self.names: dict[int, str] = {}
        self.sources: dict[str, str] = {}

    def extend(self, declaration: EnumDeclaration, source: str) -> None:
        """Add values; a name or number that means something else already is an error naming both."""
        for name, number in declaration.numbers.items():
            known = self.names.get(number, name)
            if self.numbers.get(name, number) != number or known != name:
                raise FormatError(
                    f"{self.name} {name} = {number} of '{source}' collides with {known} = "
                    f"{self.numbers[known]} of '{self.sources[known]}'",
                    remedy="choose one of the two forks, or another number",
                )
            self.numbers[name] = number
            self.names[number] = name
            self.sources.setdefault(name, source)


class Field:
    """One field of a message.

    kind: a protobuf scalar type, "enum" or "message" (then `enum` or `message` has the type).
    array: a repeated float or double kept as one NumPy array. default: the value when unset (0, "", False, the first
    enum name where the table gives none; None for messages). source: "caffe" or the fork that brings the field.
    """

    __slots__ = (
        "array", "declaration", "default", "deprecated", "enum", "kind", "message", "name", "number", "owner",
        "packed", "repeated", "required", "source",
    )  # fmt: skip

    def __init__(self, owner: MessageType, declaration: FieldDeclaration, source: str) -> None:
        self.owner = owner
        self.declaration = declaration
        self.source = source
        self.number = declaration.number
        self.name = declaration.name
        self.kind = declaration.kind
        self.repeated = declaration.label in ("*", "[]")
        self.required = declaration.label == "!"
        self.array = declaration.label == "[]"
        self.packed = declaration.packed
        self.deprecated = declaration.deprecated
        self.message: MessageType | None = None
        self.enum: EnumType | None = None
        self.default: object = None

    @property
    def wire_type(self) -> int:
        """The wire type of one value, packing left aside."""
        return WIRE_TYPES[self.kind]

    def __repr__(self) -> str:
        return f"Field({self.owner.name}.{self.name}, {self.number}, {self.declaration.kind}{self.declaration.label})"

    def resolve(self, schema: Schema) -> None:
        """Find the type that the declaration names, and the default."""
        kind = self.declaration.kind
        if kind in WIRE_TYPES and kind not in ("enum", "message"):
            self.default = _scalar_default(kind, self.declaration.default)
        elif kind in schema.messages:
            self.kind, self.message = "message", schema.messages[kind]
        else:
            self.kind, self.enum = "enum", schema.find_enum(kind, self.owner)
            self.default = self.declaration.default or next(iter(self.enum.numbers))
            if self.default not in self.enum.numbers:
                raise FormatError(
                    f"{self.owner.name}.{self.name}: {self.enum.name} has no value {self.default}",
                    remedy="correct the default in the fork's schema",
                )


def _scalar_default(kind: str, text: str | None) -> object:
    if kind == "string":
        return (text or "").strip('"')
    if kind == "bytes":
        return (text or "").strip('"').encode()
    if kind == "bool":
        return text == "true"
    if kind in ("float", "double"):
        value = float(text or 0)
        return float32(value) if kind == "float" else value
    return int(text or 0)


class MessageType:
    """A message: its fields by name and by number, and its own enums."""

    __slots__ = ("by_name", "by_number", "default_instance", "enums", "name", "required", "schema")

    def __init__(self, name: str, schema: Schema) -> None:
        self.name = name
        self.schema = schema
        self.by_name: dict[str, Field] = {}
        self.by_number: dict[int, Field] = {}
        self.enums: dict[str, EnumType] = {}
        self.required: tuple[Field, ...] = ()
        self.default_instance: object = None

    @property
    def fields(self) -> list[Field]:
        """All fields in the order of their numbers."""
        return [self.by_number[number] for number in sorted(self.by_number)]

    def __repr__(self) -> str:
        return f"MessageType({self.name})"

    def nearest(self, name: str) -> str | None:
        """The known field name most like a mistyped one, or None."""
        found = difflib.get_close_matches(name[:80], self.by_name, n=1, cutoff=0.75)
        return found[0] if found else None

    def change(self, declaration: MessageDeclaration, source: str) -> None:
        """Move, take away and add what a table says."""
        for name, number in declaration.moved.items():
            known = self.by_name.pop(name, None)
            if known is not None:
                del self.by_number[known.number]
                if number is not None:
                    self._add(Field(self, replace(known.declaration, number=number), known.source))
        for enum in declaration.enums:
            self.enums.setdefault(enum.name, EnumType(f"{self.name}.{enum.name}")).extend(enum, source)
        for field in declaration.fields:
            self._add(Field(self, field, source))

    def _add(self, field: Field) -> None:
        for known in (self.by_number.get(field.number), self.by_name.get(field.name)):
            if known is not None and known.declaration != field.declaration:
                raise FormatError(
                    f"{self.name}: field {field.number} ({field.name}) of '{field.source}' collides with field "
                    f"{known.number} ({known.name}) of '{known.source}'",
                    remedy="read with one of the two, or give one of them another name and number",
                )
        if field.name in _TAKEN or field.name.startswith("_"):
            raise FormatError(
                f"{self.name}: a field cannot be named {field.name}", remedy="name it otherwise in the fork's schema"
            )
        self.by_number.setdefault(field.number, field)
        self.by_name.setdefault(field.name, field)


class Schema:
    """All messages of Caffe and some forks. Made by `get_schema` and `extended`; does not change afterwards."""

    def __init__(self, tables: Iterable[tuple[str, str]]) -> None:
        self.tables = tuple(tables)
        self.messages: dict[str, MessageType] = {}
        self.enums: dict[str, EnumType] = {}
        for source, text in self.tables:
            messages, enums = read_notation(text, source)
            for enum in enums:
                self.enums.setdefault(enum.name, EnumType(enum.name)).extend(enum, source)
            for message in messages:
                self.messages.setdefault(message.name, MessageType(message.name, self)).change(message, source)
        for message_type in self.messages.values():
            for field in message_type.by_number.values():
                field.resolve(self)
            message_type.required = tuple(field for field in message_type.fields if field.required)

    @property
    def forks(self) -> tuple[str, ...]:
        """The names of the tables beyond Caffe's own."""
        return tuple(source for source, _ in self.tables if source != "caffe")

    def __getitem__(self, name: str) -> MessageType:
        """The message type of a name; an unknown one is an UndertowError with the nearest known name."""
        try:
            return self.messages[name]
        except KeyError:
            near = difflib.get_close_matches(name, self.messages, n=1)
            hint = f"did you mean {near[0]}?" if near else "register it with register_fork"
            raise UndertowError(f"no message {name} in Caffe or {self.forks or 'its forks'}", remedy=hint) from None

    def find_enum(self, name: str, inside: MessageType) -> EnumType:
        """An enum by the name used inside a message: its own, a top-level one, or `Message.Enum`."""
        owner, _, short = name.rpartition(".")
        enums = self.messages[owner].enums if owner in self.messages else {**self.enums, **inside.enums}
        if short not in enums:
            raise FormatError(f"{inside.name}: there is no type {name}", remedy="declare it in the same table")
        return enums[short]

    def extended(self, text: str, source: str) -> Schema:
        """This schema with the fields of one more table; collisions are FormatErrors that name both sides."""
        return Schema([*self.tables, (source, text)])


_registered: dict[str, str] = dict(FORKS)


def register_fork(name: str, text: str) -> None:
    """Make the fields of a fork known under a name, for `fork=` of all readers.

    text: the notation of `undertow.caffe.proto.notation`. Fields that collide with Caffe's own are refused here, with
    those of other forks when both are asked for together.
    """
    if _registered.get(name, text) != text or name == "caffe":
        raise UndertowError(f"the fork '{name}' is registered already, with other fields", remedy="use another name")
    Schema([*_CAFFE, (name, text)])
    _registered[name] = text


def known_forks() -> tuple[str, ...]:
    """The names that `fork=` accepts."""
    return tuple(_registered)


_CAFFE = (("caffe", CORE), ("caffe", LAYERS), ("caffe", OLD))

ForkLike = str | Sequence[str] | Schema | None


def get_schema(fork: ForkLike = DEFAULT_FORK) -> Schema:
    """The schema for a fork's name, several names, None or "caffe" (Caffe 1.0 alone), or a schema (itself)."""
    if isinstance(fork, Schema):
        return fork
    names = (fork,) if isinstance(fork, str) else tuple(texts_of(fork, "fork"))
    return _build(tuple(name for name in names if name != "caffe"))


@functools.lru_cache(maxsize=32)
def _build(names: tuple[str, ...]) -> Schema:
    for name in names:
        if name not in _registered:
            near = difflib.get_close_matches(name, _registered, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"known are {', '.join(_registered)}; or register_fork"
            raise UndertowError(f"no fork named '{name}'", remedy=hint)
    return Schema([*_CAFFE, *((name, _registered[name]) for name in names)])


def forks_with(message: str, field: str | int) -> list[str]:
    """The known forks in whose table a message has a field of this name or number."""
    found = []
    for fork, text in _registered.items():
        for declaration in read_notation(text, fork)[0]:
            fields = declaration.fields if declaration.name == message else []
            if any(field in (known.name, known.number) for known in fields):
                found.append(fork)
    return found
