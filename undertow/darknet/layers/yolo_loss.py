"""The loss of a yolo layer as one operation: activation, truth assignment and gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from undertow.core.function import Function
from undertow.core.registry import Sample, register
from undertow.core.variable import Operand, Variable
from undertow.darknet.detection.decode import activate_yolo
from undertow.darknet.layers.yolo_assignment import Assignment, YoloRule, assign
from undertow.darknet.layers.yolo_compiled import CompiledYolo
from undertow.kernels import select

Array = np.ndarray[Any, Any]


def _samples(rng: np.random.Generator) -> list[Sample]:
    rule = YoloRule(
        anchors=np.array([[4.0, 5.0], [10.0, 8.0]]),
        mask=(0, 1),
        classes=2,
        net_size=(32, 24),
        ignore_threshold=0.3,
        truth_threshold=1.0,
        max_boxes=90,
    )
    x = rng.standard_normal((2, 14, 3, 4))
    truth = np.zeros((2, 15))
    truth[0, :10] = (0.3, 0.4, 0.15, 0.2, 1, 0.32, 0.42, 0.3, 0.3, 0)
    truth[1, :5] = (0.8, 0.1, 0.3, 0.3, 0)

    return [Sample((x,), lambda x: yolo_loss(x, truth, rule), note="two anchors, two objects in one cell")]


@register(
    "yolo_loss",
    gradient="once",
    forward=(
        "y = logistic(x) for x, y, objectness and classes, x for w, h; loss = sum of weight (softplus(x) - target x) "
        "over the logistic ones + 1/2 sum of weight (target - x)^2 over w, h"
    ),
    backward="gx = gloss weight (y - target) + gy slope, slope = y (1 - y) for the logistic ones, else 1",
    samples=_samples,
)
class YoloLoss(Function):
    """Outputs and loss of a yolo layer.

    The loss is the one Darknet derives its deltas from: binary cross entropy of x, y, objectness and classes and half
    the squared error of w and h, box terms weighted with 2 - w*h.

    cost: what Darknet prints, the sum of squares of the deltas. finite: whether the last input held neither NaN nor
    infinity.

    The second input is the truth, without a gradient. straight_through: gradients of the outputs pass to the input
    unchanged (see `Dialect.straight_through_heads`).

    Compiled kernels do the same where they may (see `yolo_compiled.py`).
    """

    def __init__(self, rule: YoloRule, straight_through: bool = False) -> None:
        self.rule, self.straight_through = rule, straight_through
        self.assignment: Assignment
        self.finite, self.cost = False, 0.0
        self._compiled: CompiledYolo | None = None
        self._asked: Any = None

    def forward(self, x: Array, truth: Array) -> tuple[Array, Array]:
        truth = truth.astype(x.dtype, copy=False)
        self._compiled = self._compiled or CompiledYolo(self.rule)
        found = self._compiled.forward(x, truth)
        if found is not None:
            self.assignment, self.cost, self.finite, self._asked = found.assignment, found.cost, True, found.asked
            return found.y, np.asarray(found.loss, dtype=x.dtype)
        self._asked = None
        raw, y = _by_anchor(x, self.rule), _logistic(x)
        output = _by_anchor(y, self.rule)
        output[:, :, 2:4] = raw[:, :, 2:4]
        self.finite = _is_finite(x)
        self.assignment = assign(output, truth, self.rule)
        with np.errstate(over="ignore", invalid="ignore"):  # the loss itself shows it
            self.cost = self._cost()
            return y, np.asarray(self._loss(raw), dtype=x.dtype)

    def backward(self, gy: Array, gloss: Array) -> tuple[Array, None]:
        return self.backward_planned((None, None), (gy if gy.any() else None, gloss))

    def backward_planned(self, places: Sequence[Array | None], gys: Sequence[Array | None]) -> tuple[Array, None]:
        gy, gloss = gys
        factor = np.zeros((), self.inputs[0].data.dtype) if gloss is None else -gloss
        if self._asked is None or self._compiled is None:
            gx = self._delta(factor)
        else:
            gx = _by_anchor(self._compiled.backward(self._asked, factor, places[0]), self.rule)
        if gy is not None:
            gy = gy.reshape(gx.shape)
            gx = gx + (gy if self.straight_through else gy * self._slope())
        return gx.reshape(self.inputs[0].shape), None

    def _slope(self) -> Array:
        output = self.assignment.output
        slope = output * (1 - output)
        slope[:, :, 2:4] = 1
        return slope

    @property
    def delta(self) -> Array:
        """Darknet's delta, minus the gradient of the loss, in the shape of the input."""
        delta = self._delta(1)
        batch, n, values, height, width = delta.shape
        return delta.reshape(batch, n * values, height, width)

    def _cost(self) -> float:
        found = self.assignment
        if not self.finite:
            return float(np.sum(np.square(self.delta), dtype=np.float64))
        rows = found.cell_delta
        parts = (found.objectness_delta, rows[:, :4], rows[:, 5:])
        return float(sum(np.square(part).sum(dtype=np.float64) for part in parts))

    def _delta(self, factor: Any) -> Array:
        """factor times Darknet's delta, (batch, n, 5 + classes, h, w)."""
        found = self.assignment
        # Where nothing is asked for, weight 0 times a value that is not finite is not 0.
        with np.errstate(over="ignore", invalid="ignore"):
            rest = None if self.finite else factor * (0 * found.output)
            return found.spread(factor * found.objectness_delta, factor * found.cell_delta, rest)

    def _loss(self, raw: Array) -> float:
        """Summed only where something is asked for: most weights are zero."""
        found = self.assignment
        asked = found.objectness_weight != 0
        total = _entropy(raw[:, :, 4][asked], found.objectness_target[asked], found.objectness_weight[asked])
        x, target, weight = found.cells.of(raw), found.cell_target, found.cell_weight
        for part in (slice(0, 2), slice(5, None)):
            total += _entropy(x[:, part], target[:, part], weight[:, part])
        error = target[:, 2:4] - x[:, 2:4]
        total += 0.5 * float(np.sum(weight[:, 2:4] * error * error, dtype=np.float64))
        if not self.finite:
            rest = 0 * raw
            found.cells.put(rest, np.zeros_like(x))
            total += float(rest[:, :, 2:4].sum())
        return total


