"""Layers that end in a loss: softmax, logistic, cost, yolo."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np

from undertow.core.variable import Variable
from undertow.darknet.detection.decode import Head, YoloHead
from undertow.darknet.files.layer_shape import LayerShape
from undertow.darknet.files.options_heads import YoloOptions
from undertow.darknet.files.options_layers import CostOptions, LayerOptions, SoftmaxOptions
from undertow.darknet.files.tree import check_tree, read_tree
from undertow.darknet.layers.layer import BuildContext, Layer, Pass, as_image, as_rows, computed
from undertow.darknet.layers.loss_functions import CostLoss, LogisticLoss, MarkMasked, SoftmaxLoss
from undertow.darknet.layers.yolo_assignment import YoloRule, YoloStatistics
from undertow.darknet.layers.yolo_loss import YoloLoss, yolo_output
from undertow.errors import FormatError, ShapeError
from undertow.functions.tap import tap

Array = np.ndarray[Any, Any]


class LossLayer(Layer):
    """A layer with a cost: what it says about the last pass is read off the operation that computed it."""

    _function: Any = None

    @property
    def cost(self) -> float:
        """What Darknet prints: 0 for a pass without truth."""
        return 0.0 if self._function is None else self._printed_cost()

    @property
    def loss_input(self) -> Array | None:
        """What the last pass's loss was computed from, to be searched for NaN; None when there was no such pass."""
        function = self._function
        return function.inputs[0].data if function is not None and function.inputs else None

    def _printed_cost(self) -> float:
        raise NotImplementedError(f"[{self.type}] does not say what its cost is")

    def release(self) -> None:
        super().release()
        self._function = None


class HeadLayer(LossLayer):
    """A loss layer that finds boxes."""

    classes: int
    max_boxes: int
    nms_kind: str = "default"
    beta_nms: float = 0.6

    @property
    def statistics(self) -> Any:
        """What Darknet prints about the last training pass, with a `line(layer)`; None when there was none."""
        return None

    @property
    def assignment(self) -> Any:
        """What the last training pass asked of the outputs: targets and weights; None when there was none."""
        return getattr(self._function, "assignment", None)

    def head(self) -> Head:
        """The last output, ready for `get_network_boxes`."""
        raise NotImplementedError(f"[{self.type}] has no boxes")


class Softmax(LossLayer):
    """Probabilities, and their cross entropy unless `noloss` (softmax_layer.c)."""

    type = "softmax"

    def __init__(self, options: LayerOptions, shape: LayerShape, context: BuildContext) -> None:
        super().__init__(options, shape, context)
        given = cast(SoftmaxOptions, options)
        self.groups = given.groups
        self._parts: int | tuple[int, ...] = given.groups
        self.temperature, self.noloss = given.temperature, given.noloss
        self.softmax_tree = None if given.tree is None else read_tree(context.find(given.tree, "tree", shape))
        if self.softmax_tree is not None and given.tree is not None:
            check_tree(self.softmax_tree, self.inputs, given.tree, context.shapes.file, shape.line, shape.index)
            self._parts = tuple(self.softmax_tree.group_size.tolist())
        self.spatial = given.spatial and self.dialect.softmax_spatial and self.c > 0 and given.tree is None

    def forward(self, x: Variable, run: Pass) -> Variable:
        # A place of its own for this layer's delta, which the layer before shares with nobody.
        self._delta_at = tap(x)
        operands = [self._rows(self._delta_at)]
        if run.truth is not None and not self.noloss:
            operands.append(self._rows(checked_truth(run.truth, self)))
        self._function = SoftmaxLoss(
            self._parts,
            self.temperature,
            temperature_in_gradient=self.dialect.temperature_in_gradient,
            straight_through=self.dialect.straight_through_heads,
            masked=self.softmax_tree is not None and self.dialect.softmax_tree_mask,
        )
        y, loss = self._function(*operands)
        self.loss = loss if len(operands) == 2 else None
        return self._unrows(y, x.shape)

    def _printed_cost(self) -> float:
        return float(self._function.printed_loss.sum())

    def _rows(self, x: Variable) -> Variable:
        """One softmax per row: per image, or per pixel with `spatial=1`."""
        return as_image(x, self).transpose(0, 2, 3, 1).reshape((-1, self.c)) if self.spatial else as_rows(x)

    def _unrows(self, y: Variable, shape: tuple[int, ...]) -> Variable:
        if not self.spatial:
            return y.reshape(shape)
        return y.reshape((shape[0], self.h, self.w, self.c)).transpose(0, 3, 1, 2)

    @property
    def element_loss(self) -> Array:
        """Darknet's `loss`: per element, (batch, outputs)."""
        return computed(self._function, self).printed_loss


class Logistic(LossLayer):
    """Probabilities and their cross entropy, each value by itself (logistic_layer.c)."""

    type = "logistic"

    def forward(self, x: Variable, run: Pass) -> Variable:
        self._delta_at = tap(x)
        operands = [as_rows(self._delta_at)]
        if run.truth is not None:
            operands.append(checked_truth(run.truth, self))
        self._function = LogisticLoss(self.dialect.straight_through_heads)
        y, loss = self._function(*operands)
        self.loss = loss if len(operands) == 2 else None
        return y.reshape(x.shape)

    def _printed_cost(self) -> float:
        return float(self._function.printed_loss.sum())

    @property
    def element_loss(self) -> Array:
        """Darknet's `loss`: per element, (batch, outputs)."""
        return computed(self._function, self).printed_loss


