"""A look at an HDF5 file before libhdf5 sees it: do its chains end?

libhdf5 follows two kinds of chains without counting, so that one which leads back to itself takes all time, and in the
first case all memory, of the machine:
- the names in a group lie in a local heap, whose unused places form a list of (offset of the next, size);
- the nodes of a B-tree of version 1 (names of a group, chunks of a dataset) each name the next one on their level.
What else is wrong there libhdf5 finds itself. Layout: HDF5 File Format Specification, levels 1A1 and 1D.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from functools import lru_cache

from undertow.errors import FormatError

_MAGIC = b"\x89HDF\r\n\x1a\n"
_HEAP = b"HEAP\0"  # with its version
_NODE = b"TREE"
_LAST = 1  # in place of an offset in a heap: no further free place


def check_circles(path: str | os.PathLike[str]) -> None:
    """Refuse an HDF5 file in which a heap's free list, or the nodes of a B-tree, go round in a circle.

    Raises FormatError for it, OSError for a file that cannot be read. Files that are no HDF5 pass: libhdf5 tells of
    these. A file is looked through once as long as it stays as it is.
    """
    facts = os.stat(path)
    found = _circle(os.path.abspath(os.fspath(path)), facts.st_size, facts.st_mtime_ns, facts.st_ino)
    if found is not None:
        raise FormatError(
            f"cannot be read as HDF5: {found} leads back to itself",
            file=path,
            remedy="the file is damaged: fetch or save it again",
        )


@lru_cache(maxsize=256)
def _circle(path: str, size: int, _changed: int, _node: int) -> str | None:
    """The first chain found that does not end; None for a sound file."""
    if not size:
        return None
    with open(path, "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        file = _opened(content)
        if file is None:
            return None
        heap = file.heap_in_a_circle()
        if heap is not None:
            return f"the free list of the heap at byte {heap}"
        node = file.node_in_a_circle()
        return None if node is None else f"the chain of nodes from byte {node} on"


@dataclass(frozen=True)
class _File:
    """base: what addresses count from. address, length: the bytes of an address and of a length."""

    content: mmap.mmap
    base: int
    address: int
    length: int

    def heap_in_a_circle(self) -> int | None:
        # Free places are apart from each other, and each takes two numbers at least.
        left = len(self.content) // self.length
        heap = self.content.find(_HEAP)
        while heap >= 0:
            steps = self._free_places(heap + 8, left)
            if steps is None:
                return heap
            left -= steps
            heap = self.content.find(_HEAP, heap + 1)
        return None

    def _free_places(self, place: int, most: int) -> int | None:
        """How many free places a heap has; None where there are more than `most`, or the list does not end.

        place: behind the heap's signature, where its size, the first free place and the address of its data stand.
        The list is followed only where libhdf5 would: a place outside the heap is told of there.
        """
        size, free = self._number(place, self.length), self._number(place + self.length, self.length)
        data = self.base + self._number(place + 2 * self.length, self.address)
        if data + size > len(self.content):
            return 0
        steps, mark = 0, None
        while free != _LAST and free + 2 * self.length <= size:
            if free == mark or steps >= most:
                return None
            if not steps & (steps - 1):  # Brent: a circle comes back to the place passed at the last power of two
                mark = free
            steps += 1
            free = self._number(data + free, self.length)
        return steps

    def node_in_a_circle(self) -> int | None:
        behind: set[int] = set()  # nodes from which the chain is known to end
        node = self.content.find(_NODE)
        while node >= 0:
            chain: set[int] = set()
            here = node
            while here not in behind and self.content[here : here + 4] == _NODE:
                if here in chain:
                    return here
                chain.add(here)
                here = self.base + self._number(here + 8 + self.address, self.address)
            behind |= chain
            node = self.content.find(_NODE, node + 1)
        return None

    def _number(self, place: int, width: int) -> int:
        return int.from_bytes(self.content[place : place + width], "little")


def _opened(content: mmap.mmap) -> _File | None:
    """The file with what its superblock says; None where there is none."""
    base = 0
    while content[base : base + 8] != _MAGIC and base < len(content):
        base = max(2 * base, 512)
    if base + 16 > len(content):
        return None
    place = base + (13 if content[base + 8] < 2 else 9)
    address, length = content[place], content[place + 1]
    return _File(content, base, address, length) if {address, length} <= {2, 4, 8, 16, 32} else None
