"""Operations that the planner does not know: their own forward and backward, on NumPy arrays."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.core.modes import modes
from undertow.core.variable import Variable, as_array
from undertow.errors import GraphError, ShapeError
from undertow.plans.record import Call
from undertow.plans.unit import Unit
from undertow.plans.users import is_ours, set_back

if TYPE_CHECKING:
    from undertow.plans.program import Program


class Ordinary(Unit):
    """One recorded Function object, run again as it is, so that what it keeps about its last run can be read off it."""

    def __init__(self, program: Program, calls: tuple[int, ...]) -> None:
        super().__init__(program, calls)
        (number,) = calls
        self.call: Call = program.calls[number]
        self.function = self.call.function
        self._guards = not is_ours(self.function)
        self._own: dict[int, Variable] = {}

    def take_over(self) -> None:
        """What its last run left on the Function is for its users to read."""

    def prepare(self) -> None:
        for number in (*self.call.inputs, *self.call.outputs):
            self.program.pin(number)

    def bind(self) -> None:
        program, function, call = self.program, self.function, self.call
        function.inputs = tuple(self._input(x) for x in call.inputs)
        outputs = tuple(program.variable(y) for y in call.outputs)
        function._outputs = tuple(weakref.ref(y) for y in outputs)
        function._output_likes = tuple((program.values[y].shape, program.values[y].dtype) for y in call.outputs)
        function.needs_input_grad = tuple(
            wanted and program.wants(x) for x, wanted in zip(call.inputs, call.wanted, strict=True)
        )

    def _input(self, number: int) -> Variable:
        """The Variable that the Function sees, one of its own where its array is."""
        variable = self.program.variable(number)
        if not self._guards or self.program.stays(number):
            return variable
        return self._own.setdefault(number, Variable(None, variable.name, variable.requires_grad))

    def _to_keep(self, array: np.ndarray) -> np.ndarray:
        """The array, or a copy that a Function of a user's may keep: no replay writes over it."""
        if np.may_share_memory(array, self.program.memory.memory):
            return array.copy(order="K")
        return array

    def forward(self) -> None:
        program, call = self.program, self.call
        program.finish()
        if call.before is not None:
            set_back(self.function, call.before)
        xs = tuple([program.array(x) for x in call.inputs])
        if self._guards:
            xs = tuple([self._to_keep(x) for x in xs])
        for variable, number, x in zip(self.function.inputs, call.inputs, xs, strict=True):
            if not program.is_outside(number):
                variable.data = x
        with _as_recorded(call):
            ys = self.function.forward(*xs)
        made = ys if isinstance(ys, tuple) else (ys,)
        if len(made) != len(call.outputs):
            raise GraphError(f"{self.function.label} gave {len(made)} results, {len(call.outputs)} when recorded")
        for number, y in zip(call.outputs, made, strict=True):
            y = as_array(y)
            value = program.values[number]
            if y.shape != value.shape or y.dtype != value.dtype:
                raise ShapeError(
                    f"{self.function.label} made {y.dtype}{list(y.shape)}, when recorded "
                    f"{value.dtype}{list(value.shape)}; a step whose shapes depend on its data cannot be planned"
                )
            program.put(number, y)

    def backward(self, walk: int) -> None:
        program, function, call = self.program, self.function, self.call
        program.finish()
        gys = [program.take_gradient(number) for number in call.outputs]
        if all(gy is None for gy in gys):
            return
        if self._guards:
            gys = [None if gy is None else self._to_keep(gy) for gy in gys]
        places = [program.gradient_place(n) if call.inputs.count(n) == 1 else None for n in call.inputs]
        before, modes.recording = modes.recording, False
        try:
            gxs: Any = function.backward_planned(places, gys)
        finally:
            modes.recording = before
        gxs = gxs if isinstance(gxs, tuple) else (gxs,)
        if len(gxs) != len(call.inputs):
            raise GraphError(
                f"backward of {function.label} returned {len(gxs)} gradients for {len(call.inputs)} inputs"
            )
        for number, variable, gx in zip(call.inputs, function.inputs, gxs, strict=True):
            if gx is not None and variable.requires_grad and program.wants(number):
                program.give(number, _fitting(function.label, gx, variable))


def _fitting(label: str, gx: Any, variable: Variable) -> np.ndarray:
    gx = as_array(gx)
    if gx.shape != variable.data.shape:
        raise ShapeError(f"backward of {label} gave a gradient of shape {gx.shape} for an input of {variable.shape}")
    return gx.astype(variable.data.dtype, copy=False) if variable.data.dtype.kind == "f" else gx


@contextlib.contextmanager
def _as_recorded(call: Call) -> Iterator[None]:
    """The modes that were in force inside the step."""
    before = modes.training, modes.precision, modes.recording
    modes.training, modes.precision, modes.recording = call.training, call.precision, call.recording
    try:
        yield
    finally:
        modes.training, modes.precision, modes.recording = before
