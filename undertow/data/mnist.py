"""MNIST's idx files, and MNIST itself as a dataset."""

from __future__ import annotations

import gzip
import math
import os
import struct
import warnings
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np

from undertow.data.datasets import ArrayDataset
from undertow.errors import FormatError, UndertowWarning

IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
# Deflate cannot shrink anything further than this, so a larger claim in a file is false.
DEFLATE_LIMIT = 1032


def read_idx(path: str | os.PathLike[str], strict: bool = False) -> np.ndarray:
    """The array of an idx file (http://yann.lecun.com/exdb/mnist), plain or gzipped.

    Surplus bytes after the array are named in a warning; strict=True refuses them.
    Raises FormatError for a wrong magic number, a size that the file's length does not bear out, damaged gzip data.
    """
    with open(path, "rb") as stream:
        zipped = stream.read(2) == b"\x1f\x8b"
        stream.seek(0)
        length = os.fstat(stream.fileno()).st_size
        if not zipped:
            return _read(stream, path, length, strict)
        try:
            with gzip.open(stream) as unzipped:
                return _read(unzipped, path, length * DEFLATE_LIMIT, strict)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise FormatError(f"damaged gzip data: {error}", file=path, remedy="fetch the file again") from error


def _read(stream: IO[bytes] | Any, path: str | os.PathLike[str], most: int, strict: bool) -> np.ndarray:
    magic = stream.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in IDX_TYPES or not magic[3]:
        raise FormatError(
            f"not an idx file: its first bytes are {magic.hex(' ') or 'missing'}",
            file=path,
            offset=0,
            remedy="check which file it is",
        )
    dims, dtype = magic[3], np.dtype(IDX_TYPES[magic[2]])
    sizes = stream.read(4 * dims)
    if len(sizes) < 4 * dims:
        raise FormatError(
            f"the file ends inside its {dims} sizes", file=path, offset=4 + len(sizes), remedy="fetch the file again"
        )
    shape = struct.unpack(f">{dims}I", sizes)
    needed = math.prod(shape) * dtype.itemsize
    start = 4 + 4 * dims
    by = "x".join(map(str, shape))
    if needed > most:
        raise FormatError(
            f"{by} values take {needed} bytes, more than this file can hold",
            file=path,
            offset=4,
            remedy="fetch the file again",
        )
    content = stream.read(needed)
    if len(content) < needed:
        end = start + len(content)
        raise FormatError(
            f"{by} values take {needed} bytes, the file has {len(content)}",
            file=path,
            offset=end,
            remedy="fetch the file again",
        )
    if stream.read(1):
        message = f"there are more bytes than the {by} values need"
        if strict:
            raise FormatError(message, file=path, offset=start + needed, remedy="fetch the file again")
        warnings.warn(f"{os.fspath(path)}: {message}; they are ignored", UndertowWarning, stacklevel=4)
    return np.frombuffer(content, dtype).reshape(shape).astype(dtype.newbyteorder("="))


def mnist(folder: str | os.PathLike[str], train: bool = True, strict: bool = False) -> ArrayDataset:
    """MNIST from the folder with its four files: (image, label) pairs.

    image: (1, 28, 28) float32, 0 (paper) to 1 (ink). label: 0 to 9, int64.
    The files may be gzipped or not, and be called "train-images-idx3-ubyte" or "train-images.idx3-ubyte".

    Raises FormatError when a file is missing, damaged, or when images and labels do not belong together.
    """
    part = "train" if train else "t10k"
    images_path, labels_path = _find(folder, part, "images", 3), _find(folder, part, "labels", 1)
    images, labels = read_idx(images_path, strict), read_idx(labels_path, strict)
    if images.ndim != 3 or images.shape[1:] != (28, 28) or images.dtype != np.uint8:
        raise FormatError(
            f"holds {images.shape} values of {images.dtype}, not images of 28x28 bytes",
            file=images_path,
            remedy="give MNIST's files, or read others with read_idx",
        )
    if labels.shape != (len(images),) or labels.dtype != np.uint8 or (len(labels) and labels.max() > 9):
        raise FormatError(
            f"does not hold one digit for each of the {len(images)} images",
            file=labels_path,
            remedy="take images and labels from the same set",
        )
    return ArrayDataset(images[:, None].astype(np.float32) / np.float32(255), labels.astype(np.int64))


def _find(folder: str | os.PathLike[str], part: str, kind: str, dims: int) -> Path:
    names = [f"{part}-{kind}{mark}idx{dims}-ubyte{end}" for mark in "-." for end in ("", ".gz")]
    for name in names:
        if (Path(folder) / name).is_file():
            return Path(folder) / name
    raise FormatError(
        f"this folder has no {names[0]} and no {names[1]}",
        file=folder,
        remedy="put the four files of MNIST there, gzipped or not",
    )
