"""SSD's MultiBoxLoss told as one layer: who counts, the formula, how the way back follows, numbers of its own run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from undertow.caffe.boxes import overlaps
from undertow.caffe.layers_multibox import Chosen, MultiBoxLoss, Truth
from undertow.caffe.net import Net
from undertow.inspect.place import place_of
from undertow.inspect.record import Array
from undertow.inspect.text import columns, shapes_text

_CENTRES, _CORNERS = ("x", "y", "w", "h"), ("left", "top", "right", "bottom")
# Classes that are told of one box: its own, and those whose gradient is largest.
_CLASSES = 4
_STEP = 1e-5


@dataclass(frozen=True)
class Multibox:
    """A MultiBoxLoss after a pass. formula: lines for a table of layers; story: of the layer alone."""

    formula: list[str]
    story: list[str]


def told(net: Net, index: int) -> Multibox:
    """Of the last pass forward and back."""
    seen = _Seen(net, index)
    return Multibox(_formula(seen), [*_who_counts(seen), *_derivation(seen), *_numbers(seen)])


class _Seen:
    """What the layer read, chose and sent back."""

    def __init__(self, net: Net, index: int) -> None:
        layer, bottoms = net.layers[index], net.bottoms(index)
        assert isinstance(layer, MultiBoxLoss)
        self.layer, self.o = layer, layer.o
        self.shapes = [blob.shape for blob in bottoms]
        self.count = bottoms[0].shape[0]
        self.priors, self.variance = np.asarray(bottoms[2].data).reshape(2, -1, 4)
        boxes = len(self.priors)
        self.offsets, self.g_offsets = (
            np.asarray(a, np.float64).reshape(self.count, boxes, -1, 4) for a in (bottoms[0].data, bottoms[0].diff)
        )
        self.scores, self.g_scores = (
            np.asarray(a, np.float64).reshape(self.count, boxes, -1) for a in (bottoms[1].data, bottoms[1].diff)
        )
        self.truth: list[Truth] = layer.truth(np.asarray(bottoms[3].data).reshape(-1, 8), self.count)
        self.chosen: Chosen = layer.choose(
            np.asarray(bottoms[0].data).reshape(self.offsets.shape),
            np.asarray(bottoms[1].data).reshape(self.scores.shape),
            self.priors, self.variance, self.truth,
        )  # fmt: skip
        self.mode = layer.normalization("VALID")
        self.matched, self.total = len(self.chosen.image), self.count * boxes
        self.divisor = layer.divisor(self.mode, self.matched, self.total, self.count)
        self.gy = layer.loss_weights[0] if layer.loss_weights else 1.0
        self.y = float(net.tops(index)[0].data.reshape(-1)[0])
        flags = list(layer.message.propagate_down) or [True] * 4
        self.sends_offsets, self.sends_scores = bool(flags[0]), bool(flags[1])

    @property
    def softmax(self) -> bool:
        return bool(self.o.conf_loss_type == "SOFTMAX")

    @property
    def squared(self) -> bool:
        return bool(self.o.loc_loss_type == "L2")

    @property
    def objects(self) -> int:
        return sum(len(truth.boxes) for truth in self.truth)

    @property
    def in_target(self) -> bool:
        return bool(self.o.encode_variance_in_target)

    @property
    def names(self) -> tuple[str, ...]:
        return _CENTRES if self.o.code_type == "CENTER_SIZE" else _CORNERS

    @property
    def background(self) -> Array:
        """Which of the boxes that count for the classes are to be background."""
        return np.asarray(self.chosen.score_label == self.layer.background)


# --- formulas ------------------------------------------------------------------------------------------------------


def _slope(seen: _Seen) -> str:
    """Of the loss of one offset by p."""
    slope = "d" if seen.squared else "clip(d, -1, 1)"
    ignored = seen.layer.dialect.multibox_ignores_variance
    return f"{slope} / variance" if seen.in_target and not ignored else slope


def _difference(seen: _Seen) -> str:
    return "(p - t) / variance" if seen.in_target else "p - t"


def _weight(seen: _Seen) -> str:
    return "" if seen.o.loc_weight == 1 else f"{seen.o.loc_weight:g} "


def _class_slope(seen: _Seen) -> str:
    return f"{'softmax' if seen.softmax else 'sigmoid'}(s) - onehot(label)"


def _formula(seen: _Seen) -> list[str]:
    lines = [f"{_counted(seen)}; divisor {seen.divisor:g}"]
    if seen.sends_scores:
        lines.append(f"score gradient {shapes_text(seen.shapes[1:2])} = ({_class_slope(seen)}) gy / divisor "
                     f"at {len(seen.chosen.score_image)} boxes, else 0")  # fmt: skip
    if seen.sends_offsets:
        lines.append(f"offset gradient {shapes_text(seen.shapes[:1])} = {_weight(seen)}{_slope(seen)} gy / divisor, "
                     f"d = {_difference(seen)}, at {seen.matched} boxes, else 0")  # fmt: skip
    return lines


def _counted(seen: _Seen) -> str:
    background = f"{seen.background.sum()} count as background"
    return f"{seen.matched} of {seen.total} default boxes answer for {seen.objects} objects, {background}"


# --- who counts ----------------------------------------------------------------------------------------------------


def _who_counts(seen: _Seen) -> list[str]:
    o = seen.o
    by = "default boxes" if o.use_prior_for_matching else "predicted boxes"
    lines = [
        "Told as one layer; who counts is chosen first, and has no gradient.",
        f"  matching  each object takes the one of the {by} that it overlaps most (intersection over union), the best "
        "pairs first",
    ]
    if o.match_type == "PER_PREDICTION":
        limit = f"{o.overlap_threshold:g}"
        lines.append(
            f"            each box that is left takes the object it overlaps most, if that is by {limit} or more"
        )
    lines.append(f"            here: {_counted(seen)}")
    lines += _mining(seen)
    lines.append(f"  targets   t = {_code(seen)}")
    return [*lines, f"  divisor   {_divided(seen)}", ""]


def _mining(seen: _Seen) -> list[str]:
    o = seen.o
    if seen.layer.mining == "NONE":
        return ["  mining    none: every box that is not matched counts as background"]
    if seen.layer.mining == "HARD_EXAMPLE":
        return [f"  mining    of each picture the {o.sample_size} boxes with the largest loss count, matched or not"]
    return [
        f"  mining    of the others, those that overlap no object by {o.neg_overlap:g}, the ones with the largest loss "
        "count as background:",
        f"            at most {o.neg_pos_ratio:g} for each matched box; all others are asked for nothing",
    ]


def _code(seen: _Seen) -> str:
    over = "" if seen.in_target else " / variance"
    if seen.o.code_type == "CORNER":
        return f"(corner of the object - corner of the default box){over}"
    if seen.o.code_type == "CORNER_SIZE":
        return f"(corner of the object - corner of the default box) / size of the default box{over}"
    return f"((centre - default centre) / default size, log(size / default size)){over}"


def _divided(seen: _Seen) -> str:
    meaning = {
        "VALID": "the matched boxes of the batch",
        "BATCH_SIZE": "the pictures of the batch",
        "FULL": "all default boxes of the batch",
        "NONE": "nothing is divided",
    }[str(seen.mode)]
    return f"{seen.divisor:g}: {meaning} (normalization {seen.mode}{', at least 1' if seen.mode == 'VALID' else ''})"


# --- how the way back follows --------------------------------------------------------------------------------------


def _derivation(seen: _Seen) -> list[str]:
    places = "e(d) = d^2 / 2" if seen.squared else "e(d) = d^2 / 2 where |d| < 1, else |d| - 1/2"
    entropy = "sum of max(s, 0) - s o + log(1 + exp(-|s|)), o = onehot(label)"
    classes = "-log softmax(s)[label]" if seen.softmax else entropy
    slope = "e has the slope d" if seen.squared else "e has the slope d where |d| < 1, else sign(d): clip(d, -1, 1)"
    same = "softmax" if seen.softmax else "sigmoid"
    lines = [
        f"  forward   y = (sum of c over boxes that count + {_weight(seen)}sum of e over matched boxes) / divisor",
        f"            c = {classes};  d = {_difference(seen)};  {places}",
        "  how the way back follows (L the loss, gy = dL/dy)",
        "    who counts, the targets and the divisor are constants from here on: what moves them a little is left out",
        f"    c has the slope {same}(s) - onehot(label) by s: what was said minus what is true",
        f"    {slope}" + (", and dd/dp = 1 / variance" if seen.in_target else ", and dd/dp = 1"),
        "    a box that does not count is in no sum: its gradient is 0",
        f"  backward  gs = ({_class_slope(seen)}) gy / divisor",
        f"            gp = {_weight(seen)}{_slope(seen)} gy / divisor",
    ]
    if seen.in_target and seen.layer.dialect.multibox_ignores_variance:
        lines.append("            (Caffe leaves out the division by the variance on the way back: no derivative)")
    method = place_of(MultiBoxLoss.compute)
    return [*lines, f"  computed in {method} (MultiBoxLoss.compute), of operations that go back by themselves"]


# --- numbers -------------------------------------------------------------------------------------------------------


def _numbers(seen: _Seen) -> list[str]:
    if not len(seen.chosen.score_image) and not seen.matched:
        return ["  in numbers: no box of this batch counts, y = 0"]
    lines = [f"  in numbers, of this layer (gy = {seen.gy:g}, divisor {seen.divisor:g}):"]
    if seen.matched:
        lines += _of_match(seen, 0)
    mined = np.flatnonzero(seen.background)
    if len(mined):
        place = int(mined[0])
        image, box = int(seen.chosen.score_image[place]), int(seen.chosen.score_box[place])
        lines.append(f"    image {image}, default box {box}, which counts as background:")
        lines += _of_scores(seen, image, box, seen.layer.background)
    return [
        *lines,
        f"    y = {seen.y:.6g}; gp and gs are what the layer sent back",
    ]


def _of_match(seen: _Seen, match: int) -> list[str]:
    chosen = seen.chosen
    image, place, box = (int(a[match]) for a in (chosen.image, chosen.place, chosen.box))
    truth = seen.truth[image]
    overlap = overlaps(seen.priors[box], truth.boxes)
    which = int(overlap.argmax())
    label = _label_of(seen, image, box)
    corners = " ".join(f"{value:.3g}" for value in seen.priors[box])
    wanted = " ".join(f"{value:.3g}" for value in truth.boxes[which])
    lines = [
        f"    image {image}, default box {box} ({corners}), which answers for an object of class {label}; it overlaps",
        f"    object {which} ({wanted}) by {overlap[which]:.2g}:",
    ]
    if seen.sends_offsets:
        p, t, inside = seen.offsets[image, box, place], chosen.target[match], chosen.inside[match]
        scale = inside / (seen.variance[box] if seen.in_target else 1.0)
        differences = _slopes(lambda values: _place_loss(seen, values, t, scale), p)
        rows = [
            (name, *map(_number, (p[i], t[i], (p[i] - t[i]) * scale[i], seen.g_offsets[image, box, place, i])),
             _number(differences[i]))
            for i, name in enumerate(seen.names)
        ]  # fmt: skip
        table = columns(("offset", "p", "t", "d", "gp", "by differences"), rows, left=1)
        lines += [f"      {line}" for line in table]
    return [*lines, *(_of_scores(seen, image, box, label) if seen.sends_scores else [])]


def _label_of(seen: _Seen, image: int, box: int) -> int:
    chosen = seen.chosen
    here = (chosen.score_image == image) & (chosen.score_box == box)
    return int(chosen.score_label[here][0]) if here.any() else -1


def _of_scores(seen: _Seen, image: int, box: int, label: int) -> list[str]:
    s, g = seen.scores[image, box], seen.g_scores[image, box]
    share = _softmax(s) if seen.softmax else 1 / (1 + np.exp(-s))
    differences = _slopes(lambda values: _score_loss(seen, values, label), s)
    others = [int(c) for c in np.argsort(-np.abs(g), kind="stable") if c != label][: _CLASSES - 1]
    shown = sorted([*([label] if label >= 0 else []), *others])
    rows = [
        (f"class {c}{' (background)' if c == seen.layer.background else ''}", _number(s[c]), _number(share[c]),
         "1" if c == label else "0", _number(g[c]), _number(differences[c]))
        for c in shown
    ]  # fmt: skip
    name = "softmax(s)" if seen.softmax else "sigmoid(s)"
    table = columns(("score", "s", name, "label", "gs", "by differences"), rows, left=1)
    left = len(s) - len(shown)
    return [*(f"      {line}" for line in table), *([f"      and {left} more classes"] if left else [])]


def _number(value: float) -> str:
    return f"{round(float(value), 5) + 0.0:.5f}".rstrip("0").rstrip(".") if np.isfinite(value) else str(value)


def _softmax(s: Array) -> Array:
    raised = np.exp(s - s.max())
    return np.asarray(raised / raised.sum())


def _place_loss(seen: _Seen, p: Array, t: Array, scale: Array) -> float:
    """The share that the offsets of one box have in gy y."""
    d = np.abs((p - t) * scale)
    e = d * d / 2 if seen.squared else np.where(d < 1, d * d / 2, d - 0.5)
    return float(seen.gy * seen.o.loc_weight * e.sum() / seen.divisor)


def _score_loss(seen: _Seen, s: Array, label: int) -> float:
    """The share that the scores of one box have in gy y."""
    if seen.softmax:
        c = float(np.logaddexp.reduce(s) - s[label])
    else:
        target = np.arange(len(s)) == label
        if seen.layer.mining == "NONE" and label == seen.layer.background:
            target = np.zeros(len(s), bool)  # such boxes have no class at all there
        c = float((np.logaddexp(0, s) - s * target).sum())
    return seen.gy * c / seen.divisor


def _slopes(loss: Callable[[Array], float], values: Array) -> Array:
    """By central differences."""
    found = np.zeros(len(values))
    for i in range(len(values)):
        step = np.zeros(len(values))
        step[i] = _STEP
        found[i] = (loss(values + step) - loss(values - step)) / (2 * _STEP)
    return found
