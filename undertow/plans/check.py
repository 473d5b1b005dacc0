"""UNDERTOW_CHECK_PLAN: a replay held against a real run of the same step from the same state."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from undertow.core.variable import Variable
from undertow.errors import GraphError, UndertowError
from undertow.plans.program import Program, Store

# Largest distance allowed, as a share of the norm of what the real run gives: one activation whose sign flips at a
# kink by rounding moves the gradients before it by a few thousandths.
TOLERANCE = 2e-2


def compare_with_unplanned(
    step: Callable[..., Any], program: Program, objects: Sequence[Any], arguments: tuple[Any, ...], store: Store
) -> Any:
    """Run the step, set back what it changed, replay it, compare; returns what the replay returned.

    objects: arrays and random generators among the options of the operations. store: as in `Program.run`.
    Raises GraphError that names the parameter, statistic or result that differs.
    """
    leaves = {n: program.variable(n) for n in sorted(program.lasting) if program.variable(n).requires_grad}
    state = _State(objects, list(leaves.values()))
    expected = step(*arguments)
    real = state.take()
    state.restore()
    result = program.run(arguments, store=store)
    planned = state.take()
    for index, variable in enumerate(leaves.values()):
        name = variable.name or f"of shape {variable.shape} ({program.values[list(leaves)[index]].where})"
        hold(f"the gradient of parameter {name}", real.grads[index], planned.grads[index])
    for index, (a, b) in enumerate(zip(real.arrays, planned.arrays, strict=True)):
        hold(f"statistic number {index}, of shape {a.shape},", a, b)
    for index, (x, y) in enumerate(zip(_flat(expected), _flat(result), strict=True)):
        hold(f"result number {index}", x, y)
    return result


class _Taken:
    def __init__(self, arrays: list[np.ndarray], grads: list[np.ndarray | None]) -> None:
        self.arrays, self.grads = arrays, grads


class _State:
    """Everything a step may change besides its own values."""

    def __init__(self, objects: Sequence[Any], leaves: list[Variable]) -> None:
        self._arrays = [o for o in objects if isinstance(o, np.ndarray)]
        self._generators = [o for o in objects if isinstance(o, np.random.Generator)]
        self._leaves = leaves
        self._before = self.take()
        self._random = [copy.deepcopy(g.bit_generator.state) for g in self._generators]

    def take(self) -> _Taken:
        grads = [None if x.grad is None else x.grad.copy() for x in self._leaves]
        return _Taken([a.copy() for a in self._arrays], grads)

    def restore(self) -> None:
        for array, before in zip(self._arrays, self._before.arrays, strict=True):
            if array.flags.writeable:
                array[...] = before
        for variable, grad in zip(self._leaves, self._before.grads, strict=True):
            variable.grad = None if grad is None else grad.copy()
        for generator, state in zip(self._generators, self._random, strict=True):
            generator.bit_generator.state = state


def _flat(returned: Any) -> list[np.ndarray | None]:
    if isinstance(returned, Variable):
        return [returned.data]
    if isinstance(returned, dict):
        returned = tuple(returned.values())
    if isinstance(returned, (tuple, list)):
        return [array for item in returned for array in _flat(item)]
    return [returned]


def every() -> int:
    """The number in UNDERTOW_CHECK_PLAN, 0 without one. Raises UndertowError for what is no number."""
    text = os.environ.get("UNDERTOW_CHECK_PLAN", "")
    if not text:
        return 0
    if not text.isdigit():
        raise UndertowError(f"UNDERTOW_CHECK_PLAN is {text!r}", remedy="set it to a whole number; 0 for never")
    return int(text)


def hold(what: str, real: np.ndarray | None, planned: np.ndarray | None, size: float = 0.0) -> None:
    """Raise GraphError where what a real run gave and what a replay gave differ by more than rounding explains.

    size: the norm of the numbers that it was summed from: where they have cancelled, the rest is mostly rounding.
    """
    if real is None or planned is None:
        if real is not planned:
            raise GraphError(f"checked plan: {what} is there only {'planned' if real is None else 'unplanned'}")
        return
    if real.dtype.kind != "f":
        if not np.array_equal(real, planned):
            raise GraphError(f"checked plan: {what} differs from the unplanned step")
        return
    scale = float(np.linalg.norm(real.astype(np.float64)))
    distance = float(np.linalg.norm(planned.astype(np.float64) - real))
    if np.isfinite(scale) and not distance <= TOLERANCE * (scale + 1e-2 * size) + 1e-12:
        raise GraphError(
            f"checked plan: {what} differs from the unplanned step: distance {distance:.3g}, norm {scale:.3g}"
        )
