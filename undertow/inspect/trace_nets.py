"""Traces of Darknet networks and Caffe nets."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from undertow.caffe.net import Net
from undertow.caffe.proto.api import read_prototxt
from undertow.darknet.dialect import dialect_named
from undertow.darknet.network import Network
from undertow.inspect.batches import Batch, darknet_batch
from undertow.inspect.caffe_inputs import PictureValues, fill_inputs, values_of
from undertow.inspect.caffe_run import DATA_LAYERS, SOURCES, CaffeRun, open_net, run_caffe
from undertow.inspect.darknet_run import PATHS, DarknetRun, open_network, run_darknet, walk_darknet
from undertow.inspect.record import Array
from undertow.inspect.sending import Sending
from undertow.inspect.trace import LayerTrace, Trace

PathLike = str | os.PathLike[str]
LookAtBlob = Callable[[int, str, list[Array]], None]
CAFFE_RATE = 0.01
# Layers whose output is another layer's, in another form.
HANDED_ON = ("route", "reorg", "upsample", "dropout", "Split", "Flatten", "Reshape", "Concat", "Dropout", "Silence")


def trace_darknet(
    cfg: PathLike,
    weights: PathLike | None = None,
    *,
    data: PathLike | None = None,
    truth: PathLike | None = None,
    batch: int | None = None,
    size: int | None = None,
    dialect: str | None = None,
    phase: str | None = None,
    rate: float | None = None,
    seed: int = 0,
) -> Trace:
    """One batch through the network of a cfg; see `darknet_batch` for data and truth, `run_darknet` for the phase.

    batch: samples of a random batch (2). rate: behind the update ratios, the cfg's learning_rate unless given.
    """
    net = open_network(cfg, weights, dialect=dialect_named(dialect) if dialect else None, size=size, seed=seed)
    count = batch or 2 * net.options.time_steps
    given = darknet_batch(net, data, truth, count=count, seed=seed)
    return trace_network(net, given, rate=rate, seed=seed, phase=phase)


def trace_network(
    net: Network,
    batch: Batch,
    *,
    rate: float | None = None,
    seed: int = 0,
    phase: str | None = None,
    look: Callable[[DarknetRun, Sending], None] | None = None,
) -> Trace:
    """The same for a network that is there; parameters stay as they are.

    look: called with the run while it still holds all outputs and gradients, and with what layers sent to each other.
    """
    step = net.options.learning_rate if rate is None else rate
    about = batch.about.removesuffix(", random truth") if phase == "TEST" else batch.about
    found = Trace(net.config.file, _how(net.dialect.name, phase), about, step)
    found.see_input({"images": batch.images})
    run = run_darknet(net, batch, seed, phase or "TRAIN")
    found.notes += run.notes
    sending = Sending(run)
    with sending:
        walk_darknet(run)
    found.loss = float(run.loss.data)
    # Losses are sums over the batch; an update divides by the number of samples.
    per_sample = step / len(batch.images)
    for layer in net.layers:
        seen = LayerTrace(layer.index, str(layer.index), layer.type, activation=layer.activation)
        seen.computes, seen.fed = layer.type not in HANDED_ON, found.input_rms > 0
        seen.see_output(layer.output)
        seen.see_gradient(layer.output_variable.grad)
        for name, parameter in layer.parameters.items():
            seen.see_parameter(name, parameter.data, parameter.grad, per_sample)
        if layer.type in PATHS:
            seen.sent = {source: sending.sent[layer.index][source] for source in layer.shape.sources}
        found.layers.append(seen)
    if look is not None:
        look(run, sending)
    net.release()
    return found


def trace_caffe(
    prototxt: PathLike,
    weights: PathLike | None = None,
    *,
    data: PathLike | None = None,
    truth: PathLike | None = None,
    values: PictureValues | None = None,
    shape: Sequence[int] | None = None,
    batch: int | None = None,
    dialect: str | None = None,
    phase: str | None = None,
    rate: float | None = None,
    seed: int = 0,
    look: LookAtBlob | None = None,
    done: Callable[[CaffeRun], None] | None = None,
) -> Trace:
    """One batch through a Caffe net; see `fill_inputs` for data, truth and values, `open_net` for the others.

    values: of a picture; those of the data layer whose place `shape` takes, unless given.

    look: called with a layer's number, "output" or "gradient", and the arrays of its tops: when it has computed, and
    when all gradients have arrived there. Layers that work in place write over both later. done: called at the end.
    """
    net, has_loss = open_net(
        prototxt, weights, dialect=dialect or "exact", phase=phase, shape=shape, batch=batch, usual=2, seed=seed
    )
    if values is None and shape is not None:
        values = values_of(read_prototxt(prototxt), DATA_LAYERS)
    about = fill_inputs(net, data, seed, truth=truth, values=values)
    step = CAFFE_RATE if rate is None else rate
    found = Trace(os.fspath(prototxt), _how(net.dialect.name, phase), about, step)
    found.layers = [LayerTrace(i, layer.name, layer.type, activation=layer.type) for i, layer in enumerate(net.layers)]

    def forward(index: int) -> None:
        found.layers[index].see_output(net.tops(index)[0].data)
        if look is not None:
            look(index, "output", [blob.data for blob in net.tops(index)])

    def backward(index: int) -> None:
        if net.layers[index].need_backward and net.tops(index) and net.layers[index].type not in SOURCES:
            found.layers[index].see_gradient(net.tops(index)[0].diff)
            if look is not None:
                look(index, "gradient", [blob.diff for blob in net.tops(index)])

    run = run_caffe(
        net, about, has_loss, after_forward=lambda i: forward(i) if net.tops(i) else None, before_backward=backward,
        seed=seed,
    )  # fmt: skip
    found.notes += run.notes
    found.loss = run.loss
    found.see_input({name: net.blobs[name].data for name in _data_blobs(net)})
    for record, seen in zip(run.layers, found.layers, strict=True):
        seen.computes = seen.type not in HANDED_ON and seen.type not in SOURCES
        seen.fed = found.input_rms > 0
        layer = net.layers[record.index]
        for number, (name, blob) in enumerate(zip(record.parameters, layer.blobs, strict=True)):
            wanted = layer.need_backward and layer.param_propagate_down[number]
            seen.see_parameter(name, blob.data, blob.diff if wanted else None, step)
    if done is not None:
        done(run)
    return found


def _how(dialect: str, phase: str | None) -> str:
    return f"{dialect}, {phase}" if phase else dialect


def _data_blobs(net: Net) -> list[str]:
    """Names of the blobs that data layers make."""
    pairs = zip(net.layers, net.top_ids, strict=True)
    return [net.blob_names[i] for layer, ids in pairs if layer.type in SOURCES for i in ids]
