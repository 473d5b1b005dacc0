"""Layers with a state: rnn, crnn, gru, lstm. A batch is time first: (steps, sequences) rows."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from undertow.core.modes import no_grad
from undertow.core.variable import Variable
from undertow.darknet.files.layer_shape import LayerShape
from undertow.darknet.files.options_layers import CrnnOptions, GruOptions, LayerOptions, LstmOptions, RnnOptions
from undertow.darknet.layers import inner
from undertow.darknet.layers.inner import Inner, stacked_deltas
from undertow.darknet.layers.layer import BuildContext, Layer, Pass, as_rows
from undertow.darknet.layers.layers_plain import activate
from undertow.darknet.layers.recurrent_original import InnerStep, LstmMemory, OriginalLstm, OriginalRnn
from undertow.errors import ShapeError
from undertow.functions.join import concat, split

Array = np.ndarray[Any, Any]


class RecurrentLayer(Layer):
    """What they share: inner layers, steps, and a state.

    steps: rows of the input that follow one another in time. state: after the last pass; (sequences, values), of rnn
    and crnn in training those of all steps, the first one before them. At inference the state goes on from pass to
    pass, until `reset_state`; in training only where the dialect says so.
    inner: the inner layers by name; each is also an attribute of that name.
    """

    batch_normalize = False

    def __init__(self, options: LayerOptions, shape: LayerShape, context: BuildContext) -> None:
        super().__init__(options, shape, context)
        self.steps = context.net.time_steps
        self.inner: dict[str, Inner] = {}
        self._carried: tuple[Array, ...] | None = None
        self._own_rate = self.learning_rate_scale if self.dialect.recurrent_rates else 1.0
        self._step_outputs: list[Variable] = []
        self._dtype = context.dtype

    def rate_of(self, name: str) -> float:
        return self._own_rate

    def reset_state(self) -> None:
        self._carried = None

    def carried(self) -> dict[str, Array]:
        return {str(number): array for number, array in enumerate(self._carried or ())}

    def carry(self, arrays: dict[str, Array]) -> None:
        self._carried = tuple(arrays[str(number)] for number in range(len(arrays))) or None

    def reset_sequence(self, number: int) -> None:
        """Let one sequence of the batch start from nothing."""
        if self._carried is not None:
            self._carried = tuple(array.copy() for array in self._carried)
            for array in self._carried:
                array[number] = 0

    def forward(self, x: Variable, run: Pass) -> Variable:
        if x.shape[0] % self.steps:
            raise ShapeError(
                f"layer {self.index} [{self.type}] takes time_steps={self.steps} times a number of sequences, "
                f"got {x.shape[0]} rows"
            )
        for layer in self.inner.values():
            layer.begin()
        if run.training and self.type not in self.dialect.carried_states:
            self._carried = None
        start = self._start(x.shape[0] // self.steps)
        self._step_outputs = []
        if run.training and self.dialect.recurrent_backward:
            return self._as_the_original(x, start, run)
        y, end = self._unrolled(x, start, run)
        keeps = not run.training or self.type in self.dialect.carried_states
        self._carried = tuple(v.data for v in end) if keeps else None
        if run.keep:
            for output in self._step_outputs:
                output.retain_grad()
        return y

    def _unrolled(self, x: Variable, start: tuple[Array, ...], run: Pass) -> tuple[Variable, tuple[Variable, ...]]:
        """Step by step with differentiable operations: the output and what is carried on."""
        raise NotImplementedError(f"[{self.type}] has no forward")

    def _as_the_original(self, x: Variable, start: tuple[Array, ...], run: Pass) -> Variable:
        """With the way back of the C program."""
        raise NotImplementedError(f"[{self.type}] has no such backward")

    def _zeros(self, sequences: int) -> tuple[Array, ...]:
        return (np.zeros((sequences, self.outputs), self._dtype),)

    def _start(self, sequences: int) -> tuple[Array, ...]:
        if self._carried is None or len(self._carried[0]) != sequences:
            return self._zeros(sequences)
        return self._carried

    def _each_step(self, layer: Inner, x: Variable, run: Pass) -> tuple[Variable, ...]:
        """The layer's output for all steps: at once, unless each step is normalised by itself."""
        if layer.batch_normalize and run.training:
            return tuple(layer(part, run) for part in self._parts(x))
        return self._parts(layer(x, run))

    def _parts(self, x: Variable) -> tuple[Variable, ...]:
        return (x,) if self.steps == 1 else split(x, self.steps)

    def _operands(self) -> list[Variable]:
        """Parameters of the inner layers: weights, biases and perhaps scales of each."""
        return [
            layer.parameters[name]
            for layer in self.inner.values()
            for name in ("weights", "biases", "scales")
            if name in layer.parameters
        ]

    def release(self) -> None:
        super().release()
        self._step_outputs = []
        for layer in self.inner.values():
            layer.begin()

    @property
    def state(self) -> Array:
        return self._start(self.batch // self.steps)[0]

    @property
    def delta(self) -> Array:
        return stacked_deltas(self._step_outputs) if self._step_outputs else super().delta

    def __getattr__(self, name: str) -> Any:
        """The inner layers by name."""
        layers = self.__dict__.get("inner", {})
        return layers[name] if name in layers else super().__getattr__(name)


class Rnn(RecurrentLayer):
    """state = input_layer(x) + self_layer(state before) [+ state before with `shortcut`]; y = output_layer(state).

    The inner layers are connected ones with the activation of this one (rnn_layer.c).
    """

    type = "rnn"

    def __init__(self, options: LayerOptions, shape: LayerShape, context: BuildContext) -> None:
        super().__init__(options, shape, context)
        given = cast("RnnOptions | CrnnOptions", options)
        self.activation, self.batch_normalize, self.shortcut = (
            given.activation,
            given.batch_normalize,
            given.shortcut,
        )
        self._function: OriginalRnn | None = None
        self._states: list[Variable] = []
        self._make_inner(context)

    def _make_inner(self, context: BuildContext) -> None:
        for name, inputs in (
            ("input_layer", self.inputs),
            ("self_layer", self.outputs),
            ("output_layer", self.outputs),
        ):
            self.inner[name] = inner.connected(self, name, inputs, self.activation, self.batch_normalize, context)

    def _shaped(self, x: Variable) -> Variable:
        """The input as the inner layers read it."""
        return as_rows(x)

    def _unrolled(self, x: Variable, start: tuple[Array, ...], run: Pass) -> tuple[Variable, tuple[Variable, ...]]:
        state = Variable(start[0], requires_grad=False)
        self._states, self._function = [state], None
        for given in self._each_step(self.inner["input_layer"], self._shaped(x), run):
            past = self.inner["self_layer"](state, run)
            state = given + past + state if self.shortcut else given + past
            self._states.append(state)
        states = self._states[1:]
        if self.batch_normalize and run.training:
            y = concat([self.inner["output_layer"](state, run) for state in states])
        else:
            y = self.inner["output_layer"](concat(states) if len(states) > 1 else states[0], run)
        if not run.training:
            self._states = []
        return y, (state,)

    def _as_the_original(self, x: Variable, start: tuple[Array, ...], run: Pass) -> Variable:
        self._states = []
        steps = [InnerStep.of(layer.layer) for layer in self.inner.values()]
        function = self._function = OriginalRnn(steps, self.steps, start[0], self.shortcut)
        y: Variable = function(self._shaped(x), *self._operands())
        for layer, step in zip(self.inner.values(), steps, strict=True):
            layer.show(step.all_outputs, step.all_deltas)
        return y

    def release(self) -> None:
        super().release()
        self._function, self._states = None, []

    @property
    def state(self) -> Array:
        if self._function is not None:
            return self._function.states.reshape(-1, self._state_size)
        if self._states:
            return np.concatenate([state.data for state in self._states]).reshape(-1, self._state_size)
        return super().state.reshape(-1, self._state_size)

    @property
    def _state_size(self) -> int:
        return self.outputs

    @property
    def delta(self) -> Array:
        return self.inner["output_layer"].delta


class Crnn(Rnn):
    """Like rnn with 3x3 convolutions (crnn_layer.c). Width and height are swapped inside, as in the original."""

    type = "crnn"

    def __init__(self, options: LayerOptions, shape: LayerShape, context: BuildContext) -> None:
        given = cast(CrnnOptions, options)
        self._hidden, self._filters = given.hidden_filters, given.output_filters
        super().__init__(options, shape, context)
        if not self.dialect.recurrent_rates:
            self._own_rate = 0.0

    def _make_inner(self, context: BuildContext) -> None:
        size = (self.w, self.h)
        for name, channels, filters in (
            ("input_layer", self.c, self._hidden),
            ("self_layer", self._hidden, self._hidden),
            ("output_layer", self._hidden, self._filters),
        ):
            self.inner[name] = inner.convolutional(
                self, name, (channels, *size), filters, self.activation, self.batch_normalize, context
            )

    def _shaped(self, x: Variable) -> Variable:
        return x.reshape((x.shape[0], self.c, self.w, self.h))

    def _zeros(self, sequences: int) -> tuple[Array, ...]:
        return (np.zeros((sequences, self._hidden, self.w, self.h), self._dtype),)

    @property
    def _state_size(self) -> int:
        return self._hidden * self.w * self.h


class Gru(RecurrentLayer):
    """z = s(uz x + wz h), r = s(ur x + wr h), c = f(uh x + wh (r h)); h = z h + (1 - z) c; y = h (gru_layer.c).

    h on the right is the one before, s the logistic, f the logistic too or tanh. All inner layers are linear.
    """

    type = "gru"

    def __init__(self, options: LayerOptions, shape: LayerShape, context: BuildContext) -> None:
        super().__init__(options, shape, context)
        given = cast(GruOptions, options)
        self.batch_normalize, self.tanh = given.batch_normalize, given.tanh
        add_gates(self, "zrh", context)

    def _unrolled(self, x: Variable, start: tuple[Array, ...], run: Pass) -> tuple[Variable, tuple[Variable, ...]]:
        h = Variable(start[0], requires_grad=False)
        from_output = self.dialect.gradient_from_output
        given = [self._each_step(self.inner[f"u{gate}"], as_rows(x), run) for gate in "zrh"]
        for update, reset, candidate in zip(*given, strict=True):
            z = activate(update + self.inner["wz"](h, run), "logistic", from_output)
            r = activate(reset + self.inner["wr"](h, run), "logistic", from_output)
            c = candidate + self.inner["wh"](r * h, run)
            c = activate(c, "tanh" if self.tanh else "logistic", from_output)
            h = z * h + (1 - z) * c
            self._step_outputs.append(h)
        return concat(self._step_outputs), (h,)

    def _as_the_original(self, x: Variable, start: tuple[Array, ...], run: Pass) -> Variable:
        """There is no way back: this layer's delta is all that arrives."""
        with no_grad():
            y, end = self._unrolled(x, start, run)
        self._carried = tuple(v.data for v in end)
        self._step_outputs = []
        return Variable(y.data)


class Lstm(RecurrentLayer):
    """i, f, o = s(u x + w h), g = tanh(ug x + wg h); c = f c + i g; h = o tanh(c); y = h (lstm_layer.c).

    h and c on the right are those before, s is the logistic. All inner layers are linear. cell: c of all steps.
    """

    type = "lstm"

    def __init__(self, options: LayerOptions, shape: LayerShape, context: BuildContext) -> None:
        super().__init__(options, shape, context)
        self.batch_normalize = cast(LstmOptions, options).batch_normalize
        add_gates(self, "ifog", context)
        self._memory: LstmMemory | None = None
        self._function: OriginalLstm | None = None
        self._cells: list[Variable] = []

    def _zeros(self, sequences: int) -> tuple[Array, ...]:
        return super()._zeros(sequences) * 2

    def _unrolled(self, x: Variable, start: tuple[Array, ...], run: Pass) -> tuple[Variable, tuple[Variable, ...]]:
        h, c = (Variable(array, requires_grad=False) for array in start)
        self._function, self._cells = None, []
        given = [self._each_step(self.inner[f"u{gate}"], as_rows(x), run) for gate in "ifog"]
        for sums in zip(*given, strict=True):
            i, f, o, g = (
                activate(
                    part + self.inner[f"w{gate}"](h, run),
                    "tanh" if gate == "g" else "logistic",
                    self.dialect.gradient_from_output,
                )
                for gate, part in zip("ifog", sums, strict=True)
            )
            c = f * c + i * g
            h = o * activate(c, "tanh", self.dialect.gradient_from_output)
            self._step_outputs.append(h)
            self._cells.append(c)
        return concat(self._step_outputs), (h, c)

    def _as_the_original(self, x: Variable, start: tuple[Array, ...], run: Pass) -> Variable:
        if self._memory is None or self._memory.h.shape != start[0].shape:
            self._memory = LstmMemory(*(np.array(array) for array in start))
        steps = {name: InnerStep.of(layer.layer) for name, layer in self.inner.items()}
        function = self._function = OriginalLstm(steps, self.steps, self._memory)
        y: Variable = function(as_rows(x), *self._operands())
        for name, layer in self.inner.items():
            layer.show(steps[name].all_outputs, steps[name].all_deltas)
        return y

    def _start(self, sequences: int) -> tuple[Array, ...]:
        if self._memory is not None and len(self._memory.h) == sequences:
            return self._memory.h, self._memory.c
        return super()._start(sequences)

    def reset_state(self) -> None:
        super().reset_state()
        self._memory = None

    def carried(self) -> dict[str, Array]:
        return super().carried() if self._memory is None else dict(vars(self._memory))

    def carry(self, arrays: dict[str, Array]) -> None:
        if "h" not in arrays:
            super().carry(arrays)
            return
        self._memory = LstmMemory(arrays["h"], arrays["c"])
        for name, array in arrays.items():
            setattr(self._memory, name, array)

    def release(self) -> None:
        super().release()
        self._function, self._cells = None, []

    @property
    def cell(self) -> Array:
        if self._function is not None:
            return self._function.cells.reshape(-1, self.outputs)
        return np.concatenate([c.data for c in self._cells])

    @property
    def delta(self) -> Array:
        return super().delta if self._function is None else self._function.deltas.reshape(-1, self.outputs)


def add_gates(layer: RecurrentLayer, gates: str, context: BuildContext) -> None:
    """Linear connected layers w* from the state and u* from the input, in the order of a weights file."""
    for letter, inputs in (("w", layer.outputs), ("u", layer.inputs)):
        for gate in gates:
            name = letter + gate
            layer.inner[name] = inner.connected(layer, name, inputs, "linear", layer.batch_normalize, context)
