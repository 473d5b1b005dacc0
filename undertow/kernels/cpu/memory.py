"""Arrays for the CPU kernels: NCHW to look at, NHWC in memory, from a pool that reuses their memory.

A fresh large array costs a page fault for every 4 KB when it is first written; in a training step that takes
as long as some layers do. Arrays from here give their memory back when the last reference to them dies, and the
next array of that size gets it, uninitialised.
"""

from __future__ import annotations

import threading
from collections import deque

import numpy as np

from undertow.kernels.cpu.raw import packing
from undertow.kernels.cpu.raw.tensor import Tensor, align, aligned_bytes

_SMALL = 1 << 15  # bytes; below, NumPy's own allocator does well
_IDLE_LIMIT = 1 << 30  # bytes kept for reuse


class _Lease:
    """Owns a block while an array made on it lives. NumPy keeps it as the array's base."""

    __slots__ = ("__array_interface__", "_block")

    def __init__(self, block: np.ndarray, shape: tuple[int, ...]) -> None:
        self._block = block
        self.__array_interface__ = {
            "version": 3,
            "shape": shape,
            "typestr": "<f4",
            "data": (block.ctypes.data, False),
        }

    def __del__(self) -> None:
        _returned.append(self._block)


_returned: deque[np.ndarray] = deque()  # filled by __del__, which must not take locks
_idle: dict[int, list[np.ndarray]] = {}
_idle_bytes = 0
_lock = threading.Lock()


def empty(shape: tuple[int, ...]) -> np.ndarray:
    """An uninitialised C-contiguous float32 array, 64-byte aligned."""
    size = align(4 * int(np.prod(shape, dtype=np.int64)))
    if size < _SMALL:
        return aligned_bytes(size)[: 4 * int(np.prod(shape))].view(np.float32).reshape(shape)
    return np.asarray(_Lease(_block(size), shape))


def _block(size: int) -> np.ndarray:
    global _idle_bytes
    with _lock:
        while _returned:
            back = _returned.popleft()
            if _idle_bytes + back.size <= _IDLE_LIMIT:
                _idle.setdefault(back.size, []).append(back)
                _idle_bytes += back.size
        blocks = _idle.get(size)
        if blocks:
            _idle_bytes -= size
            return blocks.pop()
    return aligned_bytes(size)


def release() -> None:
    """Give the memory kept for reuse back to the system."""
    global _idle_bytes
    with _lock:
        _returned.clear()
        _idle.clear()
        _idle_bytes = 0


def empty_nhwc(n: int, c: int, h: int, w: int) -> np.ndarray:
    """An uninitialised array of shape (n, c, h, w) whose memory is NHWC."""
    return empty((n, h, w, c)).transpose(0, 3, 1, 2)


def is_nhwc(x: np.ndarray) -> bool:
    """Whether a float32 NCHW array lies in memory as pixels of dense channels (a slice of channels may)."""
    n, c, h, w = x.shape
    sn, sc, sh, sw = x.strides
    if c > 1 and sc != 4:
        return False
    pixel = sw if w > 1 else sh if h > 1 else sn if n > 1 else 4 * c
    return (
        pixel >= 4 * c and (w == 1 or sw == pixel) and (h == 1 or sh == w * pixel) and (n == 1 or sn == h * w * pixel)
    )


def view(x: np.ndarray) -> Tensor:
    """The tensor of an array that `is_nhwc`. The array must outlive it."""
    n, c, h, w = x.shape
    pixel = x.strides[3] if w > 1 else x.strides[2] if h > 1 else x.strides[0] if n > 1 else 4 * c
    return Tensor(x.ctypes.data, pixel, n, h, w, c)


def as_nhwc(x: np.ndarray) -> np.ndarray:
    """x itself if it lies as NHWC, else a copy that does."""
    if is_nhwc(x):
        return x
    source = np.ascontiguousarray(x)
    result = empty_nhwc(*x.shape)
    packing.to_nhwc(source.ctypes.data, view(result))
    return result


def as_nchw(x: np.ndarray) -> np.ndarray:
    """A C-contiguous array with the values of x: x itself if it is one."""
    if x.flags.c_contiguous:
        return x
    if x.ndim != 4 or x.dtype != np.float32 or not x.size or not is_nhwc(x):
        return np.ascontiguousarray(x)
    result = empty(x.shape)
    packing.to_nchw(view(x), result.ctypes.data)
    return result
