"""The walk backward: from a result to everything it was made from.

Functions are visited in falling generation, so that each has all its gradients when its turn comes; a heap holds
those that wait. No recursion: a chain may be as long as memory allows.
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from undertow.core.function import Function
from undertow.core.hooks import Walk
from undertow.core.modes import modes
from undertow.core.variable import OPERATIONS, Variable, as_array
from undertow.errors import GraphError, ShapeError

if TYPE_CHECKING:
    from undertow.core.hooks import FunctionHook


def backward(y: Variable, retain_grad: bool = False, create_graph: bool = False) -> None:
    """See `Variable.backward`."""
    y._array()  # says so when there is none
    if not y.requires_grad:
        raise GraphError(
            "nothing to differentiate: this value was computed under no_grad() or from constants only",
            remedy="make the inputs Variables (requires_grad=True) and compute outside no_grad()",
        )
    seed = y._grad_var if y._grad_var is not None else y._grad
    if modes.hooks and _held_back(((y, seed),), plain=not (retain_grad or create_graph)):
        return
    walk = _Walk(create_graph, retain_grad=retain_grad)
    walk.seed(y, seed)
    walk.run()
    walk.store_leaves()
    for hook in modes.hooks:
        hook.after_walk()


def grad(
    ys: Variable | Sequence[Variable],
    xs: Variable | Sequence[Variable],
    gys: Variable | np.ndarray | Sequence[Variable | np.ndarray | None] | None = None,
    create_graph: bool = False,
) -> Any:
    """Gradients of the sum of `ys` with respect to `xs`, as Variables; nothing is written into `.grad`.

    gys: seeds, one per y (ones by default). create_graph: make the result differentiable again.
    Returns one Variable when `xs` is one, else a tuple.

    Raises GraphError when some x does not influence any y: that is an answer, not a zero. TypeError when ys or xs are
    no Variables.
    """
    targets, outputs = _variables(xs, "xs"), _variables(ys, "ys")
    seeds: tuple[Any, ...]
    seeds = (gys,) * len(outputs) if gys is None or isinstance(gys, (Variable, np.ndarray, np.generic)) else tuple(gys)
    if len(seeds) != len(outputs):
        raise GraphError(f"{len(outputs)} outputs but {len(seeds)} seeds in gys")
    if modes.hooks:
        _held_back(tuple(zip(outputs, seeds, strict=True)), plain=False)
    walk = _Walk(create_graph, targets=targets)
    walk.restrict(outputs)
    for y, seed in zip(outputs, seeds, strict=True):
        walk.seed(y, seed)
    walk.run()
    found: dict[Variable, Variable] = {}
    for index, x in enumerate(targets):
        if x not in found:
            found[x] = walk.take(x, index)
    return found[xs] if isinstance(xs, Variable) else tuple([found[x] for x in targets])


def _variables(given: Any, name: str) -> tuple[Variable, ...]:
    found = (given,) if isinstance(given, Variable) or not isinstance(given, Iterable) else tuple(given)
    for one in found:
        if not isinstance(one, Variable):
            raise TypeError(f"grad takes Variables as {name}, got {type(one).__name__}")
    return found


class _Walk:
    """One pass backward: the gradients waiting to be used, and the functions waiting to be run, deepest first.

    Gradients are ndarrays, or Variables when the way back is recorded (create_graph).
    targets: walk only towards these and keep their gradients in `found`; empty: walk everywhere.
    """

    def __init__(self, create_graph: bool, *, retain_grad: bool = False, targets: tuple[Variable, ...] = ()) -> None:
        self.create_graph = create_graph
        self.retain_grad = retain_grad
        self.targets = frozenset(targets)
        self.relevant: set[Variable] | None = None
        self.grads: dict[Variable, Any] = {}
        # Sums made here may grow in place; all other arrays may be held by somebody else too.
        self.own_sums: set[Variable] = set()
        self.found: dict[Variable, Any] = {}
        self.heap: list[tuple[int, int, Function]] = []
        self.scheduled: set[Function] = set()
        self.roots: set[Variable] = set()

    def seed(self, y: Variable, gy: Variable | np.ndarray | None) -> None:
        """Start at y with the gradient gy (ones when None)."""
        if gy is None:
            array = np.empty(y.data.shape, y.data.dtype)
            array.fill(1)
        else:
            array = gy.data if isinstance(gy, Variable) else as_array(gy)
            if array.dtype != y.data.dtype and y.data.dtype.kind == "f":
                array = array.astype(y.data.dtype)
        if array.shape != y.data.shape:
            raise ShapeError(f"the seed has shape {array.shape}, the value to differentiate {y.shape}")
        self.roots.add(y)
        if not self.create_graph:
            self._arrive(y, array)
        else:
            self._arrive(y, gy if isinstance(gy, Variable) else Variable(array, requires_grad=False))

    def restrict(self, outputs: Iterable[Variable]) -> None:
        """Walk only along paths that lead to a target."""
        relevant = set(self.targets)
        for function in sorted(_functions_behind(outputs), key=lambda f: f.generation):
            if not relevant.isdisjoint(function.inputs):
                relevant.update(y for y in (reference() for reference in function._outputs) if y is not None)
        self.relevant = relevant

    def run(self) -> None:
        """Visit the functions that lie on the way, deepest first, and hand their gradients on."""
        recording, modes.recording = modes.recording, self.create_graph
        hooks = modes.hooks
        heap, grads, arrive, pop = self.heap, self.grads, self._arrive, heapq.heappop
        watching = self.retain_grad or bool(self.targets)
        try:
            while heap:
                function = pop(heap)[2]
                if len(function._outputs) == 1:
                    y = cast(Variable, function._outputs[0]())
                    gy = grads.pop(y)
                    gys: tuple[Any, ...] = (gy,)
                    if watching or y._retain or y._grad is not None:
                        self._settle(y, gy)
                else:
                    gys = self._take_several(function)
                run = function.backward_graph if self.create_graph else function.backward
                gxs = run(*gys) if not hooks else _seen_by_hooks(hooks, function, run, gys)
                if not isinstance(gxs, tuple):
                    gxs = (gxs,)
                inputs = function.inputs
                if len(gxs) != len(inputs):
                    raise _wrong_count(function, len(gxs))
                for x, gx in zip(inputs, gxs):  # noqa: B905 - the lengths are equal, and strict costs time here
                    if gx is not None and x.requires_grad:
                        arrive(x, _checked(function, x, gx))
        except Exception as error:
            error.add_note(f"on the way back, in {function.label}")
            raise
        finally:
            modes.recording = recording

    def store_leaves(self) -> None:
        """Add the gradients of leaves to what they already hold; the leaves are all that is left at the end."""
        grads = self.grads
        for x in list(grads):
            if x._grad is None or x in self.roots:
                # A root that is a leaf: its gradient is the seed itself.
                if self.create_graph:
                    x._set_grad_var(grads.pop(x))
                else:
                    x._grad, x._grad_var = _own(grads, x), None
            elif self.create_graph:
                x._set_grad_var(OPERATIONS["add"](x.grad_var, grads.pop(x)))
            else:
                x.grad = x._grad + grads.pop(x)

    def take(self, x: Variable, index: int) -> Variable:
        """The gradient of a target, the `index`-th of them, as a Variable."""
        kept = self.found if x in self.found else self.grads
        if x not in kept:
            name = f"'{x.name}'" if x.name else f"number {index}"
            raise GraphError(
                f"variable {name} of shape {x.shape} does not influence the outputs: there is no gradient",
                remedy="check that it was used, with requires_grad, outside no_grad(), and not unchained or replaced",
            )
        return kept.pop(x) if self.create_graph else Variable(_own(kept, x), requires_grad=False)

    def _arrive(self, x: Variable, gx: Any) -> None:
        """Add gx to the gradient of x, and let the function that made x wait for its turn."""
        relevant = self.relevant
        if relevant is not None and x not in relevant:
            return
        if x in self.grads:
            self._add(x, gx)
            return
        self.grads[x] = gx
        function = x.creator
        if function is None or (len(function._outputs) > 1 and function in self.scheduled):
            return
        if relevant is None or not relevant.isdisjoint(function.inputs):
            self.scheduled.add(function)
            heapq.heappush(self.heap, (-function.generation, len(self.scheduled), function))

    def _add(self, x: Variable, gx: Any) -> None:
        total = self.grads[x]
        if self.create_graph:
            self.grads[x] = OPERATIONS["add"](total, gx)
        elif x in self.own_sums and total.dtype == gx.dtype:
            total += gx
        else:
            self.grads[x] = as_array(total + gx)
            self.own_sums.add(x)

    def _take_several(self, function: Function) -> tuple[Any, ...]:
        """The gradients of all outputs of a function, zeros for those that nothing was derived from."""
        gys: list[Any] = []
        for reference, (shape, dtype) in zip(function._outputs, function._output_likes, strict=True):
            y = reference()
            if y is None or y not in self.grads:
                zeros = np.zeros(shape, dtype)
                gys.append(Variable(zeros, requires_grad=False) if self.create_graph else zeros)
                continue
            gys.append(self.grads.pop(y))
            self._settle(y, gys[-1])
        return tuple(gys)

    def _settle(self, y: Variable, gy: Any) -> None:
        """Keep the gradient of an intermediate value if it was asked for, forget the one of an earlier walk."""
        if y in self.targets:
            self.found[y] = gy
        if self.retain_grad or y._retain:
            _keep(y, gy)
        elif not self.targets and y not in self.roots:
            y.clear_grad()


def _held_back(roots: tuple[tuple[Variable, Any], ...], plain: bool) -> bool:
    """Tell the hooks about a walk; whether one of them keeps it from taking place."""
    walk = Walk(roots, plain)
    answers = [hook.before_walk(walk) for hook in modes.hooks]
    return True in answers


def _seen_by_hooks(
    hooks: tuple[FunctionHook, ...], function: Function, run: Callable[..., Any], gys: tuple[Any, ...]
) -> Any:
    before = _arrays(gys)
    for hook in hooks:
        hook.before_backward(function, before)
    gxs = run(*gys)
    after = _arrays(gxs if isinstance(gxs, tuple) else (gxs,))
    for hook in reversed(hooks):
        hook.after_backward(function, before, after)
    return gxs


def _checked(function: Function, x: Variable, gx: Any) -> Any:
    """The gradient as an array (or Variable) of its variable's shape and float type."""
    if isinstance(gx, Variable):
        if gx.data.shape != x.data.shape:
            raise _wrong_shape(function, x, gx.data.shape)
        return gx
    if not isinstance(gx, np.ndarray):
        gx = as_array(gx)
    data = x.data
    if gx.shape != data.shape:
        raise _wrong_shape(function, x, gx.shape)
    if gx.dtype is not data.dtype and gx.dtype != data.dtype and data.dtype.kind == "f":
        return gx.astype(data.dtype)
    return gx


