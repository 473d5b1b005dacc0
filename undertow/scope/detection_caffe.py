"""What the losses of a Caffe detector (SSD's MultiBoxLoss) ask for one picture, and what its boxes are."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from undertow.caffe.boxes import decode, overlaps, suppress
from undertow.caffe.layers_detection import DetectionEvaluate, DetectionOutput, PriorBox
from undertow.caffe.layers_multibox import Chosen, MultiBoxLoss, Truth
from undertow.caffe.net import Net
from undertow.inspect.record import Array
from undertow.scope.heads import Heads, HeadView, Responsible, Term, told_classes

_NAMES = {"CENTER_SIZE": ("x", "y", "w", "h")}
_CORNERS = ("left", "top", "right", "bottom")
_SUREST = 0.05
_OVERLAP = 0.45
_MOST_FOUND = 200
_SHOWN_FOUND = 20


@dataclass(frozen=True)
class _Source:
    """Default boxes first .. first + count of one PriorBox; grid: its rows and columns, (0, 0) where unknown."""

    layer: int
    first: int
    count: int
    grid: tuple[int, int]


@dataclass(frozen=True)
class _Seen:
    """What a MultiBoxLoss read and sent back, for the first picture.

    priors, variance: (boxes, 4). offsets, pulls: (boxes, places, 4). scores, class_pulls: (boxes, classes).
    """

    layer: MultiBoxLoss
    priors: Array
    variance: Array
    offsets: Array
    pulls: Array
    scores: Array
    class_pulls: Array
    truth: Truth
    chosen: Chosen
    strong: float

    @property
    def share(self) -> Array:
        """Probabilities (boxes, classes)."""
        if self.layer.o.conf_loss_type == "SOFTMAX":
            raised = np.exp(self.scores - self.scores.max(1, keepdims=True))
            return np.asarray(raised / raised.sum(1, keepdims=True))
        return np.asarray(1 / (1 + np.exp(-self.scores.astype(np.float64))))

    def decoded(self, offsets: Array, boxes: Array) -> Array:
        """Corners that offsets (n, 4) of these default boxes stand for."""
        o = self.layer.o
        return decode(offsets, self.priors[boxes], self.variance[boxes], o.code_type, o.encode_variance_in_target)


def heads_of_caffe(net: Net) -> Heads | None:
    """Of the last pass forward and back; None for a net without boxes."""
    losses = [index for index, layer in enumerate(net.layers) if isinstance(layer, MultiBoxLoss)]
    if losses:
        seen = [(index, _seen(net, index)) for index in losses]
        views = [view for index, one in seen for view in _views(net, index, one)]
        first = seen[0][1]
        return Heads(_truths(first.truth), _found(first), views, "default box", first.strong, "objects")
    output = next((index for index, layer in enumerate(net.layers) if isinstance(layer, DetectionOutput)), None)
    return None if output is None else Heads(_truths(_evaluated(net)), _detections(net, output), [], "default box")


def _seen(net: Net, index: int) -> _Seen:
    layer, bottoms = net.layers[index], net.bottoms(index)
    assert isinstance(layer, MultiBoxLoss)
    count = bottoms[0].shape[0]
    priors, variance = np.asarray(bottoms[2].data).reshape(2, -1, 4)
    offsets, pulls = (np.asarray(a).reshape(count, len(priors), -1, 4) for a in (bottoms[0].data, -bottoms[0].diff))
    scores, class_pulls = (np.asarray(a).reshape(count, len(priors), -1) for a in (bottoms[1].data, -bottoms[1].diff))
    truth = layer.truth(np.asarray(bottoms[3].data).reshape(-1, 8), count)
    chosen = layer.choose(offsets, scores, priors, variance, truth)
    divisor = layer.divisor(layer.normalization("VALID"), len(chosen.image), count * len(priors), count)
    strong = float(layer.o.loc_weight) / divisor * (layer.loss_weights[0] if layer.loss_weights else 1.0)
    return _Seen(
        layer, priors, variance, offsets[0], pulls[0], scores[0], class_pulls[0], truth[0], chosen, strong or 1.0
    )


def _views(net: Net, index: int, seen: _Seen) -> list[HeadView]:
    """A view for each PriorBox below a loss."""
    mine = np.flatnonzero(seen.chosen.image == 0)
    shares, boxes = seen.share, seen.chosen.box[mine]
    background = seen.layer.background
    objects = [c for c in range(seen.scores.shape[1]) if c != background]
    views = []
    for source in _sources(net, net.bottom_ids[index][2], index, len(seen.priors)):
        inside = (boxes >= source.first) & (boxes < source.first + source.count)
        part = slice(source.first, source.first + source.count)
        rows, columns = source.grid
        towards = seen.class_pulls[part][:, objects].sum(1)
        field = towards.reshape(rows, columns, -1).sum(2) if rows else None
        views.append(
            HeadView(
                source.layer,
                net.layers[source.layer].type,
                source.grid,
                [_responsible(seen, shares, source, int(place)) for place in mine[inside]],
                field,
                _totals(seen, source, boxes[inside]),
            )
        )
    return views


def _totals(seen: _Seen, source: _Source, boxes: Array) -> dict[str, float]:
    """Norms of the pulls; of all default boxes of this source."""
    part = slice(source.first, source.first + source.count)
    pulls, classes = seen.pulls[part], seen.class_pulls[part]
    matched = np.zeros(source.count, bool)
    matched[boxes - source.first] = True
    found = {name: float(np.linalg.norm(pulls[..., i])) for i, name in enumerate(_names(seen))}
    found["classes of objects"] = float(np.linalg.norm(classes[matched]))
    found["classes of background"] = float(np.linalg.norm(classes[~matched]))
    return found


def _responsible(seen: _Seen, shares: Array, source: _Source, place: int) -> Responsible:
    """The match at a place of `Chosen`."""
    box, of_class = int(seen.chosen.box[place]), int(seen.chosen.place[place])
    target = seen.chosen.target[place]
    offset, pull = seen.offsets[box, of_class], seen.pulls[box, of_class]
    wanted, predicted = (seen.decoded(values[None], np.array([box]))[0] for values in (target, offset))
    terms = [
        Term(name, float(offset[i]), float(target[i]), float(pull[i])) for i, name in enumerate(_names(seen))
    ]  # fmt: skip
    table = overlaps(wanted, seen.truth.boxes)
    truth = int(table.argmax()) if len(table) and table.max() > 0 else -1
    label = int(seen.truth.labels[truth]) if truth >= 0 else -1
    if seen.layer.o.map_object_to_agnostic:
        label = seen.layer.background + 1
    pulls = seen.class_pulls[box]
    told = told_classes(pulls, np.arange(len(pulls)) == label)
    classes = [Term(str(c), float(shares[box, c]), float(c == label), float(pulls[c])) for c in told]
    within, (_, columns) = box - source.first, source.grid
    each = source.count // max(math.prod(source.grid), 1)
    row, column = divmod(within // each, columns) if columns else (0, 0)
    return Responsible(
        truth, within % each, row, column, _centred(seen.priors[box]), _centred(predicted), _centred(wanted), terms,
        classes,
    )  # fmt: skip


def _names(seen: _Seen) -> tuple[str, ...]:
    return _NAMES.get(str(seen.layer.o.code_type), _CORNERS)


def _centred(corners: Array) -> tuple[float, ...]:
    """Corners as x, y, w, h."""
    left, top, right, bottom = map(float, corners)
    return ((left + right) / 2, (top + bottom) / 2, right - left, bottom - top)


def _truths(truth: Truth) -> Array:
    rows = [[*_centred(corners), float(label)] for corners, label in zip(truth.boxes, truth.labels, strict=True)]
    return np.array(rows).reshape(-1, 5)


# --- where default boxes come from -----------------------------------------------------------------------------


def _sources(net: Net, blob: int, reader: int, boxes: int) -> list[_Source]:
    """The PriorBoxes that make a blob, through Concat and Split, in order; one source without a grid otherwise."""
    found: list[_Source] = []
    for index in _makers(net, blob, reader):
        layer = net.layers[index]
        count = net.tops(index)[0].shape[-1] // 4
        if isinstance(layer, PriorBox):
            grid = net.bottoms(index)[0].shape[2:4]
            found.append(_Source(index, sum(one.count for one in found), count, (int(grid[0]), int(grid[1]))))
    if sum(one.count for one in found) != boxes:
        return [_Source(reader, 0, boxes, (0, 0))]
    return found


def _makers(net: Net, blob: int, before: int) -> list[int]:
    index = next((i for i in range(before - 1, -1, -1) if blob in net.top_ids[i]), None)
    if index is None:
        return []
    if net.layers[index].type in ("Concat", "Split"):
        return [maker for bottom in net.bottom_ids[index] for maker in _makers(net, bottom, index)]
    return [index]


# --- what was found --------------------------------------------------------------------------------------------


def _found(seen: _Seen) -> Array:
    """The surest boxes as this pass predicted them: (count, 6) x, y, w, h, class, probability."""
    shares = seen.share
    rows: list[list[float]] = []
    for label in range(shares.shape[1]):
        if label == seen.layer.background:
            continue
        order = np.argsort(-shares[:, label], kind="stable")[:_MOST_FOUND]
        strong = order[shares[order, label] > _SUREST]
        place = label if seen.offsets.shape[1] > 1 else 0
        with np.errstate(all="ignore"):
            corners = seen.decoded(seen.offsets[strong, place], strong)
        usable = np.isfinite(corners).all(1)
        corners, strong = corners[usable], strong[usable]
        for kept in suppress(corners, shares[strong, label], _OVERLAP):
            rows.append([*_centred(corners[kept]), label, float(shares[strong[kept], label])])
    return _best(rows)


def _detections(net: Net, index: int) -> Array:
    """The rows of a DetectionOutput for the first picture."""
    rows = np.asarray(net.tops(index)[0].data).reshape(-1, 7)
    mine = [row for row in rows if row[0] == 0 and row[1] >= 0 and np.isfinite(row).all()]
    return _best([[*_centred(row[3:]), float(row[1]), float(row[2])] for row in mine])


def _best(rows: list[list[float]]) -> Array:
    return np.array(sorted(rows, key=lambda row: -row[5])[:_SHOWN_FOUND]).reshape(-1, 6)


def _evaluated(net: Net) -> Truth:
    """The objects of the first picture that a DetectionEvaluate compares with; none without one."""
    for index, layer in enumerate(net.layers):
        if isinstance(layer, DetectionEvaluate):
            rows = np.asarray(net.bottoms(index)[1].data).reshape(-1, 8)
            rows = rows[rows[:, 0] == 0]
            return Truth(rows[:, 3:7], rows[:, 1].astype(int))
    return Truth(np.zeros((0, 4)), np.zeros(0, int))
