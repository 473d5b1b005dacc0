"""Recurrent layers: RNN, LSTM and the unit that LSTM is made of.

Bottoms: x (steps, streams, ...), cont (steps, streams), 0 where a sequence begins; then, where there is one, a static
input (streams, ...), and with expose_hidden the states before the first step, (1, streams, num_output) each. Tops: the
outputs (steps, streams, num_output), and with expose_hidden the states after the last step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import undertow.functions as F
from undertow.caffe.functions import LstmUnit
from undertow.caffe.layer import IndexBottom, Results, Shapes
from undertow.core.variable import Variable

Array = np.ndarray[Any, Any]
Variables = Sequence[Variable]


class LSTMUnit(IndexBottom):
    """One step: cell (1, streams, d), gates (1, streams, 4 d) and cont (1, streams) to the new cell and output."""

    index_bottoms = (2,)

    def top_shapes(self, bottom: Shapes) -> Shapes:
        c, x, cont = bottom
        if len(c) != 3 or c[0] != 1 or tuple(x) != (1, c[1], 4 * c[2]) or tuple(cont) != (1, c[1]):
            raise self.error(
                f"the bottoms must be (1, streams, d), (1, streams, 4 d) and (1, streams), got {c}, {x} and {cont}",
                remedy="LSTMUnit is made by LSTM: use that",
            )
        return [c, c]

    def compute(self, bottom: Variables, params: Variables) -> Results:
        c, x, cont = bottom
        unit = LstmUnit(cont.data.reshape(-1), self.dialect.cont_derivative)
        return [y.reshape(c.shape) for y in unit(c.reshape(c.shape[1:]), x.reshape(x.shape[1:]))]


class Recurrent(IndexBottom):
    """What RNN and LSTM share. states: how many states go from step to step. gates: rows per output."""

    states = 1
    gates = 1

    def setup(self, bottom: Shapes, tops: int) -> None:
        self.options = self.message.recurrent_param
        self.outputs = self.options.num_output
        exposed = self.states * self.options.expose_hidden
        if self.outputs < 1:
            raise self.refusal("num_output must be at least 1", "write num_output: 128", "recurrent_param")
        self._check_sequence(bottom)
        self.static = len(bottom) > 2 + exposed
        if len(bottom) - self.static != 2 + exposed or tops != 1 + exposed:
            raise self.refusal(
                f"needs {2 + exposed} bottoms (and perhaps a static one before the states) and {1 + exposed} tops "
                f"{'with' if exposed else 'without'} expose_hidden, got {len(bottom)} and {tops}",
                remedy="name a bottom for the sequence, one for the continuation marks, and a top",
            )
        rows = self.gates * self.outputs
        self.add_parameter((rows, math.prod(bottom[0][2:])), self.options.weight_filler)
        self.add_parameter((rows,), self.options.bias_filler)
        if self.static:
            self.add_parameter((rows, math.prod(bottom[2][1:])), self.options.weight_filler)
        self.add_parameter((rows, self.outputs), self.options.weight_filler)
        self.steps = bottom[0][0]

    def _check_sequence(self, bottom: Shapes) -> None:
        x, cont = bottom[:2]
        if len(x) < 2:
            raise self.error(
                f"bottom 0 must be (steps, streams, ...), its shape is {x}", remedy="put a Reshape or Permute before it"
            )
        if tuple(cont) != tuple(x[:2]):
            raise self.error(
                f"bottom 1, the continuation indicators, must have the two axes (steps, streams) = {tuple(x[:2])}, "
                f"its shape is {tuple(cont)}",
                remedy="give it 0 where a sequence begins and 1 elsewhere",
            )

    def top_shapes(self, bottom: Shapes) -> Shapes:
        self._check_sequence(bottom)
        if bottom[0][0] != self.steps:
            raise self.error(
                f"the number of steps changed from {self.steps} to {bottom[0][0]}",
                remedy="keep the number of steps; make another net for other ones",
            )
        state = (1, bottom[0][1], self.outputs)
        for shape in bottom[2 + self.static :]:
            if tuple(shape) != state:
                raise self.error(f"a state must have shape {state}, got {shape}", remedy="reshape the state's blob")
        if self.static and bottom[2][:1] != bottom[0][1:2]:
            raise self.error(
                f"the static input must have {bottom[0][1]} streams on axis 0, its shape is {bottom[2]}",
                remedy=f"give one row for each of the {bottom[0][1]} streams",
            )
        return [(*bottom[0][:2], self.outputs), *[state] * (len(bottom) - 2 - self.static)]

    def reset(self) -> None:
        """Forget the states that are carried over from pass to pass."""
        self.state = None

    def first_states(self, bottom: Variables) -> list[Variable]:
        """The states (streams, num_output) before the first step."""
        shape = (bottom[0].shape[1], self.outputs)
        if self.options.expose_hidden:
            given = bottom[2 + self.static :]
            if self.dialect.exposed_state_gradient:
                return [state.reshape(shape) for state in given]
            return [Variable(state.data.reshape(shape), None, False) for state in given]
        if self.state is None or self.state[0].shape != shape:
            self.state = [np.zeros(shape, bottom[0].dtype) for _ in range(self.states)]
        return [Variable(state, None, False) for state in self.state]

    def finish(self, states: Sequence[Variable]) -> list[Any]:
        """Keep the states after the last step, or hand them out as tops."""
        if not self.options.expose_hidden:
            self.state = [state.data.copy() for state in states]
            return []
        shaped = [state.reshape((1, *state.shape)) for state in states]
        return list(shaped) if self.dialect.exposed_state_gradient else [state.data.copy() for state in shaped]

    def inputs(self, bottom: Variables, params: Variables) -> Variable:
        """What x and the static input contribute at every step: (steps, streams, rows)."""
        x = bottom[0]
        rows = x.reshape((x.shape[0] * x.shape[1], -1))
        found = F.linear(rows, params[0], params[1]).reshape((*x.shape[:2], -1))
        if self.static:
            fixed = F.linear(bottom[2].reshape((bottom[2].shape[0], -1)), params[2])
            found = found + fixed.reshape((1, *fixed.shape))
        return found


class LSTM(Recurrent):
    """blobs: W_xc (4 n, inputs), b_c (4 n,), for a static input W_xc_static, W_hc (4 n, n); gates i, f, o, g."""

    states = 2
    gates = 4

    def compute(self, bottom: Variables, params: Variables) -> Results:
        gates, cont = self.inputs(bottom, params), bottom[1].data
        h, c = self.first_states(bottom)
        outputs = []
        for t in range(gates.shape[0]):
            kept = h * cont[t].reshape(-1, 1)
            unit = LstmUnit(cont[t], self.dialect.cont_derivative)
            c, h = unit(c, gates[t] + F.linear(kept, params[-1]))
            outputs.append(h)
        return [F.stack(outputs), *self.finish((h, c))]


class RNN(Recurrent):
    """blobs: W_xh, b_h, for a static input W_xh_static, W_hh, W_ho (n, n), b_o (n,).

    h = tanh(W_xh x + b_h + W_hh (cont h)), output tanh(W_ho h + b_o).
    """

    def setup(self, bottom: Shapes, tops: int) -> None:
        super().setup(bottom, tops)
        self.add_parameter((self.outputs, self.outputs), self.options.weight_filler)
        self.add_parameter((self.outputs,), self.options.bias_filler)

    def compute(self, bottom: Variables, params: Variables) -> Results:
        sums, cont = self.inputs(bottom, params), bottom[1].data
        w_h, w_o, b_o = params[-3:]
        (h,) = self.first_states(bottom)
        outputs = []
        for t in range(sums.shape[0]):
            h = F.tanh(sums[t] + F.linear(h * cont[t].reshape(-1, 1), w_h))
            outputs.append(F.tanh(F.linear(h, w_o, b_o)))
        return [F.stack(outputs), *self.finish((h,))]
