"""SSD's layers without a gradient: default boxes (PriorBox), detections from them, and which of those are right."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from undertow.caffe.blob import Blob
from undertow.caffe.boxes import decode, overlaps, suppress
from undertow.caffe.layer import Layer, NoGradient, Results, Shapes
from undertow.caffe.layers_forks import image_shape
from undertow.caffe.proto.api import find_beside
from undertow.caffe.saved_detections import SavedDetections, missing_for_saving, read_name_sizes
from undertow.core.variable import Variable
from undertow.errors import FormatError, UndertowError, UndertowWarning, describe

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
            raise self.refusal(
                f"max_size {self.largest} must be larger than min_size {self.smallest}, one for each",
                remedy="write a larger max_size for each min_size, or none",
            )
        if len(o.variance) not in (0, 1, 4) or any(v <= 0 for v in o.variance):
            raise self.refusal(
                f"variance is given 0, 1 or 4 times, above 0, got {list(o.variance)}",
                remedy="write variance: 0.1 variance: 0.1 variance: 0.2 variance: 0.2",
            )
        self.ratios = [1.0]
        for ratio in o.aspect_ratio:
            if ratio <= 0:
                raise self.refusal(
                    f"an aspect_ratio must be above 0, got {ratio:g}",
                    field="prior_box_param",
                    remedy="write aspect_ratio: 2",
                )
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
                "nms_threshold must be 0 or more and eta above 0 up to 1",
                field="detection_output_param",
                remedy="write nms_threshold: 0.45, and eta: 1 or nothing",
            )
        # Published deploy.prototxts have the rest of save_output_param, without a folder: nothing is asked for.
        self.saved = self._open_files() if o.save_output_param.output_directory else None
        if o.visualize:
            self._warn("visualize is not followed: no pictures are shown",
                       "undertow scope shows boxes over pictures")  # fmt: skip
        self._found = 1
        self._rows: Array | None = None

    def _open_files(self) -> SavedDetections | None:
        """What writes the files that are asked for; None with a warning where the original writes none."""
        o = self.message.detection_output_param
        lacks = missing_for_saving(o.save_output_param)
        if lacks is not None:
            self._warn(f"no results are written: save_output_param has no {lacks}", f"write {lacks}: ...")
            return None
        try:
            return SavedDetections(o.save_output_param, o.background_label_id, self._path)
        except UndertowError as error:
            reason = describe(error.reason, error.file, error.line)
            raise self.refusal(reason, error.remedy, "detection_output_param") from error

    def _path(self, name: str) -> str:
        return find_beside(name, self.context.file) if self.context.file is not None else name

    def _warn(self, reason: str, remedy: str) -> None:
        text = describe(reason, line=self.message.line_of(), layer=self._label, remedy=remedy,
                        file=None if self.context.file is None else str(self.context.file))  # fmt: skip
        warnings.warn(UndertowWarning(text), stacklevel=3)

    def top_shapes(self, bottom: Shapes) -> Shapes:
        o = self.message.detection_output_param
        count, last = math.prod(bottom[2][2:]) // 4, 1 if o.share_location else o.num_classes
        sizes = [math.prod(shape[1:]) for shape in bottom[:2]]
        if sizes != [count * last * 4, count * o.num_classes] or bottom[0][0] != bottom[1][0]:
            raise self.error(
                f"{count} default boxes and {o.num_classes} classes need bottoms (n, {count * last * 4}) and "
                f"(n, {count * o.num_classes}), got {bottom[0]} and {bottom[1]}",
                remedy="count num_classes with the background, and 4 locations per default box",
            )
        return [(1, 1, self._found, 7)]

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> float:
        self._rows = self.detections(*(blob.data for blob in bottom[:3]))
        self._found = len(self._rows)
        self._bottom_shapes = None
        loss = super().forward(bottom, top)
        if self.saved is not None:
            self._save(len(bottom[0].data))
        self._rows = None
        return loss

    def _save(self, images: int) -> None:
        assert self._rows is not None
        assert self.saved is not None
        real = self._rows[self._rows[:, 1] >= 0]
        try:
            for image in range(images):
                self.saved.add(real[real[:, 0] == image, 1:])
        except FormatError as error:
            raise self.placed(error) from error

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
        return decode(offsets, boxes, variance, o.code_type, o.variance_encoded_in_target)

    def suppress(self, boxes: Array, scores: Array) -> list[int]:
        """The boxes that stay, by falling score."""
        o = self.message.detection_output_param
        strong = np.arange(len(scores))
        if o.has_field("confidence_threshold"):
            strong = np.flatnonzero(scores > o.confidence_threshold)
        top_k = o.nms_param.top_k if o.nms_param.has_field("top_k") else -1
        kept = suppress(boxes[strong], scores[strong], o.nms_param.nms_threshold, top_k=top_k, eta=o.nms_param.eta)
        return [int(index) for index in strong[kept]]


class DetectionEvaluate(NoGradient):
    """Which detections are right: each is compared with the objects of its image and class, best score first.

    Bottoms: detections (1, 1, d, 7) as DetectionOutput has them, objects (1, 1, m, 8) as AnnotatedData has them.
    Top: (1, 1, classes + d, 5): for each class a row -1, class, objects, -1, -1; then rows image, class, score, right,
    wrong. Both are 0 for a detection of an object marked difficult, where those do not count. From SSD.
    """

    def setup(self, bottom: Shapes, tops: int) -> None:
        o = self.o = self.message.detection_evaluate_param
        if o.num_classes < 1 or o.overlap_threshold <= 0:
            raise self.refusal("num_classes must be given, and overlap_threshold above 0",
                               "write num_classes: 21", "detection_evaluate_param")  # fmt: skip
        if o.has_field("resize_param") and o.resize_param.resize_mode != "WARP":
            raise self.refusal("resize_param of detection_evaluate_param is known here as WARP only",
                               "leave it out, and name_size_file too: overlaps are then those of the net's picture",
                               "detection_evaluate_param")  # fmt: skip
        self.background = int(np.array(o.background_label_id, np.uint32).astype(np.int32))
        self._sizes: Array | None = None
        if o.has_field("name_size_file"):
            name = str(o.name_size_file)
            self._sizes = read_sizes(find_beside(name, self.context.file) if self.context.file is not None else name)
        self._count, self._images = 1, 0
        self._rows: Array | None = None

    def top_shapes(self, bottom: Shapes) -> Shapes:
        if len(bottom[0]) != 4 or bottom[0][-1] != 7 or len(bottom[1]) != 4 or bottom[1][-1] != 8:
            raise self.error(
                f"detections (1, 1, d, 7) and objects (1, 1, m, 8) are needed, got {bottom[0]} and {bottom[1]}",
                remedy="give DetectionOutput's top and the labels of AnnotatedData",
            )
        return [(1, 1, self._count, 5)]

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> float:
        self._bottom_shapes = None
        found, truth = (blob.data.reshape(-1, blob.shape[-1]) for blob in bottom)
        self._rows = self.evaluate(found, truth).astype(bottom[0].dtype)
        self._count = len(self._rows)
        return super().forward(bottom, top)

    def compute(self, bottom: Variables, params: Variables) -> Results:
        assert self._rows is not None
        return self._rows.reshape(1, 1, -1, 5)

    def evaluate(self, found: Array, truth: Array) -> Array:
        """All rows."""
        truth, found = truth[truth[:, 0] >= 0], found[found[:, 1] >= 0]
        for rows, what in ((truth, "an object"), (found, "a detection")):
            if (rows[:, 1] == self.background).any():
                raise self.error(
                    f"{what} has the class of the background, {self.background}",
                    remedy="set background_label_id to a class that no object has",
                )
        easy = np.ones(len(truth), bool) if self.o.evaluate_difficult_gt else truth[:, 7] == 0
        judged: list[list[float]] = [
            [-1, label, float(np.sum(easy & (truth[:, 1] == label))), -1, -1]
            for label in range(self.o.num_classes) if label != self.background
        ]  # fmt: skip
        for image in np.unique(found[:, 0]):
            for label in np.unique(found[found[:, 0] == image, 1]):
                mine = found[(found[:, 0] == image) & (found[:, 1] == label)]
                things = (truth[:, 0] == image) & (truth[:, 1] == label)
                judged += self._judge(mine[np.argsort(-mine[:, 2], kind="stable")], truth[things, 3:7], easy[things])
            if self._sizes is not None:
                self._images = (self._images + 1) % len(self._sizes)
        return np.array(judged, np.float64).reshape(-1, 5)

    def _judge(self, found: Array, truth: Array, easy: Array) -> list[list[float]]:
        """The rows of one image and class; detections by falling score."""
        boxes, pixel = found[:, 3:7], 0.0
        if self._sizes is not None:
            height, width = self._sizes[self._images]
            scale, pixel = np.array([width, height, width, height], np.float64), 1.0
            boxes, truth = boxes.clip(0, 1) * scale, truth.clip(0, 1) * scale
        taken: set[int] = set()
        rows = []
        for row, box in zip(found, boxes, strict=True):
            table = overlaps(box, truth, pixel)
            best = int(table.argmax()) if len(truth) else -1
            right, wrong = 0, 1
            if best >= 0 and table[best] >= self.o.overlap_threshold:
                right, wrong = (int(best not in taken), int(best in taken)) if easy[best] else (0, 0)
                taken.update([best] if easy[best] else [])
            rows.append([*row[:3], right, wrong])
        return rows


def read_sizes(path: str) -> Array:
    """Height and width of each image from a file of lines `name height width`. Raises FormatError."""
    return np.array([sizes for _, *sizes in read_name_sizes(path)])