class Cost(LossLayer):
    """Squared, absolute or smooth error against the truth (cost_layer.c).

    `ratio` does nothing: the original works out a limit from it and then sets it to 0.
    """

    type = "cost"

    def __init__(self, options: LayerOptions, shape: LayerShape, context: BuildContext) -> None:
        super().__init__(options, shape, context)
        given = cast(CostOptions, options)
        self.kind, self.scale = given.kind, given.scale
        self._more = (given.noobject_scale, given.thresh, given.smooth) if self.dialect.cost_kinds else ()
        self._before = context.built[-1] if context.built and not self.dialect.cost_kinds else None

    def forward(self, x: Variable, run: Pass) -> Variable:
        x = as_rows(x)
        self._function = None
        if run.truth is None:
            return Variable(np.zeros_like(x.data), requires_grad=False)
        function = CostLoss(self._effective_kind(), self.scale, not self.dialect.cost_kinds, *self._more)
        truth = checked_truth(run.truth, self)
        self.loss = function(x, truth)
        self._function = function
        if self.kind == "masked" and self._before is not None:
            marked = MarkMasked()(run.outputs[-1], truth)
            run.replace_last(marked)
            self._before.take_output(marked)
        return Variable(function.error, requires_grad=False)

    def _printed_cost(self) -> float:
        return float(self._function.error.sum())

    def _effective_kind(self) -> str:
        """seg and wgan are squares where the dialect does not follow the GPU."""
        return self.kind if self.dialect.cost_kinds or self.kind not in ("seg", "wgan") else "sse"

    @property
    def delta(self) -> Array:
        """truth - prediction (for sse), without `scale`."""
        return super().delta if self._function is None else self._function.delta


class Yolo(HeadLayer):
    """Boxes for each cell and anchor, with YOLOv3's loss (yolo_layer.c)."""

    type = "yolo"

    def __init__(self, options: LayerOptions, shape: LayerShape, context: BuildContext) -> None:
        super().__init__(options, shape, context)
        given = cast(YoloOptions, options)
        self.classes, self.mask, self.total = given.classes, given.mask, given.num
        self.n = len(self.mask)
        self.biases = np.array(given.biases, np.float32)
        self.anchors = self.biases.reshape(-1, 2)
        self.max_boxes = given.max_boxes
        self.nms_kind, self.beta_nms = given.nms_kind, given.beta_nms
        self.given = given
        self.class_map = (
            None if given.map is None else read_class_map(context.find(given.map, "map", shape), given.classes)
        )

    def forward(self, x: Variable, run: Pass) -> Variable:
        x = as_image(x, self)
        self._function = None
        if not run.training or run.truth is None:
            return yolo_output(x, self.n, self.classes, self.given.scale_x_y, self.given.new_coords)
        function = YoloLoss(self._rule(run.net_size), self.dialect.straight_through_heads)
        self._delta_at = tap(x)
        y, self.loss = function(self._delta_at, run.truth)
        self._function = function
        return y

    def _printed_cost(self) -> float:
        return float(self._function.cost)

    @property
    def loss_input(self) -> Array | None:
        """As for every loss layer; None where the operation has found all of it finite, so that nobody looks again."""
        return None if self._function is not None and self._function.finite else super().loss_input

    @property
    def statistics(self) -> YoloStatistics | None:
        """What Darknet prints about the last training pass; None when there was none."""
        return None if self._function is None else self._function.assignment.statistics

    def head(self) -> Head:
        """The last output, ready for `get_network_boxes`."""
        return YoloHead(self.output, self.anchors, self.mask, self.classes, self.given.new_coords)

    def _rule(self, net_size: tuple[int, int]) -> YoloRule:
        given = self.given
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


def checked_truth(truth: Variable, layer: Layer) -> Variable:
    """The truth, (batch, outputs of the layer). Raises ShapeError when it has another size."""
    if truth.shape[1] != layer.inputs:
        raise ShapeError(
            f"the truth has {truth.shape[1]} values per sample, layer {layer.index} [{layer.type}] needs {layer.inputs}"
        )
    return truth


def read_class_map(path: str, classes: int) -> Array:
    """A file with one number per line: the class each class of the labels becomes. Raises FormatError."""
    try:
        lines = Path(path).read_text(encoding="utf-8").split()
        numbers = np.array([int(word) for word in lines])
    except (OSError, ValueError) as error:
        raise FormatError(
            f"the class map cannot be read: {error}",
            file=path,
            remedy="write one whole number on each line, and check map= in the cfg",
        ) from error
    wrong = numbers[(numbers < 0) | (numbers >= classes)]
    if len(wrong):
        raise FormatError(
            f"class {wrong[0]} in the class map, the yolo layer knows {classes}",
            file=path,
            remedy="correct the map, or classes in [yolo]",
        )
    return numbers
