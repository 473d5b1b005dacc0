"""What a step returns, as a recipe: which values, in which tuples and dicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from undertow.core.variable import Variable
from undertow.plans.record import Recorder


class Leaf(NamedTuple):
    """One returned thing. kind: "variable", "array" or "grad" of a value."""

    kind: str
    value: int


@dataclass(frozen=True)
class Result:
    """layout: nested ("tuple" | "list" | "dict", items) with Leafs and None in it. problem: why it has none."""

    layout: Any
    problem: str | None = None


def describe(returned: Any, recorder: Recorder) -> Result:
    """The recipe for what a recorded step returned."""
    try:
        return Result(_layout(returned, recorder))
    except _Unknown as unknown:
        return Result(None, str(unknown))


class _Unknown(Exception):
    pass


def _layout(item: Any, recorder: Recorder) -> Any:
    if item is None:
        return None
    if isinstance(item, Variable):
        number = recorder.number_of(item)
        if number is None:
            number = recorder.find(item.data)
        if number is None:
            raise _Unknown("the step returns a Variable that none of its operations made")
        return Leaf("variable", number)
    if isinstance(item, np.ndarray):
        number = recorder.find(item)
        if number is not None:
            return Leaf("array", number)
        for n, value in enumerate(recorder.values):
            if value.is_leaf and value.variable.grad is item:
                return Leaf("grad", n)
        raise _Unknown("the step returns an array that Python code derived; return the Variable it comes from")
    if isinstance(item, dict):
        return ("dict", tuple((key, _layout(value, recorder)) for key, value in item.items()))
    if isinstance(item, (tuple, list)) and type(item) in (tuple, list):
        return (type(item).__name__, tuple(_layout(value, recorder) for value in item))
    raise _Unknown(f"the step returns a {type(item).__name__}; only Variables and arrays can be replayed")


def leaves(layout: Any) -> list[Leaf]:
    """All Leafs in a layout."""
    if layout is None:
        return []
    if isinstance(layout, Leaf):
        return [layout]
    kind, items = layout
    return [leaf for item in items for leaf in leaves(item[1] if kind == "dict" else item)]


def build(layout: Any, make: Callable[[Leaf], Any]) -> Any:
    """What a layout says, from its leaves."""
    if layout is None:
        return None
    if isinstance(layout, Leaf):
        return make(layout)
    kind, items = layout
    if kind == "dict":
        return {key: build(item, make) for key, item in items}
    made = [build(item, make) for item in items]
    return tuple(made) if kind == "tuple" else made


def without(returned: Any, lent: Sequence[tuple[Variable, np.ndarray]]) -> tuple[Any, list[Variable]]:
    """What a step returned, with None where it returned a lent gradient, and the Variables that had those."""
    found: list[Variable] = []

    def cleaned(item: Any) -> Any:
        if type(item) in (tuple, list):
            return type(item)(cleaned(part) for part in item)
        if type(item) is dict:
            return {key: cleaned(part) for key, part in item.items()}
        owners = [variable for variable, zeros in lent if zeros is item]
        found.extend(owners)
        return None if owners else item

    return cleaned(returned) if lent else returned, found
