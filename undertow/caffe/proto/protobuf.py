"""Real protobuf classes of Caffe's messages, built at run time from the schema; and the way there and back.

Needs the package protobuf (extra `caffe`). The classes live in a descriptor pool of their own, so they get along with
any other caffe_pb2 in the process.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from undertow.caffe.proto.message import Message
from undertow.caffe.proto.schema import DEFAULT_FORK, EnumType, Field, ForkLike, MessageType, Schema, get_schema
from undertow.caffe.proto.wire import parse_bytes
from undertow.errors import MissingPackage

_PACKAGE, _MODULE = "caffe", "undertow.caffe.proto.caffe_pb2"
_LABELS = {"optional": 1, "required": 2, "repeated": 3}
_TYPES = {
    "double": 1, "float": 2, "int64": 3, "uint64": 4, "int32": 5, "fixed64": 6, "fixed32": 7, "bool": 8, "string": 9,
    "message": 11, "bytes": 12, "uint32": 13, "enum": 14, "sfixed32": 15, "sfixed64": 16, "sint32": 17, "sint64": 18,
}  # fmt: skip

_built: WeakKeyDictionary[Schema, dict[str, Any]] = WeakKeyDictionary()


def protobuf_names(fork: ForkLike = DEFAULT_FORK) -> dict[str, Any]:
    """What a generated caffe_pb2 has: message classes, top-level enums and their values, and `DESCRIPTOR`.

    Raises MissingPackage without protobuf.
    """
    schema = get_schema(fork)
    if schema not in _built:
        _built[schema] = _build(schema)
    return _built[schema]


def to_protobuf(message: Message) -> Any:
    """The same message as an object of a protobuf class, in the schema that it was made with."""
    cls = protobuf_names(message.descriptor.schema)[message.descriptor.name]
    return cls.FromString(message.to_bytes())


def from_protobuf(message: Any, fork: ForkLike = DEFAULT_FORK) -> Message:
    """A protobuf object, from this module or from any other caffe_pb2, as a message of ours."""
    return parse_bytes(message.SerializePartialToString(), get_schema(fork)[message.DESCRIPTOR.name])


def _protobuf(name: str) -> ModuleType:
    import importlib

    try:
        return importlib.import_module(f"google.protobuf.{name}")
    except ImportError:
        raise MissingPackage("protobuf", "caffe", "caffe_pb2 (the protobuf classes of Caffe's messages)") from None


def _build(schema: Schema) -> dict[str, Any]:
    file = _protobuf("descriptor_pb2").FileDescriptorProto(name="caffe.proto", package=_PACKAGE, syntax="proto2")
    for enum in schema.enums.values():
        _describe_enum(file.enum_type.add(), enum)
    for message in schema.messages.values():
        _describe_message(file.message_type.add(), message)
    pool = _protobuf("descriptor_pool").DescriptorPool()
    pool.Add(file)
    get_class = _protobuf("message_factory").GetMessageClass
    names: dict[str, Any] = {"DESCRIPTOR": pool.FindFileByName("caffe.proto")}
    module = _MODULE if schema is get_schema(DEFAULT_FORK) else None
    for name in schema.messages:
        descriptor = pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")
        names[name] = get_class(descriptor)
        names[name].__module__ = module  # where pickle finds it
        names[f"_{name.upper()}"] = descriptor
        for enum in descriptor.enum_types:
            names[f"_{name.upper()}_{enum.name.upper()}"] = enum
    wrapper = _protobuf("internal.enum_type_wrapper").EnumTypeWrapper
    for name, enum_type in schema.enums.items():
        top_level = pool.FindEnumTypeByName(f"{_PACKAGE}.{name}")
        names[name] = wrapper(top_level)
        names[f"_{name.upper()}"] = top_level
        names.update(enum_type.numbers)
    return names


def _describe_enum(target: Any, enum: EnumType) -> None:
    target.name = enum.name.rpartition(".")[2]
    for name, number in enum.numbers.items():
        target.value.add(name=name, number=number)


def _describe_message(target: Any, message: MessageType) -> None:
    target.name = message.name
    for enum in message.enums.values():
        _describe_enum(target.enum_type.add(), enum)
    for field in message.fields:
        _describe_field(target.field.add(), field)


def _describe_field(target: Any, field: Field) -> None:
    label = "repeated" if field.repeated else ("required" if field.required else "optional")
    target.name = field.name
    target.number = field.number
    target.label = _LABELS[label]
    target.type = _TYPES[field.kind]
    referred = field.message or field.enum
    if referred is not None:
        target.type_name = f".{_PACKAGE}.{referred.name}"
    if field.declaration.default is not None:
        target.default_value = field.declaration.default.strip('"')
    if field.packed:
        target.options.packed = True
