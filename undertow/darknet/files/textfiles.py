"""Reading the small text files of Darknet: bounded, decoded, split into numbered lines; and reporting about them."""

from __future__ import annotations

import contextlib
import io
import os
import warnings
from collections.abc import Iterator
from typing import BinaryIO

from undertow.errors import FormatError, UndertowWarning, describe

# A list beyond this size is something else given by mistake (a weights file, a video).
LARGEST_TEXT = 256 * 1024 * 1024

_CHUNK = 1024 * 1024

_OTHER_ENCODINGS = ((b"\xff\xfe", "UTF-16"), (b"\xfe\xff", "UTF-16"))


def read_text(path: str | os.PathLike[str], largest: int = LARGEST_TEXT) -> str:
    """The text of a file, without its byte order mark.

    Bytes that are not UTF-8 survive as surrogates, so that writing the text gives the same bytes back.
    Raises FormatError when the file cannot be read, is larger than `largest` bytes, or is not text.
    """
    name = os.fspath(path)
    with telling_system_errors(name, "read"), open(path, "rb") as stream:
        data = _read_bounded(stream, largest)
    if len(data) > largest:
        raise FormatError(
            f"more than {largest:,} bytes, too large for a text file of Darknet",
            file=name,
            remedy="check which file it is",
        )
    return decode(data, name)


@contextlib.contextmanager
def telling_system_errors(file: str, action: str) -> Iterator[None]:
    """Turn what the system says while a file is read or written into a FormatError that names it."""
    if "\0" in file:
        raise FormatError(
            f"cannot be {action}: a file name cannot hold a zero byte", file=show(file), remedy="check the path"
        )
    try:
        yield
    except OSError as problem:
        reason = (problem.strerror or str(problem)) if file else "no file is named"
        raise FormatError(f"cannot be {action}: {reason}", file=file or "''", remedy="check the path") from problem


def _read_bounded(stream: BinaryIO, largest: int) -> bytes:
    """All bytes, or a few more than `largest`; asking for them at once would take that memory for any file."""
    data = bytearray()
    while len(data) <= largest:
        chunk = stream.read(_CHUNK)
        if not chunk:
            break
        data += chunk
    return bytes(data)


def decode(data: bytes, file: str) -> str:
    """Bytes as text; refuses UTF-16 and binary data with the place of the first zero byte."""
    for mark, encoding in _OTHER_ENCODINGS:
        if data.startswith(mark):
            raise FormatError(f"the file is written in {encoding}", file=file, remedy="save it as UTF-8 text")
    zero = data.find(b"\0")
    if zero >= 0:
        line = data.count(b"\n", 0, zero) + 1
        raise FormatError(
            "a zero byte: this is not a text file", file=file, line=line, offset=zero, remedy="check which file it is"
        )
    return data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")


def lines_of(text: str) -> Iterator[str]:
    """The lines without their ends; Unix, Windows and old Macintosh ends all count."""
    for line in io.StringIO(text, newline=None):
        yield line.removesuffix("\n")


def show(text: str, longest: int = 60) -> str:
    """Text made safe and short for a message: anything unprintable is escaped."""
    short = text if len(text) <= longest else text[:longest] + "..."
    return short if short.isprintable() else ascii(short)[1:-1]


def report_oddity(
    reason: str,
    *,
    strict: bool,
    file: str | None = None,
    line: int | None = None,
    offset: int | None = None,
    layer: int | str | None = None,
    remedy: str | None = None,
) -> None:
    """Something that is accepted with an UndertowWarning, or refused with a FormatError when `strict`."""
    if strict:
        raise FormatError(reason, file=file, line=line, offset=offset, layer=layer, remedy=remedy)
    warnings.warn(UndertowWarning(describe(reason, file, line, offset, layer, remedy)), stacklevel=3)
