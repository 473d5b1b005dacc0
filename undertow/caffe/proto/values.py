"""Single values of protobuf's scalar kinds: what fits, and what it is turned into."""

from __future__ import annotations

import math
import numbers
import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.errors import FormatError

if TYPE_CHECKING:
    from undertow.caffe.proto.schema import Field

_BITS = {"int32": 32, "sint32": 32, "sfixed32": 32, "int64": 64, "sint64": 64, "sfixed64": 64}
_UNSIGNED_BITS = {"uint32": 32, "fixed32": 32, "uint64": 64, "fixed64": 64}
RANGES = {kind: (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) for kind, bits in _BITS.items()} | {
    kind: (0, (1 << bits) - 1) for kind, bits in _UNSIGNED_BITS.items()
}
ARRAY_DTYPES: dict[str, np.dtype[Any]] = {"float": np.dtype("<f4"), "double": np.dtype("<f8")}

_FLOAT = struct.Struct("<f")


def float32(value: float) -> float:
    """The nearest float32 as a Python float; too large becomes infinite, as protobuf has it."""
    try:
        return float(_FLOAT.unpack(_FLOAT.pack(value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def coerce(field: Field, value: object) -> object:
    """A value for a scalar or enum field in its stored form; FormatError when it does not fit.

    Integers must be integers within the kind's range, floats are rounded to float32, enums are given by name or
    number and kept by name, strings may come as UTF-8 bytes.
    """
    kind = field.kind
    if kind in RANGES:
        return _integer(field, value)
    if kind in ("float", "double"):
        if isinstance(value, numbers.Real | np.number) and not isinstance(value, np.complexfloating):
            return float32(float(value)) if kind == "float" else float(value)
    elif kind == "bool":
        if isinstance(value, bool | np.bool_) or (isinstance(value, int) and value in (0, 1)):
            return bool(value)
    elif kind == "string":
        if isinstance(value, str):
            return str(value)
        if isinstance(value, bytes):
            return value.decode("utf-8", "surrogateescape")
    elif kind == "bytes":
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(value)
    else:
        return _enum_name(field, value)
    raise _misfit(field, value)


def _integer(field: Field, value: object) -> int:
    if not isinstance(value, int | np.integer) or isinstance(value, bool):
        raise _misfit(field, value)
    low, high = RANGES[field.kind]
    if not low <= value <= high:
        raise FormatError(
            f"{field.owner.name}.{field.name}: {value} does not fit {field.kind} ({low} to {high})",
            remedy=f"give a number from {low} to {high}",
        )
    return int(value)


def _enum_name(field: Field, value: object) -> str:
    enum = field.enum
    if enum is None:
        raise _misfit(field, value)
    if isinstance(value, str) and value in enum.numbers:
        return str(value)
    if isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) in enum.names:
        return enum.names[int(value)]
    raise FormatError(
        f"{field.owner.name}.{field.name}: {enum.name} has no value {value!r}",
        remedy=f"use one of {', '.join(enum.numbers)}",
    )


def _misfit(field: Field, value: object) -> FormatError:
    whole = field.kind in RANGES and isinstance(value, float) and value.is_integer()
    return FormatError(
        f"{field.owner.name}.{field.name}: {value!r:.80} is not a value of type {field.kind}",
        remedy=f"write {value:.0f}, or // for a division: in Python 3 / makes a float" if whole else None,
    )
