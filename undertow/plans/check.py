"""UNDERTOW_CHECK_PLAN: a replay held against a real run of the same step from the same state."""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from undertow.core.modes import same_draws
from undertow.core.variable import Variable
from undertow.errors import GraphError, UndertowError
from undertow.plans.program import Program, Store

# Largest distance allowed in any case, as a share of the norm of what the real run gives.
TOLERANCE = 2e-2
# What rounding may do to a step is found by running it with parameters and arguments moved by MOVED times the
# resolution of their type. One activation or one winner of a pooling that changes may move a gradient by several per
# cent, and a gradient that is 0 in truth (of a bias before a batch norm) is nothing but rounding; a wrong plan is off
# by much more than the step itself is then. Kernels that sum in other orders differ by some 10 resolutions; many more,
# so that in every run some activations change: with one change in a hundred runs the few that are made would not show
# how far it leads.
RUNS = 4
MOVED = 512
TIMES = 5

Outcome = list[tuple[str, np.ndarray | None]]


def compare_with_unplanned(
    step: Callable[..., Any], program: Program, objects: Sequence[Any], arguments: tuple[Any, ...], store: Store
) -> Any:
    """Run the step, set back what it changed, replay it, compare; returns what the replay returned.

    objects: arrays and random generators among the options of the operations. store: as in `Program.run`.
    Where they differ, the step is run RUNS times more to see how much rounding moves it; the replay's results stay.
    Raises GraphError that names the parameter, statistic or result that differs.
    """
    leaves = {n: program.variable(n) for n in sorted(program.lasting) if program.variable(n).requires_grad}
    names = [x.name or f"of shape {x.shape} ({program.values[n].where})" for n, x in leaves.items()]
    state = _State(objects, list(leaves.values()), names)

    def unplanned(given: tuple[Any, ...]) -> Outcome:
        state.restore()
        with same_draws(state.entropy):
            return state.outcome(step(*given))

    real = unplanned(arguments)
    state.restore()
    with same_draws(state.entropy):
        result = program.run(arguments, store=store)
    planned = state.outcome(result)
    floor = _floor(real)
    if any(_refusal(what, x, y, floor) for (what, x), (_, y) in zip(real, planned, strict=True)):
        spreads = _spreads(unplanned, arguments, real, state)
        for (what, x), (_, y), spread in zip(real, planned, spreads, strict=True):
            refusal = _refusal(what, x, y, floor + TIMES * spread)
            if refusal:
                raise GraphError(refusal, remedy=_REMEDY)
    return result


_REMEDY = (
    "look in the step for Python numbers, branches and constants that change from call to call, and pass them as "
    "arrays; or leave the step unplanned"
)


def _floor(outcome: Outcome) -> float:
    """A distance that float32 cannot resolve beside the largest of the gradients."""
    norms = [np.linalg.norm(x.astype(np.float64)) for what, x in outcome if x is not None and what.startswith(GRADIENT)]
    return float(np.finfo(np.float32).eps) * max((float(n) for n in norms if np.isfinite(n)), default=0.0)


def _spreads(
    unplanned: Callable[[tuple[Any, ...]], Outcome], arguments: tuple[Any, ...], real: Outcome, state: _State
) -> list[float]:
    """How far apart runs of the step lie that differ in rounding only; leaves everything as it was."""
    spreads = [0.0] * len(real)
    with state.left_alone():
        for seed in range(RUNS):
            rng = np.random.default_rng(seed)
            with state.moved(rng):
                try:
                    other = unplanned(_moved(arguments, rng))
                except Exception:  # the step does not take such values
                    other = unplanned(arguments)
                for i, ((_, x), (_, y)) in enumerate(zip(real, other, strict=True)):
                    distance = 0.0 if x is None or y is None or x.shape != y.shape else _distance(x, y)
                    if np.isfinite(distance):
                        spreads[i] = max(spreads[i], distance)
    return spreads


def _nudged(a: np.ndarray, rng: np.random.Generator, most: float = 1.0) -> np.ndarray:
    """Values that are a few roundings smaller or, up to `most` times MOVED, larger."""
    return a * (1 + MOVED * np.finfo(a.dtype).eps * rng.uniform(-1, most, a.shape)).astype(a.dtype)


