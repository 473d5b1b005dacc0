"""One recorded pass of a Caffe net, forward and backward."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from undertow.caffe.blob import Blob
from undertow.caffe.layers_multibox import MultiBoxLoss
from undertow.caffe.layers_python import import_layer
from undertow.caffe.layers_shape import Sharing
from undertow.caffe.net import Net
from undertow.caffe.proto.api import read_prototxt
from undertow.caffe.proto.message import Message, new_message
from undertow.errors import ShapeError, UndertowError
from undertow.inspect import multibox_story
from undertow.inspect.caffe_inputs import OBJECT, OBJECTS_EACH
from undertow.inspect.caffe_skipped import DATA_LAYERS, SOURCES, Skipped
from undertow.inspect.record import RANDOM_START, LayerRecord, Recorder, Shape

PathLike = str | os.PathLike[str]
Watch = Callable[[int], None]


@dataclass
class CaffeRun:
    """net: with a backward pass for every layer that can have one. layers: filled by `run_caffe`. about: the batch."""

    net: Net
    layers: list[LayerRecord]
    loss: float
    about: str
    notes: list[str]


def open_net(
    path: PathLike,
    weights: PathLike | None = None,
    *,
    dialect: str = "exact",
    phase: str | None = None,
    shape: Sequence[int] | None = None,
    batch: int | None = None,
    usual: int | None = None,
    seed: int = 0,
) -> tuple[Net, bool]:
    """The net of a prototxt, and whether it has a loss; without one every gradient is computed (force_backward).

    phase: TRAIN where the file has a loss then, else TEST. shape: of one sample (channels, height, width): data layers
    are replaced by inputs of this shape; without any, the inputs get it. batch: samples of inputs; the file's unless
    given. usual: the batch where none is given, unless the net cannot take it.
    """
    message = read_prototxt(path)
    if shape is not None:
        of_data = any(layer.type in DATA_LAYERS for layer in message.layer)
        replaced = _with_inputs if of_data else _with_shape
        message = replaced(message, tuple(shape), batch or usual or 1)
    elif batch or usual:
        message = _with_batch(message, batch or usual or 1)
    try:
        net = Net(message, phase or "TRAIN", dialect=dialect, seed=seed, python=import_layer)
        has_loss = any(any(layer.loss_weights) for layer in net.layers)
        if not has_loss:
            message.force_backward = True
            net = Net(message, phase or "TEST", dialect=dialect, seed=seed, python=import_layer)
            _leave_out_what_has_none(net)
    except UndertowError as problem:
        if usual and batch is None and shape is None:
            return open_net(path, weights, dialect=dialect, phase=phase, seed=seed)
        remedy = problem.remedy
        if shape is not None and isinstance(problem, ShapeError):
            remedy = f"give --shape another sample than {'x'.join(map(str, shape))}{_own_sample(path)}"
        elif shape is None and any(layer.type in DATA_LAYERS for layer in message.layer):
            remedy = "make its data available, or give --shape CxHxW to put random samples in their place"
        elif problem.file is not None:
            raise
        raise type(problem)(
            problem.reason, file=problem.file or path, line=problem.line, layer=problem.layer, remedy=remedy
        ) from problem
    net.file = os.fspath(path)
    if weights is not None:
        net.copy_from(weights)
    return net, has_loss


def _own_sample(path: PathLike) -> str:
    """The sample that the file's inputs take, or how one is written where it has none."""
    layers = [layer for layer in read_prototxt(path).layer if layer.type == "Input"]
    dims = [list(shape.dim)[1:] for layer in layers for shape in layer.input_param.shape]
    if dims and dims[0]:
        return f": the file's own is --shape {'x'.join(map(str, dims[0]))}"
    return ": channels, height and width, as in --shape 3x227x227"


def _leave_out_what_has_none(net: Net) -> None:
    """Undo force_backward for the data, whose gradient training does not compute, and for layers without a gradient."""
    for layer in net.layers:
        try:
            layer.check_backward()
        except UndertowError:
            layer.need_backward = False
            layer.bottom_need_backward = [False] * len(layer.bottom_need_backward)
    data: set[int] = set()
    for layer, bottoms, tops in zip(net.layers, net.bottom_ids, net.top_ids, strict=True):
        layer.bottom_need_backward = [
            need and blob not in data for need, blob in zip(layer.bottom_need_backward, bottoms, strict=True)
        ]
        # A layer in place makes of a blob of data its own.
        data = data | set(tops) if layer.type in SOURCES else data - set(tops)


def _with_inputs(message: Message, shape: Shape, batch: int) -> Message:
    result = message.copy()
    layers = []
    for layer in result.layer:
        if layer.type in DATA_LAYERS:
            objects = layer.type == "AnnotatedData"
            other = new_message("LayerParameter")
            other.name, other.type = layer.name, "Input"
            other.top = list(layer.top)
            other.include, other.exclude = list(layer.include), list(layer.exclude)
            label = (1, 1, OBJECTS_EACH * batch, OBJECT) if objects else (batch,)
            dims = [(batch, *shape), *[label] * (len(layer.top) - 1)]
            for lengths in dims:
                one = new_message("BlobShape")
                one.dim = list(lengths)
                other.mutable("input_param").shape.append(one)
            layer = other
        layers.append(layer)
    result.layer = layers
    return result


