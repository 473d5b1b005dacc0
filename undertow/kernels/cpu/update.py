"""Updates of parameters in place, on C-contiguous float32 arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from undertow.errors import ShapeError
from undertow.kernels.cpu.raw import plan_update as raw
from undertow.kernels.cpu.scripts import Script

Array = np.ndarray


def fits(*arrays: Array) -> bool:
    """Whether the kernels can work on these arrays where they lie."""
    return all(a.flags.c_contiguous and a.flags.writeable and a.dtype == np.float32 for a in arrays)


def darknet_accumulate(updates: Array, gradient: Array, factor: float = 1.0) -> None:
    """`reference.darknet_accumulate`."""
    _check((updates, gradient))
    raw.accumulate(updates.ctypes.data, gradient.ctypes.data, updates.size, factor)


def darknet_update(values: Array, updates: Array, decay: float, rate: float, momentum: float) -> None:
    """`reference.darknet_update`."""
    _move("darknet", (values, updates), (decay, rate, momentum))


def momentum_update(
    values: Array, gradient: Array, velocity: Array, scale: float, decay: float, rate: float, momentum: float
) -> None:
    """`reference.momentum_update`."""
    _move("momentum", (values, gradient, velocity), (scale, decay, rate, momentum))


def caffe_update(
    values: Array, gradient: Array, history: Array, scale: float, decay: float, rate: float, momentum: float
) -> None:
    """`reference.caffe_update`."""
    _move("caffe", (values, gradient, history), (scale, decay, rate, momentum))


def _move(rule: str, arrays: tuple[Array, ...], given: tuple[float, ...]) -> None:
    _check(arrays)
    numbers = np.array(given, np.float32)
    raw.move(rule, tuple(a.ctypes.data for a in arrays), arrays[0].size, numbers.ctypes.data)


class Together:
    """A rule for many parameters in one go: "darknet", "momentum" or "caffe", for `darknet_update` and so on.

    The kernel calls are noted once and made again as long as the arrays stay where they are.
    """

    def __init__(self, rule: str) -> None:
        self._rule = rule
        self._key: list[int] = []
        self._script: Script | None = None
        self._numbers = np.empty((0, 0), np.float32)

    def __call__(self, rows: Sequence[tuple[Array, ...]], numbers: Sequence[tuple[float, ...]]) -> None:
        """rows: the arrays of each parameter, as the rule's function takes them; numbers: what follows them there."""
        key: list[int] = []
        for arrays in rows:
            _check(arrays)
            key += [a.ctypes.data for a in arrays]
            key.append(arrays[0].size)
        if len(self._numbers) != len(rows):
            self._numbers, self._script = np.empty((len(rows), 4), np.float32), None
        self._numbers[:, : len(numbers[0])] = numbers
        while self._script is None or key != self._key or not self._script.play():
            self._key, self._script = key, Script(lambda: self._note(rows))

    def _note(self, rows: Sequence[tuple[Array, ...]]) -> None:
        for arrays, own in zip(rows, self._numbers, strict=True):
            raw.move(self._rule, tuple(a.ctypes.data for a in arrays), arrays[0].size, own.ctypes.data)


class AllFinite:
    """`all_finite` of many arrays in one go; noted once, as in `Together`."""

    def __init__(self) -> None:
        self._key: list[int] = []
        self._script: Script | None = None
        self._found = np.zeros(1, np.int64)

    def __call__(self, arrays: Sequence[Array]) -> bool:
        key = [number for a in arrays for number in (a.ctypes.data, a.size)]
        self._found[0] = 0
        while self._script is None or key != self._key or not self._script.play():
            self._key, self._script = key, Script(lambda: self._note(arrays))
        return not self._found[0]

    def _note(self, arrays: Sequence[Array]) -> None:
        for a in arrays:
            raw.find_infinite(a.ctypes.data, a.size, self._found.ctypes.data)


def all_finite(x: Array) -> bool:
    """`reference.all_finite`."""
    return raw.all_finite(x.ctypes.data, x.size)


def _check(arrays: tuple[Array, ...]) -> None:
    first = arrays[0]
    for other in arrays[1:]:
        if other.shape != first.shape:
            raise ShapeError(f"an accumulator of shape {other.shape} does not belong to a parameter of {first.shape}")
