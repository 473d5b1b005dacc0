"""Arrays in and out of BlobProto messages."""

from __future__ import annotations

import math
import os

import numpy as np

from undertow.caffe.proto.message import Message
from undertow.caffe.proto.schema import DEFAULT_FORK, ForkLike, get_schema
from undertow.errors import FormatError

_LEGACY = ("num", "channels", "height", "width")
_RAW_DTYPES = {"DOUBLE": "<f8", "FLOAT": "<f4", "FLOAT16": "<f2"}


def blob_shape(blob: Message) -> tuple[int, ...]:
    """The shape of a BlobProto: its `shape`, or the four legacy fields.

    With neither it is a single value without axes, as Caffe writes them; should it hold more, one axis of all of them.
    """
    if blob.has_field("shape"):
        return tuple(blob.shape.dim)
    if any(blob.has_field(name) for name in _LEGACY):
        return tuple(getattr(blob, name) for name in _LEGACY)
    count = max(len(blob.data), len(blob.double_data), len(blob.diff), len(blob.double_diff))
    return () if count == 1 else (count,)


def blob_array(
    blob: Message,
    *,
    diff: bool = False,
    layer: str | None = None,
    file: str | os.PathLike[str] | None = None,
) -> np.ndarray:
    """The values (or with `diff` the gradients) of a BlobProto in its shape.

    float32, or float64 where the blob stores doubles; usually a read-only view of the file. A blob without values
    gives an empty array of shape (0,). layer, file: for the message of the FormatError that is raised when shape and
    number of values do not agree.
    """
    values = _values(blob, diff)
    shape = blob_shape(blob)
    if not len(values):
        return np.empty(0, values.dtype)
    if any(dimension < 0 for dimension in shape) or math.prod(shape) != len(values):
        size = " x ".join(map(str, shape)) or "a single value"
        raise FormatError(
            f"a blob of shape {size} holds {len(values)} values",
            layer=layer,
            file=file,
            remedy="the file is damaged: fetch or write it again",
        )
    return values.reshape(shape)


def _values(blob: Message, diff: bool) -> np.ndarray:
    single, double = ("diff", "double_diff") if diff else ("data", "double_data")
    if blob.has_field(double):
        return getattr(blob, double)
    if not diff and "raw_data" in blob.descriptor.by_name and blob.has_field("raw_data"):
        dtype = _RAW_DTYPES.get(blob.raw_data_type)
        if dtype is None or len(blob.raw_data) % np.dtype(dtype).itemsize:
            raise FormatError(
                f"{len(blob.raw_data)} bytes of raw_data are no whole number of {blob.raw_data_type}s",
                remedy="the file is damaged: fetch or write it again",
            )
        wide = np.float64 if dtype == "<f8" else np.float32
        return np.frombuffer(blob.raw_data, dtype).astype(wide, copy=False)
    return getattr(blob, single)


def blob_from_array(
    data: np.ndarray,
    diff: np.ndarray | None = None,
    fork: ForkLike = DEFAULT_FORK,
) -> Message:
    """A BlobProto with the shape and values of an array, as Caffe's Blob::ToProto makes it.

    float64 arrays go to the double fields, everything else to float32 ones. The values are not copied where they
    are contiguous and of that type already.
    """
    blob = Message(get_schema(fork)["BlobProto"])
    double = data.dtype == np.float64
    if data.ndim:
        blob.mutable("shape").dim = data.shape
    setattr(blob, "double_data" if double else "data", np.ascontiguousarray(data))
    if diff is not None:
        if diff.shape != data.shape:
            raise FormatError(
                f"a diff of shape {diff.shape} beside data of shape {data.shape}",
                remedy="the file is damaged: fetch or write it again",
            )
        setattr(blob, "double_diff" if double else "diff", np.ascontiguousarray(diff))
    return blob