def _with_shape(message: Message, sample: Shape, batch: int) -> Message:
    """Inputs with as many axes as a sample and one more get its shape. Raises ShapeError where there are none."""
    result = _with_batch(message, batch)
    inputs = [shape for layer in result.layer if layer.type == "Input" for shape in layer.input_param.shape]
    fitting = [shape for shape in inputs if len(shape.dim) == len(sample) + 1]
    if not fitting:
        found = ", ".join("x".join(map(str, list(shape.dim)[1:])) or "single numbers" for shape in inputs) or "none"
        raise ShapeError(
            f"no input takes samples of {'x'.join(map(str, sample))}: there is no data layer, and the inputs' samples "
            f"are {found}",
            remedy="give --shape as many axes as a sample has, as in --shape 3x227x227",
        )
    for shape in fitting:
        shape.dim = [batch, *sample]
    return result


def _with_batch(message: Message, batch: int) -> Message:
    result = message.copy()
    for layer in result.layer:
        if layer.type == "Input":
            for shape in layer.input_param.shape:
                if shape.dim:
                    shape.dim = [batch, *list(shape.dim)[1:]]
    return result


def parameter_names(count: int) -> list[str]:
    """What the blobs of a layer that has so many are called."""
    return ["weights", "bias"][:count] if count <= 2 else [f"blob {i}" for i in range(count)]


def run_caffe(
    net: Net, about: str, has_loss: bool, *, after_forward: Watch | None = None, before_backward: Watch | None = None,
    seed: int = 0,
) -> CaffeRun:  # fmt: skip
    """One pass forward and backward, every operation recorded.

    after_forward, before_backward: called with a layer's number when its tops hold values and when they hold gradients.
    """
    recorder = Recorder()
    steps: list[tuple[list[Watch], Watch]] = [
        (net.before_forward, lambda i: recorder.enter()),
        (net.after_forward, lambda i: recorder.leave()),
    ]
    if after_forward is not None:
        steps.append((net.after_forward, after_forward))
    if before_backward is not None:
        steps.append((net.before_backward, before_backward))
    for place, step in steps:
        place.append(step)
    notes: list[str] = []
    try:
        net.clear_param_diffs()
        with recorder, _named(net):
            loss = net.forward()
        recorder.leave()
        if not has_loss:
            notes.append(f"the net has no loss: {RANDOM_START} at its outputs")
            rng = np.random.default_rng(seed)
            for blob in _ends(net):
                blob.diff[...] = rng.standard_normal(blob.shape)
        with _named(net):
            net.backward()
    finally:
        for place, step in steps:
            place.remove(step)
    records = []
    skipped = Skipped(net)
    for index, calls in enumerate(recorder.calls):
        layer = net.layers[index]
        record = LayerRecord(index, layer.name, layer.type, calls=calls)
        record.inputs = [blob.shape for blob in net.bottoms(index)]
        record.outputs = [blob.shape for blob in net.tops(index)]
        names = parameter_names(len(layer.blobs))
        record.parameters = {name: blob.shape for name, blob in zip(names, layer.blobs, strict=True)}
        record.reached = layer.need_backward
        record.notes = skipped(index)
        record.details = _details(net, layer.message)
        if isinstance(layer, Sharing) and not calls:
            record.shared = True
        if isinstance(layer, MultiBoxLoss) and layer.need_backward:
            told = multibox_story.told(net, index)
            record.formula, record.story = told.formula, told.story
        records.append(record)
    return CaffeRun(net, records, loss, about, notes)


@contextlib.contextmanager
def _named(net: Net) -> Iterator[None]:
    """Errors of layers name the prototxt too."""
    try:
        yield
    except UndertowError as problem:
        if problem.file is not None or net.file is None:
            raise
        raise type(problem)(
            problem.reason, file=net.file, line=problem.line, layer=problem.layer, remedy=problem.remedy
        ) from problem


def _ends(net: Net) -> list[Blob]:
    """Where the way back begins: the outputs, and what layers without a gradient read."""
    found = [net.blobs[name] for name in net.outputs]
    for index, layer in enumerate(net.layers):
        if not layer.need_backward and layer.type not in SOURCES:
            found += net.bottoms(index)
    return found


def _details(net: Net, message: Message) -> dict[str, str]:
    """The layer's place in the file and the settings that stand there."""
    line = message.line_of()
    found = {"prototxt": f"{net.file}:{line}"} if line else {}
    for name in message.field_names():
        options = getattr(message, name)
        if name.endswith("_param") and isinstance(options, Message):
            told = [f"{option} {_told(getattr(options, option))}" for option in options.field_names()]
            found[name] = ", ".join(told)
    return found


def _told(value: object) -> str:
    if isinstance(value, Message):
        return str(getattr(value, "type", "")) or "{...}"
    if isinstance(value, (list, tuple, np.ndarray)):
        return " ".join(_told(part) for part in value)
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
