"""What runs many times in a layer, as the steps of a recurrent one do, told once with its count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from undertow.core.function import Function
from undertow.core.hooks import Arrays, FunctionHook
from undertow.functions.linalg import Linear
from undertow.inspect.formulas import formula_lines
from undertow.inspect.record import Call
from undertow.inspect.specific import backward_of, forward_of, name_of
from undertow.inspect.text import shapes_text

# Longer steps are not looked for: that takes time in the square of their length.
_LONGEST = 64
# So many steps have values of their own.
_COMPUTED = 8


class RepeatsSpared(FunctionHook):
    """Within, products with the same weights are computed for the first steps alone; those of later steps are 0.

    For what tells of sizes and not of values: hundreds of steps of a recurrent layer are all alike.
    """

    def __init__(self) -> None:
        self._seen: Counter[int] = Counter()

    def instead_of_forward(self, function: Function, inputs: Arrays) -> Any:
        if not isinstance(function, Linear):
            return None
        x, weights = inputs[:2]
        self._seen[id(weights)] += 1
        return np.zeros((*x.shape[:-1], len(weights)), x.dtype) if self._seen[id(weights)] > _COMPUTED else None


def times(count: int) -> str:
    return f"{count} times"


def counted(lines: Iterable[str]) -> list[str]:
    """Each line once, in the order of first appearance, with its count behind it where it came several times."""
    return [line if count == 1 else f"{line}, {times(count)}" for line, count in Counter(lines).items()]


def kinds(calls: Iterable[Call]) -> list[list[Call]]:
    """The calls of one operation and variant together, in the order of first appearance."""
    found: dict[tuple[object, ...], list[Call]] = {}
    for call in calls:
        variant = type(call.function), name_of(call), forward_of(call), backward_of(call)
        found.setdefault(variant, []).append(call)
    return list(found.values())


def fullest(calls: Sequence[Call]) -> Call:
    """The call that hands the most gradients back: at the first step of a sequence the state is a constant."""
    return max(calls, key=lambda call: sum(call.wanted))


def head(calls: Sequence[Call]) -> list[str]:
    """The name of calls of one kind with their shapes and how often each comes."""
    name = name_of(calls[0])
    shapes = counted(f"{shapes_text(call.in_shapes)} -> {shapes_text(call.out_shapes)}" for call in calls)
    if len(shapes) == 1:
        return [f"{name}: {shapes[0]}"]
    return [f"{name}, {times(len(calls))}:", *(f"  {line}" for line in shapes)]


def backward_lines(calls: Sequence[Call]) -> list[str]:
    """The backward formulas of calls with their sizes, each once."""
    return counted(line for call in calls for line in formula_lines(call))


def sequence(names: Sequence[str]) -> list[str]:
    """What runs forward, in order; steps that follow each other are told once, as `2 times (linear, add)`."""
    parts, opposite = _folded(list(names)), "the way back takes them in the opposite order."
    if len(parts) == len(names):
        return [f"Forward it runs {', then '.join(parts)}; {opposite}"]
    return ["Forward it runs", *(f"  {part}" for part in parts), opposite.capitalize()]


def _folded(names: list[str]) -> list[str]:
    parts: list[str] = []
    at = 0
    while at < len(names):
        length, count = _longest_repeat(names, at)
        block = names[at : at + length]
        if count == 1:
            parts.append(block[0])
        else:
            inner = ", ".join(_folded(block))
            parts.append(f"{times(count)} {inner if len(block) == 1 else f'({inner})'}")
        at += length * count
    return parts


def _longest_repeat(names: list[str], at: int) -> tuple[int, int]:
    """Length and count of the block here that covers most when repeated; of equals the shortest."""
    best = (1, 1)
    for length in range(1, min(_LONGEST, (len(names) - at) // 2) + 1):
        block, count = names[at : at + length], 1
        while names[at + count * length : at + (count + 1) * length] == block:
            count += 1
        if count > 1 and length * count > best[0] * best[1]:
            best = (length, count)
    return best
