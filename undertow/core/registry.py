"""The registry of all operations: what each computes, whether it has a gradient, and how to try it.

Tests iterate over it (gradients in float64, second order where claimed, fused against derived backward), the
documentation and `explain` print its formulas. A test makes sure that no operation escapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import numpy as np

from undertow.core.function import Function
from undertow.core.reals import on_reals

Gradient = Literal["none", "estimate", "once", "twice"]
FunctionClass = TypeVar("FunctionClass", bound=type[Function])


@dataclass(frozen=True)
class Sample:
    """One way to call an operation: `call(*args)` with the arrays as Variables.

    args: float arrays get their gradient checked, integer ones are passed as constants.
    reference: from the same arrays, the expected result by other means (NumPy); None when there is none.
    note: what is special about this sample, shown when a check fails.
    """

    args: tuple[np.ndarray, ...]
    call: Callable[..., Any]
    reference: Callable[..., Any] | None = None
    note: str = ""


@dataclass(frozen=True)
class Operation:
    """One line of the registry."""

    name: str
    function: type[Function]
    gradient: Gradient
    forward: str
    backward: str
    samples: Callable[[np.random.Generator], list[Sample]] = field(repr=False)
    whole: bool = False
    labels: tuple[int, ...] = ()


_OPERATIONS: dict[str, Operation] = {}


def register(
    name: str,
    *,
    gradient: Gradient,
    forward: str,
    backward: str = "",
    samples: Callable[[np.random.Generator], list[Sample]],
    whole: bool = False,
    labels: tuple[int, ...] = (),
) -> Callable[[FunctionClass], FunctionClass]:
    """Class decorator that enters a Function into the registry.

    name: the operation's public name. gradient: "none", "once" or "twice" differentiable, or "estimate": it hands
    something back that is not the derivative, on purpose (straight-through estimates, masks).
    forward, backward: the formulas in symbols, e.g. "y = sin x" and "gx = gy cos x".
    samples: from a random generator, calls that show the operation's variants (shapes, options, broadcasting).
    whole: whole numbers stay whole, as in NumPy (arithmetic, shapes); else forward sees them as floats, by the rule
        of `undertow.core.reals`, but for the inputs at the positions `labels`.
    """

    def enter(function: FunctionClass) -> FunctionClass:
        if name in _OPERATIONS:
            raise ValueError(f"operation '{name}' is registered twice")
        if gradient != "none" and not backward:
            raise ValueError(f"operation '{name}' claims a gradient but states no backward formula")
        if not whole and not hasattr(function.forward, "__wrapped__"):
            function.forward = on_reals(function.forward, labels)  # type: ignore[method-assign]
        _OPERATIONS[name] = Operation(name, function, gradient, forward, backward, samples, whole, labels)
        return function

    return enter


def operations() -> Iterator[Operation]:
    """All registered operations, by name."""
    return iter(sorted(_OPERATIONS.values(), key=lambda operation: operation.name))


def operation(name: str) -> Operation:
    """The operation of that name; KeyError when there is none."""
    return _OPERATIONS[name]


def find(function: type[Function]) -> Operation | None:
    """The entry of a Function class, or None for a class of the user's."""
    return next((entry for entry in _OPERATIONS.values() if entry.function is function), None)
