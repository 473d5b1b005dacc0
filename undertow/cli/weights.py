"""`undertow darknet partial`: cutting the first layers out of a weights file, as a backbone for another network."""

from __future__ import annotations

from undertow.cli.messages import say
from undertow.cli.words import Command, Flag, UsageError, Words
from undertow.darknet.files.cfg import read_cfg
from undertow.darknet.files.shapes import infer_shapes
from undertow.darknet.files.weights import read_weights, write_weights


def partial(words: Words) -> int:
    """partial CFG WEIGHTS OUT LAYERS"""
    shapes = infer_shapes(read_cfg(words["CFG"], words["strict"]))
    text = words["LAYERS"]
    if not text.isdigit() or not 0 < int(text) <= len(shapes):
        raise UsageError(f"partial: LAYERS is '{text}'", remedy=f"give a whole number from 1 to {len(shapes)}")
    count = int(text)
    found = read_weights(words["WEIGHTS"], shapes, cutoff=count, strict=words["strict"])
    if found.is_partial:
        reached = max(found.loaded_layers, default=-1) + 1
        raise UsageError(f"{words['WEIGHTS']} ends after layer {reached - 1}", remedy=f"cut at {reached} or before")
    write_weights(words["OUT"], shapes, lambda layer, name: found.arrays[layer, name], cutoff=count)
    say(f"the first {count} layers of {words['WEIGHTS']}, {len(found.loaded_layers)} with parameters: {words['OUT']}")
    return 0


PARTIAL = Command(
    "darknet partial",
    ("CFG", "WEIGHTS", "OUT", "LAYERS"),
    (Flag("strict", "switch", "oddities in the files are errors, not warnings"),),
    "write the first LAYERS layers of WEIGHTS: a backbone to begin another training with",
    partial,
)
