"""What did not change between the recorded runs of a step that uses constants which may be derived from it."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from undertow.core.variable import Variable
from undertow.plans.reach import Reach
from undertow.plans.record import Outside, Recorder
from undertow.plans.snapshot import checksum

_GLANCE = 1024  # elements looked at of an array that operations read: training moves all, or nearly all of them
_MOST = 1 << 22  # bytes looked at of arrays that only Python code reads
_LARGEST = 1 << 28  # bytes of an array up to which it is looked at while the step is recorded

Source = np.ndarray | Variable


class Sources:
    """Arrays and Variables that a step's code can reach, with what they held before a recorded run."""

    def __init__(self, reach: Reach) -> None:
        self._held: dict[int, tuple[Source, int]] = {}
        items: list[Source] = [*reach.arrays, *reach.variables]
        for item in items:
            array = item if isinstance(item, np.ndarray) else item.data
            if isinstance(array, np.ndarray) and not array.dtype.hasobject:
                self._held[id(item)] = item, checksum(array) if array.nbytes <= _LARGEST else 0

    def add_used(self, recorder: Recorder) -> None:
        """Variables that the step has used, wherever they stand."""
        for value in recorder.values:
            if isinstance(value.source, Outside):
                self._held.setdefault(id(value.variable), (value.variable, value.source.taken.checksum))

    def keep_unvaried(self, later: Sources) -> None:
        """Forget what is another, or holds something else, in a later run."""
        same = self._held.keys() & later._held.keys()
        self._held = {key: self._held[key] for key in same if self._held[key][1] == later._held[key][1]}

    def arrays(self) -> list[np.ndarray]:
        """Arrays that are no Variables', without those too large to be looked at."""
        found = (item for item, _ in self._held.values() if isinstance(item, np.ndarray))
        return [array for array in found if array.nbytes <= _LARGEST]

    def items(self) -> list[Source]:
        """What there still is."""
        return [item for item, _ in self._held.values()]


class Watched:
    """Arguments by number, arrays and Variables, with what they held; looked at before each replay.

    read: ids of arrays that operations read; others are there for Python code alone, and are looked at as a whole.
    """

    def __init__(self, arguments: Mapping[int, int], sources: Sequence[Source], read: Collection[int]) -> None:
        self._arguments = arguments
        self.sources = sources
        self._glanced = [item for item in sources if isinstance(item, Variable) or id(item) in read]
        self._whole = [item for item in sources if isinstance(item, np.ndarray) and id(item) not in read]
        whole = sum(array.nbytes for array in self._whole)
        self.too_large = max(self._whole, key=lambda array: array.nbytes) if whole > _MOST else None
        self._held = [] if self.too_large is not None else self._look()

    def __bool__(self) -> bool:
        return bool(self._arguments) or bool(self.sources)

    def _look(self) -> list[int]:
        glances = [_glance(item if isinstance(item, np.ndarray) else item.data) for item in self._glanced]
        return [*glances, *(checksum(array) for array in self._whole)]

    def all_arguments(self, given: Mapping[int, int]) -> bool:
        """Whether none of the given arguments has been another."""
        return bool(given) and len(self._arguments) == len(given)

    def holds(self, arguments: tuple[Any, ...]) -> bool:
        """Whether all of it is as it was."""
        for index, held in self._arguments.items():
            if checksum(arguments[index]) != held:
                return False
        return not self._held or self._look() == self._held


def sums(arguments: tuple[Any, ...]) -> dict[int, int]:
    """Checksums of the arrays among a step's arguments."""
    return {n: checksum(a) for n, a in enumerate(arguments) if isinstance(a, np.ndarray)}


def _glance(array: np.ndarray) -> int:
    """The checksum of some elements, all over an array."""
    if not array.flags.c_contiguous or array.dtype.kind not in "fiubc":
        return checksum(array)
    return zlib.crc32(np.ascontiguousarray(array.reshape(-1)[:: array.size // _GLANCE + 1]).data)
