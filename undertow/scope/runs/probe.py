"""Looking into a Darknet network between two iterations, so that it goes on as if nobody had looked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from undertow.core.function import Function
from undertow.core.hooks import Arrays, FunctionHook, MaybeArrays
from undertow.core.modes import train_mode
from undertow.core.variable import Variable
from undertow.darknet.files.memory import RECURRENT
from undertow.darknet.layers.layer import Layer
from undertow.darknet.layers.layers_loss import LossLayer
from undertow.darknet.network import Network
from undertow.inspect.statistics import statistics_of
from undertow.inspect.trace import LayerTrace, Trace
from undertow.inspect.trace_nets import HANDED_ON

# Pictures of a look: fewer than a pass may hold, to keep its time and memory small.
SAMPLES = 2


def can_probe(net: Network) -> bool:
    """Whether a pass more leaves no trace: recurrent layers carry their state on, and a given source of draws moves."""
    return net.draws.source is None and not any(layer.type in RECURRENT for layer in net.layers)


def probe(net: Network, *, samples: int = SAMPLES) -> Trace | None:
    """The trace of a pass forward and backward, unplanned, on the first pictures of the last pass; None without one.

    Parameters, accumulators, rolling statistics, counters and draws are as before: a training goes on bit for bit.
    Gradients are looked at as they pass, none is kept, so that it takes no more memory than the pass itself.
    """
    if net.input is None or net.truth is None:
        return None
    images, truth = net.input[:samples], net.truth[:samples]
    with _untouched(net), np.errstate(over="ignore", invalid="ignore"):
        with train_mode():
            net.forward(images, truth)
        found = Trace(net.config.file, net.dialect.name, "the last pictures", 0.0)
        found.see_input({"images": images})
        found.layers = [_outputs_of(layer) for layer in net.layers]
        for parameter in net.parameters():
            parameter.clear_grad()
        if net.loss is not None and net.loss.requires_grad:
            with _Gradients(net, found.layers):
                net.loss.backward()
        for layer, seen in zip(net.layers, found.layers, strict=True):
            for name, parameter in layer.parameters.items():
                seen.see_parameter(name, parameter.data, parameter.grad, 0.0)
    return found


def _outputs_of(layer: Layer) -> LayerTrace:
    seen = LayerTrace(layer.index, str(layer.index), layer.type, activation=layer.activation)
    seen.computes = layer.type not in HANDED_ON
    seen.shape, seen.output = layer.output.shape, statistics_of(layer.output, layer.activation)
    return seen


class _Gradients(FunctionHook):
    """Takes the statistics of the gradient of every layer's output when it arrives there."""

    def __init__(self, net: Network, layers: list[LayerTrace]) -> None:
        # Those of layers behind a stopbackward have no creator, and collect what is sent to them.
        self._ends: list[tuple[Variable, LayerTrace]] = []
        self._places: dict[int, list[LayerTrace]] = {}
        for layer, seen in zip(net.layers, layers, strict=True):
            creator = layer.output_variable.creator
            if isinstance(layer, LossLayer):
                continue  # the walk begins there: its output is no way back
            if creator is None:
                self._ends.append((layer.output_variable, seen))
            else:
                self._places.setdefault(id(creator), []).append(seen)

    def after_backward(self, function: Function, output_grads: Arrays, input_grads: MaybeArrays) -> None:
        for seen in self._places.get(id(function), ()):
            seen.gradient = statistics_of(output_grads[0])

    def after_walk(self) -> None:
        for output, seen in self._ends:
            if output.grad is not None:
                seen.gradient = statistics_of(output.grad)


@contextmanager
def _untouched(net: Network) -> Iterator[None]:
    # Layers that share another's arrays are seen twice, which does no harm.
    buffers = [(array, array.copy()) for layer in net.layers for array in layer.buffers.values()]
    kept = {name: getattr(net, name) for name in ("keep_deltas", "cost", "input", "truth")}
    net.keep_deltas = False
    try:
        yield
    finally:
        for array, values in buffers:
            array[...] = values
        for name, value in kept.items():
            setattr(net, name, value)
        net.release()
        for parameter in net.parameters():
            parameter.clear_grad()
