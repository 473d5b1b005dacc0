"""A net of Caffe layers, run layer by layer on blobs that stay where they are.

net = Net("lenet.prototxt", phase="TEST", weights="lenet.caffemodel")
net.blobs["data"].data[...] = images
loss = net.forward()
net.blobs["prob"].diff[...] = seed
net.clear_param_diffs()
net.backward()
net.params["conv1"][0].diff
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from undertow.caffe.arguments import path_of, whole
from undertow.caffe.blob import Blob, Shape
from undertow.caffe.build import Builder, state_of
from undertow.caffe.building_log import building_lines
from undertow.caffe.debug_info import backward_lines, forward_lines, total_line
from undertow.caffe.dialect import Dialect, dialect_named
from undertow.caffe.glog import LOGGER
from undertow.caffe.insert_splits import insert_splits
from undertow.caffe.layer import Context, Layer, PythonLoader
from undertow.caffe.net_function import NetFunction
from undertow.caffe.phases import filter_net
from undertow.caffe.planned import NetPlans
from undertow.caffe.proto.api import read_caffemodel, read_prototxt, write_caffemodel
from undertow.caffe.proto.message import Message, new_message
from undertow.caffe.proto.schema import DEFAULT_FORK, ForkLike
from undertow.caffe.weights import WeightsReport, copy_layers, share_layers
from undertow.errors import GraphError

PathLike = str | os.PathLike[str]
Step = Callable[[int], None]


class Net:
    """The layers of a prototxt, their blobs and parameters.

    source: a prototxt's path, or a NetParameter in today's form. phase: "TRAIN" or "TEST" (or 0, 1); None takes it,
    like level and stages, from the message's `state`. weights: a caffemodel to begin with.
    dialect: "exact" (true derivatives) or "caffe" (the original's results). dtype: float32, or float64.
    seed: of fillers, dropout and random data. python: what turns (module, class) of a Python layer into the class, see
    `import_layer`; without it such layers are refused. fill: False leaves the parameters as zeros that take no memory:
    enough to check a prototxt and its shapes.

    layers, layer_names; blobs: name -> Blob in the order of the original; params: layer name -> list of Blob;
    inputs, outputs: names of the blobs that Input layers make and that nobody reads.
    Raises FormatError or ShapeError with file, line, layer and what to do about it.
    """

    def __init__(
        self,
        source: PathLike | Message,
        phase: str | int | None = "TEST",
        *,
        level: int | None = None,
        stages: Sequence[str] = (),
        weights: PathLike | Message | None = None,
        dialect: str | Dialect = "exact",
        dtype: Any = np.float32,
        seed: int | None = None,
        python: PythonLoader | None = None,
        fork: ForkLike = DEFAULT_FORK,
        fill: bool = True,
    ) -> None:
        self.file = None if isinstance(source, Message) else path_of(source, "the prototxt")
        message = source if isinstance(source, Message) else read_prototxt(source, fork=fork)
        message = state_of(message, phase, level, stages)
        self.dialect, self.dtype, self.filled = dialect_named(dialect), np.dtype(dtype), fill
        self.phase = str(message.state.phase)
        self.name = str(message.name)
        self.fork = fork
        self.debug_info = bool(message.debug_info)
        self.log: Callable[[str], None] = LOGGER.info
        self.before_forward: list[Step] = []
        self.after_forward: list[Step] = []
        self.before_backward: list[Step] = []
        self.after_backward: list[Step] = []
        self._start_empty()
        message = insert_splits(filter_net(message, self.file), self.file)
        self.message = message
        self.rng = np.random.default_rng(None if seed is None else whole(seed, "seed", 0))
        context = Context(self.phase, self.dialect, self.dtype, self.rng, self.file, python)
        Builder(self, message, context).build()
        self.layer_names = [layer.name for layer in self.layers]
        self.blobs: dict[str, Blob] = dict(zip(self.blob_names, self.blob_list, strict=True))
        self.params: dict[str, list[Blob]] = {layer.name: layer.blobs for layer in self.layers if layer.blobs}
        if fill and LOGGER.isEnabledFor(logging.INFO):
            for line in building_lines(self):
                self.log(line)
        self.plans = NetPlans(self)
        if weights is not None:
            self.copy_from(weights)

    def _start_empty(self) -> None:
        self.layers: list[Layer] = []
        self.blob_list: list[Blob] = []
        self.blob_names: list[str] = []
        self.blob_loss_weights: list[float] = []
        self.bottom_ids: list[list[int]] = []
        self.top_ids: list[list[int]] = []
        self.output_ids: list[int] = []
        # All parameters in order; shared ones each time, with the number of their owner, -1 for owners.
        self.param_blobs: list[Blob] = []
        self.param_names: list[str] = []
        self.param_layers: list[tuple[int, int]] = []
        self.param_owners: list[int] = []
        self.param_ids: list[list[int]] = []
        # What a solver updates: every parameter once.
        self.learnable_params: list[Blob] = []
        self.learnable_ids: list[int] = []
        self.params_lr: list[float] = []
        self.params_weight_decay: list[float] = []
        self.has_params_lr: list[bool] = []
        self.has_params_decay: list[bool] = []

    # --- looking at the net -----------------------------------------------------------------------------

    @property
    def inputs(self) -> list[str]:
        """Names of the blobs made by Input layers."""
        pairs = zip(self.layers, self.top_ids, strict=True)
        return [self.blob_names[i] for layer, ids in pairs if layer.type == "Input" for i in ids]

    @property
    def outputs(self) -> list[str]:
        """Names of the blobs that no layer reads, sorted as in the original."""
        return [self.blob_names[i] for i in self.output_ids]

    @property
    def bottom_names(self) -> dict[str, list[str]]:
        """Layer name -> names of its bottoms."""
        return self._names(self.bottom_ids)

    @property
    def top_names(self) -> dict[str, list[str]]:
        """Layer name -> names of its tops."""
        return self._names(self.top_ids)

    def _names(self, ids: list[list[int]]) -> dict[str, list[str]]:
        pairs = zip(self.layer_names, ids, strict=True)
        return {name: [self.blob_names[i] for i in row] for name, row in pairs}

    @property
    def layer_dict(self) -> dict[str, Layer]:
        """Layer name -> layer."""
        return dict(zip(self.layer_names, self.layers, strict=True))

    @property
    def layer_need_backward(self) -> list[bool]:
        """For each layer whether a backward pass runs it."""
        return [layer.need_backward for layer in self.layers]

    @property
    def bottom_need_backward(self) -> list[list[bool]]:
        """For each layer and bottom whether its gradient is computed."""
        return [layer.bottom_need_backward for layer in self.layers]

    @property
    def param_propagate_down(self) -> list[list[bool]]:
        """For each layer and parameter whether its gradient is computed."""
        return [layer.param_propagate_down for layer in self.layers]

    @property
    def shapes(self) -> dict[str, Shape]:
        """Blob name -> shape."""
        return {name: blob.shape for name, blob in self.blobs.items()}

    def bottoms(self, layer: int) -> list[Blob]:
        """The bottom blobs of a layer."""
        return [self.blob_list[i] for i in self.bottom_ids[layer]]

    def tops(self, layer: int) -> list[Blob]:
        """The top blobs of a layer."""
        return [self.blob_list[i] for i in self.top_ids[layer]]

    def layer_id(self, layer: str | int) -> int:
        """The number of a layer from its name or number (negative ones count from the end)."""
        if isinstance(layer, str):
            if layer not in self.layer_names:
                raise GraphError(f"there is no layer '{layer}'", remedy=f"use one of {', '.join(self.layer_names)}")
            # Of several layers of one name the last counts, as in the original.
            return len(self.layer_names) - 1 - self.layer_names[::-1].index(layer)
        if not isinstance(layer, int | np.integer) or not -len(self.layers) <= layer < len(self.layers):
            raise GraphError(f"there is no layer {layer!r}", remedy=f"layers count from 0 to {len(self.layers) - 1}")
        return int(layer) % len(self.layers)

    # --- running ----------------------------------------------------------------------------------------

    def forward(self, start: str | int | None = None, end: str | int | None = None) -> float:
        """Run the layers from start to end, both included; the whole net by default. Returns their weighted loss."""
        if start is None and end is None and not any(self.layer_need_backward) and self.plans.can_run(False):
            return self.plans.run(backward=False)
        first = 0 if start is None else self.layer_id(start)
        last = len(self.layers) - 1 if end is None else self.layer_id(end)
        return self.forward_from_to(first, last)

    def forward_from_to(self, start: int, end: int) -> float:
        """Run the layers with these numbers, both included."""
        loss = 0.0
        for i in range(start, end + 1):
            for step in self.before_forward:
                step(i)
            loss += self.run_layer(i)
            if self.debug_info:
                for line in forward_lines(self, i):
                    self.log(line)
            for step in self.after_forward:
                step(i)
        return loss

    def run_layer(self, index: int) -> float:
        """Run the layer of this number, and nothing else; returns its weighted loss."""
        layer = self.layers[index]
        try:
            loss = layer.forward(self.bottoms(index), self.tops(index))
        except MemoryError as error:
            raise layer.no_room() from error
        layer.forgotten = False
        return loss

    def backward(self, start: str | int | None = None, end: str | int | None = None) -> None:
        """From the diffs of the tops to those of bottoms and parameters, from start down to end, both included.

        A layer overwrites the diffs of its bottoms and adds to those of its parameters (`clear_param_diffs`).
        Write into the diff of an output first, unless it has a loss weight.
        """
        whole = start is None and end is None
        first = len(self.layers) - 1 if start is None else self.layer_id(start)
        self.backward_from_to(first, 0 if end is None else self.layer_id(end))
        if whole and self.debug_info:
            self.log(total_line(self))

    def backward_from_to(self, start: int, end: int) -> None:
        """The same for layer numbers, start >= end."""
        if any(layer.forgotten and layer.need_backward for layer in self.layers[end : start + 1]):
            self.plans.run_again()
        for i in range(start, end - 1, -1):
            for step in self.before_backward:
                step(i)
            if self.layers[i].need_backward:
                self.layers[i].backward(self.tops(i), self.bottoms(i))
                if self.debug_info:
                    for line in backward_lines(self, i):
                        self.log(line)
            for step in self.after_backward:
                step(i)

    def evaluate(self) -> float:
        """A forward pass that no backward pass is to follow: a replay like that of `forward_backward`."""
        return self.plans.run(backward=False) if self.plans.can_run(False) else self.forward()

    def forward_backward(self) -> float:
        """A forward and a backward pass over the whole net; returns the weighted loss.

        Faster than one after the other: as a plan, see `undertow.caffe.planned`. Blobs can be read afterwards.
        """
        if self.plans.can_run(True):
            return self.plans.run(backward=True)
        loss = self.forward()
        self.backward()
        return loss

    def clear_param_diffs(self) -> None:
        """Set the gradients of all parameters to 0."""
        for blob in self.learnable_params:
            blob.clear_diff()

    def reshape(self) -> None:
        """Bring all blobs to the shapes that follow from those of the inputs."""
        for i, layer in enumerate(self.layers):
            layer.reshape(self.bottoms(i), self.tops(i))

    def as_function(self) -> NetFunction:
        """The whole net as one differentiable function of its inputs and parameters."""
        return NetFunction(self)

    # --- weights ----------------------------------------------------------------------------------------

    def copy_from(self, source: PathLike | Message) -> WeightsReport:
        """Take over parameters by layer name from a caffemodel (binary or HDF5) or a NetParameter.

        Layers on one side only are left alone and listed in the report. Raises ShapeError where a layer of the same
        name has parameters of another number or shape.
        """
        file = None if isinstance(source, Message) else path_of(source, "the caffemodel")
        message = source if isinstance(source, Message) else read_caffemodel(source, fork=self.fork)
        return copy_layers(self, message, file)

    def share_with(self, other: Net) -> None:
        """Look at the parameter values of the layers of the same names in another net."""
        share_layers(self, other)

    def to_message(self, diff: bool = False) -> Message:
        """A NetParameter with all layers, Splits too, and the parameters' values (and gradients, with diff)."""
        message = new_message("NetParameter", self.fork)
        message.name = self.name
        message.layer = [layer.to_message(diff) for layer in self.layers]
        return message

    def save(self, path: PathLike, diff: bool = False) -> None:
        """Write a caffemodel, HDF5 if the path ends in `.h5`; whole or not at all."""
        write_caffemodel(self.to_message(diff), path)

    def __repr__(self) -> str:
        return f"<Net {self.name!r}: {len(self.layers)} layers, {self.phase}, dialect {self.dialect.name}>"


def infer_shapes(source: PathLike | Message, phase: str | int | None = "TEST", **options: Any) -> dict[str, Shape]:
    """Blob name -> shape, from a prototxt alone: no weights, no memory. Options as of `Net`."""
    return Net(source, phase, fill=False, **options).shapes
