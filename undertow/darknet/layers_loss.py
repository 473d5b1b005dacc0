"""Layers that end in a loss: softmax, cost, yolo."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np

from undertow.core.variable import Variable
from undertow.darknet.decode import YoloHead, activate_yolo
from undertow.darknet.functions import tap
from undertow.darknet.layer import BuildContext, Layer, Pass, as_image, as_rows
from undertow.darknet.layer_shape import LayerShape
from undertow.darknet.loss_functions import CostLoss, SoftmaxLoss
from undertow.darknet.options_heads import YoloOptions
from undertow.darknet.options_layers import CostOptions, LayerOptions, SoftmaxOptions
from undertow.darknet.yolo_assignment import TRUTH_VALUES, YoloRule, YoloStatistics
from undertow.darknet.yolo_loss import YoloLoss
from undertow.errors import FormatError, ShapeError

Array = np.ndarray[Any, Any]

# Marks truth values that do not count (cost type masked); Darknet's SECRET_NUM.
MASKED_TRUTH = -1234


class Softmax(Layer):
    """Probabilities, and their cross entropy unless `noloss` (softmax_layer.c)."""

    type = "softmax"

    def __init__(self, options: LayerOptions, shape: LayerShape, context: BuildContext) -> None:
        super().__init__(options, shape, context)
        given = cast(SoftmaxOptions, options)
        if given.tree is not None:
            raise FormatError("softmax with a class tree is not supported yet", line=shape.line, layer=shape.index)
        self.groups, self.temperature, self.noloss = given.groups, given.temperature, given.noloss
        self.spatial = given.spatial and self.dialect.softmax_spatial and self.c > 0
        self._function: SoftmaxLoss | None = None

    def forward(self, x: Variable, run: Pass) -> Variable:
        # A place of its own for this layer's delta, which the layer before shares with nobody.
        self._delta_at = tap(x)
        truth = None if self.noloss or run.truth is None else truth_rows(run.truth, self)
        rows, truth = self._rows(self._delta_at, truth)
        self._function = SoftmaxLoss(
            truth,
            self.groups,
            self.temperature,
            temperature_in_gradient=self.dialect.temperature_in_gradient,
            straight_through=self.dialect.straight_through_heads,
        )
        y, loss = self._function(rows)
        self.cost = 0.0
        if truth is not None:
            self.loss, self.cost = loss, float(self._function.printed_loss.sum())
        return self._unrows(y, x.shape)

    def _rows(self, x: Variable, truth: Array | None) -> tuple[Variable, Array | None]:
        """One softmax per row: per image, or per pixel with `spatial=1`."""
        if not self.spatial:
            return as_rows(x), truth
        image = as_image(x, self).transpose(0, 2, 3, 1).reshape((-1, self.c))
        if truth is not None:
            truth = truth.reshape(-1, self.c, self.h, self.w).transpose(0, 2, 3, 1).reshape(-1, self.c)
        return image, truth

    def _unrows(self, y: Variable, shape: tuple[int, ...]) -> Variable:
        if not self.spatial:
            return y.reshape(shape)
        return y.reshape((shape[0], self.h, self.w, self.c)).transpose(0, 3, 1, 2)

    @property
    def element_loss(self) -> Array:
        """Darknet's `loss`: per element, (batch, outputs)."""
        if self._function is None or self._function.truth is None:
            return np.zeros((len(self.output), self.outputs), self.output.dtype)
        return self._function.printed_loss


class Cost(Layer):
    """Squared, absolute or smooth error against the truth (cost_layer.c)."""

    type = "cost"

    def __init__(self, options: LayerOptions, shape: LayerShape, context: BuildContext) -> None:
        super().__init__(options, shape, context)
        given = cast(CostOptions, options)
        self.kind, self.scale = given.kind, given.scale
        self._function: CostLoss | None = None

    def forward(self, x: Variable, run: Pass) -> Variable:
        x = as_rows(x)
        self.cost, self._function = 0.0, None
        if run.truth is None:
            return Variable(np.zeros_like(x.data), requires_grad=False)
        truth = truth_rows(run.truth, self)
        if self.kind == "masked":
            # The original writes the mark into its input as well, so that the difference is 0 there.
            truth = np.where(truth == MASKED_TRUTH, x.data, truth)
        self._function = CostLoss(truth, self._effective_kind(), self.scale, wrong_sign=not self.dialect.cost_kinds)
        self.loss = self._function(x)
        self.cost = float(self._function.error.sum())
        return Variable(self._function.error, requires_grad=False)

    def _effective_kind(self) -> str:
        """seg and masked are squares; wgan is its own only where the dialect follows the GPU."""
        if self.kind in ("L1", "smooth") or (self.kind == "wgan" and self.dialect.cost_kinds):
            return self.kind
        return "sse"

    @property
    def delta(self) -> Array:
        """truth - prediction (for sse), without `scale`."""
        if self._function is None:
            return super().delta
        return self._function.delta


