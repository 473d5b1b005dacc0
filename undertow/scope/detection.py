"""What the heads of a Darknet detector ask for one picture: who answers for which object, how hard each term pulls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from undertow.darknet.detection.boxes import Candidates, box_iou
from undertow.darknet.layers.layers_heads import Detection, Region
from undertow.darknet.layers.layers_loss import HeadLayer, Yolo
from undertow.darknet.layers.region_assignment import WARMUP_WEIGHT, region_truths
from undertow.darknet.layers.region_loss import squared_parts
from undertow.darknet.layers.yolo_assignment import truths_of
from undertow.darknet.network import Network
from undertow.inspect.record import Array
from undertow.scope.heads import Heads, HeadView, Responsible, Term, told_classes

TERMS = ("x", "y", "w", "h", "objectness")
_MOST_FOUND = 200
_SHOWN_FOUND = 20
_SUREST = 0.05
_OVERLAP = 0.45


@dataclass(frozen=True)
class _Cells:
    """One head's arrays for the first picture, (n, values, h, w): x, y, w, h, objectness, classes.

    slope: of the output with respect to what the head reads, where the loss does not cancel it. one_class_each: whether
    the boxes of a cell share its classes, which then stand with the first of them.
    """

    output: Array
    target: Array
    weight: Array
    slope: Array
    one_class_each: bool
    anchors: Array | None
    decode: Callable[[Array, int, int, int], tuple[float, ...]]


def heads_of(net: Network) -> Heads | None:
    """Of the last training pass; None for a network that is no detector or saw no truth."""
    heads = [layer for layer in net.layers if isinstance(layer, HeadLayer) and layer.assignment is not None]
    if not heads:
        return None
    truths = _truths(net, heads[0])
    views = [_view(net, layer, truths) for layer in heads]
    word = "box" if isinstance(heads[0], Detection) else "anchor"
    return Heads(truths, _found(net), views, word)


def _truths(net: Network, layer: HeadLayer) -> Array:
    assert net.truth is not None
    row = np.asarray(net.truth).reshape(len(net.truth), -1)[0]
    if isinstance(layer, Yolo):
        return np.asarray(truths_of(row, layer.assignment.rule))
    if isinstance(layer, Region):
        boxes = region_truths(row, layer.rule)
        return np.concatenate([boxes[:, :4], boxes[:, -1:]], axis=1)
    assert isinstance(layer, Detection)
    rows = row.reshape(layer.side * layer.side, -1)
    rows = rows[rows[:, 0] > 0]
    return np.concatenate([rows[:, 1 + layer.classes :][:, :4], rows[:, 1 : 1 + layer.classes].argmax(1)[:, None]], 1)


def _view(net: Network, layer: HeadLayer, truths: Array) -> HeadView:
    cells = _cells_of_grid(layer) if isinstance(layer, Detection) else _cells_of_anchors(net, layer)
    pull = cells.weight * (cells.target - cells.output) * cells.slope
    asked = cells.weight[:, 0] > WARMUP_WEIGHT
    places = [_responsible(cells, pull, truths, *map(int, place)) for place in np.argwhere(asked)]
    norms = {name: float(np.linalg.norm(pull[:, i])) for i, name in enumerate(TERMS[:4])}
    norms["objectness of objects"] = float(np.linalg.norm(pull[:, 4][asked]))
    norms["objectness elsewhere"] = float(np.linalg.norm(pull[:, 4][~asked]))
    norms["classes"] = float(np.linalg.norm(pull[:, 5:]))
    grid = (int(pull.shape[2]), int(pull.shape[3]))
    return HeadView(layer.index, layer.type, grid, places, pull[:, 4].sum(axis=0), norms)


def _cells_of_anchors(net: Network, layer: HeadLayer) -> _Cells:
    """Of [yolo] and [region]: sizes are anchors times an exponential."""
    found = layer.assignment
    rule = found.rule
    arrays = [array[0] for array in (found.output, found.target, found.weight, np.ones_like(found.output))]
    height, width = arrays[0].shape[2:]
    if isinstance(layer, Region):
        # Its boxes and objectness are squared errors of logistic outputs; a yolo layer's entropies have no such factor.
        for part in squared_parts(rule):
            arrays[3][:, part] = arrays[0][:, part] * (1 - arrays[0][:, part])
        anchors = np.asarray(rule.anchors, np.float64) / (width, height)
        keep = [0, 1, 2, 3, *range(rule.coords, rule.entries)]
        arrays = [array[:, keep] for array in arrays]
    else:
        anchors = np.asarray(rule.anchors, np.float64)[list(rule.mask)] / rule.net_size

    def decode(values: Array, n: int, row: int, column: int) -> tuple[float, ...]:
        with np.errstate(over="ignore"):
            size = np.exp(values[2:4].astype(np.float64)) * anchors[n]
        x, y = (column + float(values[0])) / width, (row + float(values[1])) / height
        return (x, y, float(size[0]), float(size[1]))

    return _Cells(arrays[0], arrays[1], arrays[2], arrays[3], False, anchors, decode)


def _cells_of_grid(layer: Detection) -> _Cells:
    """Of [detection]: boxes of a cell share its classes, which are shown with the first of them."""
    rule, found = layer.rule, layer.assignment

    def of(array: Array) -> Array:
        classes, objectness, boxes = (block[0] for block in rule.blocks(array[:1]))
        shown = np.zeros((rule.num, 5 + rule.classes, rule.side * rule.side), array.dtype)
        shown[:, :4] = boxes[..., :4].transpose(1, 2, 0)
        shown[:, 4] = objectness.T
        shown[0, 5:] = classes.T
        return shown.reshape(rule.num, -1, rule.side, rule.side)

    def decode(values: Array, n: int, row: int, column: int) -> tuple[float, ...]:
        size = values[2:4] ** 2 if rule.sqrt else values[2:4]
        return ((column + float(values[0])) / rule.side, (row + float(values[1])) / rule.side, *map(float, size))

    output, target, weight = of(found.output), of(found.target), of(found.weight)
    return _Cells(output, target, weight, np.ones_like(output), True, None, decode)


def _responsible(cells: _Cells, pull: Array, truths: Array, n: int, row: int, column: int) -> Responsible:
    place = (n, slice(None), row, column)
    output, target, pulls = cells.output[place], cells.target[place], pull[place]
    wanted, predicted = cells.decode(target, n, row, column), cells.decode(output, n, row, column)
    terms = [Term(name, *_numbers(output, target, pulls, i)) for i, name in enumerate(TERMS)]
    if cells.one_class_each:
        place = (0, slice(None), row, column)
        output, target, pulls = cells.output[place], cells.target[place], pull[place]
    told = told_classes(pulls[5:], target[5:])
    classes = [Term(str(i), *_numbers(output, target, pulls, 5 + i)) for i in told]
    overlaps = np.nan_to_num(box_iou(truths[:, :4], np.array(wanted))) if len(truths) else np.zeros(0)
    truth = int(overlaps.argmax()) if len(overlaps) and overlaps.max() > 0 else -1
    return Responsible(truth, n, row, column, _anchor(cells, n, row, column), predicted, wanted, terms, classes)


def _anchor(cells: _Cells, n: int, row: int, column: int) -> tuple[float, ...] | None:
    """An anchor in the middle of a cell."""
    if cells.anchors is None:
        return None
    height, width = cells.output.shape[2:]
    return ((column + 0.5) / width, (row + 0.5) / height, float(cells.anchors[n, 0]), float(cells.anchors[n, 1]))


def _numbers(output: Array, target: Array, pulls: Array, i: int) -> tuple[float, float, float]:
    return float(output[i]), float(target[i]), float(pulls[i])


def _found(net: Network) -> Array:
    """The surest boxes of the first picture, as the pass predicted them, after suppression."""
    with np.errstate(over="ignore", invalid="ignore"):
        every = net.candidates((net.w, net.h), _SUREST, letterbox=False)
        surest = np.argsort(-every.probabilities.max(axis=1, initial=0), kind="stable")[:_MOST_FOUND]
        kept: Candidates = net.suppress(every.taken(surest), _OVERLAP)
    best = kept.probabilities.max(axis=1, initial=0)
    order = [
        i for i in np.argsort(-best, kind="stable")[:_SHOWN_FOUND] if best[i] > 0 and np.isfinite(kept.boxes[i]).all()
    ]
    classes = kept.probabilities[order].argmax(axis=1) if order else np.zeros(0)
    return np.concatenate([kept.boxes[order], classes[:, None], best[order][:, None]], axis=1)
