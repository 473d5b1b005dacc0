"""Recurrent networks over whole sequences: all steps in one operation, backpropagation through time written out.

What a step's input contributes is one matrix product over all steps; only the state's own product stays in the
loop. The way back does the same: step by step it finds the gradients of the sums before the activations, then
weights and inputs receive theirs in one product each. Weights are (rows, inputs) as in `linear`.
Sequences are (steps, batch, inputs).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from undertow.core.backward import grad
from undertow.core.function import Function
from undertow.core.modes import enable_grad
from undertow.core.registry import register
from undertow.core.variable import Operand, Variable, as_variable
from undertow.errors import ShapeError
from undertow.functions.join import stack
from undertow.functions.recurrent_cells import Activation, gru_cell, lstm_cell, rnn_cell
from undertow.functions.recurrent_samples import gru_samples, lstm_samples, rnn_samples

__all__ = ["Gru", "Lstm", "Rnn", "gru", "lstm", "rnn"]

Array = np.ndarray[Any, Any]
Gradients = tuple[Any, ...]


class Recurrent(Function):
    """What the three have in common. parts: how many blocks of `hidden` rows the weights hold."""

    parts: int

    def steps(self, *inputs: Variable) -> Any:
        """The same computation, step by step with differentiable operations."""
        raise NotImplementedError

    def backward_graph(self, *gys: Variable) -> Gradients:
        """The gradients of `steps`, recorded: slower than `backward`, but differentiable again."""
        with enable_grad():
            # The copies end the walk: what lies before the inputs is none of this function's business.
            copies = [x * 1 if wanted else x for x, wanted in zip(self.inputs, self.needs_input_grad, strict=True)]
            targets = [x for x, wanted in zip(copies, self.needs_input_grad, strict=True) if wanted]
            found = iter(grad(self.steps(*copies), targets, gys, create_graph=True))
        return tuple(next(found) if wanted else None for wanted in self.needs_input_grad)

    def _check(self, x: Array, states: Sequence[Array], w_x: Array, w_h: Array, biases: Sequence[Array]) -> None:
        hidden = states[0].shape[-1]
        rows = self.parts * hidden
        fits = (
            x.ndim == 3
            and x.shape[0] > 0
            and all(state.shape == (x.shape[1], hidden) for state in states)
            and w_x.shape == (rows, x.shape[2])
            and w_h.shape == (rows, hidden)
            and all(b.shape == (rows,) for b in biases)
        )
        if not fits:
            shapes = ", ".join(str(a.shape) for a in (x, *states, w_x, w_h, *biases))
            raise ShapeError(
                f"{self.label} needs a sequence (steps, batch, inputs) of at least one step, states (batch, hidden), "
                f"weights ({self.parts} hidden, inputs) and ({self.parts} hidden, hidden) and biases "
                f"({self.parts} hidden,), got {shapes}"
            )


@register(
    "rnn",
    gradient="twice",
    forward="y[t] = tanh(x[t] w_x^T + y[t-1] w_h^T + b), y[-1] = h0; or max(0, ...)",
    backward="d[t] = (gy[t] + d[t+1] w_h) (1 - y[t]^2); gx = d w_x, gw_x = d^T x, gw_h = d^T y[t-1], gb = sum of d",
    samples=rnn_samples(lambda *args: rnn(*args)),
)
class Rnn(Recurrent):
    """`rnn` with a given activation. Kink with "relu": sums that are exactly 0."""

    parts = 1

    def __init__(self, activation: Activation = "tanh") -> None:
        if activation not in ("tanh", "relu"):
            raise ValueError(f"the activation of an rnn is 'tanh' or 'relu', got {activation!r}")
        self.activation: Activation = activation

    def forward(self, x: Array, h0: Array, w_x: Array, w_h: Array, b: Array) -> Array:
        self._check(x, (h0,), w_x, w_h, (b,))
        self._states = _with_first(h0, _all_steps(x, w_x, b))
        for past, h in zip(self._states[:-1], self._states[1:], strict=True):
            h += past @ w_h.T
            if self.activation == "tanh":
                np.tanh(h, out=h)
            else:
                np.maximum(h, 0, out=h)
        return self._states[1:]

    def backward(self, gy: Array) -> Gradients:
        x, _, w_x, w_h, _ = (v.data for v in self.inputs)
        delta = np.empty_like(self._states[1:])
        before = np.zeros_like(self._states[0])
        for t in reversed(range(len(delta))):
            h = self._states[t + 1]
            slope = 1 - h * h if self.activation == "tanh" else h > 0
            np.multiply(gy[t] + before, slope, out=delta[t])
            before = delta[t] @ w_h
        gx, gw_x, gb = _input_gradients(delta, x, w_x, self.needs_input_grad[0])
        return gx, before, gw_x, _weight_gradient(delta, self._states[:-1]), gb

    def steps(self, *inputs: Variable) -> Variable:
        x, h, w_x, w_h, b = inputs
        found = []
        for t in range(x.shape[0]):
            h = rnn_cell(x[t], h, w_x, w_h, b, self.activation)
            found.append(h)
        return stack(found)


def rnn(
    x: Operand,
    h0: Operand | None,
    w_x: Operand,
    w_h: Operand,
    b: Operand | None = None,
    activation: Activation = "tanh",
) -> Variable:
    """`rnn_cell` over a sequence.

    x: (steps, batch, inputs). h0: (batch, hidden), the state before, 0 when None. w_x: (hidden, inputs).
    w_h: (hidden, hidden). b: (hidden,) or None. Returns the states (steps, batch, hidden).
    """
    x, w_x, w_h = as_variable(x), as_variable(w_x), as_variable(w_h)
    return Rnn(activation)(x, _state(h0, x, w_h), w_x, w_h, _bias(b, w_x))


@register(
    "lstm",
    gradient="twice",
    forward="i, f, g, o = s(.), s(.), tanh(.), s(.) of the parts of x[t] w_x^T + y[t-1] w_h^T + b; "
    "c[t] = f c[t-1] + i g; y[t] = o tanh(c[t]); gives y and the last c",
    backward="gh = gy[t] + d[t+1] w_h; gc = gc f[t+1] + gh o (1 - tanh(c)^2); d = (gc g i(1-i), gc c[t-1] f(1-f), "
    "gc i (1-g^2), gh tanh(c) o(1-o)); gx = d w_x, gw_x = d^T x, gw_h = d^T y[t-1], gb = sum of d",
    samples=lstm_samples(lambda *args: lstm(*args)),
)
class Lstm(Recurrent):
    """`lstm`."""

    parts = 4

    def forward(self, x: Array, h0: Array, c0: Array, w_x: Array, w_h: Array, b: Array) -> tuple[Array, Array]:
        self._check(x, (h0, c0), w_x, w_h, (b,))
        hidden = h0.shape[1]
        # One tanh serves all four parts: s(z) = 1/2 + tanh(z/2)/2, the half taken into the weights.
        half = np.full(4 * hidden, 0.5, x.dtype)
        half[2 * hidden : 3 * hidden] = 1
        shift = 1 - np.where(half == 1, 1, half)
        self._gates = _all_steps(x, w_x * half[:, None], b * half)
        self._h = _with_first(h0, np.empty((len(x), *h0.shape), x.dtype))
        self._c = _with_first(c0, np.empty_like(self._h[1:]))
        self._tanh_c = np.empty_like(self._h[1:])
        weights = np.ascontiguousarray((w_h * half[:, None]).T)
        past = np.empty_like(self._gates[0])
        for t, gates in enumerate(self._gates):
            np.matmul(self._h[t], weights, out=past)
            gates += past
            np.tanh(gates, out=gates)
            gates *= half
            gates += shift
            i, f, g, o = _parts(gates, 4)
            c, tanh_c = self._c[t + 1], self._tanh_c[t]
            np.multiply(f, self._c[t], out=c)
            c += np.multiply(i, g, out=tanh_c)
            np.tanh(c, out=tanh_c)
            np.multiply(o, tanh_c, out=self._h[t + 1])
        return self._h[1:], self._c[-1]

    def backward(self, gy: Array, gc_last: Array) -> Gradients:
        x, _, _, w_x, w_h, _ = (v.data for v in self.inputs)
        hidden = self._c.shape[2]
        delta = np.empty_like(self._gates)
        gh, gc = np.zeros_like(self._c[0]), gc_last.copy()
        scratch = np.empty_like(gh)
        for t in reversed(range(len(delta))):
            i, f, g, o = _parts(self._gates[t], 4)
            di, df, dg, do = _parts(delta[t], 4)
            tanh_c = self._tanh_c[t]
            gh += gy[t]
            np.multiply(gh, o, out=do)
            np.multiply(tanh_c, tanh_c, out=scratch)
            scratch *= do
            gc += do
            gc -= scratch
            # do holds gh o: times tanh(c) (1 - o) it is the output gate's share.
            do *= tanh_c
            do -= do * o
            np.multiply(gc, g, out=di)
            np.multiply(gc, self._c[t], out=df)
            gated = delta[t][:, : 2 * hidden]
            gated *= self._gates[t][:, : 2 * hidden]
            gated -= gated * self._gates[t][:, : 2 * hidden]
            np.multiply(gc, i, out=dg)
            np.multiply(g, g, out=scratch)
            scratch *= dg
            dg -= scratch
            gc *= f
            np.matmul(delta[t], w_h, out=gh)
        gx, gw_x, gb = _input_gradients(delta, x, w_x, self.needs_input_grad[0])
        return gx, gh, gc, gw_x, _weight_gradient(delta, self._h[:-1]), gb

    def steps(self, *inputs: Variable) -> tuple[Variable, Variable]:
        x, h, c, w_x, w_h, b = inputs
        found = []
        for t in range(x.shape[0]):
            h, c = lstm_cell(x[t], h, c, w_x, w_h, b)
            found.append(h)
        return stack(found), c


def lstm(
    x: Operand,
    h0: Operand | None,
    c0: Operand | None,
    w_x: Operand,
    w_h: Operand,
    b: Operand | None = None,
) -> tuple[Variable, Variable]:
    """`lstm_cell` over a sequence.

    x: (steps, batch, inputs). h0, c0: (batch, hidden), output and cell before, 0 when None. w_x: (4 hidden, inputs).
    w_h: (4 hidden, hidden). b: (4 hidden,) or None; order of the parts: input, forget, candidate, output.
    Returns the outputs (steps, batch, hidden), of which the last is the state to go on from, and the last cell.
    """
    x, w_x, w_h = as_variable(x), as_variable(w_x), as_variable(w_h)
    return Lstm()(x, _state(h0, x, w_h), _state(c0, x, w_h), w_x, w_h, _bias(b, w_x))


@register(
    "gru",
    gradient="twice",
    forward="r = s(x_r + h_r), z = s(x_z + h_z), n = tanh(x_n + r h_n), y[t] = (1 - z) n + z y[t-1]; "
    "x_. = parts of x[t] w_x^T + b_x, h_. = parts of y[t-1] w_h^T + b_h",
    backward="gh = gy[t] + z gh[t+1] + e[t+1] w_h; dn = gh (1-z)(1-n^2), dz = gh (y[t-1]-n) z(1-z), dr = dn h_n r(1-r);"
    " d = (dr, dz, dn), e = (dr, dz, r dn); gx = d w_x, gw_x = d^T x, gw_h = e^T y[t-1], gb_x, gb_h = sums of d, e",
    samples=gru_samples(lambda *args: gru(*args)),
)
class Gru(Recurrent):
    """`gru`."""

    parts = 3

    def forward(self, x: Array, h0: Array, w_x: Array, w_h: Array, b_x: Array, b_h: Array) -> Array:
        self._check(x, (h0,), w_x, w_h, (b_x, b_h))
        hidden = h0.shape[1]
        self._gates = _all_steps(x, w_x, b_x)
        self._h = _with_first(h0, np.empty((len(x), *h0.shape), x.dtype))
        self._past_n = np.empty_like(self._h[1:])
        weights = np.ascontiguousarray(w_h.T)
        for t, gates in enumerate(self._gates):
            past = self._h[t] @ weights
            past += b_h
            both, n = gates[:, : 2 * hidden], gates[:, 2 * hidden :]
            both += past[:, : 2 * hidden]
            _sigmoid(both)
            r, z, _ = _parts(gates, 3)
            self._past_n[t] = past[:, 2 * hidden :]
            n += r * self._past_n[t]
            np.tanh(n, out=n)
            h = np.subtract(self._h[t], n, out=self._h[t + 1])
            h *= z
            h += n
        return self._h[1:]

    def backward(self, gy: Array) -> Gradients:
        x, _, w_x, w_h, _, _ = (v.data for v in self.inputs)
        hidden = self._h.shape[2]
        delta = np.empty_like(self._gates)
        past_delta = np.empty_like(self._gates)
        gh = np.zeros_like(self._h[0])
        for t in reversed(range(len(delta))):
            r, z, n = _parts(self._gates[t], 3)
            dr, dz, dn = _parts(delta[t], 3)
            gh = gh + gy[t]
            np.multiply(gh * (1 - z), 1 - n * n, out=dn)
            np.multiply(gh * (self._h[t] - n), z * (1 - z), out=dz)
            np.multiply(dn * self._past_n[t], r * (1 - r), out=dr)
            past_delta[t] = delta[t]
            past_delta[t][:, 2 * hidden :] *= r
            gh *= z
            gh += past_delta[t] @ w_h
        gx, gw_x, gb_x = _input_gradients(delta, x, w_x, self.needs_input_grad[0])
        gb_h = past_delta.sum((0, 1))
        return gx, gh, gw_x, _weight_gradient(past_delta, self._h[:-1]), gb_x, gb_h

    def steps(self, *inputs: Variable) -> Variable:
        x, h, w_x, w_h, b_x, b_h = inputs
        found = []
        for t in range(x.shape[0]):
            h = gru_cell(x[t], h, w_x, w_h, b_x, b_h)
            found.append(h)
        return stack(found)


def gru(
    x: Operand,
    h0: Operand | None,
    w_x: Operand,
    w_h: Operand,
    b_x: Operand | None = None,
    b_h: Operand | None = None,
) -> Variable:
    """`gru_cell` over a sequence.

    x: (steps, batch, inputs). h0: (batch, hidden), the state before, 0 when None. w_x: (3 hidden, inputs).
    w_h: (3 hidden, hidden). b_x, b_h: (3 hidden,) or None; order of the parts: reset, update, candidate.
    Returns the states (steps, batch, hidden).
    """
    x, w_x, w_h = as_variable(x), as_variable(w_x), as_variable(w_h)
    return Gru()(x, _state(h0, x, w_h), w_x, w_h, _bias(b_x, w_x), _bias(b_h, w_x))


def _state(state: Operand | None, x: Variable, w_h: Variable) -> Operand:
    if state is not None:
        return state
    return np.zeros((x.shape[1] if x.ndim == 3 else 0, w_h.shape[-1] if w_h.ndim else 0), x.dtype)


def _bias(bias: Operand | None, w_x: Variable) -> Operand:
    return np.zeros(w_x.shape[:1], w_x.dtype) if bias is None else bias


def _all_steps(x: Array, w_x: Array, b: Array) -> Array:
    """x w_x^T + b for all steps at once: (steps, batch, rows), a new array."""
    sums = x.reshape(-1, x.shape[2]) @ w_x.T
    sums += b
    return sums.reshape(*x.shape[:2], -1)


def _with_first(first: Array, rest: Array) -> Array:
    """(1 + steps, batch, hidden)."""
    return np.concatenate([first[None], rest])


def _parts(gates: Array, count: int) -> list[Array]:
    """The blocks of (batch, count * hidden), as views."""
    size = gates.shape[1] // count
    return [gates[:, k * size : (k + 1) * size] for k in range(count)]


def _sigmoid(x: Array) -> None:
    """In place; by way of tanh, which cannot overflow."""
    x *= 0.5
    np.tanh(x, out=x)
    x *= 0.5
    x += 0.5


def _input_gradients(delta: Array, x: Array, w_x: Array, wanted: bool) -> tuple[Array | None, Array, Array]:
    """(gx, gw_x, gb) from the gradients of all steps' sums."""
    gx = (delta.reshape(-1, delta.shape[2]) @ w_x).reshape(x.shape) if wanted else None
    return gx, _weight_gradient(delta, x), delta.sum((0, 1))


def _weight_gradient(delta: Array, inputs: Array) -> Array:
    """delta^T inputs, over all steps and samples: (rows, inputs)."""
    return delta.reshape(-1, delta.shape[2]).T @ inputs.reshape(-1, inputs.shape[2])
