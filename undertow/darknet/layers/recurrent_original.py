"""rnn, crnn and lstm with the way back of the C program, which is not the derivative (see `Dialect`).

Gradients have the sign of the loss here; Darknet's deltas are minus that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from undertow.core.function import Function
from undertow.core.registry import Sample, register
from undertow.core.variable import Variable
from undertow.darknet.layers.layers_weighted import Convolutional, WeightedLayer
from undertow.functions.norm_batch import RunningStatistics
from undertow.kernels import select
from undertow.kernels.geometry import ConvGeometry
from undertow.kernels.reference import darknet_blas
from undertow.kernels.reference.batchnorm import BatchNormRule

Array = np.ndarray[Any, Any]


class Product(Protocol):
    """W x and its transposes."""

    def forward(self, x: Array, w: Array) -> Array: ...

    def to_input(self, gy: Array, w: Array, x: Array) -> Array: ...

    def to_weights(self, gy: Array, x: Array, w: Array) -> Array: ...


class MatrixProduct:
    """Of a connected layer."""

    def forward(self, x: Array, w: Array) -> Array:
        return x @ w.T

    def to_input(self, gy: Array, w: Array, x: Array) -> Array:
        return gy @ w

    def to_weights(self, gy: Array, x: Array, w: Array) -> Array:
        return gy.T @ x


@dataclass(frozen=True)
class ConvProduct:
    """Of a convolutional layer."""

    geometry: ConvGeometry

    def forward(self, x: Array, w: Array) -> Array:
        return select.conv2d(x, w, None, self.geometry)

    def to_input(self, gy: Array, w: Array, x: Array) -> Array:
        return select.conv2d_backward_data(gy, w, x.shape, self.geometry)

    def to_weights(self, gy: Array, x: Array, w: Array) -> Array:
        return select.conv2d_backward_weights(gy, x, w.shape, self.geometry)


@dataclass
class InnerStep:
    """An inner layer as the original runs it: one step after another, with one mean and variance for all of them.

    rule, running: of batch normalisation, None without it. outputs, gradients: by step; a gradient is that before
    activation, bias and normalisation once `backward` has been there.
    """

    product: Product
    activation: str
    rule: BatchNormRule | None = None
    running: RunningStatistics | None = None
    outputs: list[Array] = field(default_factory=list)
    gradients: list[Array] = field(default_factory=list)
    _sums: list[Array] = field(default_factory=list)
    _normal: list[Array] = field(default_factory=list)
    _parameters: Sequence[Array] = ()
    _found: list[Array] = field(default_factory=list)

    @classmethod
    def of(cls, layer: WeightedLayer) -> InnerStep:
        """For one pass of a layer."""
        product: Product = ConvProduct(layer.geometry) if isinstance(layer, Convolutional) else MatrixProduct()
        if not layer.batch_normalize:
            return cls(product, layer.activation)
        rule, momentum = layer.dialect.batch_norm, layer.dialect.batch_norm_momentum
        rolling = layer.buffers["rolling_mean"], layer.buffers["rolling_variance"]
        return cls(product, layer.activation, rule, RunningStatistics(*rolling, momentum, rule.forward.divisor))

    @property
    def operands(self) -> int:
        """How many parameters: weights, biases and perhaps scales."""
        return 2 if self.rule is None else 3

    def begin(self, parameters: Sequence[Array]) -> None:
        """Before the first step."""
        self._parameters = parameters
        self._found = [np.zeros_like(p) for p in parameters]
        self.outputs, self.gradients, self._sums, self._normal = [], [], [], []

    def forward(self, x: Array) -> Array:
        """The next step."""
        w, b = self._parameters[:2]
        y = self.product.forward(x, w)
        if self.rule is None or self.running is None:
            y = y + b.reshape(-1, *(1,) * (y.ndim - 2))
        else:
            self._sums.append(y)
            y, x_norm, self._mean, self._variance = select.batch_norm(y, self._parameters[2], b, self.rule)
            self.running.take(self._mean, self._variance, y.size // y.shape[1], self.rule.forward.divisor)
            self._normal.append(x_norm)
        self.outputs.append(select.activate(y, self.activation))
        self.gradients.append(np.zeros_like(y))
        return self.outputs[-1]

    def backward(self, step: int, x: Array) -> Array:
        """Take `gradients[step]` through the layer, adding to the parameters' gradients. x: what its weights see."""
        w = self._parameters[0]
        g = select.activate_backward(self.gradients[step], self.outputs[step], self.activation, True)
        darknet_blas.backward_bias(self._found[1], g)
        if self.rule is not None:
            g = np.array(g, order="C")
            darknet_blas.backward_scale(self._normal[step], g, self._found[2])
            darknet_blas.scale_bias(g, self._parameters[2])
            mean_delta = darknet_blas.mean_delta(g, self._variance)
            variance_delta = darknet_blas.variance_delta(self._sums[step], g, self._mean, self._variance)
            darknet_blas.normalize_delta(self._sums[step], self._mean, self._variance, mean_delta, variance_delta, g)
        self.gradients[step] = g
        self._found[0] += self.product.to_weights(g, x, w)
        return self.product.to_input(g, w, x)

    @property
    def found(self) -> list[Array]:
        """Gradients of the parameters."""
        return self._found

    def all_outputs(self) -> Array:
        """(steps * sequences, ...)."""
        return np.concatenate(self.outputs)

    def all_deltas(self) -> Array:
        """Minus the gradients, (steps * sequences, ...)."""
        return -np.concatenate(self.gradients)


