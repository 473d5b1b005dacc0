"""Options of operations, taken down so that two runs of a step can be compared."""

from __future__ import annotations

import dataclasses
import types
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from undertow.core.variable import Variable
from undertow.kernels.cpu.raw.plan_hash import fingerprint

ENGINE_FIELDS = frozenset({"inputs", "generation", "needs_input_grad", "_outputs", "_output_likes"})

_LARGE = 1 << 20  # bytes from which on all threads are worth while

_PLAIN = (type(None), bool, int, float, complex, str, bytes, type, np.generic, np.dtype, slice)


class ArrayTaken(NamedTuple):
    """An array as it was: the object, and a checksum of its values at that moment."""

    array: np.ndarray
    checksum: int


class Group(NamedTuple):
    """A tuple, dict or dataclass: its type and what it holds, taken down one by one."""

    kind: type
    items: tuple[tuple[Any, Any], ...]


class Thing(NamedTuple):
    """Any other object, known by its identity only."""

    object: Any


def checksum(array: np.ndarray) -> int:
    """The same for equal arrays, and practically never for unlike ones."""
    head = zlib.crc32(f"{array.dtype.str}{array.shape}".encode())
    whole = np.ascontiguousarray(array)
    if whole.nbytes > _LARGE:
        return zlib.crc32(fingerprint(whole), head)
    return zlib.crc32(whole.reshape(-1).view(np.uint8).data, head)


def take(value: Any) -> Any:
    """The value in a form that `same` can compare later, whatever happens to the value itself."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, np.ndarray):
        return Thing(value) if value.dtype.hasobject else ArrayTaken(value, checksum(value))
    if isinstance(value, (tuple, list)):
        return Group(type(value), tuple((i, take(v)) for i, v in enumerate(value)))
    if isinstance(value, (set, frozenset)):
        return Group(type(value), tuple((repr(v), None) for v in sorted(value, key=repr)))
    if isinstance(value, dict):
        return Group(dict, tuple((key, take(v)) for key, v in value.items()))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return Group(type(value), tuple((f.name, take(getattr(value, f.name, None))) for f in fields))
    if isinstance(value, types.MethodType):
        return Group(types.MethodType, ((0, Thing(value.__self__)), (1, Thing(value.__func__))))
    if isinstance(value, types.FunctionType) and value.__closure__:
        cells = tuple((i, take(cell.cell_contents)) for i, cell in enumerate(value.__closure__))
        return Group(types.FunctionType, ((-1, Thing(value.__code__)), *cells))
    if isinstance(value, types.FunctionType):
        return Thing(value.__code__)
    return Thing(value)


class Difference(NamedTuple):
    """What `same` found. fresh: equal values, but in an array made anew each time."""

    equal: bool
    fresh: bool


_SAME, _FRESH, _OTHER = Difference(True, False), Difference(True, True), Difference(False, False)


def same(a: Any, b: Any) -> Difference:
    """Whether two things that `take` gave are the same thing or have the same values."""
    if type(a) is not type(b):
        return _OTHER
    if isinstance(a, ArrayTaken):
        if is_same_memory(a.array, b.array):
            return _SAME
        return _FRESH if a.checksum == b.checksum else _OTHER
    if isinstance(a, Thing):
        return _SAME if a.object is b.object else _OTHER
    if isinstance(a, Group):
        if a.kind is not b.kind or [key for key, _ in a.items] != [key for key, _ in b.items]:
            return _OTHER
        found = [same(x, y) for (_, x), (_, y) in zip(a.items, b.items, strict=True)]
        if not all(f.equal for f in found):
            return _OTHER
        return _FRESH if any(f.fresh for f in found) else _SAME
    if isinstance(a, (float, np.floating)) and a != a and b != b:
        return _SAME
    return _SAME if a == b else _OTHER


def is_same_memory(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays that exist are one, or views of the same elements."""
    if a is b:
        return True
    places = ((x.__array_interface__["data"], x.shape, x.strides, x.dtype) for x in (a, b))
    return bool(a.size) and a.base is not None and b.base is not None and next(places) == next(places)


def parts(taken: Any) -> Iterator[ArrayTaken | Thing]:
    """All arrays and objects inside, at any depth, as they were taken down."""
    if isinstance(taken, (ArrayTaken, Thing)):
        yield taken
    elif isinstance(taken, Group):
        for _, item in taken.items:
            yield from parts(item)


def contents(taken: Any) -> Iterator[Any]:
    """All arrays and objects inside, at any depth."""
    for part in parts(taken):
        yield part.array if isinstance(part, ArrayTaken) else part.object


def is_variable(taken: Any) -> bool:
    """Whether a Variable is among them: an operand that the engine does not see."""
    return any(isinstance(item, Variable) for item in contents(taken))
