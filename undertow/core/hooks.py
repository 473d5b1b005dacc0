"""Hooks around every operation: timing, NaN search, statistics, tracing; instead of prints inside layers."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from undertow.core.modes import modes
from undertow.errors import NonFiniteError

if TYPE_CHECKING:
    from undertow.core.function import Function
    from undertow.core.variable import Variable

Arrays = tuple[np.ndarray, ...]
MaybeArrays = tuple[np.ndarray | None, ...]
Variables: TypeAlias = "tuple[Variable, ...]"


@dataclass(frozen=True)
class Walk:
    """A walk backward that is about to begin.

    roots: what is differentiated, with the seeds (None: ones). plain: `Variable.backward()` without options, which
    leaves gradients in leaves only; otherwise `ut.grad`, or with create_graph or retain_grad.
    """

    roots: tuple[tuple[Variable, Any], ...]
    plain: bool


class FunctionHook:
    """Sees every operation of this thread while it is entered (`with hook:`).

    Override what you need. Arrays handed in are those of the engine: look, do not write.
    """

    def before_forward(self, function: Function, inputs: Arrays) -> None:
        """Called with the input arrays before `function.forward`."""

    def after_forward(self, function: Function, inputs: Arrays, outputs: Arrays) -> None:
        """Called with the results of `function.forward`."""

    def instead_of_forward(self, function: Function, inputs: Arrays) -> Any:
        """Results to be taken in place of `function.forward(*inputs)`; None to let it run."""
        return None

    def after_call(self, function: Function, operands: Variables, outputs: Variables) -> None:
        """Called last of all, with the Variables of the call (constants as Variables too)."""

    def before_walk(self, walk: Walk) -> bool:
        """Called before a walk backward; True keeps it from taking place."""
        return False

    def after_walk(self) -> None:
        """Called after `Variable.backward`, when the gradients are in the leaves."""

    def hook_enters(self, hook: FunctionHook) -> None:
        """Called when another hook is entered while this one is."""

    def reads_grad(self, variable: Variable) -> None:
        """Called when somebody reads `variable.grad` or `variable.grad_var`."""

    def clears_grad(self, variable: Variable) -> None:
        """Called when somebody calls `variable.clear_grad()` or sets `variable.grad` to None."""

    def before_backward(self, function: Function, output_grads: Arrays) -> None:
        """Called with the gradients of the outputs before `function.backward`."""

    def after_backward(self, function: Function, output_grads: Arrays, input_grads: MaybeArrays) -> None:
        """Called with the gradients of the inputs; None where an input gets none."""

    def __enter__(self) -> FunctionHook:
        for hook in modes.hooks:
            hook.hook_enters(self)
        modes.hooks = (*modes.hooks, self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        modes.hooks = tuple(hook for hook in modes.hooks if hook is not self)


class TimerHook(FunctionHook):
    """Adds up seconds per kind of function: `.forward[name]`, `.backward[name]`, `.calls[name]`."""

    def __init__(self) -> None:
        self.forward: dict[str, float] = defaultdict(float)
        self.backward: dict[str, float] = defaultdict(float)
        self.calls: dict[str, int] = defaultdict(int)
        self._started: list[float] = []

    def before_forward(self, function: Function, inputs: Arrays) -> None:
        self._started.append(time.perf_counter())

    def after_forward(self, function: Function, inputs: Arrays, outputs: Arrays) -> None:
        self.forward[function.label] += time.perf_counter() - self._started.pop()
        self.calls[function.label] += 1

    def before_backward(self, function: Function, output_grads: Arrays) -> None:
        self._started.append(time.perf_counter())

    def after_backward(self, function: Function, output_grads: Arrays, input_grads: MaybeArrays) -> None:
        self.backward[function.label] += time.perf_counter() - self._started.pop()


class NaNHook(FunctionHook):
    """Stops at the first operation whose result is not finite and names it.

    NumPy's own warnings of such values are silent meanwhile: they would say less of the same thing.
    """

    def __init__(self) -> None:
        self._quiet: list[np.errstate] = []

    def __enter__(self) -> NaNHook:
        super().__enter__()
        self._quiet.append(np.errstate(over="ignore", divide="ignore", invalid="ignore"))
        self._quiet[-1].__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._quiet.pop().__exit__(kind, error, trace)
        super().__exit__(kind, error, trace)

    def after_forward(self, function: Function, inputs: Arrays, outputs: Arrays) -> None:
        self._check(function, "forward", inputs, outputs)

    def after_backward(self, function: Function, output_grads: Arrays, input_grads: MaybeArrays) -> None:
        self._check(function, "backward", output_grads, input_grads)

    @staticmethod
    def _check(function: Function, way: str, given: MaybeArrays, made: MaybeArrays) -> None:
        for index, array in enumerate(made):
            if array is None or array.dtype.kind not in "fc" or np.isfinite(array).all():
                continue
            clean = all(a is None or a.dtype.kind not in "fc" or np.isfinite(a).all() for a in given)
            origin = "from finite inputs" if clean else "its inputs were already not finite"
            bad = int(array.size - np.isfinite(array).sum())
            raise NonFiniteError(
                f"{way} of {function.label} made {bad} non-finite values in result {index} "
                f"of shape {array.shape} ({origin})",
                remedy="lower the learning rate, clip the gradients, or look at the inputs of this operation",
            )
