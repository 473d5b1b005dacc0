"""What a planned step hands out: gradients and leaves as they are, results that are differentiated already."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from undertow.core.function import Function
from undertow.core.variable import Variable
from undertow.errors import GraphError
from undertow.plans.record import Argument, Outside, Recorder, Value
from undertow.plans.results import Leaf
from undertow.plans.transfer import copy_out

if TYPE_CHECKING:
    from undertow.plans.program import Program


class PlannedStep(Function):
    """Stands for the way back behind a result, which no replay leaves: a walk backward that comes to it fails."""

    def __init__(self, where: str, parameters: tuple[Variable, ...]) -> None:
        """where: the source line that made the result. parameters: what the result may depend on."""
        self.where = where
        self.inputs = parameters

    def backward(self, *gys: Any) -> NoReturn:
        """Always an error."""
        raise GraphError(
            f"the result of a planned step, made at {self.where}, cannot be differentiated further",
            remedy="compute what depends on it within the step, before its backward(), or take it as a constant: "
            "ut.Variable(y.data, requires_grad=False)",
        )

    backward_graph = backward


def _result(value: Value, array: np.ndarray, parameters: tuple[Variable, ...]) -> Variable:
    """A Variable that stands for one that the step has computed."""
    made = Variable(array, value.variable.name, value.requires_grad)
    if value.requires_grad:
        made.set_creator(PlannedStep(value.where, parameters))
    return made


def _leaf(value: Value, array: np.ndarray, gradient: np.ndarray | None) -> Variable:
    """A Variable that stands for one that the step's code has made from an array."""
    made = Variable(array, value.variable.name, value.requires_grad)
    made.grad = gradient
    return made


def _learned(values: Iterable[Value]) -> tuple[Variable, ...]:
    """The leaves from outside among the values of a step that gradients flow to."""
    return tuple(v.variable for v in values if isinstance(v.source, Outside) and v.requires_grad)


class Handing:
    """What replays of a program hand out."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._learned = _learned(program.values[number] for number in sorted(program.lasting))

    def out(self, leaf: Leaf) -> Any:
        """The thing itself where it is the caller's, else one made for it."""
        program, number = self._program, leaf.value
        value, variable = program.values[number], program.variable(number)
        if leaf.kind == "grad":
            return variable.grad
        if leaf.kind == "variable" and number in program.lasting:
            return variable
        array = program.array(number)
        if number not in program.lasting and not isinstance(value.source, Argument):
            array = copy_out(array)
        if leaf.kind == "array":
            return array
        return _leaf(value, array, variable.grad) if value.is_leaf else _result(value, array, self._learned)


def hand_out(leaf: Leaf, recorder: Recorder, stays: bool) -> Any:
    """What a recorded call hands out. stays: whether a leaf may be the step's own Variable, which no plan takes."""
    value = recorder.values[leaf.value]
    variable = value.variable
    if leaf.kind == "grad":
        return variable.grad
    if leaf.kind == "array":
        return variable.data if value.is_leaf else variable.data.copy()
    if not value.is_leaf:
        return _result(value, variable.data.copy(), _learned(recorder.values))
    return variable if stays else _leaf(value, variable.data, variable.grad)
