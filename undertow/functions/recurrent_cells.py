"""One step of a recurrent network, from a step's input and the state to the next state.

Written with differentiable operations, so they can be differentiated as often as wanted. For whole sequences
`rnn`, `lstm` and `gru` do the same much faster. Weights are (rows, inputs) as in `linear`; a bias of None is 0.
"""

from __future__ import annotations

from typing import Literal

from undertow.core.variable import Operand, Variable
from undertow.functions.activations import sigmoid
from undertow.functions.elementary import tanh
from undertow.functions.linalg import linear
from undertow.functions.rectifiers import relu

__all__ = ["gru_cell", "lstm_cell", "rnn_cell"]

Activation = Literal["tanh", "relu"]


def rnn_cell(
    x: Operand, h: Operand, w_x: Operand, w_h: Operand, b: Operand | None = None, activation: Activation = "tanh"
) -> Variable:
    """h' = tanh(x w_x^T + h w_h^T + b), or max(0, ...) with activation "relu".

    x: (batch, inputs). h: (batch, hidden). w_x: (hidden, inputs). w_h: (hidden, hidden). b: (hidden,) or None.
    Returns h' (batch, hidden). Source: Elman 1990.
    """
    total = linear(x, w_x, b) + linear(h, w_h)
    return relu(total) if activation == "relu" else tanh(total)


def lstm_cell(
    x: Operand, h: Operand, c: Operand, w_x: Operand, w_h: Operand, b: Operand | None = None
) -> tuple[Variable, Variable]:
    """i, f, g, o = the four parts of x w_x^T + h w_h^T + b; c' = s(f) c + s(i) tanh(g), h' = s(o) tanh(c').

    x: (batch, inputs). h, c: (batch, hidden). w_x: (4 hidden, inputs). w_h: (4 hidden, hidden). b: (4 hidden,).
    The parts follow each other in this order, as in PyTorch: input gate, forget gate, candidate, output gate.
    Returns (h', c'). s is the sigmoid. Source: Hochreiter and Schmidhuber 1997; forget gate by Gers 2000.
    """
    total = linear(x, w_x, b) + linear(h, w_h)
    size = total.shape[1] // 4
    i, f, g, o = (total[:, k * size : (k + 1) * size] for k in range(4))
    c = sigmoid(f) * c + sigmoid(i) * tanh(g)
    return sigmoid(o) * tanh(c), c


def gru_cell(
    x: Operand,
    h: Operand,
    w_x: Operand,
    w_h: Operand,
    b_x: Operand | None = None,
    b_h: Operand | None = None,
) -> Variable:
    """r = s(x_r + h_r), z = s(x_z + h_z), n = tanh(x_n + r h_n), h' = (1 - z) n + z h.

    x_r, x_z, x_n are the three parts of x w_x^T + b_x; h_r, h_z, h_n those of h w_h^T + b_h, as in PyTorch.
    x: (batch, inputs). h: (batch, hidden). w_x: (3 hidden, inputs). w_h: (3 hidden, hidden). b_x, b_h: (3 hidden,).
    Returns h' (batch, hidden). Source: Cho and others 2014.
    """
    own, past = linear(x, w_x, b_x), linear(h, w_h, b_h)
    size = own.shape[1] // 3
    r = sigmoid(own[:, :size] + past[:, :size])
    z = sigmoid(own[:, size : 2 * size] + past[:, size : 2 * size])
    n = tanh(own[:, 2 * size :] + r * past[:, 2 * size :])
    return n + z * (h - n)
