"""Reading LMDB databases: the file `data.mdb` of LMDB 0.9, mapped into memory, every offset checked.

The C library trusts its files, so a damaged one can end the process. This reader needs no package, makes no lock file
and works on read-only disks; it is meant for databases that nobody writes to at the same time, as those of a training.

The file is a row of pages; pages 0 and 1 (meta) name the root of a tree whose leaf pages hold keys and values in
order. A value too large for a page lies on overflow pages of its own.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from undertow.caffe.proto.files import map_file
from undertow.errors import FormatError

FILE_NAME = "data.mdb"

_MAGIC, _VERSION = 0xBEEFC0DE, 1
_HEADER = 16  # of every page: number, padding, flags, lower, upper
_BRANCH, _LEAF, _OVERFLOW, _META = 1, 2, 4, 8
_BIG_VALUE, _DUPLICATES = 1, 6
_NOTHING = 2**64 - 1
_DEEPEST = 64
_META_LAYOUT = struct.Struct("<II 2Q")
_TREE_LAYOUT = struct.Struct("<IHH 5Q")  # padding (page size), flags, depth, 3 counts of pages, entries, root
_NODE = struct.Struct("<4H")


class _Tree(NamedTuple):
    entries: int
    root: int


class LmdbFile:
    """One database, read only. source: its folder, or the file itself.

    entries: the number of records. Raises FormatError with file and offset where the file is damaged.
    """

    def __init__(self, source: str | os.PathLike[str]) -> None:
        path = Path(source)
        self.path = path / FILE_NAME if path.is_dir() else path
        self._data = map_file(self.path)
        self.page_size, tree = self._newest_tree()
        self.entries, self._root = tree.entries, tree.root
        self._pages = len(self._data) // self.page_size
        if self.entries > len(self._data) // 10:  # a record takes a pointer and eight bytes at least
            raise self.error(f"the header claims {self.entries} records, more than the file has room for", 0)

    def error(self, reason: str, offset: int) -> FormatError:
        """An error about this file."""
        return FormatError(reason, file=self.path, offset=offset, remedy="make the database again")

    # --- pages ------------------------------------------------------------------------------------------

    def _newest_tree(self) -> tuple[int, _Tree]:
        """The page size and the main tree of the last transaction that was written whole."""
        first = self._meta(0)
        page_size = first[0]
        found = [first]
        if len(self._data) >= page_size + _HEADER + 8:
            found.append(self._meta(page_size))
        size, _, tree = max(found, key=lambda meta: meta[1])
        return size, tree

    def _meta(self, start: int) -> tuple[int, int, _Tree]:
        """Page size, transaction and main tree of a meta page."""
        body = start + _HEADER
        trees = body + _META_LAYOUT.size
        end = trees + 2 * _TREE_LAYOUT.size + 16
        if end > len(self._data):
            raise self.error("the file is too short for an LMDB database", len(self._data))
        magic, version, _, _ = _META_LAYOUT.unpack_from(self._data, body)
        if magic != _MAGIC or version != _VERSION:
            raise FormatError(
                f"this is no LMDB database (mark {magic:#x}, version {version})",
                file=self.path,
                offset=body,
                remedy="name the database and its backend as they were made: LMDB or LEVELDB",
            )
        page_size = _TREE_LAYOUT.unpack_from(self._data, trees)[0]
        if not 256 <= page_size <= 65536 or page_size & (page_size - 1):
            raise self.error(f"a page size of {page_size} bytes", trees)
        _, flags, _, _, _, _, entries, root = _TREE_LAYOUT.unpack_from(self._data, trees + _TREE_LAYOUT.size)
        if flags & 0x7FFF:
            raise self.error(f"a tree of an unusual kind (flags {flags:#x})", trees + _TREE_LAYOUT.size)
        transaction = struct.unpack_from("<Q", self._data, end - 8)[0]
        return page_size, transaction, _Tree(entries, root)

    def _page(self, number: int) -> tuple[int, int, int]:
        """Where a page of the tree begins, whether it is a leaf, and how many nodes it has."""
        start = number * self.page_size
        if number >= self._pages:
            raise self.error(f"page {number} lies beyond the end of the file ({self._pages} pages)", len(self._data))
        flags, lower = struct.unpack_from("<HH", self._data, start + 10)
        kind = flags & (_BRANCH | _LEAF | _OVERFLOW | _META)
        if kind not in (_BRANCH, _LEAF):
            raise self.error(f"page {number} is no page of the tree (flags {flags:#x})", start)
        if not _HEADER <= lower <= self.page_size:
            raise self.error(f"page {number} ends its list of nodes at {lower}", start)
        return start, kind == _LEAF, (lower - _HEADER) >> 1

    def _node(self, start: int, index: int) -> tuple[int, tuple[int, int, int, int]]:
        """Offset and header (two size fields, flags, key length) of a node."""
        offset = struct.unpack_from("<H", self._data, start + _HEADER + 2 * index)[0]
        if offset + _NODE.size > self.page_size:
            raise self.error(f"node {index} lies outside its page", start)
        node = _NODE.unpack_from(self._data, start + offset)
        if offset + _NODE.size + node[3] > self.page_size:
            raise self.error(f"the key of node {index} lies outside its page", start + offset)
        return start + offset, node

    def _key(self, offset: int, length: int) -> bytes:
        begin = offset + _NODE.size
        return bytes(self._data[begin : begin + length])

    def _value(self, start: int, offset: int, node: tuple[int, int, int, int]) -> memoryview:
        low, high, flags, key_length = node
        size, begin = low | high << 16, offset + _NODE.size + key_length
        if flags & _DUPLICATES:
            raise self.error("a record with several values, which no database of Caffe has", offset)
        if not flags & _BIG_VALUE:
            if begin + size > start + self.page_size:
                raise self.error(f"a value of {size} bytes does not fit its page", offset)
            return self._data[begin : begin + size]
        if begin + 8 > start + self.page_size:
            raise self.error("the number of an overflow page lies outside its page", offset)
        page = struct.unpack_from("<Q", self._data, begin)[0]
        first = page * self.page_size + _HEADER
        if page >= self._pages or first + size > len(self._data):
            raise self.error(f"a value of {size} bytes on page {page} lies beyond the end of the file", offset)
        if not self._data[first - _HEADER + 10] & _OVERFLOW:
            raise self.error(f"page {page} should hold a value, but is of another kind", offset)
        return self._data[first : first + size]

    # --- walking ----------------------------------------------------------------------------------------

    def records(self, first: bytes = b"") -> Iterator[tuple[bytes, memoryview]]:
        """Keys and values in order, from the first key that is not below `first`."""
        if self._root == _NOTHING:
            return
        stack = [(self._root, first)]
        visited = given = 0
        while stack:
            number, bound = stack.pop()
            visited += 1
            if visited > self._pages or len(stack) > _DEEPEST * self.page_size:
                raise self.error("the pages of the tree lead in a ring", number * self.page_size)
            start, is_leaf, count = self._page(number)
            if not is_leaf:
                stack.extend(reversed(self._children(start, count, bound)))
                continue
            for index in range(count):
                offset, node = self._node(start, index)
                key = self._key(offset, node[3])
                if bound and key < bound:
                    continue
                given += 1
                if given > self.entries:
                    raise self.error(f"there are more records than the {self.entries} of the header", offset)
                yield key, self._value(start, offset, node)

    def _children(self, start: int, count: int, bound: bytes) -> list[tuple[int, bytes]]:
        """The pages below a branch that can hold keys from `bound` on; only the first of them needs the bound."""
        nodes = [self._node(start, index) for index in range(count)]
        first = 0
        if bound:
            for index in range(1, count):  # the first node has no key of its own
                if self._key(nodes[index][0], nodes[index][1][3]) > bound:
                    break
                first = index
        pages = [low | high << 16 | flags << 32 for _, (low, high, flags, _) in nodes[first:]]
        return [(page, bound if index == 0 else b"") for index, page in enumerate(pages)]
