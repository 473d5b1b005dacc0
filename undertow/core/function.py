"""Function: one operation, its forward and its backward side by side."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from undertow.core.modes import modes, no_grad
from undertow.core.variable import Operand, Variable, as_array
from undertow.errors import GraphError

if TYPE_CHECKING:
    from undertow.core.hooks import FunctionHook


class Function:
    """An operation on Variables.

    A subclass writes `forward(self, *arrays)` and `backward(self, *gys)`, both on ndarrays; in the backward,
    `self.input`/`self.inputs` and `self.output`/`self.outputs` are the Variables of the call. Written so, it
    can be differentiated once. A twice-differentiable one writes `backward_graph(self, *gys)` over Variables
    instead (or beside a faster `backward`). A backward returns one gradient per input, None where there is none.

    generation: the largest generation of its inputs.
    needs_input_grad: for each input, whether its gradient is wanted; a backward may leave the others out. Known
        in forward already: all False when nothing is recorded, so that nothing need be kept for the backward.

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
        before, modes.recording = modes.recording, False
        try:
            grads = self.backward_graph(*[Variable(as_array(gy), None, False) for gy in gys])
        finally:
            modes.recording = before
        if isinstance(grads, tuple):
            return tuple(None if g is None else g.data for g in grads)
        return None if grads is None else grads.data

    def backward_planned(self, places: Sequence[np.ndarray | None], gys: Sequence[np.ndarray | None]) -> Any:
        """`backward` in a plan's replay. gys: None where no gradient arrived.

        places: for each input an array in which its gradient may be put, which saves a copy; or None.
        """
        likes = zip(gys, self._output_likes, strict=True)
        return self.backward(*[np.zeros(shape, dtype) if gy is None else gy for gy, (shape, dtype) in likes])

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
        xs: tuple[np.ndarray, ...]
        wanted: tuple[bool, ...]
        # One and two inputs are most of all calls; spelled out, they cost half as much as a comprehension.
        if len(variables) == 1:
            (a,) = variables
            xs, wanted, generation = (a.data,), (a.requires_grad,), a.generation
        elif len(variables) == 2:
            a, b = variables
            xs, wanted = (a.data, b.data), (a.requires_grad, b.requires_grad)
            generation = a.generation if a.generation > b.generation else b.generation
        else:
            xs, wanted = tuple([x.data for x in variables]), tuple([x.requires_grad for x in variables])
            generation = max([x.generation for x in variables], default=0)
        if not modes.recording:
            wanted = (False,) * len(variables)
        self.needs_input_grad = wanted
        hooks = modes.hooks
        try:
            ys = self._forward_seen_by_hooks(xs, hooks) if hooks else self.forward(*xs)
        except Exception as error:
            if any(x is None for x in xs):
                raise _without_data(self.label, variables) from None
            error.add_note(f"in {self.label} of {', '.join(map(_described, xs))}")
            raise
        record = True in wanted
        if isinstance(ys, tuple):
            return self._several_outputs(variables, ys, generation, record, hooks)
        y = Variable(ys if isinstance(ys, np.ndarray) else self._as_result(ys), None, record)
        if record:
            self.inputs = variables
            self.generation = generation
            self._outputs = (weakref.ref(y),)
            y.creator = self
            y.generation = generation + 1
        for hook in hooks:
            hook.after_call(self, variables, (y,))
        return y

    def _several_outputs(
        self,
        variables: tuple[Variable, ...],
        ys: tuple[Any, ...],
        generation: int,
        record: bool,
        hooks: tuple[FunctionHook, ...],
    ) -> tuple[Variable, ...]:
        outputs = tuple([Variable(self._as_result(y), None, record) for y in ys])
        if record:
            self.inputs = variables
            self.generation = generation
            self._outputs = tuple([weakref.ref(y) for y in outputs])
            self._output_likes = tuple([(y.data.shape, y.data.dtype) for y in outputs])
            for y in outputs:
                y.creator = self
                y.generation = generation + 1
        for hook in hooks:
            hook.after_call(self, variables, outputs)
        return outputs

    def _forward_seen_by_hooks(self, xs: tuple[np.ndarray, ...], hooks: tuple[FunctionHook, ...]) -> Any:
        for hook in hooks:
            hook.before_forward(self, xs)
        ys = None
        for hook in hooks:
            ys = hook.instead_of_forward(self, xs) if ys is None else ys
        ys = self.forward(*xs) if ys is None else ys
        made = tuple(as_array(y) for y in (ys if isinstance(ys, tuple) else (ys,)))
        for hook in reversed(hooks):
            hook.after_forward(self, xs, made)
        return ys

    def _as_result(self, y: Any) -> np.ndarray:
        array = as_array(y)
        if array.dtype == object:
            raise TypeError(
                f"forward of {self.label} must return an ndarray or a tuple of them, not {type(y).__name__}"
            )
        return array

    def _fresh(self) -> Function:
        """A copy without the recorded call: one Function object stands for one place in the graph."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        for field in ("inputs", "generation", "needs_input_grad", "_outputs", "_output_likes"):
            twin.__dict__.pop(field, None)
        return twin


class NonDifferentiable(Function):
    """Base of operations without a gradient, such as `sign`: their results are constants, as under `no_grad`."""

    def __call__(self, *operands: Operand) -> Any:
        """Run forward; nothing is recorded."""
        with no_grad():
            return super().__call__(*operands)


def _as_variables(operands: tuple[Any, ...]) -> tuple[Variable, ...]:
    """Operands as Variables; a number (Python's or NumPy's) takes the dtype of the arrays beside it."""
    for x in operands:
        if not isinstance(x, Variable):
            break
    else:
        return operands
    dtypes = [x.dtype for x in operands if isinstance(x, (Variable, np.ndarray))]
    return tuple([x if isinstance(x, Variable) else Variable(_constant(x, dtypes), None, False) for x in operands])


def _constant(operand: Any, dtypes: list[np.dtype[Any]]) -> np.ndarray:
    if isinstance(operand, np.generic):
        operand = operand.item()
    if isinstance(operand, (int, float)) and dtypes:
        beside = dtypes[0]
        if len(dtypes) > 1 or beside.kind != "f":
            beside = np.result_type(*dtypes, operand)
        return np.array(operand, beside)
    array = np.asarray(operand)
    if array.dtype == object:
        raise TypeError(f"an operand must be a Variable, an ndarray or a number, got {type(operand).__name__}")
    return array


def _without_data(label: str, variables: Sequence[Variable]) -> GraphError:
    number, variable = next((i, x) for i, x in enumerate(variables) if x.data is None)
    name = f" ({variable.name})" if variable.name else ""
    return GraphError(
        f"{label}: input {number}{name} has no data yet",
        remedy="set its .data; a layer makes its parameters when it is first called, or give it its input size",
    )


def _described(x: Any) -> str:
    return f"{x.dtype}{list(x.shape)}" if isinstance(x, np.ndarray) else type(x).__name__
