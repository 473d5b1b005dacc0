"""The lines that Caffe prints for `debug_info: true`: mean absolute values, layer by layer."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from undertow.caffe.net import Net


def mean_absolute(values: np.ndarray[Any, Any]) -> float:
    """The mean of the absolute values; not a number for an empty array, as in the original."""
    return float(np.abs(values).sum(dtype=np.float64)) / values.size if values.size else math.nan


def forward_lines(net: Net, layer: int) -> Iterator[str]:
    """The tops and parameters of a layer after its forward pass."""
    head = f"    [Forward] Layer {net.layers[layer].name}"
    for blob_id in net.top_ids[layer]:
        yield f"{head}, top blob {net.blob_names[blob_id]} data: {mean_absolute(net.blob_list[blob_id].data):g}"
    for param_id in net.param_ids[layer]:
        yield f"{head}, param blob {net.param_names[param_id]} data: {mean_absolute(net.param_blobs[param_id].data):g}"


def backward_lines(net: Net, layer: int) -> Iterator[str]:
    """The gradients that a layer has computed."""
    head = f"    [Backward] Layer {net.layers[layer].name}"
    for blob_id, need in zip(net.bottom_ids[layer], net.layers[layer].bottom_need_backward, strict=True):
        if need:
            yield f"{head}, bottom blob {net.blob_names[blob_id]} diff: {mean_absolute(net.blob_list[blob_id].diff):g}"
    pairs = zip(net.layers[layer].blobs, net.layers[layer].param_propagate_down, strict=True)
    for index, (blob, need) in enumerate(pairs):
        if need:
            yield f"{head}, param blob {index} diff: {mean_absolute(blob.diff):g}"


def total_line(net: Net) -> str:
    """Both norms of all parameters and of all their gradients."""
    sums = []
    for name in ("data", "diff"):
        arrays = [getattr(blob, name).astype(np.float64) for blob in net.learnable_params]
        sums.append((sum(np.abs(a).sum() for a in arrays), math.sqrt(sum(np.square(a).sum() for a in arrays))))
    (l1_data, l2_data), (l1_diff, l2_diff) = sums
    return (
        "    [Backward] All net params (data, diff): "
        f"L1 norm = ({l1_data:g}, {l1_diff:g}); L2 norm = ({l2_data:g}, {l2_diff:g})"
    )


def update_line(net: Net, param: int) -> str:
    """One parameter before an update."""
    blob, owner = net.param_blobs[param], net.param_owners[param]
    layer, name = net.layers[net.param_layers[param][0]].name, net.param_names[param]
    diff = mean_absolute(blob.diff)
    if owner < 0:
        return f"    [Update] Layer {layer}, param {name} data: {mean_absolute(blob.data):g}; diff: {diff:g}"
    owner_layer = net.layers[net.param_layers[owner][0]].name
    return (
        f"    [Update] Layer {layer}, param blob {name} (owned by layer {owner_layer}, param {net.param_names[owner]}) "
        f"diff: {diff:g}"
    )
