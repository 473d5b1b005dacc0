"""Bytes changed, cut, put in, repeated and mixed."""

from __future__ import annotations

import random
from collections.abc import Sequence

# Numbers at which readers go wrong, in the widths that files have.
EDGES = (
    0,
    1,
    0x7F,
    0x80,
    0xFF,
    0x7FFF,
    0x8000,
    0xFFFF,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFF,
    2**63 - 1,
    2**63,
    2**64 - 1,
)


def damaged(data: bytes, draw: random.Random, others: Sequence[bytes] = ()) -> bytes:
    """The data with one to six changes. others: data to put parts of in."""
    changed = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 2, 3, 6))):
        _damage(changed, draw, others)
    return bytes(changed)


def _damage(data: bytearray, draw: random.Random, others: Sequence[bytes]) -> None:
    # Headers and counts stand near the beginning and the end: half of the places are there.
    size = len(data)
    place = draw.choice((draw.randint(0, size), draw.randint(0, min(size, 64)), max(0, size - draw.randint(0, 64))))
    match draw.randrange(9):
        case 0 if size:
            data[min(place, size - 1)] ^= 1 << draw.randrange(8)
        case 1:
            data[place : place + 1] = draw.randbytes(1)
        case 2:
            width = draw.choice((1, 2, 4, 8))
            value = draw.choice(EDGES) % 256**width
            data[place : place + width] = value.to_bytes(width, draw.choice(("little", "big")))
        case 3:
            del data[place:]
        case 4:
            del data[place : place + draw.randint(1, 40)]
        case 5:
            data[place:place] = draw.randbytes(draw.randint(1, 20))
        case 6:
            data[place:place] = data[place : place + draw.randint(1, 200)]
        case 7 if others:
            other = draw.choice(others)
            start = draw.randint(0, len(other))
            data[place : place + draw.randint(0, 40)] = other[start : start + draw.randint(1, 200)]
        case _:
            data[place : place + draw.randint(1, 8)] = bytes(draw.randint(1, 8))
