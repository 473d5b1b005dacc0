"""Telling a caffemodel, a solverstate and a mean file from each other by the fields at their top.

Read as another kind, such a file gives a message about damage, or none: the numbers of the fields are the same.
"""

from __future__ import annotations

from collections.abc import Iterator

from undertow.caffe.proto.files import HDF5_SIGNATURE, PathLike, map_file
from undertow.errors import FormatError

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MOST_FIELDS = 100_000
_NAMES = {"NetParameter": "caffemodel", "SolverState": "solverstate", "BlobProto": "single blob, such as a mean file"}
_REMEDIES = {
    ("SolverState", "NetParameter"): "give the .solverstate beside it, or use --weights (copy_from) for a caffemodel",
    ("SolverState", "BlobProto"): "give the .solverstate of a snapshot",
    ("NetParameter", "SolverState"): "give the .caffemodel beside it, or use --snapshot (restore) for a solverstate",
    ("NetParameter", "BlobProto"): "give the .caffemodel; a mean file is named in transform_param",
    ("BlobProto", "NetParameter"): "give the .binaryproto that compute_image_mean makes",
    ("BlobProto", "SolverState"): "give the .binaryproto that compute_image_mean makes",
}


def refuse_other_kind(data: memoryview, wanted: str, path: PathLike) -> None:
    """Raise FormatError where a binary file that should hold one of these messages holds another of them.

    wanted: the message's name; one that is not among the three passes, as does what looks like none of them.
    """
    found = _kind(data) if wanted in _NAMES else None
    if found is not None and found != wanted:
        raise other_kind(wanted, found, path)


def other_kind(wanted: str, found: str, path: PathLike) -> FormatError:
    """The error for a file of a kind that is not the wanted one."""
    return FormatError(f"this is a {_NAMES[found]}, not a {_NAMES[wanted]}", file=path, remedy=_REMEDIES[wanted, found])


def check_kind(path: PathLike, wanted: str) -> None:
    """Look at a file before long work whose result would be lost: whether it is there, and of this kind.

    Raises FormatError. HDF5 passes: it is told from its groups when it is read.
    """
    data = map_file(path)
    if data[: len(HDF5_SIGNATURE)] != HDF5_SIGNATURE:
        refuse_other_kind(data, wanted, path)


def _kind(data: memoryview) -> str | None:
    """What the fields at the top say; None where they leave it open."""
    fields = set(_fields(data))
    if (1, _VARINT) in fields and fields & {(2, _BYTES), (3, _BYTES)}:
        return "SolverState"  # the iteration; a path or history
    if (1, _BYTES) not in fields and fields & {(5, _BYTES), (5, _FIXED32), (7, _BYTES)}:
        return "BlobProto"  # values or a shape, and no name
    if (100, _BYTES) in fields or ((2, _BYTES) in fields and (3, _BYTES) not in fields):
        return "NetParameter"  # layers of today or of old
    return None


def _fields(data: memoryview) -> Iterator[tuple[int, int]]:
    """Number and wire type of every field at the top, as far as the bytes make sense."""
    place = 0
    for _ in range(_MOST_FIELDS):
        tag, place = _varint(data, place)
        number, wire = tag >> 3, tag & 7
        if place > len(data) or not number or wire not in (_VARINT, _FIXED64, _BYTES, _FIXED32):
            return
        length = {_FIXED64: 8, _FIXED32: 4}.get(wire, 0)
        if wire in (_VARINT, _BYTES):
            value, place = _varint(data, place)
            length = value if wire == _BYTES else 0
        place += length
        if place > len(data):
            return
        yield number, wire


def _varint(data: memoryview, place: int) -> tuple[int, int]:
    """A number and the place behind it, which is behind the end where the number is cut off."""
    value = 0
    for shift in range(0, 70, 7):
        if place >= len(data):
            break
        byte = data[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place
    return 0, len(data) + 1
