"""Split layers where a blob is read more than once, under the names that Caffe gives them."""

from __future__ import annotations

import os
from collections import Counter

from undertow.caffe.proto.message import Message, new_message
from undertow.errors import FormatError

PathLike = str | os.PathLike[str]
Place = tuple[int, int]


def split_layer_name(layer: str, blob: str, index: int) -> str:
    """The name of the Split behind top `index` of a layer."""
    return f"{blob}_{layer}_{index}_split"


def split_blob_name(layer: str, blob: str, index: int, number: int) -> str:
    """The name of a Split's top."""
    return f"{split_layer_name(layer, blob, index)}_{number}"


def insert_splits(net: Message, file: PathLike | None = None) -> Message:
    """A copy of a (filtered) NetParameter in which every blob has at most one reader.

    A loss weight counts as a reader and moves to the first top of the Split. Raises FormatError for a bottom that no
    layer before it makes.
    """
    sources = _sources(net, file)
    readers: Counter[Place] = Counter(sources.values())
    weights: dict[Place, float] = {}
    for i, layer in enumerate(net.layer):
        last = {blob: (i, j) for j, blob in enumerate(layer.top)}
        for blob, weight in zip(layer.top, layer.loss_weight, strict=False):
            weights[last[blob]] = weight
            readers[last[blob]] += weight != 0
    used: Counter[Place] = Counter(place for place, weight in weights.items() if weight and readers[place] > 1)
    layers = []
    for i, original in enumerate(net.layer):
        layer = original.copy()
        for j, blob in enumerate(original.bottom):
            place = sources[i, j]
            if readers[place] > 1:
                layer.bottom[j] = split_blob_name(net.layer[place[0]].name, blob, place[1], used[place])
                used[place] += 1
        layers.append(layer)
        for j in range(len(original.top)):
            if readers[i, j] > 1:
                layers.append(_split(original, j, readers[i, j], weights.get((i, j), 0.0)))
                if weights.get((i, j)):
                    layer.clear_field("loss_weight")
    result = net.copy()
    result.layer = layers
    return result


def _sources(net: Message, file: PathLike | None) -> dict[Place, Place]:
    """For every bottom (layer, index) the top (layer, index) that it reads."""
    made: dict[str, Place] = {}
    sources: dict[Place, Place] = {}
    for i, layer in enumerate(net.layer):
        for j, blob in enumerate(layer.bottom):
            if blob not in made:
                later = any(blob in other.top for other in net.layer[i:])
                known = ", ".join(sorted(made))
                names = (
                    f"use one of these: {known}" if known else "begin with a layer that makes it (in this phase too)"
                )
                raise FormatError(
                    f"unknown bottom blob '{blob}' (bottom {j}): no layer before this one makes it",
                    file=file,
                    line=layer.line_of("bottom") or layer.line_of(),
                    layer=layer.name,
                    remedy="move this layer below the one that makes it" if later else names,
                )
            sources[i, j] = made[blob]
        made.update({blob: (i, j) for j, blob in enumerate(layer.top)})
    return sources


def _split(layer: Message, index: int, count: int, weight: float) -> Message:
    blob = layer.top[index]
    split = new_message("LayerParameter", name=split_layer_name(layer.name, blob, index), type="Split", bottom=[blob])
    split.top = [split_blob_name(layer.name, blob, index, number) for number in range(count)]
    if weight:
        split.loss_weight = [weight] + [0.0] * (count - 1)
    return split
