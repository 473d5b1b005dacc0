"""Datum records: pictures as raw values or as encoded files, with a label."""

from __future__ import annotations

import os
import warnings
from typing import Any, NamedTuple

import numpy as np

from undertow.caffe.data.pictures import decode
from undertow.caffe.proto.message import Message, new_message
from undertow.caffe.proto.schema import get_schema
from undertow.caffe.proto.wire import Buffer, parse_bytes
from undertow.errors import FormatError, UndertowWarning

Array = np.ndarray[Any, Any]


class Record(NamedTuple):
    """A picture (channels, height, width), uint8 or float32, BGR where it has colour; and its label."""

    pixels: Array
    label: int


# Tags of Datum's fields with the usual wire types: channels, height, width, data, label, encoded.
_CHANNELS, _HEIGHT, _WIDTH, _DATA, _LABEL, _ENCODED = 0x08, 0x10, 0x18, 0x22, 0x28, 0x38


def read_record(
    value: memoryview, color: bool | None = None, *, key: bytes = b"", file: str | os.PathLike[str] | None = None
) -> Record:
    """The picture and label in a database's record; the arguments and errors are those of the functions below.

    Raw pictures, of which there are thousands a second, are read by a short way of their own.
    """
    found = _raw_record(value)
    if found is not None:
        return found
    datum = parse_datum(value, key=key, file=file)
    return Record(datum_pixels(datum, color, key=key, file=file), datum.label)


def _raw_record(value: memoryview) -> Record | None:
    """A record of bytes as Caffe writes them, each field at most once; None for anything else."""
    fields: dict[int, int] = {}
    position, end, data = 0, len(value), (0, 0)
    while position < end:
        tag = value[position]
        number, shift, position = 0, 0, position + 1
        while position < end and shift < 35:
            byte = value[position]
            number |= (byte & 0x7F) << shift
            shift, position = shift + 7, position + 1
            if byte < 0x80:
                break
        else:
            return None
        if tag in fields or number >= 2**31:
            return None
        fields[tag] = number
        if tag == _DATA:
            data = (position, position + number)
            position += number
        elif tag not in (_CHANNELS, _HEIGHT, _WIDTH, _LABEL, _ENCODED):
            return None
    shape = fields.get(_CHANNELS, 0), fields.get(_HEIGHT, 0), fields.get(_WIDTH, 0)
    size = data[1] - data[0]
    if position != end or fields.get(_ENCODED) or not size or shape[0] * shape[1] * shape[2] != size:
        return None
    return Record(np.frombuffer(value[data[0] : data[1]], np.uint8).reshape(shape), fields.get(_LABEL, 0))


def parse_datum(value: Buffer, *, key: bytes = b"", file: str | os.PathLike[str] | None = None) -> Message:
    """The Datum in a database's record. key, file: for the message of the FormatError for a damaged one."""
    try:
        return parse_bytes(value, get_schema()["Datum"])
    except FormatError as error:
        raise FormatError(f"{_name(key)}{error.reason}", file=file, offset=error.offset, remedy=error.remedy) from error


def datum_pixels(
    datum: Message, color: bool | None = None, *, key: bytes = b"", file: str | os.PathLike[str] | None = None
) -> Array:
    """The picture of a Datum, (channels, height, width); an encoded one is decoded.

    color: encoded pictures as BGR (True), grey (False) or as stored (None). Raw ones are views of the record.
    Raises FormatError where the record holds fewer values than its size needs; surplus ones are an UndertowWarning.
    """
    if datum.encoded:
        return decode(datum.data, color, file=file, what=_name(key).removesuffix(": "))
    shape = (datum.channels, datum.height, datum.width)
    values = np.frombuffer(datum.data, np.uint8) if datum.data else datum.float_data
    needed = datum.channels * datum.height * datum.width
    if min(shape) < 1 or needed > len(values):
        size = " x ".join(map(str, shape))
        raise FormatError(
            f"{_name(key)}a picture of {size} (channels, height, width) needs {max(needed, 0)} values, "
            f"the record holds {len(values)}",
            file=file,
            remedy="make the database again",
        )
    if len(values) > needed:
        warnings.warn(
            UndertowWarning(f"{_name(key)}{len(values) - needed} values too many are left aside"), stacklevel=2
        )
    return values[:needed].reshape(shape)


def datum_from_pixels(pixels: Array, label: int = 0) -> Message:
    """A Datum of a picture (channels, height, width): uint8 as bytes, anything else as floats."""
    channels, height, width = pixels.shape
    datum = new_message("Datum", channels=channels, height=height, width=width)
    if pixels.dtype == np.uint8:
        datum.data = pixels.tobytes()
    else:
        datum.float_data = pixels.reshape(-1)
    datum.label = label
    return datum


def encoded_datum(data: bytes, label: int = 0) -> Message:
    """A Datum that holds a picture as its file does."""
    return new_message("Datum", data=data, label=label, encoded=True)


def _name(key: bytes) -> str:
    return f"record '{key.decode(errors='replace')}': " if key else ""
