"""What all layers of a Darknet network share: Darknet's field names, and where a layer's delta is found."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from undertow.core.modes import no_grad
from undertow.core.variable import Parameter, Variable
from undertow.darknet.dialect import Dialect
from undertow.darknet.files.layer_shape import LayerShape
from undertow.darknet.files.options_layers import LayerOptions
from undertow.darknet.files.options_net import NetOptions
from undertow.darknet.files.paths import named_file
from undertow.darknet.files.shapes import NetworkShapes
from undertow.darknet.layers.draws import Draws
from undertow.darknet.layers.functions import mask_gradient
from undertow.errors import GraphError, ShapeError

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class BuildContext:
    """What a layer is built with besides its own options and shape.

    seen: tells, whenever asked, how many samples were seen in training. draws: random numbers while the network runs.
    built: the layers before this one.
    """

    net: NetOptions
    dialect: Dialect
    rng: np.random.Generator
    dtype: np.dtype[Any]
    shapes: NetworkShapes
    seen: Callable[[], int]
    draws: Draws
    built: list[Layer] = field(default_factory=list)

    def find(self, name: str, key: str, shape: LayerShape) -> str:
        """Path of a file that the cfg names: from the working folder, as the original, or else beside the cfg.

        Raises FormatError, with the line of the layer, where there is none.
        """
        return named_file(name, key, self.shapes.file, shape.line, shape.index)


@dataclass
class Pass:
    """One forward pass: what layers read besides their input.

    outputs: of the layers so far. truth: a constant (batch, values), or None. training: batch statistics, losses.
    keep: whether gradients of intermediate values are kept for `Layer.delta`.
    cuts: for a layer whose delta the next layer overwrites, the mask of what survives (None: nothing).
    """

    truth: Variable | None
    training: bool
    keep: bool
    cuts: dict[int, Array | None]
    net_size: tuple[int, int]
    outputs: list[Variable] = field(default_factory=list)

    def read(self, index: int, reader: int) -> Variable:
        """Output of layer `index` as layer `reader` sees it: the gradient it sends back may be overwritten there."""
        output = self.outputs[index]
        if reader == index + 1 or index not in self.cuts:
            return output
        mask = self.cuts[index]
        if mask is None:
            return Variable(output.data, requires_grad=False)
        return mask_gradient(output, mask)

    def replace_last(self, output: Variable) -> None:
        """Let everybody who reads the layer before see this instead: what changes it in place."""
        self.outputs[-1] = output


class Layer:
    """One layer. Subclasses compute `forward`; the fields carry the names of Darknet's `struct layer`.

    w, h, c, out_w, out_h, out_c: 0 where input or output is not an image. inputs, outputs: values for one sample.
    cost, output, delta: of the last pass. owner: the layer whose parameters these are, when it is another one.
    """

    type: ClassVar[str] = ""
    # Stores its input gradient over what is there (see Dialect.overwrite_deltas).
    overwrites: bool = False
    # Has no output and delta of its own: those of the layer before are its.
    in_place: bool = False
    activation: str = "linear"
    n: int = 0
    size: int = 0
    stride: int = 0
    pad: int = 0
    groups: int = 1
    batch_normalize: bool = False
    loss: Variable | None = None
    # Runs the last pass again, when it was made by a plan and somebody asks for an output that the plan did not keep.
    recompute: Callable[[], None] | None = None

    def __init__(self, options: LayerOptions, shape: LayerShape, context: BuildContext) -> None:
        self.options = options
        self.shape = shape
        self.dialect = context.dialect
        self.index = shape.index
        self.batch = context.net.pass_batch
        self.inputs, self.outputs = shape.inputs, shape.outputs
        self.c, self.h, self.w = shape.in_shape
        self.out_c, self.out_h, self.out_w = shape.out_shape
        self.learning_rate_scale = options.learning_rate_scale
        self.parameters: MutableMapping[str, Parameter] = {}
        self.updates: MutableMapping[str, Array] = {}
        self.buffers: MutableMapping[str, Array] = {}
        self.owner: Layer | None = None
        self._output: Variable | None = None
        self._delta_at: Variable | None = None

    def forward(self, x: Variable, run: Pass) -> Variable:
        """Output for the input, within a pass."""
        raise NotImplementedError(f"[{self.type}] has no forward")

    def run(self, x: Variable, run: Pass, detached: bool) -> Variable:
        """Forward with the books kept. detached: no gradient flows through (behind a `stopbackward`)."""
        self.loss = self._delta_at = self.recompute = None
        if detached:
            with no_grad():
                y = self.forward(x, run)
            # A leaf of its own collects what later layers send back: all that such a layer's delta ever gets.
            y = Variable(y.data)
            self._delta_at, self.loss = y, None
        else:
            y = self.forward(x, run)
            if run.keep:
                self._delta_at = self.delta_place(y)
                self._delta_at.retain_grad()
        self._output = y
        return y

    def delta_place(self, y: Variable) -> Variable:
        """Where the delta of the last `forward`, which gave y, is found."""
        return y if self._delta_at is None else self._delta_at

    def take_output(self, y: Variable) -> None:
        """Show this as the output: a layer after has changed it in place."""
        self._output = y

    def overwritten(self) -> Array | None:
        """What survives in the delta of the layer before when this one overwrites it; None for nothing."""
        return None

    def release(self) -> None:
        """Let go of the arrays of the last pass."""
        self._output = self._delta_at = self.loss = None

    # --- Darknet's arrays -------------------------------------------------------------------------------

    @property
    def output(self) -> Array:
        """Output of the last pass, (batch, c, h, w) or (batch, outputs)."""
        return self.output_variable.data

    @property
    def output_variable(self) -> Variable:
        """The Variable of the last pass's output."""
        if self._output is None and self.recompute is not None:
            self.recompute()
        if self._output is None:
            raise GraphError("there is no output: nothing went through the network yet", layer=self.index)
        return self._output

    @property
    def delta(self) -> Array:
        """Minus the gradient at the end of the last backward pass, where Darknet keeps it.

        For layers with an activation: before activation, bias and normalisation; for others: at the output.
        """
        at = self._delta_at
        if at is None:
            raise GraphError(
                "no delta was kept",
                layer=self.index,
                remedy="set net.keep_deltas = True before net.forward, and call net.backward",
            )
        return -at.grad if at.grad is not None else np.zeros_like(at.data)

    @property
    def cost(self) -> float | None:
        """What Darknet prints for the last pass; None for a layer without a cost."""
        return None

    @property
    def nweights(self) -> int:
        """How many weights."""
        return int(self.parameters["weights"].size) if "weights" in self.parameters else 0

    @property
    def nbiases(self) -> int:
        """How many biases."""
        return int(self.parameters["biases"].size) if "biases" in self.parameters else 0

    def __getattr__(self, name: str) -> Any:
        """Parameters, buffers and `*_updates` under Darknet's names."""
        for place in ("parameters", "buffers", "updates"):
            arrays = self.__dict__.get(place, {})
            if name in arrays:
                found = arrays[name]
                return found.data if isinstance(found, Parameter) else found
        raise AttributeError(f"a {self.type} layer has no '{name}'")

    def __setattr__(self, name: str, value: Any) -> None:
        """`layer.weights = values` writes into the array that the network computes with; its shape stays.

        values: of the array's shape, or flat as Darknet keeps them. Raises ShapeError for another number of values.
        """
        known = self.__dict__
        if not name.startswith("_") and name not in known and "buffers" in known:
            for place in (self.parameters, self.buffers, self.updates):
                if name in place:
                    found = place[name]
                    _fill(found.data if isinstance(found, Parameter) else found, value, self, name)
                    return
        object.__setattr__(self, name, value)

    def learns(self, name: str) -> bool:
        """Whether an update changes this parameter; its accumulator then only grows where it does not."""
        return True

    def rate_of(self, name: str) -> float:
        """Factor on the net's learning rate for this parameter."""
        return self.learning_rate_scale

    def reset_state(self) -> None:
        """Forget what was carried over from earlier passes; only recurrent layers carry anything."""

    def carried(self) -> dict[str, Array]:
        """What goes on from pass to pass in training besides parameters and statistics, for checkpoints."""
        return {}

    def carry(self, arrays: dict[str, Array]) -> None:
        """Go on from what `carried` gave."""

    def add_parameter(self, name: str, data: Array) -> Parameter:
        """A learned array: weights, biases or scales."""
        parameter = self.parameters[name] = Parameter(data, name=f"layer{self.index}.{name}")
        return parameter

    def share(self, owner: Layer) -> None:
        """Use the parameters, statistics and updates of another layer (share_index of AlexeyAB's fork)."""
        self.owner = owner
        self.parameters, self.buffers, self.updates = owner.parameters, owner.buffers, owner.updates

    def parameter(self, name: str) -> Parameter:
        """The Variable behind `weights`, `biases` or `scales`."""
        return self.parameters[name]

    def arrays(self) -> dict[str, Array]:
        """Everything that a .weights file may hold, by Darknet's names; writing into these takes effect."""
        return {name: p.data for name, p in self.parameters.items()} | dict(self.buffers)

    def __repr__(self) -> str:
        return f"<{self.index} {self.type} {self.shape.in_shape} -> {self.shape.out_shape}>"


