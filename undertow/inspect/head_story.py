"""A detector's loss in numbers of its own run: what one box is asked for, the delta that follows, and what it pulls.

The delta is the one that Darknet's layer keeps, weight (target - y); the gradient is what the layer sends back. Beside
it stand central differences of the loss with respect to the same value, with who answers for what held fast.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from undertow.darknet.layers.detection_loss import DetectionLoss
from undertow.darknet.layers.region_assignment import WARMUP_WEIGHT
from undertow.darknet.layers.region_loss import RegionLoss, squared_parts
from undertow.darknet.layers.yolo_loss import YoloLoss
from undertow.inspect.record import Array, Call
from undertow.inspect.text import columns

Head = YoloLoss | RegionLoss | DetectionLoss
_BOX = ("x", "y", "w", "h")
# Classes that are told of one box: those with the largest delta.
_CLASSES = 3
_STEP = 1e-5
_ANSWERS = "which answers for an object"


@dataclass(frozen=True)
class _Box:
    """A box of one head. answers: whether for an object. where: in words.

    places: of its values in a row of the batch, by name, classes last. softmax: whether the classes are one choice.
    squared: names whose loss is half the squared error of y. logistic: names whose y is logistic(x).
    """

    image: int
    answers: bool
    where: str
    places: dict[str, int]
    softmax: bool
    squared: frozenset[str]
    logistic: frozenset[str]


def head_lines(call: Call) -> list[str]:
    """The lines for a loss of a detector; none for one that saw no truth, or whose scores cannot be told box by box."""
    function = call.function
    if not isinstance(function, Head) or function.assignment is None or _joint(function):
        return []
    boxes = _boxes(function)
    if not boxes:
        return ["  no box of this batch is asked for anything here: its objects belong to other heads"]
    y, one = call.outputs[0].data, np.ones((), call.outputs[1].dtype)
    sent = any(call.wanted)
    gx = function.backward(np.zeros_like(y), one)[0] if sent else None
    gx = np.full_like(y, np.nan) if gx is None else gx
    arrays = [np.asarray(a).reshape(len(a), -1) for a in (call.operands[0].data, y, gx)]
    asked = [a.reshape(len(a), -1) for a in (function.assignment.target, function.assignment.weight, function.delta)]
    lines = ["  in numbers, of this layer:"]
    if not boxes[0].answers:
        lines.append("    no object of this batch belongs to this layer: other heads answer for them")
    for box in boxes:
        lines += [f"    {box.where}", *(f"    {line}" for line in _table(box, arrays, asked))]
    if not sent:
        return [*lines, "    delta is what Darknet's layer keeps; it is not sent back here"]
    lines.append("    delta is what Darknet's layer keeps, gx what it sends back for gloss = 1 and gy = 0")
    return lines


def _table(box: _Box, arrays: list[Array], asked: list[Array]) -> list[str]:
    x, y, gx, target, weight, delta = (a[box.image] for a in (*arrays, *asked))
    names = list(box.places)
    places = np.array(list(box.places.values()))
    classes = [name for name in names if name.startswith("class")]
    hardest = sorted(classes, key=lambda name: -abs(float(delta[box.places[name]])))[:_CLASSES]
    differences = _differences(box, names, *(a[places].astype(np.float64) for a in (x, target, weight)))
    rows = []
    for name, difference in zip(names, differences, strict=True):
        if (name in classes and name not in hardest) or weight[box.places[name]] == 0:
            continue
        numbers = (float(a[box.places[name]]) for a in (x, y, target, weight, delta, gx))
        rows.append((name, *map(_number, numbers), _number(difference)))
    left = [name for name in classes if name not in hardest and weight[box.places[name]] != 0]
    table = columns(("value", "x", "y", "target", "weight", "delta", "gx", "by differences"), rows, left=1)
    return [*(f"  {line}" for line in table), *_left_out(len(left), len(names) - len(rows) - len(left))]


def _left_out(classes: int, unasked: int) -> list[str]:
    lines = [f"  and {classes} more classes, of smaller delta"] if classes else []
    return [*lines, *([f"  {unasked} more values are asked for nothing: weight and delta are 0"] if unasked else [])]


def _number(value: float) -> str:
    """Five places; `-` for what is not there."""
    if np.isnan(value):
        return "-"
    return f"{round(value, 5) + 0.0:.5f}".rstrip("0").rstrip(".") if np.isfinite(value) else str(value)


def _differences(box: _Box, names: list[str], x: Array, target: Array, weight: Array) -> list[float]:
    """Slopes of the loss of one box by each of its values, target and weight held fast."""

    def loss(values: Array) -> float:
        return _loss(box, names, values, target, weight)

    found = []
    with np.errstate(all="ignore"):
        for i in range(len(x)):
            step = np.zeros_like(x)
            step[i] = _STEP
            found.append((loss(x + step) - loss(x - step)) / (2 * _STEP))
    return found


def _loss(box: _Box, names: list[str], x: Array, target: Array, weight: Array) -> float:
    """The terms of the loss that belong to a box."""
    total = 0.0
    scores = np.array([i for i, name in enumerate(names) if name.startswith("class")], int)
    if box.softmax:
        logs = x[scores] - np.logaddexp.reduce(x[scores])
        total -= float((weight[scores] * target[scores] * logs).sum())
    for i, name in enumerate(names):
        if box.softmax and name.startswith("class"):
            continue
        if name in box.logistic and name not in box.squared:
            total += float(weight[i] * (np.logaddexp(0, x[i]) - target[i] * x[i]))
        else:
            y = 1 / (1 + np.exp(-x[i])) if name in box.logistic else x[i]
            total += float(weight[i] * (target[i] - y) ** 2 / 2)
    return total


# --- which boxes ---------------------------------------------------------------------------------------------------


def _boxes(function: Head) -> list[_Box]:
    """One that answers for an object, and one that should say that there is none."""
    if isinstance(function, DetectionLoss):
        return _of_grid(function)
    return _of_anchors(function)


def _joint(function: Head) -> bool:
    """Whether objectness is one of the classes, or these form a tree: such scores are no single choice of one box."""
    return isinstance(function, RegionLoss) and (function.rule.tree is not None or function.rule.background)


def _of_anchors(function: YoloLoss | RegionLoss) -> list[_Box]:
    found = function.assignment
    assert found is not None
    target, weight = found.target, found.weight
    coords = function.rule.coords if isinstance(function, RegionLoss) else 4
    _, _, count, height, width = target.shape
    names = [*_BOX, *(f"mask {i}" for i in range(coords - 4)), "objectness", *_class_names(count - coords - 1)]
    if isinstance(function, RegionLoss):
        softmax = function.rule.softmax
        squared = frozenset(name for part in squared_parts(function.rule) for name in names[part])
        logistic = squared | (frozenset() if softmax else frozenset(names[coords + 1 :]))
    else:
        squared, softmax = frozenset(), False
        logistic = frozenset(names) - {"w", "h"}

    def box(image: int, n: int, row: int, column: int, what: str) -> _Box:
        first = (n * count * height + row) * width + column
        places = {name: first + i * height * width for i, name in enumerate(names)}
        where = f"image {image}, anchor {n}, row {row}, column {column}, {what}:"
        return _Box(image, what is _ANSWERS, where, places, softmax, squared, logistic)

    return _told(weight[:, :, 0], weight[:, :, coords], box)


def _of_grid(function: DetectionLoss) -> list[_Box]:
    found, rule = function.assignment, function.rule
    assert found is not None
    classes, objectness, boxes = rule.blocks(np.arange(found.target.shape[1])[None])
    weights = rule.blocks(found.weight)

    def box(image: int, cell: int, number: int, what: str) -> _Box:
        places = {name: int(boxes[0, cell, number, i]) for i, name in enumerate(_BOX)}
        places["objectness"] = int(objectness[0, cell, number])
        names = _class_names(rule.classes)
        places |= {name: int(place) for name, place in zip(names, classes[0, cell], strict=True)}
        where = f"image {image}, row {cell // rule.side}, column {cell % rule.side}, box {number}, {what}:"
        return _Box(image, what is _ANSWERS, where, places, rule.softmax, frozenset(), frozenset())

    return _told(weights[2][..., 0], weights[1], box)


def _class_names(count: int) -> list[str]:
    return [f"class {i}" for i in range(count)]


def _told(answering: Array, asked: Array, box: Callable[..., _Box]) -> list[_Box]:
    """answering: weights of each box's x. asked: those of its objectness."""
    objects = answering > WARMUP_WEIGHT
    found = [box(*map(int, place), _ANSWERS) for place in np.argwhere(objects)[:1]]
    empty = np.argwhere((asked != 0) & ~objects)
    return [*found, *(box(*map(int, place), "where no object is") for place in empty[len(empty) // 2 :][:1])]
