"""A look at an HDF5 file before libhdf5 sees it: are the free lists of its local heaps lists at all?

The names in a group of HDF5 lie in a local heap, whose unused places form a chain of (offset of the next, size).
libhdf5 follows that chain without counting, so one that leads back to itself takes all memory of the machine and
never ends. Everything else that is wrong in a heap libhdf5 finds itself. Layout: HDF5 File Format Specification,
"Level 1D - Local Heaps".
"""

from __future__ import annotations

import mmap
import os
from functools import lru_cache

from undertow.errors import FormatError

_MAGIC = b"\x89HDF\r\n\x1a\n"
_HEAP = b"HEAP\0"  # with its version
_LAST = 1  # in place of an offset: no further free place


def check_heaps(path: str | os.PathLike[str]) -> None:
    """Refuse an HDF5 file in which a local heap's free list goes round in a circle.

    Raises FormatError for it, OSError for a file that cannot be read. Files that are no HDF5 pass: libhdf5 tells of
    these. A file is looked through once as long as it stays as it is.
    """
    facts = os.stat(path)
    where = _circle(os.path.abspath(os.fspath(path)), facts.st_size, facts.st_mtime_ns, facts.st_ino)
    if where is not None:
        raise FormatError(
            f"cannot be read as HDF5: the free list of the heap at byte {where} leads back to itself",
            file=path,
            remedy="the file is damaged: fetch or save it again",
        )


@lru_cache(maxsize=256)
def _circle(path: str, size: int, _changed: int, _node: int) -> int | None:
    """Where the first heap lies whose free list does not end; None for a sound file."""
    if not size:
        return None
    with open(path, "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        found = _widths(content)
        if found is None:
            return None
        base, address_width, width = found
        # Free places are apart from each other, and each takes two numbers at least.
        left = len(content) // width
        heap = content.find(_HEAP)
        while heap >= 0:
            steps = _steps(content, heap + 8, base, address_width, width, left)
            if steps is None:
                return heap
            left -= steps
            heap = content.find(_HEAP, heap + 1)
    return None


def _widths(content: mmap.mmap) -> tuple[int, int, int] | None:
    """What addresses count from, and the bytes of an address and of a length, as the superblock says."""
    base = 0
    while content[base : base + 8] != _MAGIC and base < len(content):
        base = max(2 * base, 512)
    if base + 16 > len(content):
        return None
    version = content[base + 8]
    place = base + (13 if version < 2 else 9)
    widths = content[place], content[place + 1]
    return (base, *widths) if all(width in (2, 4, 8, 16, 32) for width in widths) else None


def _steps(content: mmap.mmap, place: int, base: int, address_width: int, width: int, most: int) -> int | None:
    """How many free places a heap has; None where there are more than `most`, or the list does not end.

    place: behind the heap's signature, where its size, the first free place and the address of its data stand. The
    list is followed only where libhdf5 would: a place outside the heap is told of there.
    """

    def number(at: int, bytes_: int) -> int:
        return int.from_bytes(content[at : at + bytes_], "little")

    size, free = number(place, width), number(place + width, width)
    data = base + number(place + 2 * width, address_width)
    if data + size > len(content):
        return 0
    steps, mark = 0, None
    while free != _LAST and free + 2 * width <= size:
        if free == mark or steps >= most:
            return None
        if not steps & (steps - 1):  # Brent: a circle comes back to the place passed at the last power of two
            mark = free
        steps += 1
        free = number(data + free, width)
    return steps
