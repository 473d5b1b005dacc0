"""The lines that Caffe prints while it builds a net: layers, what they read and make, shapes, memory, gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from undertow.caffe.blob import shape_text

if TYPE_CHECKING:
    from undertow.caffe.net import Net


def building_lines(net: Net) -> Iterator[str]:
    """All of them for a net that stands, in the original's order."""
    if not any(layer.blobs for layer in net.message.layer):  # values of parameters would fill pages
        yield f"Initializing net from parameters: \n{net.message.to_text()}"
    memory = 0
    for index, layer in enumerate(net.layers):
        yield f"Creating Layer {layer.name}"
        yield from _connections(net, index)
        yield f"Setting up {layer.name}"
        weights = [*layer.loss_weights, *[0.0] * len(net.top_ids[index])]
        for top, weight in zip(net.tops(index), weights, strict=False):
            yield f"Top shape: {shape_text(top.shape)}"
            if weight:
                yield f"    with loss weight {weight:g}"
            memory += top.count * top.dtype.itemsize
        yield f"Memory required for data: {memory}"
    for layer in reversed(net.layers):
        yield f"{layer.name} {'needs' if layer.need_backward else 'does not need'} backward computation."
    for name in net.outputs:
        yield f"This network produces output {name}"
    yield "Network initialization done."


def _connections(net: Net, index: int) -> Iterator[str]:
    name, bottoms = net.layers[index].name, net.bottom_ids[index]
    for bottom in bottoms:
        yield f"{name} <- {net.blob_names[bottom]}"
    for position, top in enumerate(net.top_ids[index]):
        in_place = position < len(bottoms) and bottoms[position] == top
        yield f"{name} -> {net.blob_names[top]}{' (in-place)' if in_place else ''}"
