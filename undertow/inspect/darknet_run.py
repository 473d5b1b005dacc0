"""One recorded pass of a Darknet network, forward and backward."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np

from undertow.core.modes import test_mode, train_mode
from undertow.core.variable import Parameter, Variable
from undertow.darknet.dialect import Dialect
from undertow.darknet.files.cfg import read_cfg
from undertow.darknet.files.choice import check_trainable, choose_dialect
from undertow.darknet.network import Network
from undertow.errors import FormatError
from undertow.inspect.batches import Batch
from undertow.inspect.record import RANDOM_START, Call, LayerRecord, Recorder, functions_behind, marking

PATHS = ("shortcut", "route")


@dataclass
class DarknetRun:
    """layers: what happened in each. loss: what is differentiated. notes: about the run as a whole."""

    net: Network
    layers: list[LayerRecord]
    loss: Variable
    notes: list[str]


def open_network(
    cfg: str | os.PathLike[str],
    weights: str | os.PathLike[str] | None = None,
    *,
    dialect: Dialect | None = None,
    size: int | None = None,
    seed: int = 0,
) -> Network:
    """The network of a cfg; size: width and height of its input instead of the cfg's."""
    config = read_cfg(cfg)
    chosen = dialect or choose_dialect(config, weights)[0]
    if size is not None:
        config = config.with_values(0, {"width": size, "height": size})
    net = Network(config, chosen, seed=seed)
    if weights is not None:
        net.load_weights(weights)
    return net


def run_darknet(net: Network, batch: Batch, seed: int = 0, phase: str = "TRAIN") -> DarknetRun:
    """Forward, every operation recorded. A network without a loss gets one: a random weighting.

    phase: TRAIN; or TEST, as in detection, with rolling statistics and without truth and loss.
    """
    notes: list[str] = []
    truth = batch.truth if phase == "TRAIN" else None
    try:
        if truth is not None:
            check_trainable(net.config, net.dialect)
    except FormatError as problem:
        notes.append(f"no truth is used: {problem.reason}")
        truth = None
    net.keep_deltas = True
    recorder = Recorder()
    undo = marking(net.layers, "run", recorder)
    try:
        with train_mode() if phase == "TRAIN" else test_mode(), recorder:
            net.forward(batch.images, truth)
    finally:
        undo()
    loss = net.loss
    if loss is None:
        loss = _weighted(net.layers[net.shapes.output.index].output_variable, seed)
        notes.append(f"the network has no loss here: {RANDOM_START} at its output")
    behind = functions_behind([loss])
    records = [_record(net, index, calls, behind) for index, calls in enumerate(recorder.calls)]
    return DarknetRun(net, records, loss, notes)


def walk_darknet(run: DarknetRun) -> None:
    """The way back: afterwards every layer's output and every parameter has its gradient."""
    for layer in run.net.layers:
        layer.output_variable.retain_grad()
    for parameter in run.net.parameters():
        parameter.clear_grad()
    if run.loss.requires_grad:
        run.loss.backward()


def read_by(net: Network, index: int) -> list[int]:
    """The layers whose outputs a layer reads, -1 standing for the network's input."""
    layer = net.layers[index]
    sources = list(layer.shape.sources)
    return sources if layer.type == "route" else [index - 1, *sources]


def _weighted(output: Variable, seed: int) -> Variable:
    weights = np.random.default_rng(seed).standard_normal(output.shape).astype(output.dtype)
    return (output * weights).sum()


def _record(net: Network, index: int, calls: list[Call], behind: set[int]) -> LayerRecord:
    layer = net.layers[index]
    batch = len(layer.output)
    record = LayerRecord(index, str(index), layer.type, calls=calls)
    for source in read_by(net, index):
        record.inputs.append(net.layers[source].output.shape if source >= 0 else (batch, *_input_shape(net)))
    record.outputs = [layer.output.shape]
    record.parameters = {name: p.shape for name, p in layer.parameters.items()}
    record.reached = _reaches(calls, behind) or layer.loss is not None or layer.output_variable is net.loss
    if not calls:
        record.reached = bool(behind)
    record.notes = _skipped(net, index, record)
    record.details = _details(net, index)
    return record


def _input_shape(net: Network) -> tuple[int, ...]:
    return (net.c, net.h, net.w) if net.c else (net.inputs,)


def _reaches(calls: list[Call], behind: set[int]) -> bool:
    return any(id(call.function) in behind for call in calls)


def _skipped(net: Network, index: int, record: LayerRecord) -> list[str]:
    layer = net.layers[index]
    if index <= net.stop:
        return [f"all gradients: stopbackward in layer {net.stop}, nothing flows past it"]
    if not record.reached:
        return ["all gradients: no loss above"]
    notes = []
    if layer.type == "region" and not net.dialect.region_backward:
        reason = "the C program's CPU code sends none back from [region] (backward_region_layer does nothing)"
        notes.append(f"input gradient: dialect {net.dialect.name}: {reason}")
    elif _data_unwanted(record.calls):
        why = "first layer" if index == 0 else f"layer {index - 1} is behind a stopbackward or has nothing to learn"
        notes.append(f"input gradient: {why}")
    frozen = [name for name in layer.parameters if not layer.learns(name) or layer.rate_of(name) == 0]
    if frozen:
        notes.append(f"frozen: {', '.join(frozen)} (gradient computed, never applied)")
    for source in layer.shape.sources if layer.type in PATHS else ():
        if source != index - 1 and source in net.overwritten:
            share = "lost" if net.overwritten[source] is None else "lost in part"
            reason = f"layer {source + 1} ({_overwriter(net, source)}) overwrites it, dialect {net.dialect.name}"
            notes.append(f"gradient to layer {source} {share}: {reason}")
    return notes


def _overwriter(net: Network, source: int) -> str:
    after = net.layers[source + 1]
    return f"{after.size}x{after.size} convolution" if after.type == "convolutional" else after.type


def _data_unwanted(calls: list[Call]) -> bool:
    """Whether the first operation with parameters leaves out the gradient of its data."""
    for call in calls:
        if any(isinstance(x, Parameter) for x in call.operands):
            return not call.wanted[0] and any(call.wanted)
    return bool(calls) and not any(calls[0].wanted)


def _details(net: Network, index: int) -> dict[str, str]:
    section = net.config.layers[index]
    shown = {"cfg": f"{net.config.file}:{section.line}"}
    layer = net.layers[index]
    for name in ("size", "stride", "pad", "groups", "activation"):
        value = getattr(layer, name)
        if value not in (0, "linear") and not (name == "groups" and value == 1):
            shown[name] = str(value)
    if layer.batch_normalize:
        shown["batch_normalize"] = "1"
    return shown
