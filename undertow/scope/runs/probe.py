"""Looking into a Darknet network between two iterations, so that it goes on as if nobody had looked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from undertow.darknet.network import Network
from undertow.darknet.planning import RECURRENT
from undertow.inspect.batches import Batch
from undertow.inspect.trace import Trace
from undertow.inspect.trace_nets import trace_network

# Pictures of a look: fewer than a pass may hold, to keep its time and memory small.
SAMPLES = 4


def can_probe(net: Network) -> bool:
    """Whether a pass more leaves no trace: recurrent layers carry their state on, and a given source of draws moves."""
    return net.draws.source is None and not any(layer.type in RECURRENT for layer in net.layers)


def probe(net: Network, *, samples: int = SAMPLES) -> Trace | None:
    """The trace of a pass forward and backward, unplanned, on the first pictures of the last pass; None without one.

    Parameters, accumulators, rolling statistics, counters and draws are as before: a training goes on bit for bit.
    """
    if net.input is None or net.truth is None:
        return None
    with _untouched(net), np.errstate(over="ignore", invalid="ignore"):
        return trace_network(net, Batch(net.input[:samples], net.truth[:samples], "the last pictures"))


@contextmanager
def _untouched(net: Network) -> Iterator[None]:
    # Layers that share another's arrays are seen twice, which does no harm.
    buffers = [(array, array.copy()) for layer in net.layers for array in layer.buffers.values()]
    kept = {name: getattr(net, name) for name in ("keep_deltas", "cost", "input", "truth")}
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
