"""The pieces of LevelDB's files: log records, table blocks, Snappy."""

from __future__ import annotations

import struct
from collections.abc import Iterator

Bytes = memoryview | bytes

_LOG_BLOCK = 32768
_LOG_HEADER = 7  # checksum, length, kind
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_FOOTER = 48
_MAGIC = 0xDB4775248B80FB57
_TRAILER = 5  # kind of compression, checksum
_RAW, _SNAPPY = 0, 1
# The shortest way in which Snappy writes 64 bytes takes three.
_STRONGEST_SNAPPY = 22


class DamagedError(Exception):
    """Something that cannot be read. offset: where in the file, as far as known."""

    def __init__(self, reason: str, offset: int | None = None) -> None:
        super().__init__(reason)
        self.reason, self.offset = reason, offset


class Reader:
    """Numbers and texts one after the other."""

    def __init__(self, data: Bytes, position: int = 0, end: int | None = None) -> None:
        self.data, self.position, self.end = data, position, len(data) if end is None else end

    @property
    def left(self) -> int:
        return self.end - self.position

    def varint(self) -> int:
        """A number of at most 64 bits."""
        value = shift = 0
        while self.position < self.end and shift < 70:
            byte = self.data[self.position]
            self.position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise DamagedError("a number has no end", self.position)

    def fixed(self, size: int) -> int:
        """A number of some bytes, the lowest first."""
        return int.from_bytes(self.take(size), "little")

    def text(self) -> Bytes:
        """A length and as many bytes."""
        return self.take(self.varint())

    def take(self, size: int) -> Bytes:
        """Some bytes."""
        if size > self.left:
            raise DamagedError(f"{size} bytes are claimed, {self.left} are left", self.position)
        self.position += size
        return self.data[self.position - size : self.position]


def log_records(data: memoryview) -> Iterator[Bytes]:
    """The records of a log or manifest. One that the end of the file cuts off was never finished and is left out."""
    parts: list[Bytes] = []
    position = 0
    while position + _LOG_HEADER <= len(data):
        room = _LOG_BLOCK - position % _LOG_BLOCK
        if room < _LOG_HEADER:
            position += room
            continue
        length, kind = struct.unpack_from("<HB", data, position + 4)
        if kind == 0 and length == 0:  # room that was set aside and not written
            position += room
            continue
        start, end = position + _LOG_HEADER, position + _LOG_HEADER + length
        if _LOG_HEADER + length > room or not _FULL <= kind <= _LAST:
            raise DamagedError(f"a record of kind {kind} with {length} bytes does not fit its block", position)
        if end > len(data):
            return
        if (kind in (_FULL, _FIRST)) == bool(parts):
            raise DamagedError("parts of records do not follow one another", position)
        parts.append(data[start:end])
        if kind in (_FULL, _LAST):
            yield parts[0] if len(parts) == 1 else b"".join(parts)
            parts = []
        position = end


def table_index(data: memoryview) -> Iterator[tuple[bytes, tuple[int, int]]]:
    """Of each block of a table: a key not below its last one, and its place (offset, size)."""
    if len(data) < _FOOTER:
        raise DamagedError("too short for a table", len(data))
    footer = len(data) - _FOOTER
    if struct.unpack_from("<Q", data, len(data) - 8)[0] != _MAGIC:
        raise DamagedError("the end is not that of a table; the file is cut short or something else", len(data) - 8)
    reader = Reader(data, footer, len(data) - 8)
    reader.varint()
    reader.varint()
    for key, value in block_entries(table_block(data, (reader.varint(), reader.varint()))):
        place = Reader(value)
        yield key, (place.varint(), place.varint())


def table_block(data: memoryview, place: tuple[int, int]) -> Bytes:
    """The content of a block, uncompressed."""
    offset, size = place
    if offset + size + _TRAILER > len(data):
        raise DamagedError(f"a block of {size} bytes lies beyond the end of the file", offset)
    kind, content = data[offset + size], data[offset : offset + size]
    if kind == _RAW:
        return content
    if kind != _SNAPPY:
        raise DamagedError(f"a block is compressed in a way that is not known (kind {kind})", offset)
    return unsnap(content)


def block_entries(block: Bytes) -> Iterator[tuple[bytes, Bytes]]:
    """Keys and values of a block; each key repeats some of the one before."""
    if len(block) < 4:
        raise DamagedError("a block without an end")
    restarts = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 - 4 * restarts
    if end < 0:
        raise DamagedError(f"a block of {len(block)} bytes cannot have {restarts} restarts")
    reader, key = Reader(block, 0, end), b""
    while reader.left:
        shared, added, size = reader.varint(), reader.varint(), reader.varint()
        if shared > len(key):
            raise DamagedError(f"a key repeats {shared} bytes of one with {len(key)}")
        key = key[:shared] + bytes(reader.take(added))
        yield key, reader.take(size)


def unsnap(data: Bytes) -> bytes:
    """What Snappy compressed."""
    reader = Reader(data)
    size = reader.varint()
    if size > _STRONGEST_SNAPPY * len(data):
        raise DamagedError(f"{len(data)} compressed bytes cannot hold {size}")
    try:
        out = _unsnap(bytes(data), reader.position)
    except IndexError:
        raise DamagedError("compressed bytes end too early") from None
    if len(out) != size:
        raise DamagedError(f"compressed bytes should give {size} bytes and give {len(out)}")
    return bytes(out)


def _unsnap(data: bytes, position: int) -> bytearray:
    """Texts to take over, and repetitions of what came before; one long function, as it runs once per few bytes."""
    out, end = bytearray(), len(data)
    while position < end:
        tag = data[position]
        position += 1
        kind, length = tag & 3, (tag >> 2) + 1
        if kind == 0:
            if length > 60:
                more = length - 60
                length = int.from_bytes(data[position : position + more], "little") + 1
                position += more
            if position + length > end:
                raise IndexError
            out += data[position : position + length]
            position += length
            continue
        if kind == 1:
            length, back = 4 + (tag >> 2 & 7), (tag >> 5) << 8 | data[position]
            position += 1
        elif kind == 2:
            back = data[position] | data[position + 1] << 8
            position += 2
        else:
            back = int.from_bytes(data[position : position + 4], "little")
            position += 4
        start = len(out) - back
        if start < 0 or not back:
            raise DamagedError(f"compressed bytes refer {back} bytes back, there are {len(out)}")
        if back >= length:
            out += out[start : start + length]
        else:  # what is repeated reaches into itself
            out += (bytes(out[start:]) * (length // back + 1))[:length]
    return out
