"""What a step's code can reach by names: the Variables and modules it works with, and where they are to be found."""

from __future__ import annotations

import sys
import types
from collections import deque
from collections.abc import Callable, Collection, Iterator
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from undertow.core.variable import Variable
from undertow.layers.module import Module, ModuleList
from undertow.plans.gone import Intermediate

_MOST = 20_000  # objects looked at, the nearest first
_MOST_ITEMS = 1000  # of one list or dict: those that are longer are data


class Reach:
    """Variables, buffers of modules, and the places (a dict, list or cell, and a key) that lead to them."""

    def __init__(self, step: Callable[..., Any]) -> None:
        self.variables: list[Variable] = []
        self.buffers: list[np.ndarray] = []
        self._named: list[tuple[dict[str, Any], str, Any]] = []
        self._listed: list[tuple[list[Any], tuple[Any, ...]]] = []
        self._cells: list[tuple[types.CellType, Any]] = []
        self._seen: dict[int, Any] = {}
        waiting: deque[Any] = deque([step])
        while waiting and len(self._seen) < _MOST:
            item = waiting.popleft()
            if id(item) not in self._seen and not isinstance(item, _PLAIN):
                self._seen[id(item)] = item
                waiting.extend(self._inside(item))
        self._seen.clear()

    def _inside(self, item: Any) -> Iterator[Any]:
        if isinstance(item, Variable):
            if item.creator is None and not isinstance(item, Intermediate):
                self.variables.append(item)
        elif isinstance(item, types.MethodType):
            yield from (item.__self__, item.__func__)
        elif isinstance(item, types.FunctionType):
            yield from self._of_function(item)
        elif isinstance(item, partial):
            yield from (item.func, item.args, item.keywords)
        elif isinstance(item, dict):
            yield from islice(item.values(), _MOST_ITEMS)
        elif isinstance(item, (list, tuple, set, frozenset)):
            yield from islice(item, _MOST_ITEMS)
        elif isinstance(item, ModuleList):
            self._listed.append((item._items, tuple(item._items)))
            yield from item._items
        elif isinstance(item, Module) or not _is_foreign(type(item)):
            yield from self._of_object(item)

    def _of_function(self, function: types.FunctionType) -> Iterator[Any]:
        if _is_foreign(function):
            return
        for cell in function.__closure__ or ():
            content = _content(cell)
            self._cells.append((cell, content))
            yield content
        yield from function.__defaults__ or ()
        yield from (function.__kwdefaults__ or {}).values()
        for name in _names(function.__code__):
            if name in function.__globals__:
                self._named.append((function.__globals__, name, function.__globals__[name]))
                yield function.__globals__[name]

    def _of_object(self, item: Any) -> Iterator[Any]:
        names: dict[str, Any] = getattr(item, "__dict__", {})
        if isinstance(names, dict):
            buffers = names.get("_buffer_names", ()) if isinstance(item, Module) else ()
            self.buffers.extend(names[name] for name in buffers if isinstance(names.get(name), np.ndarray))
            self._named.extend((names, name, value) for name, value in names.items())
            yield from names.values()

    def places(self, used: Collection[int]) -> Places:
        """Where modules, and those Variables and arrays whose ids are in `used`, were found."""

        def matters(value: Any) -> bool:
            return id(value) in used or isinstance(value, Module)

        return Places(
            [place for place in self._named if matters(place[2])],
            [place for place in self._listed if any(matters(value) for value in place[1])],
            [place for place in self._cells if matters(place[1])],
        )


class Places:
    """What stood where when a step was recorded."""

    def __init__(
        self,
        named: list[tuple[dict[str, Any], str, Any]],
        listed: list[tuple[list[Any], tuple[Any, ...]]],
        cells: list[tuple[types.CellType, Any]],
    ) -> None:
        self._named, self._listed, self._cells = named, listed, cells

    def are_the_same(self) -> bool:
        """Whether all of it still stands there."""
        for names, name, value in self._named:
            if names.get(name) is not value:
                return False
        for items, before in self._listed:
            if len(items) != len(before):
                return False
            for now, then in zip(items, before):  # noqa: B905 - the lengths are equal, and strict costs time here
                if now is not then:
                    return False
        return all(_content(cell) is value for cell, value in self._cells)


_PLAIN = (type(None), bool, int, float, complex, str, bytes, type, np.ndarray, np.generic, types.ModuleType)


def _content(cell: types.CellType) -> Any:
    """What a closure's cell holds; None while its name is not bound."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _is_foreign(item: Any) -> bool:
    """Whether a class or function belongs to Python, NumPy or this package: what it holds is no user's model."""
    top = str(getattr(item, "__module__", "")).partition(".")[0]
    return top in ("undertow", "numpy", "builtins") or (top != "__main__" and top in sys.stdlib_module_names)


def _names(code: types.CodeType) -> Iterator[str]:
    """The global names that a function's code, or a function inside it, may read."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)
