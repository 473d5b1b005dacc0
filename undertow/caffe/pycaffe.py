"""pycaffe's Net: the one class that scripts use, over `undertow.caffe.net.Net`.

It computes in dialect "caffe": the diffs are those of the original. Python layers named in a prototxt are imported and
run, as in pycaffe: use it on files that you trust.
"""

from __future__ import annotations

import importlib
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from undertow.caffe import net as core
from undertow.caffe.arguments import WrongKind, array_of, function_of, path_of, shown, texts_of, whole
from undertow.caffe.blob import Blob
from undertow.caffe.glog import log
from undertow.caffe.layers_input import MemoryData
from undertow.caffe.layers_python import Python, import_layer
from undertow.caffe.proto.api import write_binary
from undertow.caffe.proto.chosen import chosen_forks
from undertow.caffe.proto.message import Message
from undertow.caffe.proto.schema import ForkLike
from undertow.caffe.runtime import NCCL as NCCL  # scripts find it and Timer here
from undertow.caffe.runtime import CaffeError, CannotOpen, NoSuchBlob, NoSuchLayer, next_seed
from undertow.caffe.runtime import Timer as Timer
from undertow.caffe.snapshot import save_hdf5
from undertow.caffe.weights import WeightsReport
from undertow.errors import ShapeError

Array = np.ndarray[Any, Any]
Outputs = dict[str, Array]
PathLike = str | os.PathLike[str]


