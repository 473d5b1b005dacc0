"""Recurrent layers: RNN, LSTM, GRU. They keep their state from call to call until told otherwise."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from undertow import functions as F
from undertow.core import Parameter, Variable, as_variable
from undertow.core.variable import Operand
from undertow.errors import ShapeError
from undertow.functions.recurrent_cells import Activation
from undertow.layers.initializers import Initializer, LeCun, as_generator
from undertow.layers.module import Module

Seed = np.random.Generator | int | None


class Recurrent(Module):
    """What RNN, LSTM and GRU have in common.

    x: a sequence (steps, batch, in_size), or one step (batch, in_size). Returns (steps, batch, hidden) or
    (batch, hidden).

    The state at the end of a call is where the next call begins, so a long sequence can be given in pieces:
    `reset_state()` before a new one; `unchain()` between pieces, after each update, ends the gradient's way back there.
    in_size: taken from the first input when None. init: of both weights. rng: Generator or seed for it.
    """

    parts: ClassVar[int] = 1
    state_names: ClassVar[tuple[str, ...]] = ("h",)

    hidden: int
    weight_x: Parameter  # (parts * hidden, in_size)
    weight_h: Parameter  # (parts * hidden, hidden)
    h: Variable | None  # (batch, hidden), the output of the last step; None: zeros

    def __init__(
        self,
        hidden: int,
        in_size: int | None = None,
        *,
        init: Initializer = LeCun(),  # noqa: B008  (frozen)
        rng: Seed = None,
    ) -> None:
        self.hidden, self.init, self.rng = hidden, init, as_generator(rng)
        self.weight_x, self.weight_h = Parameter(None), Parameter(None)
        self._make_biases()
        self.reset_state()
        if in_size is not None:
            self._make_weights(in_size)

    def _make_biases(self) -> None:
        self.bias = Parameter(np.zeros(self.parts * self.hidden, self.dtype))

    def _make_weights(self, in_size: int) -> None:
        rows = self.parts * self.hidden
        for weight, columns in ((self.weight_x, in_size), (self.weight_h, self.hidden)):
            weight.data = self.init((rows, columns), self.rng, self.dtype, (columns, self.hidden))

    def reset_state(self) -> None:
        """Begin a new sequence: the state is zeros."""
        for name in self.state_names:
            setattr(self, name, None)

    def unchain(self) -> None:
        """Keep the state's values and forget how they came about (truncated backpropagation through time)."""
        for name in self.state_names:
            state = getattr(self, name)
            if state is not None:
                setattr(self, name, as_variable(state.data))

    def forward(self, x: Operand) -> Variable:
        x = as_variable(x)
        if x.ndim not in (2, 3):
            raise ShapeError(f"{type(self).__name__} takes (steps, batch, in_size) or (batch, in_size), got {x.shape}")
        if self.weight_x.data is None or self.weight_h.data is None:
            self._make_weights(x.shape[-1])
        if self.h is not None and self.h.shape[0] != x.shape[-2]:
            raise ShapeError(
                f"the state kept from the last call has {self.h.shape[0]} sequences, the input {x.shape[-2]}",
                remedy="call reset_state() before a new batch of sequences",
            )
        steps = self._run(x if x.ndim == 3 else F.expand_dims(x, 0))
        self.h = steps[-1]
        return steps if x.ndim == 3 else self.h

    def _run(self, x: Variable) -> Variable:
        """All steps of a sequence (steps, batch, in_size), from the state kept."""
        raise NotImplementedError

    def options(self) -> str:
        in_size = "?" if self.weight_x.data is None else self.weight_x.shape[1]
        return f"{in_size} -> {self.hidden}"


class RNN(Recurrent):
    """h' = tanh(x W_x^T + h W_h^T + b), or relu; see Recurrent for shapes and state."""

    bias: Parameter  # (hidden,)

    def __init__(
        self, hidden: int, in_size: int | None = None, *, activation: Activation = "tanh", **options: Any
    ) -> None:
        super().__init__(hidden, in_size, **options)
        self.activation: Activation = activation

    def _run(self, x: Variable) -> Variable:
        return F.rnn(x, self.h, self.weight_x, self.weight_h, self.bias, self.activation)


class LSTM(Recurrent):
    """Input gate i, forget gate f, candidate g, output gate o, from x W_x^T + h W_h^T + b, in this order:

    c' = s(f) c + s(i) tanh(g);  h' = s(o) tanh(c'). See Recurrent for shapes and state.
    forget_bias: what b starts from at the forget gate, so that a new net remembers (Jozefowicz and others 2015).
    """

    parts = 4
    state_names = ("h", "c")

    bias: Parameter  # (4 hidden,)
    c: Variable | None  # (batch, hidden), the cell after the last step; None: zeros

    def __init__(self, hidden: int, in_size: int | None = None, *, forget_bias: float = 1.0, **options: Any) -> None:
        super().__init__(hidden, in_size, **options)
        self.bias.data[hidden : 2 * hidden] = forget_bias

    def _run(self, x: Variable) -> Variable:
        steps, self.c = F.lstm(x, self.h, self.c, self.weight_x, self.weight_h, self.bias)
        return steps


class GRU(Recurrent):
    """Reset gate r, update gate z, candidate n, from x W_x^T + b_x and h W_h^T + b_h, in this order:

    r = s(x_r + h_r), z = s(x_z + h_z), n = tanh(x_n + r h_n), h' = (1 - z) n + z h. See Recurrent.
    """

    parts = 3

    bias_x: Parameter  # (3 hidden,)
    bias_h: Parameter  # (3 hidden,)

    def _make_biases(self) -> None:
        self.bias_x = Parameter(np.zeros(3 * self.hidden, self.dtype))
        self.bias_h = Parameter(np.zeros(3 * self.hidden, self.dtype))

    def _run(self, x: Variable) -> Variable:
        return F.gru(x, self.h, self.weight_x, self.weight_h, self.bias_x, self.bias_h)
