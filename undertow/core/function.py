"""Function: one operation, its forward and its backward side by side."""

from __future__ import annotations

import weakref
from typing import Any, cast

import numpy as np

from undertow.core.modes import modes, no_grad
from undertow.core.variable import Operand, Variable, as_array
from undertow.errors import GraphError


class Function:
    """An operation on Variables.

    A subclass writes `forward(self, *arrays)` and `backward(self, *gys)`, both on ndarrays; in the backward,
    `self.input`/`self.inputs` and `self.output`/`self.outputs` are the Variables of the call. Written so, it
    can be differentiated once. A twice-differentiable one writes `backward_graph(self, *gys)` over Variables
    instead (or beside a faster `backward`). A backward returns one gradient per input, None where there is none.

    generation: the largest generation of its inputs.
    needs_input_grad: for each input, whether its gradient is wanted; a backward may leave the others out.

    Options are arguments of the constructor; `Function(...)(x, y)` runs it.
    """

    inputs: tuple[Variable, ...] = ()
    generation: int = 0
    needs_input_grad: tuple[bool, ...] = ()
    _outputs: tuple[weakref.ref[Variable], ...] = ()
    _output_likes: tuple[tuple[tuple[int, ...], np.dtype[Any]], ...] = ()

    def forward(self, *xs: Any) -> Any:
        """From input arrays to the output array, or a tuple of them."""
        raise NotImplementedError(f"{type(self).__name__} has no forward: write forward(self, *arrays)")

    def backward(self, *gys: Any) -> Any:
        """From the gradients of the outputs to those of the inputs, on ndarrays."""
        if type(self).backward_graph is Function.backward_graph:
            raise NotImplementedError(f"{type(self).__name__} has no backward: write backward(self, *gys)")
        with no_grad():
            grads = self.backward_graph(*(Variable(gy, requires_grad=False) for gy in gys))
        if isinstance(grads, tuple):
            return tuple(None if g is None else g.data for g in grads)
        return None if grads is None else grads.data

    def backward_graph(self, *gys: Any) -> Any:
        """The same over Variables, so that it can itself be differentiated."""
        raise GraphError(
            f"{self.label} cannot be differentiated twice: it has no backward_graph",
            remedy="call backward() without create_graph, or write its backward_graph(self, *gys) over Variables",
        )

    @property
    def label(self) -> str:
        """The name shown in messages, pictures and statistics."""
        return type(self).__name__

    @property
    def input(self) -> Variable:
        """The first input."""
        return self.inputs[0]

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """The outputs; held weakly, so that a graph dies as soon as nobody can see it."""
        found = tuple(reference() for reference in self._outputs)
        if any(y is None for y in found):
            raise GraphError(f"an output of {self.label} is gone: nothing holds it any more")
        return cast(tuple[Variable, ...], found)

    @property
    def output(self) -> Variable:
        """The first output."""
        y = self._outputs[0]()
        if y is None:
            raise GraphError(f"the output of {self.label} is gone: nothing holds it any more")
        return y

    def __call__(self, *operands: Operand) -> Any:
        """Run forward on the operands and record the call if a gradient may be asked for.

        Operands: Variables, ndarrays or numbers; the latter two are constants without a gradient.
        Returns a Variable, or a tuple of Variables when forward returned a tuple.
        """
        if self._outputs:
            return self._fresh()(*operands)
        variables = _as_variables(operands)
        wanted = tuple([x.requires_grad for x in variables])
        self.needs_input_grad = wanted
        ys = self._run_forward(tuple([x.data for x in variables]))
        record = modes.recording and True in wanted
        if not isinstance(ys, tuple):
            output = Variable(as_array(ys), requires_grad=record)
            if record:
                self._record(variables, (output,))
            return output
        outputs = tuple([Variable(as_array(y), requires_grad=record) for y in ys])
        if record:
            self._record(variables, outputs)
        return outputs

    def _run_forward(self, xs: tuple[np.ndarray, ...]) -> Any:
        hooks = modes.hooks
        if not hooks:
            return self.forward(*xs)
        for hook in hooks:
            hook.before_forward(self, xs)
        ys = self.forward(*xs)
        made = tuple(as_array(y) for y in (ys if isinstance(ys, tuple) else (ys,)))
        for hook in reversed(hooks):
            hook.after_forward(self, xs, made)
        return ys

    def _record(self, variables: tuple[Variable, ...], outputs: tuple[Variable, ...]) -> None:
        self.inputs = variables
        self.generation = max([x.generation for x in variables])
        self._outputs = tuple([weakref.ref(y) for y in outputs])
        if len(outputs) > 1:
            self._output_likes = tuple([(y.data.shape, y.data.dtype) for y in outputs])
        for y in outputs:
            y.set_creator(self)

    def _fresh(self) -> Function:
        """A copy without the recorded call: one Function object stands for one place in the graph."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        for field in ("inputs", "generation", "needs_input_grad", "_outputs", "_output_likes"):
            twin.__dict__.pop(field, None)
        return twin


def _as_variables(operands: tuple[Operand, ...]) -> tuple[Variable, ...]:
    """Operands as Variables; a Python number takes the dtype of the arrays beside it."""
    for operand in operands:
        if not isinstance(operand, Variable):
            break
    else:
        return cast(tuple[Variable, ...], operands)
    dtypes = [x.dtype for x in operands if isinstance(x, (Variable, np.ndarray))]
    found: list[Variable] = []
    for operand in operands:
        if isinstance(operand, Variable):
            found.append(operand)
        elif isinstance(operand, (bool, int, float)) and dtypes:
            dtype = np.result_type(*dtypes, operand)
            found.append(Variable(np.asarray(operand, dtype=dtype), requires_grad=False))
        else:
            found.append(Variable(_checked_array(operand), requires_grad=False))
    return tuple(found)


def _checked_array(operand: Any) -> np.ndarray:
    array = np.asarray(operand)
    if array.dtype == object:
        raise TypeError(f"an operand must be a Variable, an ndarray or a number, got {type(operand).__name__}")
    return array
