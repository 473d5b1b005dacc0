"""What did not change between the recorded runs of a step that uses constants which may be derived from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from undertow.core.variable import Variable
from undertow.plans.record import Outside, Recorder
from undertow.plans.snapshot import checksum


class Watched:
    """Arguments by number, and a parameter that stands for all, with what they held; looked at before each replay."""

    def __init__(self, arguments: Mapping[int, int], parameter: Variable | None) -> None:
        self._arguments = arguments
        self._parameter = parameter
        self._held = None if parameter is None else checksum(parameter.data)

    def __bool__(self) -> bool:
        return bool(self._arguments) or self._parameter is not None

    def all_arguments(self, given: Mapping[int, int]) -> bool:
        """Whether none of the given arguments has been another."""
        return bool(given) and len(self._arguments) == len(given)

    def holds(self, arguments: tuple[Any, ...]) -> bool:
        """Whether all of it is as it was."""
        for index, held in self._arguments.items():
            if checksum(arguments[index]) != held:
                return False
        return self._parameter is None or checksum(self._parameter.data) == self._held


def sums(arguments: tuple[Any, ...]) -> dict[int, int]:
    """Checksums of the arrays among a step's arguments."""
    return {n: checksum(a) for n, a in enumerate(arguments) if isinstance(a, np.ndarray)}


def learned(first: Recorder, second: Recorder) -> tuple[Variable | None, bool]:
    """The smallest parameter that two recorded runs share, and whether any of them changed in between."""
    smallest: Variable | None = None
    for a, b in zip(first.values, second.values, strict=True):
        if a.variable is not b.variable or not isinstance(b.source, Outside) or not isinstance(a.source, Outside):
            continue
        if a.source.taken.checksum != b.source.taken.checksum:
            return None, True
        if b.requires_grad and (smallest is None or b.variable.size < smallest.size):
            smallest = b.variable
    return smallest, False