def begin_all(steps: Sequence[InnerStep], parameters: Sequence[Array]) -> None:
    """Hand each inner layer its parameters."""
    at = 0
    for step in steps:
        step.begin(parameters[at : at + step.operands])
        at += step.operands


def _rnn_samples(rng: np.random.Generator) -> list[Sample]:
    shapes = (4, 3), (2, 3), (2,), (2, 2), (2,), (2, 2), (2,)

    def call(*args: Variable) -> Variable:
        steps = [InnerStep(MatrixProduct(), "logistic") for _ in range(3)]
        return OriginalRnn(steps, 2, np.zeros((2, 2), args[0].dtype), False)(*args)

    def by_hand(x: Array, *p: Array) -> Array:
        def layer(x: Array, w: Array, b: Array) -> Array:
            return 1 / (1 + np.exp(-(x @ w.T + b)))

        state, outputs = np.zeros((2, 2)), []
        for part in (x[:2], x[2:]):
            state = layer(part, *p[:2]) + layer(state, *p[2:4])
            outputs.append(layer(state, *p[4:]))
        return np.concatenate(outputs)

    return [Sample(tuple(rng.standard_normal(shape) for shape in shapes), call, by_hand)]


@register(
    "darknet_rnn",
    gradient="estimate",
    forward="h[t] = in(x[t]) + self(h[t-1]) [+ h[t-1]]; y[t] = out(h[t]); in, self, out: layers with an activation",
    backward="gself[t] = self' (gout[t] + gself[t+1] w_self), as through time; gin[t] = in' gself[t], where the "
    "derivative has gout[t] + gself[t+1] w_self; out is differentiated at in(x[t]) + self(h[t-1])",
    samples=_rnn_samples,
)
class OriginalRnn(Function):
    """Operands: x (steps * sequences, ...), then weights, biases (and scales) of input, self and output layer.

    states: (1 + steps, sequences, ...), the first one given; after the way back, as the original leaves them.
    """

    def __init__(self, layers: Sequence[InnerStep], steps: int, start: Array, shortcut: bool) -> None:
        self.layers, self.steps, self.start, self.shortcut = layers, steps, start, shortcut
        self.states: Array

    def forward(self, x: Array, *parameters: Array) -> Array:
        begin_all(self.layers, parameters)
        given, past, out = self.layers
        self.states = np.zeros((self.steps + 1, *self.start.shape), x.dtype)
        self.states[0] = self.start
        for t, part in enumerate(x.reshape(self.steps, -1, *x.shape[1:])):
            self.states[t + 1] = given.forward(part) + past.forward(self.states[t])
            if self.shortcut:
                self.states[t + 1] += self.states[t]
            out.forward(self.states[t + 1])
        return out.all_outputs()

    def backward(self, gy: Array) -> tuple[Array, ...]:
        x = self.inputs[0].data
        parts = x.reshape(self.steps, -1, *x.shape[1:])
        gx = np.zeros_like(parts)
        given, past, out = self.layers
        out.gradients = list(gy.reshape(self.steps, -1, *gy.shape[1:]))
        for t in reversed(range(self.steps)):
            self.states[t + 1] = given.outputs[t] + past.outputs[t]
            past.gradients[t] = past.gradients[t] + out.backward(t, self.states[t + 1])
            before = past.backward(t, self.states[t])
            given.gradients[t] = past.gradients[t]
            if t > 0:
                past.gradients[t - 1] = past.gradients[t - 1] + before
                if self.shortcut:
                    past.gradients[t - 1] += past.gradients[t]
            gx[t] = given.backward(t, parts[t])
        return (gx.reshape(x.shape), *(g for layer in self.layers for g in layer.found))


@dataclass
class LstmMemory:
    """What an lstm keeps from pass to pass: output h, cell c, and buffers that its backward never clears."""

    h: Array
    c: Array
    dc: Array = field(init=False)
    past_h: Array = field(init=False)
    past_c: Array = field(init=False)

    def __post_init__(self) -> None:
        self.dc, self.past_h, self.past_c = np.zeros_like(self.h), np.zeros_like(self.h), np.zeros_like(self.h)


