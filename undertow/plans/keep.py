"""Named values of a step that stay readable between calls."""

from __future__ import annotations

from collections.abc import Container, Iterable

import numpy as np

from undertow.core.function import Function
from undertow.core.hooks import FunctionHook, Walk
from undertow.core.variable import Variable
from undertow.errors import GraphError, UndertowError
from undertow.plans.record import Recorder, retain_named

_MOST_NAMES = 20  # in a message


class Kept:
    """A named value: `data` and `grad`, C-contiguous arrays that keep their place while their shape and type stay.

    Every call writes into them; between calls they may be read and written. A later step that computes on
    `Variable(kept.data)` sees what was written. grad: None until a walk backward reached the value. Where one name
    was given to several Variables of the step (layers working in place), data is that of the last and grad that of
    the first, as where both share their memory.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.data: np.ndarray | None = None
        self.grad: np.ndarray | None = None


def _take(old: np.ndarray | None, new: np.ndarray) -> np.ndarray:
    if old is None or old.shape != new.shape or old.dtype != new.dtype:
        return np.array(new, order="C")
    old[...] = new
    return old


class Watch(FunctionHook):
    """Notes the Variables of a step that runs unplanned."""

    def __init__(self, names: Container[str | None]) -> None:
        self.names = names
        self.variables: dict[int, Variable] = {}

    def after_call(self, function: Function, operands: tuple[Variable, ...], outputs: tuple[Variable, ...]) -> None:
        for variable in (*operands, *outputs):
            self.variables.setdefault(id(variable), variable)

    def before_walk(self, walk: Walk) -> bool:
        retain_named(self.variables.values(), self.names)
        return False


class Keeper:
    """The kept values of one step."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(dict.fromkeys(_checked(names)))
        self.kept = {name: Kept(name) for name in self.names}

    def find(self, recorder: Recorder) -> dict[str, tuple[int, int]]:
        """name -> (last, first) value of that name in a recorded step."""
        found: dict[str, tuple[int, int]] = {}
        for number, value in enumerate(recorder.values):
            name = value.variable.name
            if name in self.kept and name is not None:
                found[name] = (number, found[name][1] if name in found else number)
        return found

    def store(self, name: str, data: np.ndarray, grad: np.ndarray | None) -> None:
        """Take what a name stands for after a call."""
        kept = self.kept[name]
        kept.data = _take(kept.data, data)
        if grad is not None:
            kept.grad = _take(kept.grad, grad)

    def watch(self) -> Watch:
        """A hook for a step that runs unplanned."""
        return Watch(self.kept)

    def store_watched(self, watch: Watch) -> None:
        """Take the named Variables of a step that ran unplanned."""
        self._store_variables(watch.variables.values())

    def store_recorded(self, recorder: Recorder) -> None:
        """Take the named Variables of a recorded step."""
        if self.names:
            self._store_variables(value.variable for value in recorder.values)

    def _store_variables(self, variables: Iterable[Variable]) -> None:
        first: set[str] = set()
        others: set[str] = set()
        for variable in variables:
            name = variable.name
            if name is None or name not in self.kept:
                others.add(name or "")
                continue
            grad = None if name in first else variable.grad
            first.add(name)
            self.store(name, variable.data, grad)
        never = [name for name, kept in self.kept.items() if kept.data is None]
        if never:
            raise GraphError(
                f"persistent: no Variable of the step is named '{never[0]}'", remedy=_instead(first | others - {""})
            )


def _checked(names: Iterable[str]) -> list[str]:
    """Raises UndertowError for what is no list of names."""
    remedy = 'give a list of names, persistent=["hidden"]'
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise UndertowError(f"persistent={names!r} is no list of names", remedy=remedy)
    found = list(names)
    for name in found:
        if not isinstance(name, str):
            raise UndertowError(f"persistent has {name!r}, which is no name of a Variable", remedy=remedy)
    return found


def _instead(names: Iterable[str]) -> str:
    """What to do about a name that no Variable has."""
    some = sorted(names)
    if not some:
        return "give a Variable of the step that name: h.name = ..."
    more = "" if len(some) <= _MOST_NAMES else " and others"
    return f"give a Variable that name, or take one that is there: {', '.join(some[:_MOST_NAMES])}{more}"