def _moved(arguments: tuple[Any, ...], rng: np.random.Generator) -> tuple[Any, ...]:
    """Copies of arguments with values a little nearer to 0, so that shares stay within 0 and 1.

    Whole numbers, which may be classes, are not moved, nor are arguments that share memory.
    """
    arrays = [a for a in arguments if isinstance(a, np.ndarray)]
    if any(np.may_share_memory(a, b) for n, a in enumerate(arrays) for b in arrays[:n]):
        return arguments
    floats = [isinstance(a, np.ndarray) and a.dtype.kind == "f" for a in arguments]
    pairs = zip(arguments, floats, strict=True)
    return tuple(np.where(np.trunc(a) == a, a, _nudged(a, rng, 0.0)) if moves else a for a, moves in pairs)


GRADIENT = "the gradient of parameter "


class _State:
    """Everything a step may change besides its own values."""

    def __init__(self, objects: Sequence[Any], leaves: list[Variable], names: list[str]) -> None:
        self._arrays = [o for o in objects if isinstance(o, np.ndarray)]
        self._generators = [o for o in objects if isinstance(o, np.random.Generator)]
        self._leaves, self._names = leaves, names
        self._grads = [None if x.grad is None else x.grad.copy() for x in leaves]
        self._values = [a.copy() for a in self._arrays]
        self._random = self._random_state()
        self.entropy = int(np.random.SeedSequence().entropy)  # type: ignore[arg-type]

    def outcome(self, returned: Any) -> Outcome:
        """All that a run has left and returned, with its names in messages."""
        found: Outcome = []
        for name, x in zip(self._names, self._leaves, strict=True):
            found.append((GRADIENT + name, None if x.grad is None else x.grad.copy()))
        for i, a in enumerate(self._arrays):
            found.append((f"statistic number {i}, of shape {a.shape},", a.copy()))
        return found + [(f"result number {i}", x) for i, x in enumerate(_flat(returned))]

    def restore(self) -> None:
        _put(self._arrays, self._values)
        for variable, grad in zip(self._leaves, self._grads, strict=True):
            variable.grad = None if grad is None else grad.copy()
        self._put_random(self._random)

    @contextlib.contextmanager
    def left_alone(self) -> Iterator[None]:
        """What runs inside changes nothing."""
        grads, values = [x.grad for x in self._leaves], [a.copy() for a in self._arrays]
        random = self._random_state()
        try:
            yield
        finally:
            _put(self._arrays, values)
            self._put_random(random)
            for variable, grad in zip(self._leaves, grads, strict=True):
                variable.grad = grad

    @contextlib.contextmanager
    def moved(self, rng: np.random.Generator) -> Iterator[None]:
        """With parameters that are a few roundings larger or smaller."""
        arrays = [x.data for x in self._leaves if x.dtype.kind == "f" and x.data.flags.writeable]
        values = [a.copy() for a in arrays]
        try:
            for a in arrays:
                a[...] = _nudged(a, rng)
            yield
        finally:
            _put(arrays, values)

    def _random_state(self) -> list[Any]:
        # NumPy's own generator too: operations of users may draw from it.
        return [np.random.get_state(), *(copy.deepcopy(g.bit_generator.state) for g in self._generators)]  # noqa: NPY002

    def _put_random(self, states: list[Any]) -> None:
        np.random.set_state(states[0])  # noqa: NPY002
        for generator, state in zip(self._generators, states[1:], strict=True):
            generator.bit_generator.state = state


def _put(arrays: Sequence[np.ndarray], values: Sequence[np.ndarray]) -> None:
    for array, value in zip(arrays, values, strict=True):
        if array.flags.writeable:
            array[...] = value


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
    refusal = _refusal(what, real, planned, TOLERANCE * 1e-2 * size)
    if refusal:
        raise GraphError(refusal)


def _refusal(what: str, real: np.ndarray | None, planned: np.ndarray | None, slack: float) -> str | None:
    """What is wrong if they are further apart than `slack` and the share of the norm that is always allowed."""
    if real is None or planned is None:
        if real is planned:
            return None
        return f"checked plan: {what} is there only {'planned' if real is None else 'unplanned'}"
    if real.shape != planned.shape:
        return f"checked plan: {what} has shape {planned.shape} planned and {real.shape} unplanned"
    scale = float(np.linalg.norm(real.astype(np.float64)))
    if not np.isfinite(scale):
        return None
    distance = _distance(real, planned)
    allowed = (TOLERANCE * scale if real.dtype.kind == "f" else 0.0) + slack + 1e-12
    if distance <= allowed:
        return None
    return f"checked plan: {what} differs from the unplanned step: distance {distance:.3g}, norm {scale:.3g}"


def _distance(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.linalg.norm(b.astype(np.float64) - a))
