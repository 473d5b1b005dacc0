"""Variable: an ndarray that remembers which function made it."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from undertow.core.modes import modes

if TYPE_CHECKING:
    from undertow.core.function import Function

Operand: TypeAlias = "Variable | np.ndarray | np.generic | float | int"

# The operations behind +, *, [] and the methods of Variable, filled in by undertow.functions and
# undertow.core.backward at import: this file owns the socket, those above plug in, and it imports none of them.
OPERATIONS: dict[str, Callable[..., Any]] = {}


def as_array(value: Any) -> np.ndarray:
    """The value as an ndarray: NumPy hands back scalars for 0-d results, this undoes it."""
    return value if isinstance(value, np.ndarray) else np.asarray(value)


def as_variable(value: Operand) -> Variable:
    """The value itself if it is a Variable, else a constant that takes part in the graph without a gradient."""
    if isinstance(value, Variable):
        return value
    return Variable(as_array(value), requires_grad=False)


class Variable:
    """A value in a computation.

    data: the value, an ndarray of any shape, or None (to be filled later).
    grad: after `backward()`, the gradient of what was differentiated, an ndarray of the same shape.
    grad_var: the same as a Variable, when `create_graph=True` made it differentiable itself.
    creator: the function that made this value; None for a leaf. generation: its depth in the graph.
    requires_grad: whether gradients flow to this leaf.

    Raises TypeError when data is neither an ndarray nor None.
    """

    __slots__ = (
        "__weakref__",
        "_grad",
        "_grad_var",
        "_retain",
        "creator",
        "data",
        "generation",
        "name",
        "requires_grad",
    )
    # NumPy must leave `array * variable` to Variable.__rmul__.
    __array_ufunc__ = None

    def __init__(self, data: np.ndarray | None, name: str | None = None, requires_grad: bool = True) -> None:
        if data is not None and not isinstance(data, np.ndarray):
            raise _no_array(data)
        self.data: Any = data
        self.name = name
        self.requires_grad = requires_grad
        self.creator: Function | None = None
        self.generation = 0
        self._grad: np.ndarray | None = None
        self._grad_var: Variable | None = None
        self._retain = False

    # --- gradient ---------------------------------------------------------------------------------------

    @property
    def grad(self) -> Any:
        """The gradient as an ndarray, or None."""
        for hook in modes.hooks:
            hook.reads_grad(self)
        return self._grad

    @grad.setter
    def grad(self, value: np.ndarray | np.generic | None) -> None:
        if isinstance(value, np.generic):
            value = np.asarray(value)
        if value is not None and not isinstance(value, np.ndarray):
            raise TypeError(f"grad takes an ndarray or None, got {type(value).__name__}; use np.array(...)")
        if value is None:
            self.clear_grad()
        self._grad, self._grad_var = value, None

    @property
    def grad_var(self) -> Variable | None:
        """The gradient as a Variable: made by `backward(create_graph=True)`, else a constant copy of `grad`."""
        for hook in modes.hooks:
            hook.reads_grad(self)
        if self._grad_var is None and self._grad is not None:
            return Variable(self._grad, requires_grad=False)
        return self._grad_var

    def _set_grad_var(self, value: Variable) -> None:
        # One Variable may be the gradient of several values; the arrays in `grad` belong to one each.
        self._grad, self._grad_var = value.data.copy(), value

    def clear_grad(self) -> None:
        """Forget the gradient; leaves add up over `backward()` calls until this is called."""
        for hook in modes.hooks:
            hook.clears_grad(self)
        self._grad = self._grad_var = None

    def retain_grad(self) -> None:
        """Ask `backward()` to leave this intermediate value's gradient in `grad`."""
        self._retain = True

    def backward(self, retain_grad: bool = False, create_graph: bool = False) -> None:
        """Differentiate this value with respect to everything it was made from.

        The seed is `grad` when set, else ones. Gradients of leaves are added to their `grad`.
        retain_grad: keep the gradients of intermediate values too.
        create_graph: record the way back, so that gradients (`grad_var`) can be differentiated again.

        Raises GraphError when nothing was recorded.
        """
        OPERATIONS["backward"](self, retain_grad, create_graph)

    # --- graph ------------------------------------------------------------------------------------------

    def set_creator(self, function: Function) -> None:
        """Record who made this value; it lies one generation below its maker's inputs.

        Calling a Function does this for its outputs. By hand it links a graph whose `function.inputs` are set.
        """
        self.creator = function
        self.generation = function.generation + 1
        if not function._outputs:
            function._outputs = (weakref.ref(self),)

    def unchain(self) -> None:
        """Cut this value off from its creator: it becomes a leaf."""
        self.creator = None
        self.generation = 0

    def unchain_backward(self) -> None:
        """Cut the whole graph behind this value into leaves, as truncated backpropagation through time does."""
        waiting = [self.creator]
        self.unchain()
        while waiting:
            function = waiting.pop()
            if function is None:
                continue
            for x in function.inputs:
                if x.creator is not None:
                    waiting.append(x.creator)
                    x.unchain()

    def _array(self) -> Any:
        """The data, of which anything may have been made since: `x.data = 0.5` cannot be refused without cost."""
        if isinstance(self.data, (np.ndarray, np.generic)):
            return self.data
        raise TypeError(
            f"this variable{f' {self.name!r}' if self.name else ''} holds {_short(self.data)}, not an ndarray; "
            "set its .data to one (np.array(...))"
        )

    # --- looks like an array ----------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes of `data`."""
        return tuple(self._array().shape)

    @property
    def ndim(self) -> int:
        """Number of axes of `data`."""
        return int(self._array().ndim)

    @property
    def size(self) -> int:
        """Number of elements of `data`."""
        return int(self._array().size)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements of `data`."""
        return self._array().dtype

    def item(self) -> float:
        """The single element as a Python number."""
        return self._array().item()

    def __len__(self) -> int:
        return len(self.data)

    def __bool__(self) -> bool:
        return self.data is not None and bool(self.data)

    def __float__(self) -> float:
        return float(self.data)

    def __repr__(self) -> str:
        if self.data is None:
            return "variable(None)"
        head = type(self).__name__.lower() + "("
        return head + str(self.data).replace("\n", "\n" + " " * len(head)) + ")"

    # --- operations, plugged in through OPERATIONS ------------------------------------------------------

    def __add__(self, other: Operand) -> Variable:
        return OPERATIONS["add"](self, other)

    def __radd__(self, other: Operand) -> Variable:
        return OPERATIONS["add"](other, self)

    def __sub__(self, other: Operand) -> Variable:
        return OPERATIONS["sub"](self, other)

    def __rsub__(self, other: Operand) -> Variable:
        return OPERATIONS["sub"](other, self)

    def __mul__(self, other: Operand) -> Variable:
        return OPERATIONS["mul"](self, other)

    def __rmul__(self, other: Operand) -> Variable:
        return OPERATIONS["mul"](other, self)

    def __truediv__(self, other: Operand) -> Variable:
        return OPERATIONS["div"](self, other)

    def __rtruediv__(self, other: Operand) -> Variable:
        return OPERATIONS["div"](other, self)

    def __pow__(self, other: Operand) -> Variable:
        return OPERATIONS["pow"](self, other)

    def __rpow__(self, other: Operand) -> Variable:
        return OPERATIONS["pow"](other, self)

    def __matmul__(self, other: Operand) -> Variable:
        return OPERATIONS["matmul"](self, other)

    def __rmatmul__(self, other: Operand) -> Variable:
        return OPERATIONS["matmul"](other, self)

    def __neg__(self) -> Variable:
        return OPERATIONS["neg"](self)

    def __abs__(self) -> Variable:
        return OPERATIONS["abs"](self)

    def __getitem__(self, index: Any) -> Variable:
        return OPERATIONS["get_item"](self, index)

    def reshape(self, *shape: Any) -> Variable:
        """The same elements in another shape; one length may be -1."""
        return OPERATIONS["reshape"](self, shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape)

    def transpose(self, *axes: Any) -> Variable:
        """Axes in another order; reversed when none is given."""
        if len(axes) == 1 and not isinstance(axes[0], int):
            axes = axes[0]
        return OPERATIONS["transpose"](self, axes or None)

    @property
    def T(self) -> Variable:
        """With the axes in opposite order, as a differentiable operation."""
        return OPERATIONS["transpose"](self, None)

    def sum(self, axis: Any = None, keepdims: bool = False) -> Variable:
        """Sum over all or some axes."""
        return OPERATIONS["sum"](self, axis, keepdims)

    def mean(self, axis: Any = None, keepdims: bool = False) -> Variable:
        """Mean over all or some axes."""
        return OPERATIONS["mean"](self, axis, keepdims)

    def flatten(self) -> Variable:
        """All elements in one row."""
        return OPERATIONS["reshape"](self, (-1,))


class Parameter(Variable):
    """A Variable that a layer learns; `Module.parameters()` finds it."""

    __slots__ = ()


def _no_array(data: Any) -> TypeError:
    if isinstance(data, Variable):
        return TypeError("Variable takes an ndarray, got a Variable; use it as it is, or its .data for a copy's value")
    if isinstance(data, (str, bytes)):
        return TypeError(f"Variable takes an ndarray of numbers, got {type(data).__name__}")
    return TypeError(
        f"Variable takes an ndarray, got {type(data).__name__}; write Variable(np.array({_short(data)})) instead"
    )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else "..."
