"""The loss of a region layer as one operation: activation, truth assignment and gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from undertow.core.function import Function
from undertow.core.registry import Sample, register
from undertow.core.variable import Operand
from undertow.darknet.layers.region_assignment import RegionAssignment, RegionRule, assign_region
from undertow.kernels import select

Array = np.ndarray[Any, Any]


def _samples(rng: np.random.Generator) -> list[Sample]:
    anchors = np.array([[0.6, 0.8], [1.5, 1.2]])
    truth = np.zeros((2, 4, 7))
    truth[0, :2] = (0.3, 0.4, 0.25, 0.3, 0.2, 0.7, 1), (0.8, 0.7, 0.4, 0.5, 0.9, 0.1, 0)
    truth[1, :1] = (0.6, 0.1, 0.3, 0.3, 0.5, 0.5, 0)

    def sample(note: str, seen: int = 20000, coords: int = 4, **options: Any) -> Sample:
        rule = RegionRule(anchors, classes=2, coords=coords, threshold=0.3, match_anchors=True, **options)
        x = rng.standard_normal((2, 2 * rule.entries, 3, 4))
        rows = np.concatenate([truth[..., :coords], truth[..., -1:]], axis=2).reshape(2, -1)
        return Sample((x,), lambda x: region_loss(x, rows, rule, seen), note=note)

    return [
        sample("softmax", softmax=True, object_scale=5.0, class_scale=2.0),
        sample("logistic classes, before the end of the warm-up", seen=0),
        sample("mask coefficients", coords=6, mask_scale=1.5),
        sample("background", softmax=True, background=True, noobject_scale=0.5),
    ]


@register(
    "region_loss",
    gradient="once",
    forward=(
        "y = logistic(x) for x, y, objectness (and masks), softmax(x) or logistic(x) for classes, x for w, h; loss = "
        "sum of weight e, e = (target - y)^2 / 2, for classes -log y of the target or the binary cross entropy"
    ),
    backward="gx = gloss weight (y - target) s + slope gy, s = y (1 - y) for x, y, objectness (and masks), else 1",
    samples=_samples,
)
class RegionLoss(Function):
    """Outputs and loss of a region layer.

    The loss is the one whose gradient Darknet's GPU code sends back: half the squared error of boxes and objectness,
    cross entropy of the classes. With `rescore` the overlap that objectness should be is taken as a constant, as are
    the choices of who answers for what. What Darknet prints as cost is the sum of squares of `delta`.

    The second input is the truth, without a gradient; left out, there is no loss. seen: tells how many samples were
    seen in training. straight_through: see `Dialect.straight_through_heads`.
    """

    def __init__(self, rule: RegionRule, seen: Callable[[], int], straight_through: bool = False) -> None:
        self.rule, self.seen, self.straight_through = rule, seen, straight_through
        self.assignment: RegionAssignment | None = None
        self._y: Array

    def forward(self, x: Array, truth: Array | None = None) -> tuple[Array, Array]:
        batch, _, height, width = x.shape
        raw = np.ascontiguousarray(x).reshape(batch, self.rule.n, self.rule.entries, height, width)
        self._y = activate_region(raw, self.rule)
        self.assignment, loss = None, 0.0
        if truth is not None:
            self.assignment = assign_region(self._y, truth.astype(x.dtype, copy=False), self.rule, self.seen())
            loss = self._loss(raw)
        return self._y.reshape(x.shape), np.asarray(loss, x.dtype)

    def backward(self, gy: Array, gloss: Array) -> tuple[Array | None, ...]:
        y = self._y
        gx = np.zeros_like(y)
        if self.assignment is not None:
            gx -= gloss * self.assignment.delta()
            for part in squared_parts(self.rule):
                gx[:, :, part] *= y[:, :, part] * (1 - y[:, :, part])
        if gy.any():
            gy = gy.reshape(y.shape)
            gx += gy if self.straight_through else _through_activation(gy, y, self.rule)
        return (gx.reshape(self.inputs[0].shape), None)[: len(self.inputs)]

    @property
    def delta(self) -> Array:
        """Darknet's delta, in the shape of the input; 0 without truth."""
        delta = np.zeros_like(self._y) if self.assignment is None else self.assignment.delta()
        return delta.reshape(len(delta), -1, *delta.shape[3:])

    def _loss(self, raw: Array) -> float:
        assert self.assignment is not None
        rule, target, weight = self.rule, self.assignment.target, self.assignment.weight
        scores = softmax_part(rule)
        squares = slice(0, min(scores.start, rule.coords + 1))
        error = target[:, :, squares] - self._y[:, :, squares]
        total = 0.5 * float(np.sum(weight[:, :, squares] * error * error, dtype=np.float64))
        x, t, w = raw[:, :, scores], target[:, :, scores], weight[:, :, scores]
        if rule.softmax or rule.tree is not None:
            logs = x - _log_sums(x, rule)
            return total - float(np.sum(w * t * logs, dtype=np.float64))
        if rule.background:
            error = target[:, :, rule.coords] - self._y[:, :, rule.coords]
            total += 0.5 * float(np.sum(weight[:, :, rule.coords] * error * error, dtype=np.float64))
            x, t, w = x[:, :, 1:], t[:, :, 1:], w[:, :, 1:]
        return total + float(np.sum(w * (np.logaddexp(0, x) - t * x), dtype=np.float64))