def _entropy(x: Array, target: Array, weight: Array) -> float:
    """Binary cross entropy of logistic(x)."""
    return float(np.sum(weight * (np.logaddexp(0, x) - target * x), dtype=np.float64))


def _is_finite(x: Array) -> bool:
    """Whether no value is NaN or infinite; one quick pass in the usual case."""
    flat = x.ravel(order="K")
    with np.errstate(over="ignore", invalid="ignore"):
        # A sum of finite squares may still overflow: then the slow way decides.
        return bool(np.isfinite(np.dot(flat, flat))) or bool(np.isfinite(flat).all())


def yolo_loss(x: Operand, truth: Operand, rule: YoloRule, straight_through: bool = False) -> Any:
    """Outputs and summed loss of a yolo layer, see `YoloLoss`.

    x: (batch, n*(5 + classes), h, w). truth: (batch, 5*boxes), each box x, y, w, h relative to the picture and a class;
    the list ends at x = 0. Returns (outputs of the shape of x, loss of shape ()).
    """
    return YoloLoss(rule, straight_through)(x, truth)


def _output_samples(rng: np.random.Generator) -> list[Sample]:
    def sample(scale_x_y: float, new_coords: bool) -> Sample:
        arrays = (rng.standard_normal((2, 14, 3, 2)),)
        note = f"scale_x_y={scale_x_y}, new_coords={new_coords}"
        return Sample(arrays, lambda x: yolo_output(x, 2, 2, scale_x_y, new_coords), note=note)

    return [sample(1.0, False), sample(1.5, False), sample(2.0, True)]


@register(
    "yolo_output",
    gradient="once",
    forward="y = logistic(x) for x, y, objectness and classes (x itself with new_coords), then s y - (s-1)/2 for x, y",
    backward="gx = gy logistic'(x), times s for x, y; gy for w, h",
    samples=_output_samples,
)
class YoloOutput(Function):
    """What a yolo layer gives at inference; see `undertow.darknet.detection.decode.activate_yolo`."""

    def __init__(self, n: int, classes: int, scale_x_y: float, new_coords: bool) -> None:
        self.n, self.classes, self.scale_x_y, self.new_coords = n, classes, scale_x_y, new_coords

    def forward(self, x: Array) -> Array:
        return activate_yolo(x, self.n, self.classes, self.scale_x_y, self.new_coords)

    def backward(self, gy: Array) -> Array:
        x = self.input.data
        gx = np.array(gy, order="C").reshape(len(x), self.n, 5 + self.classes, -1)
        if not self.new_coords:
            y = _logistic(np.ascontiguousarray(x)).reshape(gx.shape)
            for part in (slice(0, 2), slice(4, None)):
                gx[:, :, part] *= y[:, :, part] * (1 - y[:, :, part])
        gx[:, :, :2] *= self.scale_x_y
        return gx.reshape(x.shape)


def yolo_output(x: Operand, n: int, classes: int, scale_x_y: float = 1.0, new_coords: bool = False) -> Variable:
    """Output of a yolo layer with n anchors without its loss; x: (batch, n*(5 + classes), h, w)."""
    return YoloOutput(n, classes, scale_x_y, new_coords)(x)


def _by_anchor(x: Array, rule: YoloRule) -> Array:
    batch, _, height, width = x.shape
    return x.reshape(batch, len(rule.mask), 5 + rule.classes, height, width)


def _logistic(x: Array) -> Array:
    with np.errstate(over="ignore"):
        return select.activate(x, "logistic")
