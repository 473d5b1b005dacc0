"""Memory of plans: every buffer lives from its first use to its last, and shares its place with others."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakSet

import numpy as np

from undertow.kernels.cpu.raw.tensor import Tensor, align, aligned_bytes

_SLACK = 256  # bytes behind each buffer: vector loads may read past the end


class Slot:
    """N x H x W pixels of C channels, NHWC, in a buffer of its own or within the channels of another slot.

    first, last: when it is in use, as numbers of the schedule's events.
    """

    def __init__(self, shape: tuple[int, ...], itemsize: int = 4) -> None:
        """shape: NCHW."""
        self.n, self.c, self.h, self.w = shape
        self.inside: Slot | None = None
        self.channel = 0
        self.first: int | None = None
        self.last = -1
        self.offset = 0
        self.base = 0

    def place_inside(self, other: Slot, channel: int = 0) -> None:
        """Let this slot be channels `channel` and up of another one."""
        self.inside, self.channel = other, channel

    @property
    def root(self) -> Slot:
        """The slot that has the memory."""
        return self if self.inside is None else self.inside.root

    @property
    def _start(self) -> int:
        return 0 if self.inside is None else self.channel + self.inside._start

    @property
    def size(self) -> int:
        """Bytes."""
        return 4 * self.n * self.h * self.w * self.c

    def use(self, event: int) -> None:
        """Note that an event needs it."""
        root = self.root
        root.first = event if root.first is None else min(root.first, event)
        root.last = max(root.last, event)

    @property
    def tensor(self) -> Tensor:
        """The slot for kernels, once it has an address."""
        root = self.root
        return Tensor(root.base + root.offset + 4 * self._start, 4 * root.c, self.n, self.h, self.w, self.c)

    @property
    def is_dense(self) -> bool:
        """Whether it has no gaps between its pixels."""
        return self.c == self.root.c

    def view(self, memory: np.ndarray) -> np.ndarray:
        """The slot as an array, logically NCHW, given the bytes that contain its buffer."""
        root = self.root
        whole = memory[root.offset : root.offset + root.size].view(np.float32)
        pixels = whole.reshape(root.n, root.h, root.w, root.c)
        return pixels[..., self._start : self._start + self.c].transpose(0, 3, 1, 2)


def arrange(slots: Iterable[Slot]) -> int:
    """Give every root slot its offset, large ones first; returns the bytes needed in all."""
    placed: list[Slot] = []
    total = 0
    roots = {id(slot.root): slot.root for slot in slots if slot.root.first is not None}
    for slot in sorted(roots.values(), key=lambda s: -s.size):
        offset = 0
        for other in sorted(placed, key=lambda s: s.offset):
            apart = other.last < _first(slot) or slot.last < _first(other)
            if not apart and offset < _end(other) and other.offset < offset + align(slot.size + _SLACK):
                offset = _end(other)
        slot.offset = offset
        placed.append(slot)
        total = max(total, _end(slot))
    return total


def _first(slot: Slot) -> int:
    return 0 if slot.first is None else slot.first


def _end(slot: Slot) -> int:
    return slot.offset + align(slot.size + _SLACK)


class Arena:
    """One block of memory that all plans of the process share, one replay at a time.

    version: changes when the block moves; programs then bind anew.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._here = threading.local()
        self.version = 0
        self.memory = np.empty(0, np.uint8)
        _all.add(self)

    def alone(self, replay: Callable[[], Any]) -> Any:
        """What `replay` returns; replays of other threads wait meanwhile."""
        with self.lock:
            try:
                self._here.replaying = True
                return replay()
            finally:
                self._here.replaying = False

    @property
    def is_mine(self) -> bool:
        """Whether the calling thread is in a replay now."""
        return getattr(self._here, "replaying", False)

    def reserve(self, size: int) -> None:
        """Make the block at least so large."""
        if self.memory.size < size:
            self.memory = np.empty(0, np.uint8)
            self.memory = aligned_bytes(align(size))
            self.version += 1

    def release(self) -> None:
        """Give the memory back to the system; the next replay takes what it needs."""
        with self.lock:
            self.memory = np.empty(0, np.uint8)
            self.version += 1


_all: WeakSet[Arena] = WeakSet()
arena = Arena()


def _unlock() -> None:
    """A forked child has none of the threads that were in a replay."""
    for one in _all:
        one.lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock)
