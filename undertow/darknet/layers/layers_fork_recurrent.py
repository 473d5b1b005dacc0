"""Layers of AlexeyAB's fork with a state: crnn in its form, conv_lstm, history. A batch is time first."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from undertow.core.variable import Variable
from undertow.darknet.files.layer_shape import LayerShape
from undertow.darknet.files.options_fork import ConvLstmOptions, HistoryOptions
from undertow.darknet.files.options_layers import CrnnOptions, LayerOptions
from undertow.darknet.layers import inner
from undertow.darknet.layers.layer import BuildContext, Pass, as_image
from undertow.darknet.layers.layers_plain import activate
from undertow.darknet.layers.layers_recurrent import Crnn, RecurrentLayer
from undertow.functions.compare import clip
from undertow.functions.join import concat

Array = np.ndarray[Any, Any]

# What the cell of a conv_lstm is limited to for each time step.
_LIMIT = 32


class ForkCrnn(Crnn):
    """crnn whose convolutions have any size, and whose width and height are not swapped (crnn_layer.c of the fork)."""

    def __init__(self, options: LayerOptions, shape: LayerShape, context: BuildContext) -> None:
        super().__init__(options, shape, context)
        self._own_rate = self.learning_rate_scale

    def _make_inner(self, context: BuildContext) -> None:
        given = cast(CrnnOptions, self.options)
        self._hidden, self._filters = given.hidden or 1, self.out_c
        for name, channels, filters in (
            ("input_layer", self.c, self._hidden),
            ("self_layer", self._hidden, self._hidden),
            ("output_layer", self._hidden, self._filters),
        ):
            image = (channels, self.h, self.w)
            window = inner.Window(given.size, given.dilation, given.groups)
            self.inner[name] = inner.convolutional(
                self, name, image, filters, self.activation, self.batch_normalize, context, window
            )

    def _shaped(self, x: Variable) -> Variable:
        return as_image(x, self)

    def _zeros(self, sequences: int) -> tuple[Array, ...]:
        return (np.zeros((sequences, self._hidden, self.h, self.w), self._dtype),)


class ConvLstm(RecurrentLayer):
    """f, i, o = s(u x + w h [+ v c]), g = tanh(ug x + wg h); c = f c + i g; h = o tanh(c); y = h (conv_lstm_layer.c).

    u, w and v are convolutions; s is the logistic; v c with `peephole` only, where o looks at the new c. From step to
    step c stays within plus and minus `state_constrain`. cell: that c of all steps.
    """

    type = "conv_lstm"

    def __init__(self, options: LayerOptions, shape: LayerShape, context: BuildContext) -> None:
        super().__init__(options, shape, context)
        given = cast(ConvLstmOptions, options)
        self.batch_normalize, self.peephole = given.batch_normalize, given.peephole
        self.state_constrain = self.steps * _LIMIT if given.state_constrain is None else given.state_constrain
        names = [f"v{gate}" for gate in "fio" if given.peephole]
        names += [f"{letter}{gate}" for letter in "wu" for gate in "figo"]
        for name in names:
            image = (self.c if name[0] == "u" else self.out_c, self.h, self.w)
            window = inner.Window(given.size, given.dilation, given.groups)
            self.inner[name] = inner.convolutional(
                self, name, image, self.out_c, given.activation, given.batch_normalize, context, window
            )
        self._cells: list[Variable] = []

    def _zeros(self, sequences: int) -> tuple[Array, ...]:
        state = np.zeros((sequences, self.out_c, self.h, self.w), self._dtype)
        return state, state

    def _unrolled(self, x: Variable, start: tuple[Array, ...], run: Pass) -> tuple[Variable, tuple[Variable, ...]]:
        h, c = (Variable(array, requires_grad=False) for array in start)
        self._cells = []
        given = [self._each_step(self.inner[f"u{gate}"], as_image(x, self), run) for gate in "figo"]
        for from_f, from_i, from_g, from_o in zip(*given, strict=True):
            f = self._gate("f", from_f, h, c, run)
            i = self._gate("i", from_i, h, c, run)
            g = activate(from_g + self.inner["wg"](h, run), "tanh", self.dialect.gradient_from_output)
            c = f * c + i * g
            o = self._gate("o", from_o, h, c, run)
            h = o * activate(c, "tanh", self.dialect.gradient_from_output)
            if self.state_constrain:
                c = clip(c, -self.state_constrain, self.state_constrain)
            self._step_outputs.append(h)
            self._cells.append(c)
        return concat(self._step_outputs), (h, c)

    def _gate(self, name: str, from_input: Variable, h: Variable, c: Variable, run: Pass) -> Variable:
        total = from_input + self.inner[f"w{name}"](h, run)
        if self.peephole:
            total = total + self.inner[f"v{name}"](c, run)
        return activate(total, "logistic", self.dialect.gradient_from_output)

    def _as_the_original(self, x: Variable, start: tuple[Array, ...], run: Pass) -> Variable:
        """The 2018 program has no such layer; there is one way back."""
        return self._unrolled(x, start, run)[0]

    def release(self) -> None:
        super().release()
        self._cells = []

    @property
    def cell(self) -> Array:
        """The cell after each step, (steps * sequences, channels, height, width)."""
        return np.concatenate([c.data for c in self._cells])


class History(RecurrentLayer):
    """The last inputs of each sequence along the channels, newest first; zeros before the first (history_layer)."""

    type = "history"

    def __init__(self, options: LayerOptions, shape: LayerShape, context: BuildContext) -> None:
        super().__init__(options, shape, context)
        self.history_size = cast(HistoryOptions, options).history_size

    def _zeros(self, sequences: int) -> tuple[Array, ...]:
        return (np.zeros((sequences, self.out_c, self.h, self.w), self._dtype),)

    def _unrolled(self, x: Variable, start: tuple[Array, ...], run: Pass) -> tuple[Variable, tuple[Variable, ...]]:
        past = Variable(start[0], requires_grad=False)
        kept = self.c * (self.history_size - 1)
        for newest in self._parts(as_image(x, self)):
            past = concat([newest, past[:, :kept]], axis=1) if kept else newest
            self._step_outputs.append(past)
        if self.steps == 1:  # the original remembers nothing then
            past = Variable(self._zeros(past.shape[0])[0], requires_grad=False)
        return concat(self._step_outputs), (past,)

    def _as_the_original(self, x: Variable, start: tuple[Array, ...], run: Pass) -> Variable:
        """The 2018 program has no such layer; there is one way back."""
        return self._unrolled(x, start, run)[0]