class Net:
    """Net(network_file, phase, level=0, stages=None, weights=None), or as of old Net(network_file, weights, phase).

    phase: TRAIN (0) or TEST (1). dialect: "caffe", or "exact" for true derivatives. fork: whose fields the prototxt may
    have besides Caffe's ("segnet", or several in a tuple).

    blobs, params, layer_dict, top_names, bottom_names: by name, from the input on. layers: a Python layer is there
    as the user's object. What pycaffe does not have is found in `undertow.caffe.net.Net`, under its name there.
    """

    def __init__(
        self,
        network_file: PathLike | Message,
        *given: Any,
        phase: int | str | None = None,
        level: int = 0,
        stages: Sequence[str] | None = None,
        weights: PathLike | None = None,
        dialect: str = "caffe",
        seed: int | None = None,
        fork: ForkLike | None = None,
    ) -> None:
        phase, level, stages, weights = _arguments(given, phase, level, stages, weights)
        for file in (network_file, weights):
            if file is not None and not isinstance(file, Message):
                check_file(file)
        self._take(
            core.Net(
                network_file,
                phase,
                level=level,
                stages=list(stages or ()),
                weights=weights,
                dialect=dialect,
                seed=next_seed() if seed is None else seed,
                python=import_layer,
                fork=chosen_forks() if fork is None else fork,
            )
        )

    @classmethod
    def of(cls, net: core.Net) -> Net:
        """A net that exists already, such as a solver's."""
        made = cls.__new__(cls)
        made._take(net)
        return made

    def _take(self, net: core.Net) -> None:
        self.net = net
        self.blobs: OrderedDict[str, Blob] = OrderedDict(net.blobs)
        self.layers: list[Any] = [layer.layer if isinstance(layer, Python) else layer for layer in net.layers]
        self.params: OrderedDict[str, list[Blob]] = OrderedDict(
            (name, layer.blobs) for name, layer in zip(net.layer_names, self.layers, strict=True) if layer.blobs
        )
        self.inputs, self.outputs = net.inputs, net.outputs

    def __getattr__(self, name: str) -> Any:
        if name == "net":
            raise AttributeError(name)
        return getattr(self.net, name)

    # --- looking ----------------------------------------------------------------------------------------

    @property
    def layer_dict(self) -> OrderedDict[str, Any]:
        """Layer name -> layer."""
        return OrderedDict(zip(self.net.layer_names, self.layers, strict=True))

    @property
    def blob_loss_weights(self) -> OrderedDict[str, float]:
        """Blob name -> loss weight."""
        return OrderedDict(zip(self.net.blob_names, self.net.blob_loss_weights, strict=True))

    @property
    def top_names(self) -> OrderedDict[str, list[str]]:
        """Layer name -> names of its tops."""
        return OrderedDict(self.net.top_names)

    @property
    def bottom_names(self) -> OrderedDict[str, list[str]]:
        """Layer name -> names of its bottoms."""
        return OrderedDict(self.net.bottom_names)

    @property
    def _blobs(self) -> list[Blob]:
        return self.net.blob_list

    @property
    def _blob_names(self) -> list[str]:
        return self.net.blob_names

    @property
    def _layer_names(self) -> list[str]:
        return self.net.layer_names

    @property
    def _blob_loss_weights(self) -> list[float]:
        return self.net.blob_loss_weights

    @property
    def _inputs(self) -> list[int]:
        return [self.net.blob_names.index(name) for name in self.inputs]

    @property
    def _outputs(self) -> list[int]:
        return list(self.net.output_ids)

    def _bottom_ids(self, layer: int) -> list[int]:
        return self.net.bottom_ids[self._number(layer)]

    def _top_ids(self, layer: int) -> list[int]:
        return self.net.top_ids[self._number(layer)]

    def _number(self, layer: int) -> int:
        return whole(layer, "the number of a layer", 0, len(self.layers) - 1)

    # --- running ----------------------------------------------------------------------------------------

    def forward(
        self,
        blobs: Sequence[str] | None = None,
        start: str | None = None,
        end: str | None = None,
        **inputs: Any,
    ) -> Outputs:
        """Run the layers from start to end, both included; the result has the outputs and the `blobs` asked for.

        inputs: by the names of all input blobs, with the net's batch size. The arrays of the result are the net's own.
        """
        asked = self._asked(blobs, "blobs")
        outputs = self.outputs if end is None else self._names(self.net.top_ids, end)
        if inputs:
            self._fill(inputs, self.inputs, "data", "Input blob arguments do not match net inputs.")
        first = 0 if start is None else self._layer_id(start)
        self._forward(first, len(self.layers) - 1 if end is None else self._layer_id(end))
        return {name: self.blobs[name].data for name in dict.fromkeys([*outputs, *asked])}

    def backward(
        self,
        diffs: Sequence[str] | None = None,
        start: str | None = None,
        end: str | None = None,
        **tops: Any,
    ) -> Outputs:
        """Run the layers from start down to end; the result has the diffs of the inputs and the `diffs` asked for.

        tops: diffs by the names of all outputs, with the net's batch size.
        """
        asked = self._asked(diffs, "diffs")
        outputs = self.inputs if end is None else self._names(self.net.bottom_ids, end)
        if tops:
            self._fill(tops, self.outputs, "diff", "Top diff arguments do not match net outputs.")
        first = len(self.layers) - 1 if start is None else self._layer_id(start)
        self._backward(first, 0 if end is None else self._layer_id(end))
        return {name: self.blobs[name].diff for name in dict.fromkeys([*outputs, *asked])}

    def _asked(self, names: object, what: str) -> list[str]:
        """Names of blobs. Raises NoSuchBlob, a KeyError, for one that is not there."""
        found = texts_of(names, what)
        for name in found:
            if name not in self.blobs:
                raise NoSuchBlob(f"there is no blob '{name}'", remedy=f"use one of {', '.join(self.blobs)}")
        return found

    def _layer_id(self, layer: str) -> int:
        if not isinstance(layer, str) or layer not in self.net.layer_names:
            raise NoSuchLayer(f"{layer!r} is not a layer", remedy=f"use one of {', '.join(self.net.layer_names)}")
        return self.net.layer_names.index(layer)

    def _names(self, ids: Sequence[Sequence[int]], layer: str) -> list[str]:
        return [self.net.blob_names[i] for i in ids[self._layer_id(layer)]]

    def _fill(self, arrays: Mapping[str, Array], names: Sequence[str], kind: str, mismatch: str) -> None:
        if set(arrays) != set(names):
            wanted = f"give all of {', '.join(names)}" if names else "give no arrays: the net takes none"
            raise CaffeError(mismatch, remedy=f"{wanted}; here are {', '.join(arrays) or 'none'}")
        for name, array in arrays.items():
            target, array = getattr(self.blobs[name], kind), array_of(array, name)
            if not array.ndim or not target.ndim:
                if array.shape != target.shape:
                    raise ShapeError(f"{name} has shape {target.shape}, the array {array.shape}",
                                     remedy="give an array of this shape")  # fmt: skip
            elif len(array) != len(target):
                word = "Input" if kind == "data" else "Diff"
                raise CaffeError(
                    f"{word} is not batch sized: {name} has {len(array)} rows, the net {len(target)}",
                    remedy="give as many, use forward_all, or reshape the blob",
                )
            try:
                target[...] = array
            except ValueError as error:
                raise ShapeError(
                    f"{name} has shape {target.shape}, the array {np.shape(array)}",
                    remedy="bring the array to this shape, or reshape the blob before",
                ) from error

    def _forward(self, start: int, end: int) -> float:
        return self.net.forward_from_to(self._number(start), self._number(end))

    def _backward(self, start: int, end: int) -> None:
        self.net.backward_from_to(self._number(start), self._number(end))

    def forward_all(self, blobs: Sequence[str] | None = None, **inputs: Any) -> Outputs:
        """`forward` for any number of rows, batch by batch; the last batch is filled up with zeros."""
        if not inputs:
            raise CaffeError("forward_all needs the inputs by name", remedy="call forward() for nets with data layers")
        inputs = _rows_of(inputs)
        counts = {name: len(array) for name, array in inputs.items()}
        if len(set(counts.values())) > 1:
            raise CaffeError(f"the arrays have different numbers of rows: {counts}", remedy="give as many of each")
        names = dict.fromkeys([*self.outputs, *self._asked(blobs, "blobs")])
        found: dict[str, list[Array]] = {name: [] for name in names}
        for batch in self._batch(inputs):
            for name, values in self.forward(blobs, **batch).items():
                found[name].extend(np.atleast_1d(values).copy())
        return self._packed(found, len(next(iter(inputs.values()))))

    def forward_backward_all(
        self, blobs: Sequence[str] | None = None, diffs: Sequence[str] | None = None, **arrays: Any
    ) -> tuple[Outputs, Outputs]:
        """`forward` and `backward` for any number of rows; arrays: inputs and diffs of outputs by name."""
        if not arrays:
            raise CaffeError(
                "forward_backward_all needs inputs or diffs by name",
                remedy="give the inputs by name: forward_backward_all(data=..., label=...)",
            )
        arrays = _rows_of(arrays)
        asked, wanted = self._asked(blobs, "blobs"), self._asked(diffs, "diffs")
        forward = list(self._batch({n: arrays[n] for n in self.inputs if n in arrays}))
        backward = list(self._batch({n: arrays[n] for n in self.outputs if n in arrays}))
        values: dict[str, list[Array]] = {name: [] for name in [*self.outputs, *asked]}
        gradients: dict[str, list[Array]] = {name: [] for name in [*self.inputs, *wanted]}
        for index in range(max(len(forward), len(backward))):
            batch = forward[index] if index < len(forward) else {}
            for name, array in self.forward(blobs, **batch).items():
                values[name].extend(np.atleast_1d(array).copy())
            batch = backward[index] if index < len(backward) else {}
            for name, array in self.backward(diffs, **batch).items():
                gradients[name].extend(np.atleast_1d(array).copy())
        rows = len(next(iter(arrays.values())))
        return self._packed(values, rows), self._packed(gradients, rows)

    def _packed(self, parts: Mapping[str, list[Array]], rows: int) -> Outputs:
        """Lists of rows as arrays, without the rows that filled up the last batch; losses have none of these."""
        size = next(iter(self.blobs.values())).shape[0]
        batches, missing = -(-rows // size), -rows % size
        arrays = {name: np.asarray(values) for name, values in parts.items()}
        per_item = {name: len(array) // (batches * size) for name, array in arrays.items()}
        return {name: array[: len(array) - missing * per_item[name]] for name, array in arrays.items()}

    def _batch(self, arrays: Mapping[str, Array]) -> Iterator[dict[str, Any]]:
        """Rows in portions of the net's batch size, the last one filled up with zeros."""
        if not arrays:
            return
        size = next(iter(self.blobs.values())).shape[0]
        for start in range(0, len(next(iter(arrays.values()))), size):
            batch = {name: np.asarray(array[start : start + size]) for name, array in arrays.items()}
            yield {name: _filled_up(array, size) for name, array in batch.items()}

    def set_input_arrays(self, data: Array, labels: Array) -> None:
        """Give the first layer, a MemoryData, float32 arrays (n, channels, height, width) and n labels."""
        layer = self.net.layers[0]
        if not isinstance(layer, MemoryData):
            raise CaffeError(
                "set_input_arrays may only be called if the first layer is a MemoryDataLayer",
                remedy="write into net.blobs[...].data, or begin the net with a MemoryData layer",
            )
        for name, array in (("data array", data), ("labels array", labels)):
            if not isinstance(array, np.ndarray):
                raise WrongKind(
                    f"the {name} is a NumPy array, not {shown(array)}", remedy="np.asarray(..., np.float32)"
                )
        if labels.ndim == 1:
            labels = np.ascontiguousarray(labels[:, np.newaxis, np.newaxis, np.newaxis])
        for name, array in (("data array", data), ("labels array", labels)):
            if not array.flags.c_contiguous:
                raise CaffeError(f"{name} must be C contiguous", remedy="np.ascontiguousarray(...)")
            if array.ndim != 4:
                raise CaffeError(
                    f"{name} must be 4-d, its shape is {array.shape}",
                    remedy="reshape it to (n, channels, height, width)",
                )
            if array.dtype != np.float32:
                raise CaffeError(f"{name} must be float32, not {array.dtype}", remedy=".astype(np.float32)")
        if labels.shape[1:] != (1, 1, 1):
            raise CaffeError(
                f"labels must be of shape (n, 1, 1, 1), they are {labels.shape}", remedy="labels.reshape(-1, 1, 1, 1)"
            )
        try:
            layer.set_input_arrays(data, labels)
        except ShapeError as error:
            raise CaffeError(error.reason, layer=error.layer, remedy=error.remedy) from error

    # Callbacks: functions of the layer's number.

    def before_forward(self, run: Callable[[int], object]) -> None:
        """Call this before each layer's forward pass."""
        self.net.before_forward.append(_step(run))

    def after_forward(self, run: Callable[[int], object]) -> None:
        """Call this after each layer's forward pass."""
        self.net.after_forward.append(_step(run))

    def before_backward(self, run: Callable[[int], object]) -> None:
        """Call this before each layer's backward pass."""
        self.net.before_backward.append(_step(run))

    def after_backward(self, run: Callable[[int], object]) -> None:
        """Call this after each layer's backward pass; a link between GPUs is taken and does nothing."""
        if not isinstance(run, NCCL):
            self.net.after_backward.append(_step(run))

    # --- weights ----------------------------------------------------------------------------------------

    def reshape(self) -> None:
        """Bring all blobs to the shapes that follow from those of the inputs."""
        self.net.reshape()

    def clear_param_diffs(self) -> None:
        """Set the gradients of all parameters to 0."""
        self.net.clear_param_diffs()

    def copy_from(self, weights: PathLike | Message) -> WeightsReport:
        """Take over parameters by layer name from a caffemodel, binary or HDF5."""
        return self.net.copy_from(weights)

    def share_with(self, other: Net | core.Net) -> None:
        """Look at the parameter values of the layers of the same names in another net."""
        other = other.net if isinstance(other, Net) else other
        if not isinstance(other, core.Net):
            raise WrongKind(f"share_with takes a Net, not {shown(other)}", remedy="give a caffe.Net")
        self.net.share_with(other)

    def save(self, path: PathLike) -> None:
        """Write a binary caffemodel."""
        path = path_of(path)
        write_binary(self.net.to_message(), path)

    def save_hdf5(self, path: PathLike, write_diff: bool = False) -> None:
        """Write the parameters in HDF5."""
        save_hdf5(self.net, path, write_diff)

    def load_hdf5(self, path: PathLike) -> None:
        """Take over parameters from HDF5."""
        self.net.copy_from(path)

    def __repr__(self) -> str:
        return repr(self.net).replace("<Net", "<caffe.Net", 1)


def __getattr__(name: str) -> Any:
    """The solver classes are found in this module too, as in the original."""
    if name.endswith("Solver"):
        return getattr(importlib.import_module("undertow.caffe.pysolver"), name)
    raise AttributeError(f"module {__name__} has no attribute {name}")


def check_file(path: PathLike) -> None:
    """Raises CannotOpen, a RuntimeError, where a file is not there."""
    path = path_of(path)
    if not Path(path).is_file():
        raise CannotOpen(f"Could not open file {path}", remedy="check the path")


def _arguments(
    given: Sequence[Any],
    phase: int | str | None,
    level: int,
    stages: Sequence[str] | None,
    weights: PathLike | None,
) -> tuple[int | str, int, Sequence[str] | None, PathLike | None]:
    """The two orders of arguments: (phase, level, stages, weights), and as of old (weights, phase)."""
    if given and isinstance(given[0], str | os.PathLike) and given[0] not in ("TRAIN", "TEST"):
        if len(given) > 2:
            raise WrongKind(
                f"Net(network_file, weights, phase) takes 3 arguments, {len(given) + 1} were given",
                remedy="write Net(network_file, phase, weights=...)",
            )
        log(f"DEPRECATION WARNING: use Net(file, phase, weights='{given[0]}')", "_caffe.cpp:142", 30)
        weights, given = given[0], given[1:]
    if len(given) > 4:
        raise WrongKind(
            f"Net takes at most 5 arguments, {len(given) + 1} were given",
            remedy="write Net(network_file, phase, level, stages, weights)",
        )
    values: list[Any] = [phase, level, stages, weights]
    values[: len(given)] = given
    if values[2] is not None and not isinstance(values[2], str):
        values[2] = texts_of(values[2], "stages")
    if values[0] is None:
        raise WrongKind("Net needs a phase", remedy="give caffe.TRAIN or caffe.TEST")
    if isinstance(values[2], str):
        raise WrongKind("stages is a list of names", remedy=f"write stages=['{values[2]}']")
    if isinstance(values[1], str | os.PathLike):
        raise WrongKind("Net(file, phase, level, ...): the level is a number", remedy=f"write weights={values[1]!r}")
    return values[0], values[1], values[2], values[3]


def _step(run: Callable[[int], object]) -> Callable[[int], None]:
    function_of(run, "a callback")

    def step(layer: int) -> None:
        run(layer)

    return step


def _rows_of(arrays: Mapping[str, Any]) -> dict[str, Array]:
    """The arrays. Raises CaffeError where one has no rows."""
    found = {name: array_of(array, name) for name, array in arrays.items()}
    if not all(array.ndim and len(array) for array in found.values()):
        raise CaffeError("forward_all got no rows", remedy="give arrays with at least one row")
    return found


def _filled_up(array: Array, size: int) -> Array:
    missing = size - len(array)
    if not missing:
        return array
    return np.concatenate([array, np.zeros((missing, *array.shape[1:]), array.dtype)])
