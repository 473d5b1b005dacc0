"""Comparing two recorded runs of a step: only what is the same both times may be replayed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from undertow.plans.record import Alias, Argument, Call, Made, Outside, Recorder, Value
from undertow.plans.results import Result
from undertow.plans.snapshot import Group, contents, is_same_memory, is_variable, same


@dataclass(frozen=True)
class Comparison:
    """problem: why the step cannot be replayed, with its source line, or None.

    doubt: where an array of equal values was made anew both times; it may have been derived from the arguments.
    """

    problem: str | None = None
    doubt: str | None = None


def compare(first: Recorder, second: Recorder, results: tuple[Result, Result]) -> Comparison:
    """How the second run differs from the first."""
    problem = first.problem or second.problem
    if problem is None and len(first.calls) != len(second.calls):
        problem = _first_surplus(first, second)
    doubt: str | None = None
    for a, b in zip(first.calls, second.calls, strict=False):
        if problem is not None:
            break
        problem, fresh = _calls_differ(a, b)
        doubt = doubt or fresh
    if problem is not None:
        return Comparison(problem)
    if len(first.values) != len(second.values):
        return Comparison(f"{second.values[-1].where}: other values take part the second time")
    for x, y in zip(first.values, second.values, strict=True):
        problem, fresh = _values_differ(x, y)
        if problem is not None:
            return Comparison(problem)
        doubt = doubt or fresh
    return Comparison(_walks_differ(first, second) or _results_differ(*results), doubt)


def _first_surplus(first: Recorder, second: Recorder) -> str:
    for a, b in zip(first.calls, second.calls, strict=False):
        if type(a.function) is not type(b.function):
            return f"{b.where}: {a.function.label} runs there the first time, {b.function.label} the second"
    longer = max(first.calls, second.calls, key=len)
    call = longer[min(len(first.calls), len(second.calls))]
    return f"{call.where}: {call.function.label} does not run every time"


def _calls_differ(a: Call, b: Call) -> tuple[str | None, str | None]:
    """What differs, and where equal arrays are not the same array."""
    if type(a.function) is not type(b.function):
        return f"{b.where}: {a.function.label} runs there the first time, {b.function.label} the second", None
    if a.inputs != b.inputs or a.outputs != b.outputs:
        return f"{b.where}: {b.function.label} takes other values the second time", None
    if a.wanted != b.wanted or (a.training, a.precision, a.recording) != (b.training, b.precision, b.recording):
        return f"{b.where}: {b.function.label} runs in another mode the second time", None
    results = a.results | b.results
    doubt = None
    for key in sorted((a.options.keys() | b.options.keys()) - results):
        if key not in a.options or key not in b.options:
            return f"{b.where}: option '{key}' of {b.function.label} is not there every time", None
        if is_variable(b.options[key]):
            return f"{b.where}: {b.function.label} keeps a Variable in '{key}', which the engine cannot follow", None
        found = same(a.options[key], b.options[key])
        if not found.equal:
            return f"{b.where}: option '{key}' of {b.function.label} changes from call to call", None
        if key in b.edited and (found.fresh or isinstance(b.options[key], Group)):
            return f"{b.where}: {b.function.label} changes '{key}', which is made anew in every call, in place", None
        if found.fresh:
            doubt = f"{b.where}: '{key}' of {b.function.label}"
    return None, doubt


def _values_differ(a: Value, b: Value) -> tuple[str | None, str | None]:
    if (a.shape, a.dtype, a.requires_grad) != (b.shape, b.dtype, b.requires_grad):
        return f"{b.where}: {_kind(b)} has shape {a.shape} the first time, {b.shape} the second", None
    if isinstance(a.source, Outside) and isinstance(b.source, Outside):
        if a.variable is b.variable:
            return None, None
        found = same(a.source.taken, b.source.taken)
        if not found.equal:
            return (
                f"{b.where}: {_kind(b)} changes from call to call and is neither an argument nor a parameter",
                None,
            )
        return None, f"{b.where}: {_kind(b)}" if found.fresh else None
    if a.source != b.source:
        return f"{b.where}: {_kind(b)} comes from elsewhere the second time", None
    return None, None


def _kind(value: Value) -> str:
    names = {Made: "a result", Argument: "an argument", Alias: "a constant", Outside: "a constant"}
    return f"{names[type(value.source)]} of shape {value.shape}"


def _walks_differ(first: Recorder, second: Recorder) -> str | None:
    if len(first.walks) != len(second.walks):
        return "backward() runs another number of times the second time"
    for a, b in zip(first.walks, second.walks, strict=True):
        if (a.position, a.roots, a.functions) != (b.position, b.roots, b.functions):
            return f"{b.where}: the walk backward takes another way the second time"
    return None


def _results_differ(first: Result, second: Result) -> str | None:
    if first.problem or second.problem:
        return first.problem or second.problem
    return None if first.layout == second.layout else "the step returns something else the second time"


def kept_objects(recorder: Recorder) -> list[Any]:
    """Arrays and other objects among the options of the operations: statistics, generators."""
    found: dict[int, Any] = {}
    for call in recorder.calls:
        for taken in call.options.values():
            for item in contents(taken):
                found[id(item)] = item
    return list(found.values())


def read_in_both(first: Recorder, second: Recorder) -> Iterator[Any]:
    """Arrays and other objects that operations of both runs read, without a Variable of both runs that has them.

    With an array come those that it is a view of.
    """
    for x, y in zip(first.values, second.values, strict=True):
        if x.variable is not y.variable and isinstance(x.source, Outside) and isinstance(y.source, Outside):
            yield from _in_both(x.source.taken, y.source.taken)
    for a, b in zip(first.calls, second.calls, strict=True):
        for key in a.options.keys() & b.options.keys():
            yield from _in_both(a.options[key], b.options[key])


def _in_both(a: Any, b: Any) -> Iterator[Any]:
    for one, other in zip(contents(a), contents(b), strict=False):
        array = isinstance(one, np.ndarray) and isinstance(other, np.ndarray)
        if is_same_memory(one, other) if array else one is other:
            while other is not None:
                yield other
                other = other.base if isinstance(other, np.ndarray) else None
