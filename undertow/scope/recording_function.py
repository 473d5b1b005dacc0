"""A function of the user's, recorded for a page: each operation is a layer."""

from __future__ import annotations

import numpy as np

from undertow.core.function import Function
from undertow.core.hooks import Arrays, FunctionHook, MaybeArrays
from undertow.core.variable import Variable
from undertow.errors import ShapeError, UndertowError
from undertow.inspect.explain import explain_function
from undertow.inspect.record import RANDOM_START, Recorder
from undertow.inspect.statistics import statistics_of
from undertow.inspect.story import story
from undertow.inspect.tracing import RATE, trace
from undertow.inspect.users_function import call_function, load_function
from undertow.scope.recording import Recording, Request, Run, picture_of


def record_function(request: Request) -> Recording:
    """Runs the function on random arrays of the shapes given; a result of several values gets random weights."""
    if not request.shapes:
        remedy = "give --shape once for each argument, as in --shape 2x3x8x8"
        raise ShapeError("the shapes of the arguments are not known", file=request.net, remedy=remedy)
    function = load_function(request.net)
    explanation = explain_function(function, request.shapes, seed=request.seed, source=request.net)
    rng = np.random.default_rng(request.seed)
    inputs = [Variable(rng.standard_normal(tuple(shape)).astype(np.float32)) for shape in request.shapes]
    recorder, run = Recorder(), Run("exact")
    recorder.enter()
    notes = []
    with trace(rate=RATE if request.rate is None else request.rate) as found:
        with recorder:
            roots = call_function(function, inputs, request.net)
        calls = recorder.calls[0]
        if len(roots) > 1 or roots[0].size > 1:
            notes.append(f"the result is no loss: {RANDOM_START} at it")
        for call in calls:
            for y in call.outputs:
                y.retain_grad()
        arriving = _Arriving({id(call.function): i for i, call in enumerate(calls)})
        loss = _loss(roots, rng)
        if not loss.requires_grad:
            remedy = "use its arguments, or an undertow Parameter"
            raise UndertowError("no gradient is wanted: its result depends on no parameter and no argument",
                                file=request.net, remedy=remedy)  # fmt: skip
        with arriving:
            loss.backward()
    found.layers = found.layers[: len(calls)]
    found.source, found.how = request.net, "exact"
    for record, layer in zip(explanation.records, found.layers, strict=False):
        # A trace takes a name apart, into the layer's and the parameter's; both list the same parameters in order.
        layer.parameters = dict(zip(record.parameters, layer.parameters.values(), strict=False))
    run.trace, run.sent = found, arriving.sent
    made = {id(y): i for i, call in enumerate(calls) for y in call.outputs}
    for index, call in enumerate(calls):
        run.keep(index, "output", call.outputs[0].data)
        run.keep(index, "gradient", call.outputs[0].grad)
    return Recording(
        request.net,
        explanation.about,
        "function",
        explanation.rows[::-1],
        [record.details for record in explanation.records],
        [_reads([made.get(id(x), -1) for x in call.operands], call.wanted) for call in calls],
        [story(explanation, record.index, request.seed) for record in explanation.records],
        [run],
        picture_of(inputs[0].data),
        notes=[*explanation.notes, *notes],
    )


def _loss(roots: list[Variable], rng: np.random.Generator) -> Variable:
    """A single number: the result itself, or its sum with random weights."""
    if len(roots) == 1 and roots[0].size == 1:
        return roots[0]
    parts = [(y * rng.standard_normal(y.shape).astype(y.dtype)).sum() for y in roots]
    return sum(parts[1:], parts[0])


def _reads(sources: list[int], wanted: tuple[bool, ...]) -> list[int]:
    """Sources without those of parameters and constants, which no operation made; the input for the first ones."""
    made = [source for source in sources if source >= 0]
    return made or [-1]


class _Arriving(FunctionHook):
    """What each operation sends to those whose results it reads."""

    def __init__(self, numbers: dict[int, int]) -> None:
        self._numbers = numbers
        self.sent: dict[int, dict[int, float]] = {}

    def after_backward(self, function: Function, output_grads: Arrays, input_grads: MaybeArrays) -> None:
        index = self._numbers.get(id(function))
        if index is None:
            return
        sums: dict[int, np.ndarray] = {}
        for x, gradient in zip(function.inputs, input_grads, strict=True):
            source = self._numbers.get(id(x.creator)) if x.creator is not None else None
            if source is not None and gradient is not None:
                sums[source] = gradient if source not in sums else sums[source] + gradient
        self.sent[index] = {source: statistics_of(gradient).norm for source, gradient in sums.items()}
