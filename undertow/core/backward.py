"""The walk backward: from a result to everything it was made from."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from undertow.core.function import Function
from undertow.core.modes import enable_grad, modes, no_grad
from undertow.core.variable import OPERATIONS, Variable, as_array
from undertow.errors import GraphError, ShapeError


def backward(y: Variable, *, retain_grad: bool = False, create_graph: bool = False) -> None:
    """See `Variable.backward`."""
    if not y.requires_grad:
        raise GraphError(
            "nothing to differentiate: this value was computed under no_grad() or from constants only",
            remedy="make the inputs Variables (requires_grad=True) and compute outside no_grad()",
        )
    walk = _Walk(create_graph, retain_grad=retain_grad)
    walk.seed(y, y.grad_var if y.grad is not None else None)
    walk.run()
    walk.store_leaves()


def grad(
    ys: Variable | Sequence[Variable],
    xs: Variable | Sequence[Variable],
    gys: Variable | np.ndarray | Sequence[Variable | np.ndarray | None] | None = None,
    create_graph: bool = False,
) -> Any:
    """Gradients of the sum of `ys` with respect to `xs`, as Variables; nothing is written into `.grad`.

    gys: seeds, one per y (ones by default). create_graph: make the result differentiable again.
    Returns one Variable when `xs` is one, else a tuple.

    Raises GraphError when some x does not influence any y: that is an answer, not a zero.
    """
    targets = (xs,) if isinstance(xs, Variable) else tuple(xs)
    outputs = (ys,) if isinstance(ys, Variable) else tuple(ys)
    seeds: tuple[Any, ...]
    seeds = (gys,) * len(outputs) if gys is None or isinstance(gys, (Variable, np.ndarray)) else tuple(gys)
    if len(seeds) != len(outputs):
        raise GraphError(f"{len(outputs)} outputs but {len(seeds)} seeds in gys")
    walk = _Walk(create_graph, targets=targets)
    walk.restrict(outputs)
    for y, seed in zip(outputs, seeds, strict=True):
        walk.seed(y, seed)
    walk.run()
    found = tuple(walk.found_for(x, index) for index, x in enumerate(targets))
    return found[0] if isinstance(xs, Variable) else found


class _Walk:
    """One pass backward: gradients waiting to be used, and functions waiting to be run, deepest first."""

    def __init__(self, create_graph: bool, *, retain_grad: bool = False, targets: tuple[Variable, ...] = ()) -> None:
        self.create_graph = create_graph
        self.retain_grad = retain_grad
        self.targets = {id(x): x for x in targets}
        self.relevant: set[int] | None = None
        # Keyed by id(variable); the functions on the heap keep those variables alive.
        self.grads: dict[int, _Sum] = {}
        self.leaves: dict[int, Variable] = {}
        self.found: dict[int, Variable] = {}
        self.heap: list[tuple[int, int, Function]] = []
        self.waiting: set[int] = set()
        self.roots: dict[int, Variable] = {}

    def seed(self, y: Variable, gy: Variable | np.ndarray | None) -> None:
        """Start at y with the gradient gy (ones when None)."""
        if gy is None:
            gy = Variable(np.ones_like(y.data), requires_grad=False)
        elif isinstance(gy, np.ndarray):
            gy = Variable(gy, requires_grad=False)
        if gy.shape != y.shape:
            raise ShapeError(f"the seed has shape {gy.shape}, the value to differentiate {y.shape}")
        self.roots[id(y)] = y
        self._arrive(y, gy if self.create_graph else gy.data)

    def restrict(self, outputs: Iterable[Variable]) -> None:
        """Walk only along paths that lead to a target."""
        functions = _functions_behind(outputs)
        relevant = set(self.targets)
        for function in sorted(functions, key=lambda f: f.generation):
            if any(id(x) in relevant for x in function.inputs):
                relevant.update(id(y) for y in (ref() for ref in function._outputs) if y is not None)
        self.relevant = relevant

    def run(self) -> None:
        """Visit the functions in falling generation, so that each has all its gradients when its turn comes."""
        guard = enable_grad if self.create_graph else no_grad
        with guard():
            while self.heap:
                function = heapq.heappop(self.heap)[2]
                gys = self._take_output_grads(function)
                gxs = self._run_backward(function, gys)
                for x, gx in zip(function.inputs, gxs, strict=True):
                    if gx is not None and x.requires_grad:
                        self._arrive(x, _checked(function, x, gx))

    def store_leaves(self) -> None:
        """Add the gradients of leaves to what they already hold."""
        for key, x in self.leaves.items():
            total = self.grads.pop(key).value
            if self.create_graph:
                before = x.grad_var
                x._set_grad_var(total if before is None else OPERATIONS["add"](before, total))
            else:
                x.grad = total if x.grad is None else x.grad + total

    def found_for(self, x: Variable, index: int) -> Variable:
        total = self.grads.get(id(x))
        value = self.found.get(id(x)) if total is None else total.value
        if value is None:
            name = f"'{x.name}'" if x.name else f"number {index}"
            raise GraphError(
                f"variable {name} of shape {x.shape} does not influence the outputs: there is no gradient",
                remedy="check that it was used outside no_grad() and not unchained or replaced on the way",
            )
        return value if isinstance(value, Variable) else Variable(value, requires_grad=False)

    def _arrive(self, x: Variable, gx: Any) -> None:
        if self.relevant is not None and id(x) not in self.relevant:
            return
        total = self.grads.get(id(x))
        if total is not None:
            total.add(gx)
            return
        self.grads[id(x)] = _Sum(gx)
        function = x.creator
        if function is None:
            self.leaves[id(x)] = x
        elif id(function) not in self.waiting and self._leads_on(function):
            self.waiting.add(id(function))
            heapq.heappush(self.heap, (-function.generation, len(self.waiting), function))

    def _leads_on(self, function: Function) -> bool:
        return self.relevant is None or any(id(x) in self.relevant for x in function.inputs)

    def _take_output_grads(self, function: Function) -> tuple[Any, ...]:
        """The gradients of the function's outputs, removed from the books: later use would be a mistake."""
        gys: list[Any] = []
        for index, reference in enumerate(function._outputs):
            y = reference()
            total = None if y is None else self.grads.pop(id(y), None)
            if y is None or total is None:
                shape, dtype = function._output_likes[index]
                zeros = np.zeros(shape, dtype)
                gys.append(Variable(zeros, requires_grad=False) if self.create_graph else zeros)
                continue
            gys.append(total.value)
            if id(y) in self.targets:
                value = total.value
                self.found[id(y)] = value if isinstance(value, Variable) else Variable(value, requires_grad=False)
            if self.retain_grad or y._retain:
                _keep(y, total.value)
            elif id(y) not in self.roots and not self.targets:
                y.clear_grad()
        return tuple(gys)

    def _run_backward(self, function: Function, gys: tuple[Any, ...]) -> tuple[Any, ...]:
        run = function.backward_graph if self.create_graph else function.backward
        hooks = modes.hooks
        for hook in hooks:
            hook.before_backward(function, _arrays(gys))
        gxs = run(*gys)
        if not isinstance(gxs, tuple):
            gxs = (gxs,)
        if len(gxs) != len(function.inputs):
            raise GraphError(
                f"backward of {function.label} returned {len(gxs)} gradients for {len(function.inputs)} inputs"
            )
        for hook in reversed(hooks):
            hook.after_backward(function, _arrays(gys), _arrays(gxs))
        return gxs