def _lstm_samples(rng: np.random.Generator) -> list[Sample]:
    layers = [(2, 2), (2,)] * 4 + [(2, 3), (2,)] * 4
    names = [letter + gate for letter in "wu" for gate in "ifog"]

    def call(*args: Variable) -> Variable:
        steps = {name: InnerStep(MatrixProduct(), "linear") for name in names}
        zeros = np.zeros((2, 2), args[0].dtype)
        return OriginalLstm(steps, 2, LstmMemory(zeros, zeros.copy()))(*args)

    def by_hand(x: Array, *p: Array) -> Array:
        def sigmoid(z: Array) -> Array:
            return 1 / (1 + np.exp(-z))

        h, c, outputs = np.zeros((2, 2)), np.zeros((2, 2)), []
        for part in (x[:2], x[2:]):
            sums = [h @ p[2 * k].T + p[2 * k + 1] + part @ p[8 + 2 * k].T + p[9 + 2 * k] for k in range(4)]
            c = sigmoid(sums[1]) * c + sigmoid(sums[0]) * np.tanh(sums[3])
            h = sigmoid(sums[2]) * np.tanh(c)
            outputs.append(h)
        return np.concatenate(outputs)

    return [Sample(tuple(rng.standard_normal(shape) for shape in [(4, 3), *layers]), call, by_hand)]


@register(
    "darknet_lstm",
    gradient="estimate",
    forward="i, f, o = s(u x[t] + w h), g = tanh(ug x[t] + wg h); c = f c + i g; h = o tanh(c); y[t] = h",
    backward="gx, gw as through time, but with h[-1] = h[0], c[-1] = c[0], and gc after the last step = f gc of the "
    "first step in the pass before",
    samples=_lstm_samples,
)
class OriginalLstm(Function):
    """Operands: x (steps * sequences, inputs), then weights, biases (and scales) of wi wf wo wg ui uf uo ug.

    memory: changed by forward and backward. cells: c of all steps; deltas: Darknet's of the output, both
    (steps, sequences, outputs).
    """

    def __init__(self, layers: dict[str, InnerStep], steps: int, memory: LstmMemory) -> None:
        self.layers, self.steps, self.memory = layers, steps, memory
        self.cells: Array
        self.deltas: Array

    def forward(self, x: Array, *parameters: Array) -> Array:
        begin_all(list(self.layers.values()), parameters)
        h, c = self.memory.h, self.memory.c
        self.cells = np.zeros((self.steps, *h.shape), x.dtype)
        self.deltas, self._hidden = np.zeros_like(self.cells), np.zeros_like(self.cells)
        for t, part in enumerate(x.reshape(self.steps, -1, x.shape[1])):
            for name, layer in self.layers.items():
                layer.forward(h if name[0] == "w" else part)
            i, f, o, g = self._gates(t)
            c = f * c + i * g
            h = o * np.tanh(c)
            self.cells[t], self._hidden[t] = c, h
        self.memory.h, self.memory.c = h, c
        return self._hidden.reshape(len(x), -1)

    def backward(self, gy: Array) -> tuple[Array, ...]:
        x, memory = self.inputs[0].data, self.memory
        parts = x.reshape(self.steps, -1, x.shape[1])
        gx = np.zeros_like(parts)
        gh = gy.reshape(self.cells.shape).copy()
        for t in reversed(range(self.steps)):
            if t > 0:
                memory.past_c, memory.past_h = self.cells[t - 1], self._hidden[t - 1]
            i, f, o, g = self._gates(t)
            tanh_c = np.tanh(self.cells[t])
            gc = gh[t] * o * (1 - tanh_c * tanh_c) + memory.dc
            sums = {
                "o": gh[t] * tanh_c * o * (1 - o),
                "g": gc * i * (1 - g * g),
                "i": gc * g * i * (1 - i),
                "f": gc * memory.past_c * f * (1 - f),
            }
            for gate, gradient in sums.items():
                self.layers[f"w{gate}"].gradients[t] = self.layers[f"u{gate}"].gradients[t] = gradient
                to_state = self.layers[f"w{gate}"].backward(t, memory.past_h)
                if t > 0:
                    gh[t - 1] += to_state
                gx[t] += self.layers[f"u{gate}"].backward(t, parts[t])
            memory.dc = gc * f
        memory.h, memory.c = self._hidden[0], self.cells[0]
        self.deltas = -gh
        return (gx.reshape(x.shape), *(g for layer in self.layers.values() for g in layer.found))

    def _gates(self, step: int) -> list[Array]:
        """i, f, o, g of a step."""
        sums = {gate: self.layers[f"w{gate}"].outputs[step] + self.layers[f"u{gate}"].outputs[step] for gate in "ifog"}
        return [select.activate(value, "tanh" if gate == "g" else "logistic") for gate, value in sums.items()]
