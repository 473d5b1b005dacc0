"""Message objects: one generic class for every message of Caffe's formats.

A field is read and written as an attribute; unset fields read as their defaults. Enums are names ("MAX"), repeated
fields are lists that check what is put into them, large repeated floats (`BlobProto.data`) are NumPy arrays, which
may be read-only views of a mapped file. An unset message field reads as a shared instance of defaults that cannot be
changed; `mutable(name)` makes it part of its owner first:

    layer = Message(get_schema()["LayerParameter"], name="conv1", type="Convolution")
    layer.convolution_param.num_output          # 0, and layer.has_field("convolution_param") stays False
    layer.mutable("convolution_param").num_output = 20
    layer.param.add(lr_mult=1)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, SupportsIndex, overload

import numpy as np

from undertow.caffe.proto.schema import DEFAULT_FORK, Field, ForkLike, MessageType, get_schema
from undertow.caffe.proto.values import ARRAY_DTYPES, coerce
from undertow.errors import UndertowError


@dataclass(frozen=True)
class UnknownField:
    """A field that the schema does not have, kept so that it is written back.

    From binary files: `number`, `wire_type`, `raw` (tag and value) and `offset`. From text: `name`, `raw` (its text
    in UTF-8) and `line`; there `number` is 0.
    """

    number: int
    wire_type: int
    raw: bytes
    offset: int = 0
    name: str = ""
    line: int = 0


class Repeated(list[Any]):
    """The values of a repeated field. Everything put in is checked and converted like a single value."""

    __slots__ = ("_field",)

    def __init__(self, field: Field, values: Iterable[object] = ()) -> None:
        self._field = field
        super().__init__(_element(field, value) for value in values)

    def add(self, /, **values: object) -> Any:
        """Append a new message with these fields set, and return it."""
        self.append(values)
        return self[-1]

    def append(self, value: object) -> None:
        super().append(_element(self._field, value))

    def extend(self, values: Iterable[object]) -> None:
        super().extend([_element(self._field, value) for value in values])

    def insert(self, index: SupportsIndex, value: object) -> None:
        super().insert(index, _element(self._field, value))

    def __iadd__(self, values: Iterable[object]) -> Repeated:  # type: ignore[misc]
        self.extend(values)
        return self

    @overload
    def __setitem__(self, index: SupportsIndex, value: object) -> None: ...
    @overload
    def __setitem__(self, index: slice, value: Iterable[object]) -> None: ...
    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(index, slice):
            super().__setitem__(index, [_element(self._field, item) for item in value])
        else:
            super().__setitem__(index, _element(self._field, value))


class Message:
    """One message of a given type. Fields may be given by keyword; messages among them as messages or mappings.

    Two messages are equal when they have the same type name, the same set fields and the same unknown fields; NaNs
    in the same place count as equal.
    """

    __slots__ = ("_frozen", "_lines", "_type", "_unknown", "_values")

    _type: MessageType
    _values: dict[str, Any]
    _unknown: list[UnknownField] | None
    _lines: dict[str, int] | None
    _frozen: bool
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, descriptor: MessageType, /, **values: object) -> None:
        set_slot = object.__setattr__
        set_slot(self, "_type", descriptor)
        set_slot(self, "_values", {})
        set_slot(self, "_unknown", None)
        set_slot(self, "_lines", None)
        set_slot(self, "_frozen", False)
        for name, value in values.items():
            setattr(self, name, value)

    @property
    def descriptor(self) -> MessageType:
        """The type: its `name` and `fields`."""
        return self._type

    @property
    def unknown_fields(self) -> list[UnknownField]:
        """What the file had beyond the schema, in order; written back by `to_bytes`."""
        return list(self._unknown or ())

    def keep_unknown(self, field: UnknownField) -> None:
        """Add a field that the schema does not have; for readers."""
        if self._unknown is None:
            object.__setattr__(self, "_unknown", [])
        self._unknown.append(field)  # type: ignore[union-attr]

    # Fields as attributes.

    def __getattr__(self, name: str) -> Any:
        value = self._values.get(name)
        if value is not None:
            return value
        field = self._type.by_name.get(name)
        if field is None:
            raise AttributeError(self._no_field(name))
        if field.array:
            return np.empty(0, ARRAY_DTYPES[field.kind])
        if field.repeated:
            if self._frozen:
                return ()
            value = self._values[name] = Repeated(field)
            return value
        if field.message is not None:
            return default_instance(field.message)
        return field.default

    def __setattr__(self, name: str, value: object) -> None:
        field = self._field(name)
        self._check_changeable()
        if field.array:
            self._values[name] = _array(field, value)
        elif field.repeated:
            self._values[name] = Repeated(field, value)  # type: ignore[arg-type]
        else:
            self._values[name] = _element(field, value)

    def __delattr__(self, name: str) -> None:
        self.clear_field(name)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._type.by_name]

    def _field(self, name: str) -> Field:
        try:
            return self._type.by_name[name]
        except KeyError:
            raise AttributeError(self._no_field(name)) from None

    def _no_field(self, name: str) -> str:
        near = self._type.nearest(name)
        return f"{self._type.name} has no field {name}" + (f"; did you mean {near}?" if near else "")

    def _check_changeable(self) -> None:
        if self._frozen:
            raise UndertowError(
                f"this {self._type.name} only shows the defaults of a field that is not set",
                remedy="use owner.mutable(field) to set the field and change it",
            )

    # Presence.

    def has_field(self, name: str) -> bool:
        """Whether a field is set; a repeated one, whether it has any values."""
        field = self._field(name)
        value = self._values.get(name)
        return value is not None and (not field.repeated or len(value) > 0)

    def clear_field(self, name: str) -> None:
        """Unset a field."""
        self._field(name)
        self._check_changeable()
        self._values.pop(name, None)

    def field_names(self) -> list[str]:
        """The names of all set fields, in the order of their numbers."""
        by_name = self._type.by_name
        present = (name for name, value in self._values.items() if not by_name[name].repeated or len(value))
        return sorted(present, key=lambda name: by_name[name].number)

    def mutable(self, name: str) -> Message:
        """The message in a singular message field, set to an empty one first if it is not set."""
        field = self._field(name)
        if field.message is None or field.repeated:
            raise UndertowError(
                f"{self._type.name}.{name} does not hold a single message",
                remedy=f"use add('{name}') for a list of messages, or assign a value",
            )
        self._check_changeable()
        value = self._values.get(name)
        if value is None:
            value = self._values[name] = Message(field.message)
        return value

    def add(self, name: str, /, **values: object) -> Message:
        """Append a message with these fields to a repeated message field, and return it."""
        field = self._field(name)
        if field.message is None or not field.repeated:
            raise UndertowError(
                f"{self._type.name}.{name} does not hold a list of messages",
                remedy=f"use mutable('{name}') for one message",
            )
        self._check_changeable()
        return getattr(self, name).add(**values)

    def line_of(self, name: str | None = None) -> int | None:
        """The line where a field (the last of a repeated one), or the message itself, begins in its text file."""
        return (self._lines or {}).get(name or "")

    # Whole messages.

    def copy(self) -> Message:
        """A deep copy. Read-only arrays (views of a mapped file) are shared."""
        result = Message(self._type)
        result.merge_from(self)
        object.__setattr__(result, "_lines", dict(self._lines) if self._lines else None)
        return result

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, object]) -> Message:
        return self.copy()

    def copy_from(self, other: Message) -> None:
        """Become equal to another message of the same type."""
        if other is not self:
            self._check_changeable()
            self._values.clear()
            object.__setattr__(self, "_unknown", None)
            self.merge_from(other)

    def merge_from(self, other: Message) -> None:
        """Take over the fields set in another message: single values replace, lists are extended, messages merge."""
        if other._type.name != self._type.name:
            raise UndertowError(
                f"cannot merge {other._type.name} into {self._type.name}", remedy=f"merge a {self._type.name}"
            )
        self._check_changeable()
        for name in other.field_names():
            self._merge_field(self._field(name), other._values[name])
        if other._unknown:
            object.__setattr__(self, "_unknown", [*(self._unknown or ()), *other._unknown])

    def _merge_field(self, field: Field, value: Any) -> None:
        name = field.name
        if field.array:
            own = self._values.get(name)
            if own is not None and len(own):
                self._values[name] = np.concatenate([own, value])
            else:
                self._values[name] = value.copy() if value.flags.writeable else value
        elif field.repeated:
            getattr(self, name).extend(value if field.message is None else [item.copy() for item in value])
        elif field.message is None:
            self._values[name] = value
        elif name in self._values:
            self._values[name].merge_from(value)
        else:
            self._values[name] = value.copy()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message):
            return NotImplemented
        names = self.field_names()
        return (
            self._type.name == other._type.name
            and names == other.field_names()
            and all(_equal(self._values[name], other._values[name]) for name in names)
            and [item.raw for item in self.unknown_fields] == [item.raw for item in other.unknown_fields]
        )

    # Output.

    def to_text(self) -> str:
        """The message in protobuf's text format, as Caffe prints it."""
        from undertow.caffe.proto.text_writer import print_text

        return print_text(self)

    def to_bytes(self) -> bytes:
        """The message in protobuf's binary format."""
        from undertow.caffe.proto.wire_writer import to_chunks

        return b"".join(to_chunks(self))

    def __str__(self) -> str:
        from undertow.caffe.proto.text_writer import print_text

        return print_text(self, longest_array=16)

    def __repr__(self) -> str:
        label = self._values.get("name", "")
        fields = ", ".join(self.field_names())
        return f"<{self._type.name}{f' {label!r}' if label else ''}: {fields}>"


