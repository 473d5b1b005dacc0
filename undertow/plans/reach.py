"""What a step's code can reach by names: the Variables, arrays and modules it works with, and where they stand."""

from __future__ import annotations

import itertools
import sys
import types
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from operator import attrgetter, methodcaller
from typing import Any

import numpy as np

from undertow.core.variable import Variable
from undertow.layers.module import Module
from undertow.plans.gone import Intermediate
from undertow.plans.keep import Kept
from undertow.plans.places import Place, Places, content, leading_to

_MOST = 20_000  # objects looked at, the nearest first
_MOST_ITEMS = 2000  # of one list or dict: those that are longer are data
_MOST_PASSES = 8  # from then on any attribute counts
_DYNAMIC = frozenset({"getattr", "setattr", "vars", "__dict__", "attrgetter"})  # code with these may read any attribute
_BIRTH = frozenset({"__init__", "__new__", "__post_init__"})  # run where the class itself is called
_APART = _BIRTH | {"__repr__", "__str__", "__del__", "__getstate__", "__setstate__", "__reduce__", "__init_subclass__"}


class Reach:
    """Variables, arrays, and the places (an attribute, a name, an item) that lead to them.

    Attributes count where some code that the step can reach has their name; modules and Variables always do.
    """

    def __init__(self, step: Callable[..., Any]) -> None:
        self._names: set[str] = set()
        self._libraries = _libraries(step)
        known = -1
        for pass_ in itertools.count():  # code that is reached names more
            if known == len(self._names) or pass_ > _MOST_PASSES:
                break
            known = len(self._names)
            self._dynamic = pass_ == _MOST_PASSES or not _DYNAMIC.isdisjoint(self._names)
            self._walk(step)

    def _walk(self, step: Callable[..., Any]) -> None:
        self.variables: list[Variable] = []
        self.arrays: list[np.ndarray] = []
        self.is_whole = True
        self._places: list[Place] = []
        self._seen: dict[int, Any] = {}
        waiting: deque[Any] = deque([step])
        while waiting:
            item = waiting.popleft()
            if id(item) in self._seen:
                continue
            if len(self._seen) >= _MOST:
                self.is_whole = False
                break
            self._seen[id(item)] = item
            start = len(self._places)
            self._look_into(item)
            waiting.extend(place.child for place in itertools.islice(self._places, start, None) if place.kind != "data")
        self._seen.clear()

    def _note(self, kind: str, owner: Any, holder: Any, key: Any, child: Any) -> None:
        if _is_gone(child):
            return
        if not isinstance(child, _PLAIN) and not (isinstance(child, (type, types.ModuleType)) and _is_foreign(child)):
            self._places.append(Place(kind, owner, holder, key, child))

    def _part(self, owner: Any, child: Any) -> None:
        """Something that belongs to its owner for good."""
        self._note("part", owner, None, None, child)

    def _look_into(self, item: Any) -> None:
        if isinstance(item, np.ndarray) and item.dtype.hasobject:
            kind = "item" if item.ndim == 1 else "part"
            for index, value in enumerate(item.flat[:_MOST_ITEMS]):
                self._note(kind, item, item, index, value)
        elif isinstance(item, np.ndarray):
            self.arrays.append(item)
        elif isinstance(item, Variable):
            if item.creator is None and not isinstance(item, Intermediate):
                self.variables.append(item)
                self._note("data", item, item, "data", item.data)
        elif isinstance(item, (dict, types.MappingProxyType)):
            self._see_how_long(item.values())
            for key, value in itertools.islice(item.items(), _MOST_ITEMS):
                self._note("key", item, item, key, value)
        elif isinstance(item, (list, tuple, deque, set, frozenset)):
            self._see_how_long(item)
            kind = "part" if isinstance(item, (set, frozenset)) else "item"
            for index, value in enumerate(itertools.islice(item, _MOST_ITEMS)):
                self._note(kind, item, item, index, value)
        else:
            self._look_into_code(item)

    def _see_how_long(self, items: Collection[Any]) -> None:
        """Numbers and texts in a long list lead nowhere, other things may."""
        rest = itertools.islice(items, _MOST_ITEMS, _MOST)
        if len(items) > _MOST or not all(isinstance(item, _PLAIN) for item in rest):
            self.is_whole = False

    def _look_into_code(self, item: Any) -> None:
        if isinstance(item, types.FunctionType):
            if not self._is_library(item):
                self._of_function(item)
        elif isinstance(item, tuple(_PARTS)):
            for name in next(names for kind, names in _PARTS.items() if isinstance(item, kind)):
                self._part(item, getattr(item, name))
        elif isinstance(item, type):
            self._of_class(item)
        elif isinstance(item, (attrgetter, methodcaller)):
            self._names.add("getattr")
        elif isinstance(item, types.ModuleType):
            for name in () if self._is_library(item) else self._names & vars(item).keys():
                self._note("key", item, vars(item), name, vars(item)[name])
        elif isinstance(item, (Module, Kept)) or type(item).__module__ in _OPEN or not _is_foreign(type(item)):
            self._of_object(item)
        elif type(item).__module__.startswith("undertow.") and hasattr(item, "kept"):  # another step with its plans
            self._part(item, item.kept)

    def _is_library(self, item: Any) -> bool:
        """Whether the code of a class, function or module is of others."""
        return _is_foreign(item) or _top(item) in self._libraries

    def _of_function(self, function: types.FunctionType) -> None:
        self._names.update(_names(function.__code__))
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            self._note("cell", function, cell, name, content(cell))
        self._part(function, function.__defaults__)
        self._part(function, function.__kwdefaults__)
        self._part(function, vars(function).get("__wrapped__"))
        for name in _names(function.__code__):
            if name in function.__globals__:
                self._note("key", function, function.__globals__, name, function.__globals__[name])
                self._note_birth(function, function.__globals__[name])

    def _note_birth(self, owner: Any, kind: Any) -> None:
        """A class that code names may be called."""
        if isinstance(kind, type):
            for name in _BIRTH & vars(kind).keys():
                self._part(owner, vars(kind)[name])

    def _of_object(self, item: Any) -> None:
        kind = type(item)
        # What a class of others does with its attributes is not looked at.
        open_ = self._dynamic or any(self._is_library(base) for base in kind.__mro__ if base not in (Module, object))
        names: Any = getattr(item, "__dict__", {})
        if isinstance(names, dict):
            buffers = names.get("_buffer_names", ()) if isinstance(item, Module) else ()
            for name, value in names.items():
                if open_ or name in self._names or name in buffers or isinstance(value, (Module, Variable)):
                    self._note("key", item, names, name, value)
        for name in _slots(kind):
            value = getattr(item, name, None)
            if open_ or name in self._names or isinstance(value, (Module, Variable)):
                self._note("attribute", item, item, name, value)
        self._part(item, kind)

    def _of_class(self, kind: type) -> None:
        for name, value in vars(kind).items():
            special = name == "forward" or (name.startswith("__") and name.endswith("__"))
            if name not in _APART and (special or self._dynamic or name in self._names):
                self._note("key", kind, vars(kind), name, value)
        for base in kind.__bases__:
            self._part(kind, base)

    # --- what is asked of it ----------------------------------------------------------------------------

    def places(self, used: Sequence[Any], watched: Sequence[Any] = ()) -> Places | None:
        """Where modules, functions, and what is `used` or `watched`, were found.

        None where there are too many objects to find all Variables and arrays that are used.
        """
        found = {id(place.child) for place in self._places}
        own = {id(x) for x in used if isinstance(x, Variable) or (isinstance(x, np.ndarray) and x.base is None)}
        if not self.is_whole and not found.issuperset(own):
            return None
        targets = {id(place.child) for place in self._places if isinstance(place.child, (Module, *_FUNCTIONS))}
        targets |= {id(item) for item in (*used, *watched)}
        return Places(self._places, leading_to(self._places, targets))

    def all_places(self) -> Places:
        """Where arrays, Variables and modules were found."""
        return Places(self._places, self._all())

    def _all(self) -> set[int]:
        """The ids of arrays, Variables and modules, and of what leads to them."""
        targets = {id(x) for x in (*self.variables, *self.arrays)}
        targets |= {id(place.child) for place in self._places if isinstance(place.child, Module)}
        return leading_to(self._places, targets)

    def replaced(self, may_change: Callable[[Variable], bool]) -> str | None:
        """A place where by now something else stands than the array, Variable or module that did, or what led to it.

        may_change: whether a Variable may have been put where another stood.
        """
        relevant = self._all()
        for place in self._places:
            if id(place.child) in relevant and place.kind != "data":
                now = place.now()
                if now is not place.child and not (isinstance(now, Variable) and may_change(now)):
                    return place.described()
        return None


