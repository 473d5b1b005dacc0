"""Mean pictures: BlobProto files as compute_image_mean writes them."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from undertow.caffe.proto.api import read_binary, write_binary
from undertow.caffe.proto.blobs import blob_array
from undertow.caffe.proto.message import new_message
from undertow.errors import FormatError

Array = np.ndarray[Any, Any]
PathLike = str | os.PathLike[str]


def read_mean(path: PathLike) -> Array:
    """The mean picture of a file, float32 (channels, height, width). Raises FormatError."""
    array = blob_array(read_binary(path, "BlobProto"), file=path).astype(np.float32)
    if array.ndim > 4 or not array.size or (array.ndim == 4 and array.shape[0] != 1):
        raise FormatError(
            f"a mean picture has shape (1, channels, height, width), not {array.shape}",
            file=path,
            remedy="make it with undertow caffe compute_image_mean",
        )
    # Missing axes are 1 at the end, num first, as Caffe's blobs count them.
    return array.reshape((*array.shape, 1, 1, 1, 1)[:4])[0]


def write_mean(mean: Array, path: PathLike) -> None:
    """Write a mean picture (channels, height, width) with the four old fields of its shape, whole or not at all."""
    channels, height, width = mean.shape
    blob = new_message("BlobProto", num=1, channels=channels, height=height, width=width)
    blob.data = np.ascontiguousarray(mean, np.float32).reshape(-1)
    write_binary(blob, path)