def _wrong_count(function: Function, count: int) -> GraphError:
    return GraphError(
        f"backward of {function.label} returned {count} gradients for {len(function.inputs)} inputs",
        remedy="return one gradient for each input, None where there is none",
    )


def _wrong_shape(function: Function, x: Variable, shape: tuple[int, ...]) -> ShapeError:
    index = next(i for i, candidate in enumerate(function.inputs) if candidate is x)
    return ShapeError(
        f"backward of {function.label} gave a gradient of shape {shape} for input {index} of shape {x.shape}",
        remedy="sum over broadcast axes (sum_to) or undo the transposition in that backward",
    )


def _keep(y: Variable, value: Any) -> None:
    """Leave the gradient of an intermediate value with it: a copy, for the original travels on."""
    if isinstance(value, Variable):
        y._set_grad_var(value)
    else:
        y.grad = value.copy()


def _own(grads: dict[Variable, Any], x: Variable) -> np.ndarray:
    """Take the gradient of x out of `grads`, as an array whose memory nobody else sees.

    `a + b` hands one and the same array to a and to b. Each leaf must own its gradient, or scaling one in place
    would scale the other. Large fresh arrays, the usual case, are recognised by their reference counts and kept.
    """
    alone = _references(grads, x) <= _ALONE
    array: np.ndarray = grads.pop(x)
    if alone and array.flags.c_contiguous and array.flags.writeable and _owns_base(array):
        return array
    return array.copy()


