"""What a page is told about a recording: plain values for JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from undertow import __version__
from undertow.inspect.compare import TOLERANCE, Comparison, compare
from undertow.inspect.explain import Row
from undertow.inspect.record import RANDOM_START, Array
from undertow.inspect.report import head_lines, mark_lines, trace_rows, verdict_lines
from undertow.inspect.statistics import Statistics
from undertow.inspect.trace import LayerTrace, ParameterTrace
from undertow.scope.folding import branches, folds, joined
from undertow.scope.heads import Heads
from undertow.scope.pictures import THUMBNAILS, Share, chosen_channels, picture_address, sheet
from undertow.scope.recording import Histogram, Recording, Run

# Maps of a layer; with three dialects and more fewer of them, so that pages stay small.
_FEWEST = 4
# Outputs without maps are told value by value up to this many.
_VALUES = 128
_DIGITS = 5
# Graphs of more nodes are not taken in at a glance.
_LONG = 40


def document(recording: Recording, *, live: bool, share: Share | None = None) -> dict[str, Any]:
    """Everything that a page shows at once. live: whether a server stands behind it that gives full maps.

    share: what it holds of a layer's maps where that is less than usual; the page says so.
    """
    told, share = share is not None, share or Share()
    first = recording.runs[0]
    most = THUMBNAILS if len(recording.runs) <= 2 else max(2 * THUMBNAILS // len(recording.runs), _FEWEST)
    most = min(most, share.most)
    channels = {
        row.index: chosen_channels(first.outputs.get(row.index), first.gradients.get(row.index), most)
        for row in recording.rows
    }
    return {
        "version": __version__,
        "live": live,
        "source": recording.source,
        "about": recording.about,
        "kind": recording.kind,
        "notes": recording.notes,
        "lossless": any(RANDOM_START in note for note in recording.notes),
        "names": list(recording.names),
        "picture": None if recording.picture is None else picture_address(recording.picture),
        "layers": [_layer(recording, row, channels[row.index]) for row in recording.rows],
        "folds": _folds(recording),
        "fewer": {"most": most, "side": share.side} if told else None,
        "runs": [_run(run, first, channels, share.side) for run in recording.runs],
        "comparisons": [_comparison(compare(first.trace, run.trace)) for run in recording.runs[1:]],
    }


def _layer(recording: Recording, row: Row, channels: list[int]) -> dict[str, Any]:
    details = recording.details[row.index]
    return {
        "index": row.index,
        "name": row.name,
        "type": row.type,
        "label": _label(row, details),
        "inputs": row.inputs,
        "outputs": row.outputs,
        "parameters": row.parameters,
        "formula": row.formula,
        "forward": row.multiply_adds_forward,
        "backward": row.multiply_adds_backward,
        "kept": row.kept,
        "skipped": row.skipped,
        "details": details,
        "reads": list(dict.fromkeys(recording.reads[row.index])),
        "aside": row.index in recording.aside,
        "story": recording.stories[row.index],
        "channels": channels,
    }


def _label(row: Row, details: dict[str, str]) -> str:
    """The layer's type with what tells it from others, short enough for a node."""
    weights = row.parameters.get("weights")
    if row.type.lower().startswith("conv") and weights is not None and len(weights) == 4:
        stride = details.get("stride", "1")
        size = f"{weights[2]}x{weights[3]}" + (f" /{stride}" if stride != "1" else "")
        return f"conv {size}" if row.type == "convolutional" else f"{row.type} {size}"
    if row.type in ("maxpool", "avgpool", "local_avgpool") and "size" in details:
        return f"{row.type} {details['size']}x{details['size']} /{details.get('stride', '1')}"
    return row.type


def _folds(recording: Recording) -> list[dict[str, Any]]:
    """Layers that the graph shows as one node: alike branches, then blocks that repeat one after another.

    Blocks are alike in sizes and options; where that leaves a long graph, and one more than twice as long as without,
    they are in kinds alone.
    """
    strict, loose = (_folds_by(recording, sign) for sign in (_sign, _kind))
    nodes = _nodes(recording, strict)
    return loose if nodes > _LONG and 2 * _nodes(recording, loose) < nodes else strict


def _nodes(recording: Recording, folds: list[dict[str, Any]]) -> int:
    """How many nodes a graph has with these folds."""
    return len(recording.rows) - len(recording.aside) - sum(len(fold["layers"]) - 1 for fold in folds)


def _folds_by(recording: Recording, sign: Callable[[Recording, int], tuple[Any, ...]]) -> list[dict[str, Any]]:
    shown = [row.index for row in recording.rows if row.index not in recording.aside]
    labels = {i: _label(recording.rows[i], recording.details[i]) for i in shown}
    reads = {i: [source for source in recording.reads[i] if source in labels] for i in shown}
    kinds = {i: recording.rows[i].type for i in shown}
    found: list[dict[str, Any]] = []
    folded: set[int] = set()
    for group in joined(branches(reads, kinds), reads):
        layers = [layer for branch in group for layer in branch]
        folded.update(layers)
        names = list(dict.fromkeys(labels[layer] for layer in group[0]))
        found.append({"layers": layers, "size": len(group[0]), "times": len(group), "kinds": names, "beside": True})
    rest = [i for i in shown if i not in folded]
    begins = [any(len(shape) > 1 for shape in recording.rows[i].parameters.values()) for i in rest]
    for fold in folds([sign(recording, i) for i in rest], begins):
        layers = rest[fold.first : fold.first + fold.layers]
        if shown.index(layers[-1]) - shown.index(layers[0]) == len(layers) - 1:  # no branch lies between them
            names = [labels[i] for i in layers[: fold.size]]
            found.append({"layers": layers, "size": fold.size, "times": fold.times, "kinds": names, "beside": False})
    return found


