"""The header of a .weights file: version, and how many images the network has seen."""

from __future__ import annotations

import string
import struct
from dataclasses import dataclass

from undertow.darknet.files.textfiles import show
from undertow.errors import FormatError

SHORT_HEADER = 16  # three 32-bit version numbers and a 32-bit counter
LONG_HEADER = 20  # the same with a 64-bit counter
FORK_REVISION = 5  # AlexeyAB's fork writes 0.2.5

_VERSION_BYTES = 12
_LARGEST_VERSION = 65535
_TEXT = set(string.printable.encode())


@dataclass(frozen=True)
class WeightsHeader:
    """Version numbers, counter of images, and the bytes all that takes (16 or 20).

    major or minor above 1000 marks the ancient form in which connected weights are stored transposed.
    """

    major: int = 0
    minor: int = 2
    revision: int = 0
    seen: int = 0
    size: int = LONG_HEADER

    @property
    def transposed(self) -> bool:
        return self.major > 1000 or self.minor > 1000

    def pack(self) -> bytes:
        """The header as bytes, with the counter in `size - 12` of them. Raises FormatError where it has no room."""
        if not 0 <= self.seen < 256 ** (self.size - _VERSION_BYTES):
            raise FormatError(
                f"a counter of {self.seen} images does not fit into a weights file",
                remedy="set net.seen to a smaller number",
            )
        code = "<3iQ" if self.size == LONG_HEADER else "<3iI"
        return struct.pack(code, self.major, self.minor, self.revision, self.seen)


def header_sizes(major: int, minor: int) -> tuple[int, ...]:
    """Possible sizes of the header, the original's own choice first.

    The counter has 64 bits from version 0.2 on. For versions above 1000 the 2018 program reads 32 bits, later forks
    64, so both are possible and the length of the file decides.
    """
    if major > 1000 or minor > 1000:
        return SHORT_HEADER, LONG_HEADER
    wide = major * 10 + minor >= 2 and major < 1000 and minor < 1000
    return (LONG_HEADER,) if wide else (SHORT_HEADER,)


def parse_headers(start: bytes, file: str, file_size: int) -> list[WeightsHeader]:
    """The headers that the first bytes of a file can mean, the likeliest first.

    start: the first 20 bytes, or fewer where the file is shorter. Raises FormatError for anything else than a weights
    file.
    """
    if len(start) < SHORT_HEADER or set(start[:_VERSION_BYTES]) <= _TEXT:
        raise _not_weights(start, file, file_size)
    major, minor, revision = struct.unpack_from("<3i", start)
    if not all(0 <= number <= _LARGEST_VERSION for number in (major, minor, revision)):
        reason = f"not a Darknet weights file: its header would mean version {major}.{minor}.{revision}"
        raise FormatError(reason, file=file, offset=0, remedy="check which file it is")
    sizes = [size for size in header_sizes(major, minor) if len(start) >= size]
    if not sizes:
        raise FormatError(
            f"the header is cut off: {file_size} bytes", file=file, offset=file_size, remedy="fetch the file again"
        )
    headers = []
    for size in sizes:
        (seen,) = struct.unpack_from("<Q" if size == LONG_HEADER else "<I", start, _VERSION_BYTES)
        headers.append(WeightsHeader(major, minor, revision, seen, size))
    return headers


def _not_weights(start: bytes, file: str, file_size: int) -> FormatError:
    text = set(start) <= _TEXT and bool(start)
    content = f"; it holds text: '{show(start.decode('ascii').strip())}'" if text else ""
    return FormatError(
        f"{file_size} bytes, not a Darknet weights file{content}",
        file=file,
        offset=0,
        remedy="fetch the weights again; a download may have saved an error page" if text else "check which file it is",
    )
