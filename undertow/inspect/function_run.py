"""A function of the user's, run once forward and back with everything recorded: for `trace` and `scope`.

It may return its loss and leave the way back to us, or be a step of a training that goes back, and updates, itself.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from undertow.core.function import Function
from undertow.core.hooks import Arrays, FunctionHook, MaybeArrays, Variables, Walk
from undertow.core.variable import Parameter, Variable
from undertow.errors import UndertowError
from undertow.inspect.record import RANDOM_START, Array, Call, Naming, Recorder
from undertow.inspect.statistics import statistics_of
from undertow.inspect.trace import Trace
from undertow.inspect.tracing import RATE, trace
from undertow.inspect.users_function import (
    Arguments,
    Returned,
    call_function,
    load_function,
    names_around,
    random_arguments,
    read_arguments,
    surroundings,
    taken_apart,
)
from undertow.optimizers import Optimizer


@dataclass
class FunctionRun:
    """One pass. calls: the operations in order. roots: what was differentiated. inputs: the batch, by name.

    sent: by operation, the norm of the gradient that it sends to each operation whose result it reads.
    """

    trace: Trace
    calls: list[Call]
    roots: list[Variable]
    inputs: dict[str, Array]
    naming: Naming
    sent: dict[int, dict[int, float]] = field(default_factory=dict)


def trace_function(
    source: str,
    *,
    shapes: Sequence[Sequence[int]] = (),
    data: str | os.PathLike[str] | None = None,
    rate: float | None = None,
    seed: int = 0,
) -> Trace:
    """One call of `module:function` and the way back from what it returns; each operation is a layer.

    shapes: of random arrays as its arguments; data: a file with them; without both it is called with none.
    rate: behind the update ratios. Unless given they are what the function's own update did, or what its optimiser
    would do (one that it returns or can see), or a plain step of 0.01.
    Raises FormatError, ShapeError and UndertowError for what cannot be found, called or differentiated.
    """
    return run_function(source, shapes=shapes, data=data, rate=rate, seed=seed).trace


def run_function(
    source: str,
    *,
    shapes: Sequence[Sequence[int]] = (),
    data: str | os.PathLike[str] | None = None,
    rate: float | None = None,
    seed: int = 0,
    keep: bool = False,
) -> FunctionRun:
    """See `trace_function`. keep: leave the gradients of all results in them, and fill `sent`."""
    function = load_function(source)
    given = random_arguments(shapes, seed) if data is None else read_arguments(function, data)
    around = surroundings(function)
    names = names_around(around)
    seeing = Seeing(keep)
    with trace(_Named(names), rate=RATE if rate is None else rate) as found, seeing:
        calls, returned = recorded_call(function, given, source)
        went_back = bool(seeing.roots)
        roots = seeing.roots or roots_of(returned, source)
        check_roots(roots, source)
        if not went_back:
            found.notes += taken_notes(returned)
            _go_back(roots, found, seeing, seed, source)
    del found.layers[len(calls) :]
    found.source, found.how, found.about = source, "", given.about
    inputs = returned.inputs or {x.name or str(i): x.data for i, x in enumerate(given.all)}
    if inputs:
        found.see_input(inputs)
    run = FunctionRun(found, calls, roots, inputs, Naming({id(x): name for name, x in names.items()}))
    if rate is None:
        _take_updates(run, seeing, went_back, [*returned.optimizers, *_optimizers(around)])
    numbers = {id(call.function): i for i, call in enumerate(calls)}
    run.sent = {
        numbers[one]: {numbers[source]: norm for source, norm in sent.items() if source in numbers}
        for one, sent in seeing.sent.items()
        if one in numbers
    }
    return run


def recorded_call(function: Any, given: Arguments, source: str) -> tuple[list[Call], Returned]:
    """Its operations in order, and what it hands back; see `call_function` for what it raises."""
    recorder = Recorder()
    recorder.enter()
    with recorder:
        returned = taken_apart(call_function(function, given, source))
    return recorder.calls[0], returned


def roots_of(returned: Returned, source: str) -> list[Variable]:
    """What is to be differentiated. Raises UndertowError where nothing was returned that could be."""
    if not returned.roots:
        reason = f"it returns no Variable, but {returned.kind}: there is nothing to go back from"
        remedy = "return the loss, or (loss, inputs): what functions of undertow make of the arguments"
        raise UndertowError(reason, file=source or None, remedy=remedy)
    if returned.kind == "list" and returned.left:
        reason = f"it returns a list of {returned.left + 1} single numbers, and none of them is the loss by its place"
        remedy = "return their sum to go back from all; a tuple, (loss, others), to go back from the first"
        raise UndertowError(reason, file=source or None, remedy=remedy)
    return returned.roots


def check_roots(roots: Sequence[Variable], source: str) -> None:
    """Raises UndertowError for results that no gradient can begin at, or that nothing leads to."""
    strange = next((y for y in roots if y.dtype.kind != "f"), None)
    if strange is not None:
        reason = f"its result has values of type {strange.dtype}: gradients go back from floats alone"
        remedy = "return a loss of float32 or float64, as ut.sum or ut.mean make it of the outputs"
        raise UndertowError(reason, file=source or None, remedy=remedy)
    if all(y.creator is None and y.requires_grad and not isinstance(y, Parameter) for y in roots):
        reason = "nothing leads to the loss: it was made by no operation and is no parameter"
        remedy = "return what functions of undertow made; ut.Variable(y.data) cuts y off from all that led to it"
        raise UndertowError(reason, file=source or None, remedy=remedy)


def taken_notes(returned: Returned) -> list[str]:
    """That of several single numbers the first is the loss."""
    if not returned.left:
        return []
    return [f"of the {returned.left + 1} single numbers that it returns, the first is the loss; their sum would be all"]


def _go_back(roots: list[Variable], found: Trace, seeing: Seeing, seed: int, source: str) -> None:
    """From a single number itself; from several values with random gradients at them."""
    wanted = [y for y in roots if y.requires_grad]
    if not wanted:
        reason = "no gradient is wanted: its result depends on no parameter and no argument, or no_grad() was in force"
        raise UndertowError(reason, file=source or None, remedy="use its arguments, or an undertow Parameter")
    for x, _ in seeing.first.values():
        x.clear_grad()
    if len(roots) == 1 and roots[0].size == 1:
        roots[0].backward()
        return
    rng = np.random.default_rng(seed)
    parts = [(y * rng.standard_normal(y.shape).astype(y.dtype)).sum() for y in wanted]
    sum(parts[1:], parts[0]).backward()
    found.loss = math.nan
    found.notes.append(f"the result is no loss: {RANDOM_START} at it")


class _Named:
    """Parameters under the names they are to be shown by."""

    def __init__(self, names: Mapping[str, Parameter]) -> None:
        self._names = names

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        yield from self._names.items()


class Seeing(FunctionHook):
    """What a trace does not tell: parameters as they were when first read, what the function differentiates itself."""

    def __init__(self, keep: bool = False) -> None:
        self.first: dict[int, tuple[Parameter, Array]] = {}
        self.roots: list[Variable] = []
        self.sent: dict[int, dict[int, float]] = {}
        self._keep = keep
        self._walking: list[Variable] = []
        self._functions: list[Function] = []  # held, so that their identities stay theirs

    def __enter__(self) -> Seeing:
        super().__enter__()
        return self

    def after_call(self, function: Function, operands: Variables, outputs: Variables) -> None:
        for x in operands:
            if isinstance(x, Parameter) and id(x) not in self.first:
                self.first[id(x)] = x, x.data.copy()
        if self._keep:
            for y in outputs:
                y.retain_grad()

    def before_walk(self, walk: Walk) -> bool:
        self._walking = [root for root, _ in walk.roots]
        return False

    def after_walk(self) -> None:
        """After `Variable.backward` alone: what `ut.grad` does is a part of the computation."""
        if self.roots:
            reason = "it goes back more than once"
            raise UndertowError(reason, remedy="name a function that makes one loss, or one step of a training")
        self.roots = self._walking

    def after_backward(self, function: Function, output_grads: Arrays, input_grads: MaybeArrays) -> None:
        if not self._keep:
            return
        sums: dict[int, Array] = {}
        for x, gradient in zip(function.inputs, input_grads, strict=True):
            if x.creator is not None and gradient is not None:
                maker = id(x.creator)
                sums[maker] = gradient if maker not in sums else sums[maker] + gradient
        self._functions.append(function)
        self.sent[id(function)] = {maker: statistics_of(total).norm for maker, total in sums.items()}


def _optimizers(around: Mapping[str, Any]) -> list[Optimizer]:
    return [value for value in around.values() if isinstance(value, Optimizer)]


def _take_updates(run: FunctionRun, seeing: Seeing, went_back: bool, known: Sequence[Optimizer]) -> None:
    """Put into the trace how far its parameters moved, or would, in place of the plain step that stands there."""
    moved = {key: _ratio(x.data, before) for key, (x, before) in seeing.first.items() if x.grad is not None}
    rule = "the function's own update"
    if not (went_back and any(ratio > 0 for ratio in moved.values())):
        moved, rules = {}, []
        for optimizer in known:
            fresh = {id(x) for x in optimizer.parameters.values()} & seeing.first.keys() - moved.keys()
            if any(seeing.first[key][0].grad is not None for key in fresh):
                rules.append(f"{type(optimizer).__name__} with rate {optimizer.rate:g}")
                moved |= _tried(optimizer, fresh)
        rule = " and ".join(rules)
    if not moved:
        return
    run.trace.rule = rule
    for call, layer in zip(run.calls, run.trace.layers, strict=True):
        for name, x in run.naming.parameters(call.operands).items():
            if id(x) in moved and name in layer.parameters:
                layer.parameters[name] = replace(layer.parameters[name], update=moved[id(x)])


def _tried(optimizer: Optimizer, wanted: set[int]) -> dict[int, float]:
    """How far one update moves these parameters; they and the optimiser are then as before."""
    parameters = [x for x in optimizer.parameters.values() if x.data is not None]
    before, state = [x.data.copy() for x in parameters], optimizer.state()
    optimizer.update()
    moved = {id(x): _ratio(x.data, old) for x, old in zip(parameters, before, strict=True) if id(x) in wanted}
    for x, old in zip(parameters, before, strict=True):
        x.data[...] = old
    optimizer.load_state(state)
    return {key: ratio for key, ratio in moved.items() if not math.isnan(ratio)}


def _ratio(after: Array, before: Array) -> float:
    size = statistics_of(before).norm
    return statistics_of(after - before).norm / size if size > 0 else math.nan
