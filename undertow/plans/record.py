"""Recording a real step: which operations ran on what, and where the gradients went."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

import undertow
from undertow.core.function import Function
from undertow.core.hooks import Arrays, FunctionHook, MaybeArrays, Walk
from undertow.core.modes import modes
from undertow.core.variable import Variable
from undertow.plans.ledger import Known, Ledger, described
from undertow.plans.snapshot import ENGINE_FIELDS, ArrayTaken, checksum, parts, take
from undertow.plans.users import changed_in_place, is_ours

_PACKAGE = str(Path(undertow.__file__).parent)


@dataclass(frozen=True)
class Made:
    """Output number `index` of a call."""

    call: int
    index: int


@dataclass(frozen=True)
class Argument:
    """The step's argument number `index`, or a view of it that lies within it."""

    index: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    def of(self, argument: np.ndarray) -> np.ndarray:
        """The view of the argument of another call."""
        if self.offset == 0 and self.shape == argument.shape and self.strides == argument.strides:
            return argument
        whole = argument.reshape(-1)[self.offset // argument.itemsize :]
        return np.lib.stride_tricks.as_strided(whole, self.shape, self.strides)


@dataclass(frozen=True)
class Alias:
    """A leaf whose data is the very array of an earlier value."""

    value: int


@dataclass(frozen=True)
class Outside:
    """A leaf from outside the step: a parameter, or a constant."""

    taken: ArrayTaken


Source = Made | Argument | Alias | Outside


@dataclass(eq=False)
class Value:
    """What one Variable of the step holds.

    variable: the Variable, held so that it is not mistaken for another. where: the source line it came up in.
    """

    source: Source
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    requires_grad: bool
    variable: Variable
    array: Any
    where: str

    @property
    def is_leaf(self) -> bool:
        return not isinstance(self.source, Made)


@dataclass(eq=False)
class Call:
    """One operation. inputs, outputs: numbers of values. options: attributes before forward, without its results.

    Of a Function that a user wrote: before: all its attributes before forward, edited: options that forward has changed
    in place, origin: the object, if it still lives.
    """

    function: Function
    where: str
    options: dict[str, Any]
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    wanted: tuple[bool, ...] = ()
    results: frozenset[str] = frozenset()
    training: bool = True
    precision: Any = "fast"
    recording: bool = True
    before: dict[str, Any] | None = None
    edited: frozenset[str] = frozenset()
    origin: Callable[[], Function | None] = lambda: None


@dataclass(eq=False)
class WalkTaken:
    """One walk backward. position: calls before it. roots: (value, seed value or None). cleared: leaves emptied."""

    position: int
    roots: tuple[tuple[int, int | None], ...]
    where: str
    cleared: tuple[int, ...]
    functions: list[int] = field(default_factory=list)


class Recorder(FunctionHook):
    """Sees one step. `problem` says why it cannot be planned, with a source line; None while nothing speaks against.

    arguments: the step's positional arguments; arrays among them are inputs of the plan.
    watched: leaves known to hold a gradient array now, so that clearing them within the step is noticed.
    retain: names of intermediate values whose gradient is to be left in them.
    known, buffers: Variables and arrays that the step's code can reach: no business of Python code in the step.
    """

    looks = True  # whether arrays are looked at for what Python code or a careless operation does to them

    def __init__(
        self,
        arguments: Sequence[Any],
        watched: Sequence[Variable] = (),
        retain: Sequence[str] = (),
        known: Sequence[Variable] = (),
        buffers: Sequence[np.ndarray] = (),
    ) -> None:
        self.arguments = arguments
        self.retain = frozenset(retain)
        self.calls: list[Call] = []
        self.values: list[Value] = []
        self.walks: list[WalkTaken] = []
        self.problem: str | None = None
        self._numbers: dict[int, int] = {}
        self._arrays: dict[int, int] = {}
        self._functions: dict[int, int] = {}
        self._pending: list[tuple[Function, dict[str, Any], dict[str, Any]]] = []
        self._watched = {id(x) for x in watched}
        self._walking = False
        self._known = Known((*watched, *known))
        self._ledger = Ledger()
        self._kept: dict[int, np.ndarray] = {}
        self._grads_read: list[tuple[Variable, str]] = []
        self._touched: tuple[Variable, str] | None = None
        self._given: list[int] = []
        if self.looks:
            self._look_round(buffers)

    def _look_round(self, buffers: Sequence[np.ndarray]) -> None:
        for index, argument in enumerate(self.arguments):
            if isinstance(argument, np.ndarray):
                self._ledger.enter(argument, f"argument {index}")
        for buffer in buffers:
            self._ledger.enter(buffer, described(buffer))
        for variable in self._known.variables():
            if variable.data is not None:
                self._ledger.enter(variable.data, described(variable))

    # --- operations -------------------------------------------------------------------------------------

    def before_forward(self, function: Function, inputs: Arrays) -> None:
        if self._walking:
            return  # a backward may be written with operations; they belong to it
        held = {key: value for key, value in vars(function).items() if key not in ENGINE_FIELDS}
        taken = {key: take(value) for key, value in held.items()}
        if self.looks and not self._pending:
            read = [part.array for value in taken.values() for part in parts(value) if isinstance(part, ArrayTaken)]
            self._kept.update((id(array), array) for array in read)
            for array in (*inputs, *read):
                self._check(array)
        self._pending.append((function, held, taken))

    def after_call(self, function: Function, operands: tuple[Variable, ...], outputs: tuple[Variable, ...]) -> None:
        if self._walking:
            return
        _, held, taken = self._pending.pop()
        if self._pending:
            return  # an operation inside another's forward is the outer one's business
        where = source_line()
        if self.looks:
            self._take_results(function, operands, outputs, where)
        now = vars(function)
        results = frozenset(key for key in now if key not in held or held[key] is not now[key])
        number = len(self.calls)
        call = Call(
            function,
            where,
            {key: value for key, value in taken.items() if key not in results},
            tuple(self._value_of(x, where) for x in operands),
            results=results - ENGINE_FIELDS,
            wanted=function.needs_input_grad,
            training=modes.training,
            precision=modes.precision,
            recording=modes.recording,
        )
        if not is_ours(function):
            call.before, call.origin = held, weakref.ref(function)
            call.edited = changed_in_place(call.options, now)
        self.calls.append(call)
        self._functions[id(function)] = number
        call.outputs = tuple(self._enter(y, Made(number, k), where) for k, y in enumerate(outputs))

    def _take_results(
        self, function: Function, operands: tuple[Variable, ...], outputs: tuple[Variable, ...], where: str
    ) -> None:
        """What an operation has made and what it keeps may be read by others; what it was given is to stay."""
        if not is_ours(function) and any(self._ledger.check(x.data) for x in operands):
            self._object(f"{where}: {function.label} writes over its input; let its forward make another array")
        self._take_kept()
        for y in outputs:
            self._ledger.enter(y.data, described(y))

    def _take_kept(self) -> None:
        """Arrays that operations keep for themselves, such as running statistics, are changed by them alone."""
        for array in self._kept.values():
            self._ledger.enter(array, described(array))

    def _check(self, array: np.ndarray) -> None:
        """Object where Python code has changed an array that an operation reads."""
        name = self._ledger.check(array)
        if name is not None:
            self._object(f"{source_line()}: before this the step changes {name}; do this outside")

    def _value_of(self, variable: Variable, where: str) -> int:
        number = self._numbers.get(id(variable))
        if number is not None and self.values[number].array is variable.data:
            return number
        if variable.creator is not None:
            self._object(f"{where}: uses a value that was computed before the step")
        return self._enter(variable, self._source(variable.data), where)

    def _source(self, array: np.ndarray) -> Source:
        if id(array) in self._arrays:
            return Alias(self._arrays[id(array)])
        for index, argument in enumerate(self.arguments):
            if array is argument:
                return Argument(index, array.shape, array.strides, 0)
        # Where arguments overlap, any that holds the whole of it will do: the plan is one for arguments lying so.
        for index, argument in enumerate(self.arguments):
            if isinstance(argument, np.ndarray) and _lies_within(array, argument):
                if argument.flags.c_contiguous and array.dtype == argument.dtype:
                    return Argument(index, array.shape, array.strides, _address(array) - _address(argument))
                self._object(f"{source_line()}: a view of argument {index} that cannot be followed; pass it by itself")
        return Outside(ArrayTaken(array, checksum(array)))

    def _enter(self, variable: Variable, source: Source, where: str) -> int:
        number = len(self.values)
        data = variable.data
        self.values.append(Value(source, data.shape, data.dtype, variable.requires_grad, variable, data, where))
        self._numbers[id(variable)] = number
        if self.looks and isinstance(source, Outside):
            self._known.add(variable)
        if isinstance(source, Made):
            # An operation may hand its input on; the array then belongs to the value that had it first.
            self._arrays.setdefault(id(data), number)
        return number

    # --- the way back -----------------------------------------------------------------------------------

    def before_walk(self, walk: Walk) -> bool:
        where = source_line()
        if not walk.plain:
            self._object(f"{where}: ut.grad, create_graph and retain_grad are not planned")
        roots = []
        for y, seed in walk.roots:
            if seed is not None and not isinstance(seed, Variable):
                seed = Variable(np.asarray(seed), requires_grad=False)
            roots.append((self._value_of(y, where), None if seed is None else self._value_of(seed, where)))
            if y.creator is None:
                self._object(f"{where}: backward() of a value that no operation made")
        retain_named((value.variable for value in self.values), self.retain)
        cleared = [n for n, v in self._leaves() if id(v.variable) in self._watched and v.variable._grad is None]
        if self.looks:
            self._look_at_gradients(where)
        self.walks.append(WalkTaken(len(self.calls), tuple(roots), where, tuple(cleared)))
        self._walking = True
        return False

    def before_backward(self, function: Function, output_grads: Arrays) -> None:
        number = self._functions.get(id(function))
        if number is None:
            self._object("the walk backward reaches an operation from before the step")
        elif self.walks:
            self.walks[-1].functions.append(number)
        if self.looks and not is_ours(function):
            self._given = [checksum(gy) for gy in output_grads]

    def after_backward(self, function: Function, output_grads: Arrays, input_grads: MaybeArrays) -> None:
        if self.looks and not is_ours(function) and self._given != [checksum(gy) for gy in output_grads]:
            number = self._functions.get(id(function))
            line = "" if number is None else f"{self.calls[number].where}: "
            self._object(f"{line}backward of {function.label} writes over the gradient it is given, which others share")

    def after_walk(self) -> None:
        self._walking = False
        for _, value in self._leaves():
            self._known.add(value.variable)
            if value.variable._grad is not None:
                self._watched.add(id(value.variable))
        self._known.take_gradients()
        self._take_kept()

    def hook_enters(self, hook: FunctionHook) -> None:
        """A hook within the step would see none of the operations that a replay runs in its own way."""
        kind = type(hook)
        ours = kind.__module__.startswith("undertow.plans.")
        what = "a plan with persistent values is called" if ours else f"{kind.__name__}, a hook, is entered"
        self._object(f"{source_line()}: {what} in the step, which would see nothing of a replay; do this outside")

    def reads_grad(self, variable: Variable) -> None:
        if variable.creator is None and not self._walking:
            self._touched = self._touched or (variable, source_line())
            if variable._grad is not None:
                self._grads_read.append((variable, source_line()))

    def clears_grad(self, variable: Variable) -> None:
        if variable.creator is None and not self._walking:
            self._touched = self._touched or (variable, source_line())

    def _look_at_gradients(self, where: str) -> None:
        """Before a walk: gradients are as before the step, or have been cleared, whatever they were before."""
        other = self._known.other_gradient(may_be_cleared=True)
        if other is not None:
            self._object(f"{where}: before this the step changes the gradient of {described(other)}; do this outside")
        self._grads_read = [(x, line) for x, line in self._grads_read if x._grad is not None]
        for array in self._kept.values():
            self._check(array)

    def _leaves(self) -> list[tuple[int, Value]]:
        return [(n, value) for n, value in enumerate(self.values) if value.is_leaf and value.requires_grad]

    # --- the end ----------------------------------------------------------------------------------------

    def is_of_this_call(self, variable: Variable) -> bool:
        """Whether a Variable is a result of the step or stands for an argument: replays make reading it an error."""
        number = self._numbers.get(id(variable))
        return number is not None and not isinstance(self.values[number].source, Outside)

    def finish(self, replaced: str | None = None) -> None:
        """Look once more at what the step must not have changed by itself; replaced: a place with another object."""
        if self._touched is not None and not self.walks:
            variable, line = self._touched
            self._object(f"{line}: the step looks at or clears the gradient of {described(variable)}; do this outside")
        lines = {id(value.variable): f"{value.where}: " for value in reversed(self.values)}
        for variable, what in self._known.replaced():
            value = self.values[self._numbers[id(variable)]] if id(variable) in self._numbers else None
            if what == "data" and value is not None and isinstance(value.source, (Argument, Alias)):
                continue  # a Variable that is given another argument in every call
            part = "" if what == "data" else f"{what} of "
            line = lines.get(id(variable), "")
            self._object(f"{line}the step changes {part}{described(variable)}; do this after it, outside")
        for value in self.values:
            if value.variable.data is not value.array and isinstance(value.source, Made):
                self._object(f"{value.where}: the step puts another array into a value that it has computed")
        other = self._known.other_gradient(may_be_cleared=not self.walks)
        used = {id(value.variable) for _, value in self._leaves()} if self.walks else set()
        lost = [x for key, x in self._known.cleared.items() if key not in used]
        other = lost[0] if lost and other is None else other
        if other is not None:
            line = lines.get(id(other), "")
            self._object(f"{line}the step changes the gradient of {described(other)}; do this outside")
        lines = {id(value.array): f"{value.where}: " for value in reversed(self.values)}
        for array, name in self._ledger.changed():
            self._object(f"{lines.get(id(array), '')}the step changes {name}; do this after it, outside")
        if replaced is not None:
            self._object(f"the step replaces {replaced}; do this outside, or return what is new")

    def look_for_gradients(self, returned: Sequence[Variable]) -> None:
        """Object where Python code has read gradients other than to return them (whose, once a reading).

        What it does with them once, such as clipping where they are large, a replay would leave out.
        """
        handed_on = [id(variable) for variable in returned]
        for variable, line in self._grads_read:
            if id(variable) in handed_on:
                handed_on.remove(id(variable))
            else:
                self._object(f"{line}: the step looks at the gradient of {described(variable)}; do this outside")

    def let_go(self) -> None:
        """Keep what a comparison needs, and let the values and graph of the recorded run go."""
        nothing = Variable(None, requires_grad=False)
        for value in self.values:
            value.array = None
            if not value.is_leaf:
                value.variable = nothing
        for call in self.calls:
            call.function, call.before = call.function._fresh(), None
            for name in call.results:
                call.function.__dict__.pop(name, None)
        self._arrays.clear()
        self._numbers.clear()
        self._functions.clear()
        self._kept.clear()
        self._grads_read.clear()
        self._known, self._ledger = Known(()), Ledger()

    def forget_values(self, other: Recorder) -> None:
        """Let go of what a later comparison does not need: Variables that another run does not have, too."""
        nothing = Variable(None, requires_grad=False)
        for own, value in zip(self.values, other.values, strict=True):
            if own.variable is not value.variable:
                own.variable = nothing

    def find(self, array: np.ndarray) -> int | None:
        """The value that has this very array."""
        number = self._arrays.get(id(array))
        if number is None:
            number = next((n for n, value in enumerate(self.values) if value.array is array), None)
        return number

    def number_of(self, variable: Variable) -> int | None:
        """The value of a Variable that the step used or made."""
        return self._numbers.get(id(variable))

    def _object(self, problem: str) -> None:
        if self.problem is None:
            self.problem = problem


def retain_named(variables: Iterable[Variable], names: Container[str | None]) -> None:
    """Ask the engine to leave the gradients of the intermediate values of these names in them."""
    for variable in variables:
        if variable.name in names and variable.creator is not None:
            variable.retain_grad()


def source_line() -> str:
    """`file:line` of the first caller outside this package."""
    frame: Any = sys._getframe(1)
    inner = frame
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    frame = frame or inner
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def _lies_within(array: np.ndarray, argument: np.ndarray) -> bool:
    """Whether all of an array's memory is that of an argument."""
    if not array.size or not np.may_share_memory(array, argument):
        return False
    (low, high), (first, end) = byte_bounds(array), byte_bounds(argument)
    return bool(first <= low and high <= end)