def new_message(name: str, fork: ForkLike = DEFAULT_FORK, /, **values: object) -> Message:
    """A message by the name of its type: `new_message("BlobShape", dim=[1, 3])`."""
    return Message(get_schema(fork)[name], **values)


def walk(message: Message, path: str = "") -> Iterator[tuple[str, Message]]:
    """The message and all messages inside it, each with its path ("layer[3].blobs[0]")."""
    yield path, message
    for name in message.field_names():
        field = message._field(name)
        if field.message is not None:
            value = message._values[name]
            for index, item in enumerate(value if field.repeated else [value]):
                step = f"{name}[{index}]" if field.repeated else name
                yield from walk(item, f"{path}.{step}" if path else step)


def default_instance(message_type: MessageType) -> Message:
    """The shared, unchangeable message of a type with nothing set."""
    instance = message_type.default_instance
    if instance is None:
        instance = Message(message_type)
        object.__setattr__(instance, "_frozen", True)
        message_type.default_instance = instance
    return instance  # type: ignore[return-value]


def _element(field: Field, value: object) -> object:
    """One value of a field: messages as messages or mappings, the rest by `coerce`."""
    if field.message is None:
        return coerce(field, value)
    if isinstance(value, Mapping):
        return Message(field.message, **value)
    if isinstance(value, Message) and value._type.name == field.message.name:
        return value
    raise UndertowError(
        f"{field.owner.name}.{field.name} takes a {field.message.name}, not {type(value).__name__}",
        remedy=f"give a {field.message.name}, or the field's own fields",
    )


def _array(field: Field, value: object) -> np.ndarray:
    array = np.asarray(value)
    if array.size and array.dtype.kind not in "fiu":
        raise UndertowError(
            f"{field.owner.name}.{field.name} takes numbers, not {array.dtype}", remedy="give an array of floats"
        )
    return array.astype(ARRAY_DTYPES[field.kind], copy=False).reshape(-1)


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other, equal_nan=True)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    return bool(one == other) or (one != one and other != other)