def _fill(array: Array, value: Any, layer: Layer, name: str) -> None:
    values = np.asarray(value)
    if values.shape != array.shape and values.shape != (array.size,):
        raise ShapeError(f"'{name}' has shape {array.shape}, got values of shape {values.shape}", layer=layer.index)
    array[...] = values.reshape(array.shape)


def updates_name(name: str) -> str:
    """`weights` -> `weight_updates`, as in struct layer."""
    return name.removesuffix("s").replace("biase", "bias") + "_updates"


def as_image(x: Variable, layer: Layer) -> Variable:
    """The input as (batch, c, h, w); Darknet's arrays are flat and fit either way."""
    return as_shape(x, (layer.c, layer.h, layer.w))


def as_shape(x: Variable, shape: tuple[int, int, int]) -> Variable:
    """What another layer gave, as the image (c, h, w) that it stands for; it may have come in rows."""
    return x if x.shape[1:] == shape else x.reshape((x.shape[0], *shape))


def as_rows(x: Variable) -> Variable:
    """The input as (batch, values)."""
    return x if x.ndim == 2 else x.reshape((x.shape[0], -1))


def computed(function: Any, layer: Layer) -> Any:
    """The operation of the layer's last pass. Raises GraphError when there was none."""
    if function is None:
        raise GraphError("nothing went through the layer yet", layer=layer.index)
    return function


Builder = Callable[[LayerOptions, LayerShape, BuildContext], Layer]
