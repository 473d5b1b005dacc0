"""How the layers of a net enter its plan: as their operations, or whole, run on their own blobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.caffe.blob import Blob
from undertow.caffe.layer import Layer
from undertow.caffe.layers_shape import Sharing
from undertow.core.function import Function

if TYPE_CHECKING:
    from undertow.caffe.net import Net

Array = np.ndarray[Any, Any]

# Their `compute` is nothing but operations, the same whatever the values, and keeps nothing on the layer.
_OPERATIONS = frozenset({
    "Convolution", "Deconvolution", "InnerProduct", "Pooling", "LRN", "ReLU", "Sigmoid", "TanH", "ELU", "BNLL",
    "AbsVal", "Swish", "Clip", "PReLU", "Softmax", "Concat", "Slice", "Scale", "Bias", "Tile", "Permute", "ReLU6",
    "Axpy", "ShuffleChannel", "ConvolutionDepthwise", "Split", "Flatten", "Reshape", "Eltwise", "BatchNorm",
})  # fmt: skip

# What they make has a shape that depends on the values.
_UNFORESEEABLE = frozenset({"DetectionOutput", "DetectionEvaluate", "Filter"})

# Before a layer in place, whose result the original's backward of this layer would read: it does not.
_READ_NO_RESULT = frozenset({
    "Convolution", "ConvolutionDepthwise", "Deconvolution", "InnerProduct", "Concat", "BatchNorm", "Scale", "Bias",
    "Slice", "Pooling", "Tile", "Permute", "ShuffleChannel", "PReLU",
})  # fmt: skip

# In place they keep 0 at 0 and hand nothing back there, which is all that the backward of a ReLU before them reads.
_KEEP_ZEROS = frozenset({"ReLU", "Dropout"})

# They may work in place and are right either way, or keep what they write over.
_RIGHT_IN_PLACE = frozenset({"ReLU", "BatchNorm", "Scale"})


class LayerCall(Function):
    """A layer run whole on its blobs: what arrives is written into the bottoms, what it makes is taken from the tops.

    Operands: the bottoms, then the parameters, whose gradients the layer itself adds to their diffs.
    """

    def __init__(self, layer: Layer, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self.layer, self.bottom, self.top = layer, list(bottom), list(top)

    @property
    def label(self) -> str:
        return f"layer '{self.layer.name}'"

    def forward(self, *xs: Array) -> tuple[Array, ...]:
        for blob, x in zip(self.bottom, xs, strict=False):
            _write(blob.data, x)
        self.layer.forward(self.bottom, self.top)
        return tuple(blob.data for blob in self.top)

    def backward(self, *gys: Array) -> tuple[Array | None, ...]:
        for blob, gy in zip(self.top, gys, strict=True):
            _write(blob.diff, gy)
        self.layer.backward(self.top, self.bottom)
        wanted = self.needs_input_grad[: len(self.bottom)]
        bottoms = [blob.diff if want else None for blob, want in zip(self.bottom, wanted, strict=True)]
        return (*bottoms, *[None] * len(self.layer.blobs))


def _write(to: Array, values: Array) -> None:
    if not np.may_share_memory(to, values):
        np.copyto(to, values)


def reason_against(net: Net) -> str | None:
    """Why a net runs layer by layer whatever happens; None for one that can be planned."""
    if net.dtype != np.float32:
        return f"its numbers are {net.dtype}"
    for i, layer in enumerate(net.layers):
        if layer.dialect.share_memory and isinstance(layer, Sharing) and (layer.overwritten or _in_place_below(net, i)):
            return f"a layer works in place on a blob whose memory layer '{layer.name}' ({layer.type}) shares"
    reader = _reads_anothers_diff(net)
    if reader is not None:
        return f"layer '{reader.name}' ({reader.type}) gets a gradient that propagate_down forbids, in a shared diff"
    return None


def first_apart(net: Net) -> tuple[int, str | None]:
    """The first layer of a kind that no plan can have, and why: it runs by itself, and so do all after it.

    The number of layers and None where all can be in a plan.
    """
    for i, layer in enumerate(net.layers):
        if layer.type in _UNFORESEEABLE:
            return i, f"the shapes that layer '{layer.name}' ({layer.type}) makes depend on the values"
        if not type(layer).__module__.startswith(f"{__package__}."):
            return i, f"layer '{layer.name}' ({layer.type}) was registered by the user and may do anything"
        if layer.type == "Python" and net.bottom_ids[i]:
            return i, f"layer '{layer.name}' is Python code that may change shapes at every pass"
    return len(net.layers), None


def _reads_anothers_diff(net: Net) -> Layer | None:
    """A layer that finds in the diff of its top what a layer further on has left there, not the one that reads it.

    A layer in place, Flatten and Reshape have one diff with their bottom, even where they hand nothing down.
    """
    writers: dict[int, int] = {}
    takers: dict[int, int | None] = {}
    for i in reversed(range(len(net.layers))):
        layer = net.layers[i]
        if layer.need_backward:
            for j in net.top_ids[i]:
                if writers.get(id(net.blob_list[j].memory("diff"))) != takers.get(j):
                    return layer
        for j, need in zip(net.bottom_ids[i], layer._needs(len(net.bottom_ids[i])), strict=True):
            takers[j] = i if layer.need_backward and need else None
            if takers[j] is not None:
                writers[id(net.blob_list[j].memory("diff"))] = i
    return None


def _in_place_below(net: Net, index: int) -> bool:
    """Whether a layer after this one works in place on its bottom."""
    mine = set(net.bottom_ids[index])
    later = zip(net.bottom_ids[index + 1 :], net.top_ids[index + 1 :], strict=True)
    return any(mine & set(bottoms) & set(tops) for bottoms, tops in later)


def norm_pairs(net: Net) -> dict[int, int]:
    """Scale layers that follow a BatchNorm at once, both in place: the number of each and that of the BatchNorm.

    They are one operation, for nobody can see what stands between them.
    """
    found = {}
    last: dict[int, int] = {}
    for i, layer in enumerate(net.layers):
        mine = net.bottom_ids[i]
        if layer.type == "Scale" and mine == net.top_ids[i] and len(mine) == 1 and layer.message.scale_param.axis == 1:
            before = last.get(mine[0], i)
            in_place = net.bottom_ids[before] == net.top_ids[before] == mine
            norm = net.layers[before]
            alike = norm.bottom_need_backward == layer.bottom_need_backward
            if norm.type == "BatchNorm" and in_place and alike and len(layer.blobs[0].shape) == 1:
                found[i] = before
        last.update((j, i) for j in (*mine, *net.top_ids[i]))
    return found


def as_operations(net: Net) -> list[bool]:
    """For each layer whether its operations are recorded; otherwise it is one LayerCall."""
    found: list[bool] = []
    makers: dict[int, int] = {}
    alone = _reading_results(net)
    for i, layer in enumerate(net.layers):
        in_place = set(net.bottom_ids[i]) & set(net.top_ids[i])
        may_follow = layer.type in _RIGHT_IN_PLACE and rises(layer) and all(found[makers[b]] for b in in_place)
        found.append(i not in alone and _has_operations(layer) and (not in_place or may_follow))
        makers.update((top, i) for top in net.top_ids[i])
    return found


def _reading_results(net: Net) -> set[int]:
    """Layers whose gradient, in the original, is computed with what a later layer in place has made of their result."""
    found: set[int] = set()
    makers: dict[int, int] = {}
    for i, layer in enumerate(net.layers):
        for blob in set(net.bottom_ids[i]) & set(net.top_ids[i]):
            before = net.layers[makers[blob]]
            if layer.dialect.in_place_reads_result and not _reads_nothing(before, layer):
                found.add(makers[blob])
        makers.update((top, i) for top in net.top_ids[i])
    return found


def _reads_nothing(layer: Layer, after: Layer) -> bool:
    if layer.type == "ReLU":
        return rises(layer) and rises(after) and after.type in _KEEP_ZEROS
    sums = layer.type == "Eltwise" and layer.message.eltwise_param.operation == "SUM"
    return sums or layer.type in _READ_NO_RESULT


def rises(layer: Layer) -> bool:
    """Whether a layer is no ReLU that falls below 0."""
    return layer.type != "ReLU" or layer.message.relu_param.negative_slope >= 0


def _has_operations(layer: Layer) -> bool:
    """Whether `compute` says all that the layer does."""
    if layer.type not in _OPERATIONS or any(layer.loss_weights):
        return False
    if layer.type == "Pooling":
        return len(layer.message.top) == 1 and layer.message.pooling_param.pool != "STOCHASTIC"
    return layer.type != "Eltwise" or layer.message.eltwise_param.operation != "MAX"