class Yolo(Layer):
    """Boxes for each cell and anchor, with YOLOv3's loss (yolo_layer.c)."""

    type = "yolo"

    def __init__(self, options: LayerOptions, shape: LayerShape, context: BuildContext) -> None:
        super().__init__(options, shape, context)
        given = cast(YoloOptions, options)
        self.classes, self.mask, self.total = given.classes, given.mask, given.num
        self.n = len(self.mask)
        self.biases = np.array(given.anchors, np.float32)
        self.anchors = self.biases.reshape(-1, 2)
        self.max_boxes = given.max_boxes
        self.given = given
        self.class_map = None if given.map is None else read_class_map(given.map, given.classes)
        self.statistics: YoloStatistics | None = None
        self._function: YoloLoss | None = None

    def forward(self, x: Variable, run: Pass) -> Variable:
        x = as_image(x, self)
        self.cost, self._function, self.statistics = 0.0, None, None
        if not run.training or run.truth is None:
            y = activate_yolo(x.data, self.n, self.classes, self.given.scale_x_y, self.given.new_coords)
            return Variable(y, requires_grad=False)
        self._function = YoloLoss(run.truth, self._rule(run.net_size), self.dialect.straight_through_heads)
        self._delta_at = tap(x)
        y, self.loss = self._function(self._delta_at)
        self.cost = float(np.sum(np.square(self._function.delta), dtype=np.float64))
        self.statistics = self._function.assignment.statistics
        return y

    def head(self) -> YoloHead:
        """The last output, ready for `get_network_boxes`."""
        return YoloHead(self.output, self.anchors, self.mask, self.classes, self.given.new_coords)

    def _rule(self, net_size: tuple[int, int]) -> YoloRule:
        given = self.given
        if given.scale_x_y != 1 or given.new_coords:
            raise FormatError(
                "training a yolo layer with scale_x_y or new_coords is not supported yet",
                line=self.shape.line,
                layer=self.index,
                remedy="use it for detection only, or set scale_x_y=1 and new_coords=0",
            )
        return YoloRule(
            anchors=self.anchors,
            mask=self.mask,
            classes=self.classes,
            net_size=net_size,
            ignore_threshold=given.ignore_thresh,
            truth_threshold=given.truth_thresh,
            max_boxes=given.max_boxes,
            class_map=self.class_map,
            reset_by_zero_delta=self.dialect.class_reset_by_zero_delta,
        )


def truth_rows(truth: Array, layer: Layer) -> Array:
    """Truth as (batch, outputs of the layer). Raises ShapeError when it has another size."""
    rows = truth.reshape(truth.shape[0], -1)
    if rows.shape[1] != layer.inputs:
        raise ShapeError(
            f"the truth has {rows.shape[1]} values per sample, layer {layer.index} [{layer.type}] needs {layer.inputs}"
        )
    return rows


def read_class_map(path: str, classes: int) -> Array:
    """A file with one number per line: the class each class of the labels becomes. Raises FormatError."""
    try:
        lines = Path(path).read_text(encoding="utf-8").split()
        numbers = np.array([int(word) for word in lines])
    except (OSError, ValueError) as error:
        raise FormatError(f"the class map cannot be read: {error}", file=path) from error
    wrong = numbers[(numbers < 0) | (numbers >= classes)]
    if len(wrong):
        raise FormatError(f"class {wrong[0]} in the class map, the yolo layer knows {classes}", file=path)
    return numbers


__all__ = ["TRUTH_VALUES", "Cost", "Softmax", "Yolo"]
