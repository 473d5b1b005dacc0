"""Tensors as the kernels see them, and memory that kernels may scribble in."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

LINE = 64  # bytes of a cache line, and the alignment of all memory made here


class Tensor(NamedTuple):
    """N x H x W pixels of C dense float32 channels, pixel after pixel `stride` bytes apart.

    A slice of the channels of a wider tensor is one too, so a concatenation needs no copy.
    """

    address: int
    stride: int
    n: int
    h: int
    w: int
    c: int

    @property
    def pixels(self) -> int:
        return self.n * self.h * self.w

    def image(self, index: int) -> Tensor:
        """One of the images."""
        return self._replace(address=self.address + index * self.h * self.w * self.stride, n=1)

    def channels(self, first: int, count: int) -> Tensor:
        """The slice of channels first .. first + count."""
        return self._replace(address=self.address + 4 * first, c=count)


def align(size: int) -> int:
    """size rounded up to whole cache lines."""
    return (size + LINE - 1) // LINE * LINE


def aligned_bytes(size: int) -> np.ndarray:
    """`size` uninitialised bytes whose address is a multiple of 64."""
    block = np.empty(size + LINE, np.uint8)
    start = -block.ctypes.data % LINE
    return block[start : start + size]


_versions = itertools.count()


class Scratch:
    """Memory for the time of one operation, taken from the top of a stack and reused by the next.

    What each thread needs for itself lies apart from what they share, and a thread's always in the same range: the
    processor on which it runs has that range in its own caches, and no other has to give it away.

    version: another one, of all scratch memories, whenever what was taken before may lie elsewhere now.
    """

    def __init__(self) -> None:
        self._blocks: list[np.ndarray] = []
        self.version = next(_versions)
        self._block = self._top = 0  # the block that is being given away, and how much of it has been
        self._used = self._peak = 0
        self._ranges: list[np.ndarray] = []  # the last is in use; those before it are until the outermost frame ends
        self._step = self._each = 0  # bytes from one thread's range to the next, and how much of each is in use

    def take(self, size: int) -> int:
        """Address of `size` bytes, 64-byte aligned, valid until the surrounding `frame` ends."""
        size = align(size) + LINE
        while self._block < len(self._blocks) and self._top + size > self._blocks[self._block].size:
            self._block, self._top = self._block + 1, 0
        if self._block == len(self._blocks):
            self._blocks.append(aligned_bytes(max(size, 1 << 20, 0 if self._blocks else self._peak)))
            self.version = next(_versions)
        address = self._blocks[self._block].ctypes.data + self._top
        self._top += size
        self._used += size
        self._peak = max(self._peak, self._used)
        return int(address)

    def take_each(self, size: int, threads: int) -> tuple[int, int]:
        """Address of `size` bytes for the first of the threads, and how many bytes further each next one has its own.

        64-byte aligned, valid until the surrounding `frame` ends.
        """
        size = align(size) + LINE
        if not self._ranges or self._each + size > self._step or self._ranges[-1].size < threads * self._step:
            step = max(2 * (self._each + size), 1 << 18)  # may be less than fewer threads had, each with more to do
            self._ranges.append(aligned_bytes(threads * step))
            self._step = step  # only now: where there is not so much, there may be less
            self.version = next(_versions)
        address = self._ranges[-1].ctypes.data + self._each
        self._each += size
        return int(address), self._step

    @contextmanager
    def frame(self) -> Iterator[Scratch]:
        """What is taken inside is given back at the end; frames nest."""
        before = self._block, self._top, self._used, self._each
        try:
            yield self
        finally:
            self._block, self._top, self._used, self._each = before
            if before == (0, 0, 0, 0):
                del self._ranges[:-1]
                if len(self._blocks) > 1:  # next time one block holds it all
                    self._blocks = []
                    self.version = next(_versions)


_local = threading.local()


def scratch() -> Scratch:
    """The scratch memory of the calling thread."""
    found: Scratch | None = getattr(_local, "scratch", None)
    if found is None:
        found = _local.scratch = Scratch()
    return found
