"""Memory whose borders are watched: buffers between guard bytes."""

from __future__ import annotations

import numpy as np

from undertow.kernels.cpu.raw.tensor import Scratch, Tensor, align

PATTERN = 0xA5
MARGIN = 256  # bytes watched on either side


class GuardedScratch(Scratch):
    """Scratch memory that surrounds everything taken from it with guard bytes."""

    def __init__(self) -> None:
        super().__init__()
        self._guards: list[np.ndarray] = []

    def take(self, size: int) -> int:
        return self.take_each(size, 1)[0]

    def take_each(self, size: int, threads: int) -> tuple[int, int]:
        # A vector may end in the last cache line of what was taken, not behind it.
        step = align(size) + align(MARGIN)
        block = np.full(threads * step + 2 * align(MARGIN), PATTERN, np.uint8)
        first = align(block.ctypes.data + MARGIN) - block.ctypes.data
        self._guards.append(block[:first])
        for thread in range(threads):
            end = first + thread * step + align(size)
            self._guards.append(block[end : end + align(MARGIN) if thread < threads - 1 else None])
        return int(block.ctypes.data) + first, step

    def check(self) -> None:
        """Nothing outside the taken memory was written."""
        assert self._guards
        for guard in self._guards:
            assert (guard == PATTERN).all()


class GuardedTensor:
    """An NHWC tensor with surplus floats behind every pixel and around the whole, all watched."""

    def __init__(self, n: int, c: int, h: int, w: int, surplus: int = 3) -> None:
        self._block = np.full(n * h * w * (c + surplus) + 2 * MARGIN, 12345.0, np.float32)
        self._c = c
        body = self._block[MARGIN:-MARGIN].reshape(n, h, w, c + surplus)
        self.array = body[..., :c].transpose(0, 3, 1, 2)
        self.tensor = Tensor(body.ctypes.data, 4 * (c + surplus), n, h, w, c)
        self._rest = body[..., c:]

    def check(self) -> None:
        assert (self._block[:MARGIN] == 12345.0).all()
        assert (self._block[-MARGIN:] == 12345.0).all()
        assert (self._rest == 12345.0).all()


class GuardedBytes:
    """Packed weights between guard bytes."""

    def __init__(self, size: int) -> None:
        self._block = np.full(size + 2 * MARGIN + 64, PATTERN, np.uint8)
        self._start = MARGIN + -(self._block.ctypes.data + MARGIN) % 64
        self._size = size
        self.address = int(self._block.ctypes.data) + self._start

    def floats(self) -> np.ndarray:
        """What lies between the guards."""
        return self._block[self._start : self._start + self._size].view(np.float32)

    def check(self) -> None:
        assert (self._block[: self._start] == PATTERN).all()
        assert (self._block[self._start + self._size :] == PATTERN).all()