def region_loss(x: Operand, truth: Operand, rule: RegionRule, seen: int = 0) -> Any:
    """Outputs and summed loss of a region layer, see `RegionLoss`.

    x: (batch, n*(coords + 1 + classes), h, w). truth: (batch, values), see `assign_region`. seen: samples seen in
    training.
    Returns (outputs of the shape of x, loss of shape ()).
    """
    return RegionLoss(rule, lambda: seen)(x, truth)


def activate_region(raw: Array, rule: RegionRule) -> Array:
    """The output for an input (batch, n, entries, h, w)."""
    y = raw.copy()
    for part in logistic_parts(rule):
        y[:, :, part] = select.activate(np.ascontiguousarray(raw[:, :, part]), "logistic")
    if rule.softmax or rule.tree is not None:
        scores = raw[:, :, softmax_part(rule)]
        y[:, :, softmax_part(rule)] = np.exp(scores - _log_sums(scores, rule))
    return y


def softmax_part(rule: RegionRule) -> slice:
    """The classes, and with `background` objectness beside them."""
    return slice(rule.coords + (not (rule.background and rule.tree is None)), None)


def squared_parts(rule: RegionRule) -> list[slice]:
    """Entries that pass the logistic and whose error is squared."""
    parts = [slice(0, 2)]
    if rule.coords > 4 and rule.logistic_masks:
        parts.append(slice(4, rule.coords))
    if not rule.background:
        parts.append(slice(rule.coords, rule.coords + 1))
    return parts


def logistic_parts(rule: RegionRule) -> list[slice]:
    """Entries that pass the logistic."""
    classes = [] if rule.softmax or rule.tree is not None else [slice(rule.coords + 1, None)]
    return squared_parts(rule) + classes


def _over_groups(reduction: np.ufunc, values: Array, rule: RegionRule) -> Array:
    """A reduction over the scores (axis 2), in a tree over each group, at every place of it."""
    if rule.tree is None:
        return np.broadcast_to(reduction.reduce(values, axis=2, keepdims=True), values.shape)
    return np.repeat(reduction.reduceat(values, rule.tree.group_offset, axis=2), rule.tree.group_size, axis=2)


def _log_sums(scores: Array, rule: RegionRule) -> Array:
    """log of the sum of e^score, without overflow."""
    largest = _over_groups(np.maximum, scores, rule)
    found: Array = largest + np.log(_over_groups(np.add, np.exp(scores - largest), rule))
    return found


def _through_activation(gy: Array, y: Array, rule: RegionRule) -> Array:
    """Gradients of the outputs through the derivative of the activation."""
    gx = np.array(gy)
    for part in logistic_parts(rule):
        gx[:, :, part] *= y[:, :, part] * (1 - y[:, :, part])
    if rule.softmax or rule.tree is not None:
        scores = softmax_part(rule)
        p, g = y[:, :, scores], gy[:, :, scores]
        gx[:, :, scores] = p * (g - _over_groups(np.add, g * p, rule))
    return gx