class _Sum:
    """A gradient that grows where paths meet; adds in place only into an array made here."""

    __slots__ = ("owned", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        self.owned = False

    def add(self, other: Any) -> None:
        if isinstance(self.value, Variable):
            self.value = OPERATIONS["add"](self.value, other)
        elif self.owned:
            self.value += other
        else:
            self.value = as_array(self.value + other)
            self.owned = True


def _checked(function: Function, x: Variable, gx: Any) -> Any:
    """The gradient as an array (or Variable) of its variable's shape and float type."""
    if isinstance(gx, Variable):
        if gx.shape != x.shape:
            raise _wrong_shape(function, x, gx.shape)
        return gx
    gx = as_array(gx)
    if gx.shape != x.data.shape:
        raise _wrong_shape(function, x, gx.shape)
    if gx.dtype is not x.data.dtype and gx.dtype != x.data.dtype and x.data.dtype.kind == "f":
        return gx.astype(x.data.dtype)
    return gx


def _wrong_shape(function: Function, x: Variable, shape: tuple[int, ...]) -> ShapeError:
    index = next(i for i, candidate in enumerate(function.inputs) if candidate is x)
    return ShapeError(
        f"backward of {function.label} gave a gradient of shape {shape} for input {index} of shape {x.shape}",
        remedy="sum over broadcast axes (sum_to) or undo the transposition in that backward",
    )


def _keep(y: Variable, value: Any) -> None:
    if isinstance(value, Variable):
        y._set_grad_var(value)
    else:
        y.grad = value


def _arrays(values: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(v.data if isinstance(v, Variable) else v for v in values)


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
