"""Recording a run: every operation, in order, with the layer it belongs to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from undertow.core import registry
from undertow.core.function import Function
from undertow.core.hooks import FunctionHook, Variables
from undertow.core.variable import Parameter, Variable

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]
# Said of nets without a loss.
RANDOM_START = "the gradient begins as random numbers"


@dataclass
class Call:
    """One call of an operation. operands: its inputs, constants too. wanted: which of them get a gradient."""

    function: Function
    operands: tuple[Variable, ...]
    outputs: tuple[Variable, ...]
    wanted: tuple[bool, ...]

    @property
    def entry(self) -> registry.Operation | None:
        """The registry's line of this operation; None for a class of the user's."""
        return registry.find(type(self.function))

    @property
    def name(self) -> str:
        """The operation's public name."""
        entry = self.entry
        return self.function.label if entry is None else entry.name

    @property
    def in_shapes(self) -> tuple[Shape, ...]:
        return tuple(x.shape for x in self.operands)

    @property
    def out_shapes(self) -> tuple[Shape, ...]:
        return tuple(y.shape for y in self.outputs)


@dataclass
class LayerRecord:
    """One layer of a recorded run.

    inputs, outputs: their shapes. parameters: name -> shape. calls: its operations in order. reached: whether the loss
    depends on it. notes: which gradients are skipped, and why. details: place in the file and options, for its story.
    shared: without calls, because its outputs are its input, as those of Caffe's Split and Flatten. formula, story: the
    lines of its way back in a table, and by itself, where it is told as a whole and not by its operations.
    """

    index: int
    name: str
    type: str
    inputs: list[Shape] = field(default_factory=list)
    outputs: list[Shape] = field(default_factory=list)
    parameters: dict[str, Shape] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    reached: bool = True
    notes: list[str] = field(default_factory=list)
    details: dict[str, str] = field(default_factory=dict)
    shared: bool = False
    formula: list[str] = field(default_factory=list)
    story: list[str] = field(default_factory=list)


def parameters_read(operands: Variables, names: Mapping[int, str]) -> dict[str, Parameter]:
    """The parameters among the operands of a call, each once and under a name of its own: the second "w" is "w (2)".

    names: by identity, in place of the parameters' own names; one without any is called by its place.
    """
    found: dict[str, Parameter] = {}
    for place, x in enumerate(operands):
        if not isinstance(x, Parameter) or any(x is known for known in found.values()):
            continue
        name = own = names.get(id(x)) or x.name or f"operand {place}"
        number = 1
        while own in found:
            number += 1
            own = f"{name} ({number})"
        found[own] = x
    return found


class Naming:
    """Names of operations: after the layer that their parameters belong to, else their numbers; each name once.

    names: of parameters, by identity, as `parameters_read` takes them.
    """

    def __init__(self, names: Mapping[int, str]) -> None:
        self.names = dict(names)
        self._used: dict[str, int] = {}

    def parameters(self, operands: Variables) -> dict[str, Parameter]:
        """The parameters of a call: "weight" where all are of one layer, "fc.weight" otherwise."""
        return self._of(operands)[1]

    def name(self, operands: Variables, index: int) -> str:
        """The name of the operation number `index`; the second one of a layer "fc" is "fc (2)". Ask once for each."""
        owner = self._of(operands)[0]
        if not owner:
            return str(index)
        count = self._used[owner] = self._used.get(owner, 0) + 1
        return owner if count == 1 else f"{owner} ({count})"

    def _of(self, operands: Variables) -> tuple[str, dict[str, Parameter]]:
        """The layer of the parameters, "" for none or several, and the parameters by the names they have there."""
        read = parameters_read(operands, self.names)
        owners = {name.rpartition(".")[0] for name in read}
        short = {name.rpartition(".")[2]: x for name, x in read.items()}
        if len(owners) != 1 or len(short) < len(read):
            return "", read
        return owners.pop(), short


class Recorder(FunctionHook):
    """Keeps the operations of this thread, by the layer that was last named with `enter`."""

    def __init__(self) -> None:
        self.calls: list[list[Call]] = []
        self._current: list[Call] | None = None

    def enter(self) -> None:
        """From here on operations belong to the next layer."""
        self._current = []
        self.calls.append(self._current)

    def leave(self) -> None:
        """From here on operations belong to no layer."""
        self._current = None

    def after_call(self, function: Function, operands: Variables, outputs: Variables) -> None:
        if self._current is not None:
            wanted = tuple(function.needs_input_grad)
            self._current.append(Call(function, operands, outputs, wanted))


def functions_behind(roots: Sequence[Variable]) -> set[int]:
    """The identities of all functions that the roots were made by, directly or not."""
    waiting = [y.creator for y in roots if y.creator is not None]
    seen: set[int] = set()
    while waiting:
        function = waiting.pop()
        if id(function) in seen:
            continue
        seen.add(id(function))
        waiting.extend(x.creator for x in function.inputs if x.creator is not None)
    return seen


class Keeping:
    """Bytes that a recorded graph holds for the way back, each array counted where it is first held.

    Operations hold their inputs, and what they have put aside in forward. Parameters are not counted: they are there
    anyway. known: arrays that are there anyway too.
    """

    def __init__(self, known: Sequence[Array] = ()) -> None:
        self._seen = {_owner(array) for array in known}
        self._held: list[Array] = []

    def add(self, calls: Sequence[Call]) -> int:
        """Bytes that these operations hold and none before them did."""
        total = 0
        for call in calls:
            if not any(call.wanted):
                continue
            inputs = [x.data for x in call.operands if not isinstance(x, Parameter)]
            for array in [*inputs, *_kept_by(call.function)]:
                owner = _owner(array)
                if owner not in self._seen:
                    self._seen.add(owner)
                    self._held.append(array)
                    total += array.nbytes
        return total


def _kept_by(function: Function) -> list[Array]:
    """Arrays in the fields of a function, one level deep."""
    found = []
    for value in vars(function).values():
        for part in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(part, np.ndarray) and not isinstance(part, np.generic):
                found.append(part)
    return found


def _owner(array: Array) -> int:
    """The address where an array's memory begins, the same for all views of it."""
    base: Any = array
    while isinstance(base.base, np.ndarray):
        base = base.base
    return int(base.__array_interface__["data"][0])


def marking(layers: Sequence[Any], method: str, recorder: Recorder) -> Callable[[], None]:
    """Let each object's method tell the recorder when it begins; returns what undoes it."""
    for layer in layers:
        setattr(layer, method, _marked(getattr(layer, method), recorder))

    def undo() -> None:
        for layer in layers:
            vars(layer).pop(method, None)

    return undo


def _marked(run: Callable[..., Any], recorder: Recorder) -> Callable[..., Any]:
    def marked(*args: Any, **options: Any) -> Any:
        recorder.enter()
        try:
            return run(*args, **options)
        finally:
            recorder.leave()

    return marked