def _owns_base(array: np.ndarray) -> bool:
    """Whether nothing else uses the memory that the array is a view of."""
    level: Any = array
    while isinstance(level, np.ndarray) and level.base is not None:
        if _base_references(level) > _ALONE_BASE:
            return False
        level = level.base
        if isinstance(level, np.ndarray) and level.nbytes > array.nbytes:
            return False
    return True


def _references(holder: dict[Any, Any], key: Any) -> int:
    return sys.getrefcount(holder[key])


def _base_references(array: np.ndarray) -> int:
    return sys.getrefcount(array.base)


# What the two functions above count, in this Python, for an array or base that has one holder.
_ALONE = _references({0: np.zeros(4)}, 0)
_ALONE_BASE = _base_references(np.zeros(4).reshape(2, 2))


def _arrays(values: Iterable[Any]) -> tuple[Any, ...]:
    """Gradients as hooks see them: ndarrays, or None."""
    return tuple([v.data if isinstance(v, Variable) else None if v is None else as_array(v) for v in values])


def _functions_behind(outputs: Iterable[Variable]) -> list[Function]:
    """Every function the outputs were made by, directly or not, each once."""
    waiting = [y.creator for y in outputs if y.creator is not None]
    seen = {id(function) for function in waiting}
    found: list[Function] = []
    while waiting:
        function = waiting.pop()
        found.append(function)
        for x in function.inputs:
            if x.creator is not None and id(x.creator) not in seen:
                seen.add(id(x.creator))
                waiting.append(x.creator)
    return found


OPERATIONS["backward"] = backward
