"""SSD's layers without a gradient: default boxes (PriorBox), and detections from them (DetectionOutput)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from undertow.caffe.blob import Blob
from undertow.caffe.layer import Layer, NoGradient, Results, Shapes
from undertow.caffe.layers_forks import image_shape
from undertow.core.variable import Variable

Array = np.ndarray[Any, Any]
Variables = Sequence[Variable]


class PriorBox(Layer):
    """Boxes of several sizes and shapes at every place of a feature map, in parts of the image, and their variances.

    Bottoms: the feature map and the image; only their sizes count, so nothing is sent back. Top: (1, 2, boxes * 4).
    Sizes are cut to whole pixels, as in the original.
    """

    def allow_force_backward(self, index: int) -> bool:
        return False

    def setup(self, bottom: Shapes, tops: int) -> None:
        o = self.message.prior_box_param
        self.smallest = [int(size) for size in o.min_size]
        self.largest = [int(size) for size in o.max_size]
        if not self.smallest or min(self.smallest) < 1:
            raise self.refusal("min_size must be given, 1 or more", "write min_size: 30", "prior_box_param")
        if self.largest and (
            len(self.largest) != len(self.smallest)
            or any(a >= b for a, b in zip(self.smallest, self.largest, strict=False))
        ):
            raise self.refusal(f"max_size {self.largest} must be larger than min_size {self.smallest}, one for each")
        if len(o.variance) not in (0, 1, 4) or any(v <= 0 for v in o.variance):
            raise self.refusal(f"variance is given 0, 1 or 4 times, above 0, got {list(o.variance)}")
        self.ratios = [1.0]
        for ratio in o.aspect_ratio:
            if ratio <= 0:
                raise self.refusal(f"an aspect_ratio must be above 0, got {ratio:g}", field="prior_box_param")
            if all(abs(ratio - known) >= 1e-6 for known in self.ratios):
                self.ratios += [ratio, 1 / ratio] if o.flip else [ratio]

    def top_shapes(self, bottom: Shapes) -> Shapes:
        height, width = image_shape(self, bottom[0])[2:]
        image_shape(self, bottom[1])
        return [(1, 2, height * width * len(self._sizes()) * 4)]

    def _sizes(self) -> list[tuple[float, float]]:
        """Width and height in pixels of the boxes at one place."""
        found = []
        for index, small in enumerate(self.smallest):
            found.append((float(small), float(small)))
            if self.largest:
                side = math.sqrt(small * self.largest[index])
                found.append((side, side))
            roots = [math.sqrt(ratio) for ratio in self.ratios[1:]]
            found += [(small * root, small / root) for root in roots]
        return found

    def compute(self, bottom: Variables, params: Variables) -> Results:
        o = self.message.prior_box_param
        (rows, columns), (image_h, image_w) = bottom[0].shape[2:], bottom[1].shape[2:]
        image_h, image_w = o.img_h or o.img_size or image_h, o.img_w or o.img_size or image_w
        step_y, step_x = o.step_h or o.step or image_h / rows, o.step_w or o.step or image_w / columns
        centre = np.stack(
            np.broadcast_arrays(
                ((np.arange(columns) + o.offset) * step_x)[None, :], ((np.arange(rows) + o.offset) * step_y)[:, None]
            ),
            -1,
        )[:, :, None]
        half = np.array(self._sizes())[None, None] / 2
        boxes = np.concatenate([centre - half, centre + half], -1) / [image_w, image_h, image_w, image_h]
        if o.clip:
            boxes = boxes.clip(0, 1)
        variance = np.broadcast_to(np.array(o.variance or [0.1]), boxes.shape)
        return np.stack([boxes.reshape(-1), variance.reshape(-1)])[None].astype(bottom[0].dtype)


class DetectionOutput(NoGradient):
    """Boxes and classes decoded, weak ones left out, overlapping ones suppressed class by class.

    Bottoms: offsets (n, boxes * 4), scores (n, boxes * classes), default boxes (1, 2, boxes * 4). Top: (1, 1, found, 7)
    with rows image, class, score, left, top, right, bottom; where nothing is found, one row per image of -1.
    """

    def setup(self, bottom: Shapes, tops: int) -> None:
        o = self.message.detection_output_param
        if o.num_classes < 1:
            raise self.refusal("num_classes must be given", "write num_classes: 21", "detection_output_param")
        if o.nms_param.nms_threshold < 0 or not 0 < o.nms_param.eta <= 1:
            raise self.refusal(
                "nms_threshold must be 0 or more and eta above 0 up to 1", field="detection_output_param"
            )
        self._found = 1
        self._rows: Array | None = None

    def top_shapes(self, bottom: Shapes) -> Shapes:
        o = self.message.detection_output_param
        count, last = math.prod(bottom[2][2:]) // 4, 1 if o.share_location else o.num_classes
        sizes = [math.prod(shape[1:]) for shape in bottom[:2]]
        if sizes != [count * last * 4, count * o.num_classes] or bottom[0][0] != bottom[1][0]:
            raise self.error(
                f"{count} default boxes and {o.num_classes} classes need bottoms (n, {count * last * 4}) and "
                f"(n, {count * o.num_classes}), got {bottom[0]} and {bottom[1]}"
            )
        return [(1, 1, self._found, 7)]

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> float:
        self._rows = self.detections(*(blob.data for blob in bottom[:3]))
        self._found = len(self._rows)
        self._bottom_shapes = None
        loss = super().forward(bottom, top)
        self._rows = None
        return loss

    def compute(self, bottom: Variables, params: Variables) -> Results:
        rows = self.detections(*(x.data for x in bottom[:3])) if self._rows is None else self._rows
        return rows.reshape(1, 1, -1, 7)

    def detections(self, offsets: Array, scores: Array, priors: Array) -> Array:
        """All rows."""
        o = self.message.detection_output_param
        boxes, variance = priors.reshape(2, -1, 4)
        offsets = offsets.reshape(len(offsets), len(boxes), -1, 4)
        scores = scores.reshape(len(scores), len(boxes), -1)
        rows: list[Array] = []
        for image in range(len(offsets)):
            kept: list[tuple[int, int]] = []
            decoded = {}
            for label in range(o.num_classes):
                if label == o.background_label_id:
                    continue
                place = 0 if o.share_location else label
                if place not in decoded:
                    decoded[place] = self.decode(offsets[image, :, place], boxes, variance)
                kept += [(label, int(i)) for i in self.suppress(decoded[place], scores[image, :, label])]
            if 0 <= o.keep_top_k < len(kept):
                best = sorted(kept, key=lambda pair: -scores[image, pair[1], pair[0]])[: o.keep_top_k]
                kept = sorted(best, key=lambda pair: pair[0])
            for label, index in kept:
                box = decoded[0 if o.share_location else label][index]
                rows.append(np.array([image, label, scores[image, index, label], *box]))
        if not rows:
            rows = [np.array([image, *[-1.0] * 6]) for image in range(len(offsets))]
        return np.stack(rows).astype(offsets.dtype)

    def decode(self, offsets: Array, boxes: Array, variance: Array) -> Array:
        """Corners (boxes, 4) from offsets of this code_type."""
        o = self.message.detection_output_param
        moved = offsets if o.variance_encoded_in_target else offsets * variance
        size = boxes[:, 2:] - boxes[:, :2]
        if o.code_type == "CORNER":
            return boxes + moved
        if o.code_type == "CORNER_SIZE":
            return boxes + moved * np.concatenate([size, size], 1)
        centre = (boxes[:, :2] + boxes[:, 2:]) / 2 + moved[:, :2] * size
        half = np.exp(moved[:, 2:]) * size / 2
        return np.concatenate([centre - half, centre + half], 1)

    def suppress(self, boxes: Array, scores: Array) -> list[int]:
        """The boxes that stay, by falling score; eta lowers the allowed overlap as boxes are taken."""
        o = self.message.detection_output_param
        nms = o.nms_param
        strong = np.arange(len(scores))
        if o.has_field("confidence_threshold"):
            strong = np.flatnonzero(scores > o.confidence_threshold)
        order = strong[np.argsort(-scores[strong], kind="stable")]
        if nms.has_field("top_k") and nms.top_k > -1:
            order = order[: nms.top_k]
        limit = nms.nms_threshold
        kept: list[int] = []
        for index in order:
            if not kept or overlaps(boxes[index], boxes[kept]).max() <= limit:
                kept.append(int(index))
                limit *= nms.eta if nms.eta < 1 and limit > 0.5 else 1
        return kept


def overlaps(box: Array, boxes: Array) -> Array:
    """Intersection over union of one box with others; 0 where there is no intersection."""
    size = np.minimum(box[2:], boxes[:, 2:]) - np.maximum(box[:2], boxes[:, :2])
    inner = np.where((size > 0).all(1), size.prod(1), 0)
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(1) + (box[2:] - box[:2]).prod()
    return np.divide(inner, areas - inner, out=np.zeros_like(inner), where=inner > 0)
