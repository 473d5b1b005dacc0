"""The heads before yolo: detection (YOLOv1), region (YOLOv2), iseg."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from undertow.core.variable import Variable
from undertow.darknet.detection.decode_detection import DetectionHead
from undertow.darknet.detection.decode_region import TREE_THRESHOLD, RegionHead
from undertow.darknet.files.layer_shape import LayerShape
from undertow.darknet.files.options_heads import DetectionOptions, IsegOptions, RegionOptions
from undertow.darknet.files.options_layers import LayerOptions
from undertow.darknet.files.tree import check_tree, read_tree
from undertow.darknet.layers.detection_loss import DetectionLoss, DetectionRule, DetectionStatistics
from undertow.darknet.layers.draws import SamplesSeen
from undertow.darknet.layers.iseg_loss import IsegLoss
from undertow.darknet.layers.layer import BuildContext, Pass, as_image, as_rows
from undertow.darknet.layers.layers_loss import HeadLayer, LossLayer, Yolo, read_class_map
from undertow.darknet.layers.region_assignment import RegionRule, RegionStatistics
from undertow.darknet.layers.region_loss import RegionLoss
from undertow.errors import FormatError

Array = np.ndarray[Any, Any]


class DeltaLossLayer(LossLayer):
    """A loss layer whose operation says what Darknet's delta is; printed as cost is the sum of its squares."""

    def _lossy(self, x: Variable, run: Pass, needs_training: bool = True) -> Variable:
        """The output; the loss when there is truth, for most of these layers only in training."""
        operands = [x]
        if run.truth is not None and (run.training or not needs_training):
            operands.append(run.truth)
        y, loss = self._function(*operands)
        self.loss = loss if len(operands) == 2 else None
        return cast(Variable, y)

    def _printed_cost(self) -> float:
        return float(np.sum(np.square(self._function.delta), dtype=np.float64))

    @property
    def delta(self) -> Array:
        """Of the loss, and what later layers added to it."""
        if self._function is None or self._output is None:
            return super().delta
        delta: Array = self._function.delta.reshape(self._output.shape)
        return delta if self._output.grad is None else delta - self._output.grad


class Detection(DeltaLossLayer, HeadLayer):
    """A grid of cells with boxes, and one set of classes for each cell (detection_layer.c)."""

    type = "detection"

    def __init__(self, options: LayerOptions, shape: LayerShape, context: BuildContext) -> None:
        super().__init__(options, shape, context)
        given = cast(DetectionOptions, options)
        if given.forced and given.num < 2:
            raise FormatError(
                "forced=1 in [detection] lets the second box answer for small objects, but num=1",
                line=shape.line,
                layer=shape.index,
                remedy="give num=2, or forced=0",
            )
        if given.coords < 4:
            raise FormatError(
                f"a box needs 4 coordinates, [detection] has coords={given.coords}",
                line=shape.line,
                layer=shape.index,
                remedy="give coords=4",
            )
        self.given, self.class_map = given, None
        self.classes, self.side, self.n, self.coords = given.classes, given.side, given.num, given.coords
        self.max_boxes = given.max_boxes
        self._seen, self._draws = SamplesSeen(context.seen), context.draws.of(self.index)
        self.rule = DetectionRule(
            side=given.side,
            num=given.num,
            classes=given.classes,
            coords=given.coords,
            softmax=given.softmax and given.classes > 0,
            sqrt=given.sqrt,
            rescore=given.rescore,
            forced=given.forced,
            random=given.random,
            coord_scale=given.coord_scale,
            object_scale=given.object_scale,
            noobject_scale=given.noobject_scale,
            class_scale=given.class_scale,
        )

    def forward(self, x: Variable, run: Pass) -> Variable:
        self._function = DetectionLoss(self.rule, self._seen, self._draws, self.dialect.straight_through_heads)
        return self._lossy(as_rows(x), run)

    @property
    def statistics(self) -> DetectionStatistics | None:
        """What Darknet prints about the last training pass; None when there was none."""
        assignment = None if self._function is None else self._function.assignment
        return None if assignment is None else assignment.statistics

    def head(self) -> DetectionHead:
        """The last output, ready for `get_network_boxes`."""
        return DetectionHead(self.output, self.rule)


class Region(DeltaLossLayer, HeadLayer):
    """Boxes for each cell and anchor, with YOLOv2's loss (region_layer.c). biases: the anchors, in cells.

    tree_threshold: see `RegionHead`.
    """

    type = "region"
    tree_threshold = TREE_THRESHOLD

    def __init__(self, options: LayerOptions, shape: LayerShape, context: BuildContext) -> None:
        super().__init__(options, shape, context)
        given = cast(RegionOptions, options)
        self.given = given
        self.classes, self.coords, self.n = given.classes, given.coords, given.num
        self.max_boxes = given.max_boxes
        self.biases = np.array(given.biases[: 2 * given.num], np.float32)
        self._seen = SamplesSeen(context.seen)
        self.class_map = (
            None if given.map is None else read_class_map(context.find(given.map, "map", shape), given.classes)
        )
        self.softmax_tree = None if given.tree is None else read_tree(context.find(given.tree, "tree", shape))
        if self.softmax_tree is not None and given.tree is not None:
            check_tree(self.softmax_tree, given.classes, given.tree, context.shapes.file, shape.line, shape.index)
        self.rule = RegionRule(
            anchors=self.biases.reshape(-1, 2),
            classes=given.classes,
            coords=given.coords,
            softmax=given.softmax and (given.classes > 0 or given.background),
            background=given.background,
            rescore=given.rescore,
            match_anchors=given.bias_match,
            threshold=given.thresh,
            coord_scale=given.coord_scale,
            mask_scale=given.mask_scale,
            object_scale=given.object_scale,
            noobject_scale=given.noobject_scale,
            class_scale=given.class_scale,
            tree=self.softmax_tree,
            class_map=self.class_map,
            logistic_masks=self.dialect.region_logistic_masks,
            misread_masks=self.dialect.region_masks_misread,
            joint_background=self.dialect.region_joint_background and given.softmax,
        )

    def forward(self, x: Variable, run: Pass) -> Variable:
        x = as_image(x, self)
        if not self.dialect.region_backward and run.training:
            x = Variable(x.data, requires_grad=False)
        self._function = RegionLoss(self.rule, self._seen, self.dialect.straight_through_heads)
        return self._lossy(x, run)

    @property
    def statistics(self) -> RegionStatistics | None:
        """What Darknet prints about the last training pass; None when there was none."""
        assignment = None if self._function is None else self._function.assignment
        return None if assignment is None else assignment.statistics

    def head(self) -> RegionHead:
        """The last output, ready for `get_network_boxes`."""
        return RegionHead(self.output, self.rule, self.tree_threshold)


# Heads that learn from labelled boxes: the truth of the first two is a list, of the last a grid of cells.
BoxHead = Yolo | Region | Detection


class Iseg(DeltaLossLayer):
    """Instance segmentation: classes and embeddings for each pixel (iseg_layer.c)."""

    type = "iseg"

    def __init__(self, options: LayerOptions, shape: LayerShape, context: BuildContext) -> None:
        super().__init__(options, shape, context)
        given = cast(IsegOptions, options)
        self.classes, self.extra = given.classes, given.ids

    def forward(self, x: Variable, run: Pass) -> Variable:
        self._function = IsegLoss(self.classes, self.dialect.iseg_fixed_means, self.dialect.straight_through_heads)
        return self._lossy(as_image(x, self), run, needs_training=False)
