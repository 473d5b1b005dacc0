"""Where the things that a step works with stand: in attributes, names, items; and whether they still do."""

from __future__ import annotations

import types
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple


class Place(NamedTuple):
    """kind: how `holder` has `child`, under `key`: "key", "attribute", "data", "cell", "item", or "part" for good.

    owner: what a user knows it of: of an entry of `__dict__` the object.
    """

    kind: str
    owner: Any
    holder: Any
    key: Any
    child: Any

    def now(self) -> Any:
        """What stands there now; None for nothing."""
        if self.kind == "key":
            return self.holder.get(self.key)
        if self.kind in ("attribute", "data"):
            return getattr(self.holder, self.key, None)
        if self.kind == "item":
            return self.holder[self.key] if self.key < len(self.holder) else None
        return content(self.holder) if self.kind == "cell" else self.child

    def described(self) -> str:
        """How messages call it."""
        if self.kind == "item" or (self.kind == "key" and self.owner is self.holder):
            return f"{self.key!r} of a {type(self.owner).__name__}"
        if isinstance(self.owner, (types.FunctionType, types.ModuleType)):
            return f"what the name '{self.key}' stands for"
        return f"'{self.key}' of {getattr(self.owner, '__name__', type(self.owner).__name__)}"


def leading_to(places: Sequence[Place], targets: Collection[int]) -> set[int]:
    """The ids of `targets`, and of all that holds them, at any depth."""
    owners: dict[int, list[int]] = {}
    for place in places:
        owners.setdefault(id(place.child), []).append(id(place.owner))
    found = set(targets)
    waiting = list(found)
    while waiting:
        new = set(owners.get(waiting.pop(), ())) - found
        found |= new
        waiting.extend(new)
    return found


class Places:
    """What stood where when a step was recorded, in lists that are gone through quickly before every replay."""

    def __init__(self, places: Sequence[Place], matter: Collection[int]) -> None:
        """matter: ids of what is to be the same; places of other things may change."""
        found = {(place.kind, id(place.holder), place.key): place for place in places if id(place.child) in matter}
        self._found = [place for place in found.values() if place.kind != "part"]
        self._keys = [p[2:] for p in self._found if p.kind == "key"]
        self._attributes = [p[2:] for p in self._found if p.kind in ("attribute", "data")]
        self._cells = [(p.holder, p.child) for p in self._found if p.kind == "cell"]
        containers = {id(p.holder): p.holder for p in self._found if p.kind in ("item", "key") and p.holder is p.owner}
        self._sizes = [(c, len(c)) for c in containers.values() if not isinstance(c, (tuple, types.ModuleType))]
        self._items = [p[2:] for p in self._found if p.kind == "item" and not isinstance(p.holder, tuple)]

    def are_the_same(self) -> bool:
        """Whether all of it still stands there."""
        for names, name, value in self._keys:
            if names.get(name) is not value:
                return False
        for container, size in self._sizes:
            if len(container) != size:
                return False
        for items, index, value in self._items:
            if items[index] is not value:
                return False
        for item, name, value in self._attributes:
            if getattr(item, name, None) is not value:
                return False
        return all(content(cell) is value for cell, value in self._cells)

    def first_other(self) -> str:
        """A place where something else stands by now."""
        return next((place.described() for place in self._found if place.now() is not place.child), "a list's length")


def content(cell: types.CellType) -> Any:
    """What a closure's cell holds; None while its name is not bound."""
    try:
        return cell.cell_contents
    except ValueError:
        return None
