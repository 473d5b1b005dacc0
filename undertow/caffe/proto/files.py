"""Opening the files of Caffe: text with its encoding checked, binary files mapped into memory."""

from __future__ import annotations

import mmap
import os

from undertow.caffe.arguments import as_path
from undertow.errors import FormatError

PathLike = str | os.PathLike[str]

# A prototxt beyond this size is something else given by mistake.
LARGEST_TEXT = 256 * 1024 * 1024

_CHUNK = 1024 * 1024
_OTHER_ENCODINGS = ((b"\xff\xfe", "UTF-16"), (b"\xfe\xff", "UTF-16"))
HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"


def read_text(path: PathLike) -> str:
    """The text of a prototxt without its byte order mark; bytes that are not UTF-8 survive as surrogates.

    Raises FormatError when the file cannot be read, is not text or is larger than `LARGEST_TEXT`.
    """
    data, path = bytearray(), as_path(path)
    try:
        with open(path, "rb") as stream:
            while chunk := stream.read(_CHUNK):
                data += chunk
                if len(data) > LARGEST_TEXT:
                    raise FormatError(
                        f"more than {LARGEST_TEXT:,} bytes, too large for a prototxt",
                        file=path,
                        remedy="give the prototxt here; weights are read as a caffemodel",
                    )
    except (OSError, ValueError) as problem:
        raise unreadable(path, problem) from problem
    return decode_text(bytes(data), path)


def decode_text(data: bytes, path: PathLike | None = None) -> str:
    """The text that the bytes of a prototxt stand for; refuses UTF-16 and binary data."""
    for mark, encoding in _OTHER_ENCODINGS:
        if data.startswith(mark):
            raise FormatError(f"the file is written in {encoding}", file=path, remedy="save it as UTF-8 text")
    zero = data.find(b"\0")
    if zero >= 0:
        line = data.count(b"\n", 0, zero) + 1
        remedy = "give the prototxt here; weights are read as a caffemodel"
        raise FormatError("a zero byte: this is not a text file", file=path, line=line, offset=zero, remedy=remedy)
    return data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")


def map_file(path: PathLike) -> memoryview:
    """The bytes of a file, mapped read-only; the mapping lives as long as anything that views it."""
    path = as_path(path)
    try:
        with open(path, "rb") as stream:
            if os.fstat(stream.fileno()).st_size == 0:
                return memoryview(b"")
            return memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError) as problem:
        raise unreadable(path, problem) from problem


def unreadable(path: PathLike, problem: BaseException) -> FormatError:
    reason = getattr(problem, "strerror", None) or str(problem)
    return FormatError(f"cannot be read: {reason}", file=path, remedy="check the path")


def guess_other_format(data: memoryview) -> str | None:
    """What a file that should be binary protobuf seems to be instead, as a remedy; None if nothing is known."""
    start = bytes(data[:256])
    if start.startswith(b"version https://git-lfs"):
        return "this is only a Git LFS pointer; fetch the file itself with `git lfs pull`"
    if start.startswith(b"\x93NUMPY"):
        return "this is a NumPy file; write it with caffe.io.array_to_blobproto"
    if start.startswith((b"\x1f\x8b", b"PK\x03\x04", b"BZh", b"\xfd7zXZ")):
        return "this is a packed file; unpack it first"
    if start.startswith(HDF5_SIGNATURE):
        return "this is an HDF5 file; name it .h5"
    if start.startswith((b"<!", b"<html", b"<HTML")):
        return "this is a web page, so the download went wrong; download the file again"
    if start.isascii() and b"{" in start and start.decode("ascii").replace("\n", " ").replace("\r", " ").isprintable():
        return "this looks like a prototxt; give the caffemodel here"
    return None
