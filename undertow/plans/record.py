"""Recording a real step: which operations ran on what, and where the gradients went."""

from __future__ import annotations

import sys
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import undertow
from undertow.core.function import Function
from undertow.core.hooks import Arrays, FunctionHook, Walk
from undertow.core.modes import modes
from undertow.core.variable import Variable
from undertow.plans.snapshot import ENGINE_FIELDS, ArrayTaken, checksum, take

_PACKAGE = str(Path(undertow.__file__).parent)


@dataclass(frozen=True)
class Made:
    """Output number `index` of a call."""

    call: int
    index: int


@dataclass(frozen=True)
class Argument:
    """The step's argument number `index`, or a view of it."""

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
    """One operation. inputs, outputs: numbers of values. options: attributes before forward, without its results."""

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
    """

    def __init__(self, arguments: Sequence[Any], watched: Sequence[Variable] = (), retain: Sequence[str] = ()) -> None:
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
        self._gradients: dict[int, int] = {}
        self._walking = False

    # --- operations -------------------------------------------------------------------------------------

    def before_forward(self, function: Function, inputs: Arrays) -> None:
        if self._walking:
            return  # a backward may be written with operations; they belong to it
        held = {key: value for key, value in vars(function).items() if key not in ENGINE_FIELDS}
        self._pending.append((function, held, {key: take(value) for key, value in held.items()}))

    def after_call(self, function: Function, operands: tuple[Variable, ...], outputs: tuple[Variable, ...]) -> None:
        if self._walking:
            return
        _, held, taken = self._pending.pop()
        if self._pending:
            return  # an operation inside another's forward is the outer one's business
        where = source_line()
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
        self.calls.append(call)
        self._functions[id(function)] = number
        call.outputs = tuple(self._enter(y, Made(number, k), where) for k, y in enumerate(outputs))

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
            if isinstance(argument, np.ndarray) and argument.size and argument.flags.c_contiguous:
                offset = array.ctypes.data - argument.ctypes.data
                if array is argument or (
                    array.dtype == argument.dtype
                    and 0 <= offset < argument.nbytes
                    and offset % argument.itemsize == 0
                    and np.may_share_memory(array, argument)
                ):
                    return Argument(index, array.shape, array.strides, offset)
            elif array is argument:
                return Argument(index, array.shape, array.strides, 0)
        return Outside(ArrayTaken(array, checksum(array)))

    def _enter(self, variable: Variable, source: Source, where: str) -> int:
        number = len(self.values)
        data = variable.data
        self.values.append(Value(source, data.shape, data.dtype, variable.requires_grad, variable, data, where))
        self._numbers[id(variable)] = number
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
        cleared = [n for n, v in self._leaves() if id(v.variable) in self._watched and v.variable.grad is None]
        self.walks.append(WalkTaken(len(self.calls), tuple(roots), where, tuple(cleared)))
        self._walking = True
        return False

    def before_backward(self, function: Function, output_grads: Arrays) -> None:
        number = self._functions.get(id(function))
        if number is None:
            self._object("the walk backward reaches an operation from before the step")
        elif self.walks:
            self.walks[-1].functions.append(number)

    def after_walk(self) -> None:
        self._walking = False
        for number, value in self._leaves():
            if value.variable.grad is not None:
                self._watched.add(id(value.variable))
                self._gradients[number] = checksum(value.variable.grad)

    def _leaves(self) -> list[tuple[int, Value]]:
        return [(n, value) for n, value in enumerate(self.values) if value.is_leaf and value.requires_grad]

    # --- the end ----------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Look once more at what the step must not have changed by itself."""
        for number, value in enumerate(self.values):
            source = value.source
            if isinstance(source, Outside) and checksum(source.taken.array) != source.taken.checksum:
                self._object(f"{value.where}: the step changes {_named(value)}; do this after it, outside")
            if number in self._gradients and (
                value.variable.grad is None or checksum(value.variable.grad) != self._gradients[number]
            ):
                self._object(f"{value.where}: the step changes the gradient of {_named(value)}; do this outside")

    def let_go(self) -> None:
        """Keep what a comparison needs, and let the values and graph of the recorded run go."""
        nothing = Variable(None, requires_grad=False)
        for value in self.values:
            value.array = None
            if not value.is_leaf:
                value.variable = nothing
        for call in self.calls:
            call.function = call.function._fresh()
            for name in call.results:
                call.function.__dict__.pop(name, None)
        self._arrays.clear()
        self._numbers.clear()
        self._functions.clear()

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


def _named(value: Value) -> str:
    name = value.variable.name
    return f"'{name}'" if name else f"an array of shape {value.shape}"