def _sign(recording: Recording, index: int) -> tuple[Any, ...]:
    row = recording.rows[index]
    options = tuple((k, v) for k, v in recording.details[index].items() if k not in ("cfg", "prototxt"))
    return (row.type, row.outputs, tuple(row.parameters.values()), options)


def _kind(recording: Recording, index: int) -> tuple[Any, ...]:
    row = recording.rows[index]
    weights = row.parameters.get("weights", ())
    apart = len(weights) == 4 and weights[1] == 1 and weights[0] > 1  # depthwise
    return (_label(row, recording.details[index]), apart)


def _run(run: Run, first: Run, channels: dict[int, list[int]], side: int) -> dict[str, Any]:
    marks: dict[int, list[str]] = {}
    for mark in run.trace.marks:
        marks.setdefault(mark.layer, []).append(f"{mark.kind}: {mark.text}")
    cells = trace_rows(run.trace)
    return {
        "name": run.name,
        "head": head_lines(run.trace),
        "loss": _number(run.trace.loss, bad=True),
        "marks": mark_lines(run.trace),
        "heads": None if run.heads is None else _heads(run.heads),
        "layers": [
            _layer_of_run(run, first, layer, cells[layer.index], marks.get(layer.index, []))
            | {"maps": _maps_of_run(run, first, layer.index, channels[layer.index], side)}
            for layer in run.trace.layers
        ],
    }


def _layer_of_run(run: Run, first: Run, layer: LayerTrace, cells: Sequence[str], marks: list[str]) -> dict[str, Any]:
    output, gradient = run.outputs.get(layer.index), run.gradients.get(layer.index)
    return {
        "told": asdict(run.told[layer.index]) if layer.index in run.told else None,
        "cells": cells,
        "marks": marks,
        "output": _statistics(layer.output),
        "gradient": _statistics(layer.gradient),
        "parameters": {name: _parameter(p) for name, p in layer.parameters.items()},
        "sent": {str(source): _number(norm, bad=True) for source, norm in run.sent.get(layer.index, {}).items()},
        "histograms": {kind: _histogram(run.histograms.get((layer.index, kind))) for kind in ("output", "gradient")},
        "values": {"output": _values(output), "gradient": _values(gradient)},
    }


def _maps_of_run(run: Run, first: Run, index: int, channels: list[int], side: int) -> dict[str, Any]:
    output, gradient = run.outputs.get(index), run.gradients.get(index)
    # Dialects that differ on the way back alone show the same feature maps: they stand in the page once.
    same = run is not first and output is not None and np.array_equal(output, first.outputs.get(index, np.nan))
    return {"output": "same" if same else _maps(output, channels, side), "gradient": _maps(gradient, channels, side)}


def _number(value: float, bad: bool) -> float | str:
    """The word where NaN is the number itself (bad), and not that there is none."""
    return "nan" if bad and math.isnan(value) else value


def _parameter(found: ParameterTrace) -> list[float | str]:
    """Norm, norm of the gradient, update-to-weight ratio."""
    own = found.bad - found.bad_gradient > 0
    return [
        _number(found.norm, own),
        _number(found.gradient, found.bad_gradient > 0),
        _number(found.update, found.bad > 0),
    ]


def _statistics(found: Statistics) -> dict[str, float | str]:
    numbers = ("mean", "deviation", "minimum", "maximum", "zeros", "norm", "rms")
    return {name: _number(value, name in numbers and found.bad > 0) for name, value in asdict(found).items()}


def _histogram(found: Histogram | None) -> dict[str, Any] | None:
    return None if found is None else {"low": found.low, "high": found.high, "counts": found.counts}


def _maps(array: Array | None, channels: list[int], side: int) -> dict[str, Any] | None:
    if array is None or array.ndim != 4 or not channels or max(channels) >= array.shape[1]:
        return None
    if array.shape[2] * array.shape[3] == 1:
        return None
    found = sheet(array, channels, side)
    return {"image": found.address, "size": found.size, "stride": found.stride, "limit": found.limit}


def _values(array: Array | None) -> list[float | str] | None:
    if array is None or array.size > _VALUES or (array.ndim == 4 and array.shape[2] * array.shape[3] > 1):
        return None
    return [_number(float(f"{value:.{_DIGITS}g}"), bad=True) for value in array.reshape(-1)]


def _heads(found: Heads) -> dict[str, Any]:
    heads = []
    for view in found.heads:
        field = None if view.objectness is None else sheet(view.objectness[None, None], [0])
        shown = field and {"image": field.address, "size": field.size, "stride": field.stride, "limit": field.limit}
        heads.append(asdict(view) | {"objectness": shown})
    return asdict(found) | {"heads": heads}


def _comparison(found: Comparison) -> dict[str, Any]:
    """Of the first run with another."""
    return {
        "name": found.other.how,
        "tolerance": TOLERANCE,
        "verdict": verdict_lines(found),
        "apart": [[layer.output, layer.gradient, layer.parameters] for layer in found.layers],
        "paths": [
            {"layer": p.layer, "type": p.type, "source": p.source, "one": p.one, "other": p.other, "lost": p.lost}
            for p in found.paths
        ],
    }
