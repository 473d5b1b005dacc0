"""What only operations may change while a step is recorded: a replay does nothing else again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from undertow.core.variable import Variable
from undertow.plans.snapshot import checksum


class _Entry(NamedTuple):
    array: np.ndarray
    checksum: int
    name: str


class Ledger:
    """Arrays, and what they held when an operation last had to do with them."""

    def __init__(self) -> None:
        self._entries: dict[int, _Entry] = {}

    def enter(self, array: np.ndarray, name: str) -> None:
        """Take down what an array holds now."""
        if not array.dtype.hasobject:
            self._entries[id(array)] = _Entry(array, checksum(array), name)

    def check(self, array: np.ndarray) -> str | None:
        """The name of the array if it holds something else by now; an array not seen before is entered."""
        entry = self._entries.get(id(array))
        if entry is None:
            self.enter(array, described(array))
            return None
        return None if checksum(array) == entry.checksum else entry.name

    def changed(self) -> Iterator[tuple[np.ndarray, str]]:
        """All arrays that hold something else by now, with their names."""
        return ((e.array, e.name) for e in self._entries.values() if checksum(e.array) != e.checksum)


class _State(NamedTuple):
    variable: Variable
    data: np.ndarray | None
    requires_grad: bool


class _Gradient(NamedTuple):
    array: np.ndarray | None
    checksum: int


class Known:
    """Variables from outside a step, as they were before it, and the gradients that walks backward left in them."""

    def __init__(self, variables: Iterable[Variable]) -> None:
        self._states: dict[int, _State] = {}
        self._gradients: dict[int, _Gradient] = {}
        self.cleared: dict[int, Variable] = {}
        for variable in variables:
            self.add(variable)

    def add(self, variable: Variable) -> None:
        """Take a Variable down, if it is a new one."""
        if id(variable) not in self._states:
            self._states[id(variable)] = _State(variable, variable.data, variable.requires_grad)
            self._gradients[id(variable)] = _gradient_of(variable)

    def variables(self) -> list[Variable]:
        """All of them."""
        return [state.variable for state in self._states.values()]

    def other_gradient(self, may_be_cleared: bool) -> Variable | None:
        """A Variable whose gradient is another than before."""
        for key, before in self._gradients.items():
            variable = self._states[key].variable
            if variable._grad is None and before.array is not None and may_be_cleared:
                self.cleared[key] = variable
            elif variable._grad is not before.array or _gradient_of(variable).checksum != before.checksum:
                return variable
        return None

    def take_gradients(self) -> None:
        """After a walk backward, which has changed gradients."""
        for key, state in self._states.items():
            self._gradients[key] = _gradient_of(state.variable)

    def replaced(self) -> Iterator[tuple[Variable, str]]:
        """Variables that have become others in the step, and what of them."""
        for variable, data, requires_grad in self._states.values():
            if data is not None and variable.data is not data:
                yield variable, "data"
            if variable.requires_grad != requires_grad:
                yield variable, "requires_grad"


def _gradient_of(variable: Variable) -> _Gradient:
    array = variable._grad
    return _Gradient(array, 0 if array is None else checksum(array))


def described(item: np.ndarray | Variable) -> str:
    """How messages call a Variable or an array."""
    if isinstance(item, Variable) and item.name:
        return f"'{item.name}'"
    data = item.data if isinstance(item, Variable) else item
    return f"an array of shape {data.shape}" if isinstance(data, np.ndarray) else "a parameter"