_PLAIN = (type(None), bool, int, float, complex, str, bytes, np.generic, np.dtype)
_OPEN = ("types", "argparse", "collections")  # modules of Python whose objects users keep theirs in
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, partial)
_PARTS: dict[type, tuple[str, ...]] = {
    types.MethodType: ("__self__", "__func__"),
    partial: ("func", "args", "keywords"),
    classmethod: ("__func__",),
    staticmethod: ("__func__",),
    property: ("fget", "fset"),
}


def _is_gone(item: Any) -> bool:
    """Whether it is a weak proxy for an object that is no more: even its type cannot be asked for."""
    if type(item) not in weakref.ProxyTypes:
        return False
    try:
        return item.__class__ is None
    except ReferenceError:
        return True


def _slots(kind: type) -> Iterator[str]:
    """The names of an object's attributes outside its `__dict__`."""
    for base in kind.__mro__:
        slots = vars(base).get("__slots__", ())
        for name in {slots} if isinstance(slots, str) else set(slots) - {"__dict__", "__weakref__"}:
            hidden = name.startswith("__") and not name.endswith("__")
            yield f"_{base.__name__.lstrip('_')}{name}" if hidden else name


def _is_foreign(item: Any) -> bool:
    """Whether a class, function or module is of Python, NumPy or this package: what it holds is no user's model."""
    top = _top(item)
    return top in ("undertow", "numpy", "builtins") or (top != "__main__" and top in sys.stdlib_module_names)


def _top(item: Any) -> str:
    """The package that a class, function or module is of."""
    name = item.__name__ if isinstance(item, types.ModuleType) else getattr(item, "__module__", "")
    return str(name).partition(".")[0]


def _libraries(step: Callable[..., Any]) -> set[str]:
    """Installed packages, without the one that the step itself is of."""
    found = {name for name in list(sys.modules) if "." not in name and _is_installed(sys.modules.get(name))}
    return found - {_top(step), _top(type(step))}


def _is_installed(module: Any) -> bool:
    where = str(getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), ""))
    return "site-packages" in where or "dist-packages" in where


def _names(code: types.CodeType) -> Iterator[str]:
    """The global names and attributes that a function's code, or a function inside it, may read."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)
