"""MultiBoxLoss: SSD's loss, of the places and classes that a net predicts for default boxes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import undertow.functions as F
from undertow.caffe.boxes import UNMATCHED, Matches, areas, decode, encode, match, suppress
from undertow.caffe.layer import Results, Shapes, integers
from undertow.caffe.layers_loss import SMALLEST_FLOAT, Loss
from undertow.core.variable import Variable

Array = np.ndarray[Any, Any]
Variables = Sequence[Variable]


@dataclass
class Truth:
    """The objects of one image: corners (n, 4) and classes (n,)."""

    boxes: Array
    labels: Array


@dataclass(frozen=True)
class Chosen:
    """What counts: for each matched box image, place class, box and object; for each score image, box and class."""

    image: Array
    place: Array
    box: Array
    target: Array
    inside: Array
    score_image: Array
    score_box: Array
    score_label: Array


class MultiBoxLoss(Loss):
    """loc_weight times the loss of the places of matched boxes, plus the loss of classes, over a divisor.

    Bottoms: offsets (n, boxes * 4), scores (n, boxes * classes), default boxes (1, 2, boxes * 4), objects (1, 1, m, 8)
    with rows image, class, instance, left, top, right, bottom, difficult. Boxes are given to objects by overlap; of
    the others those whose loss is largest count as background (mining). The divisor is the number of matched boxes,
    unless loss_param says otherwise. From SSD (multibox_loss_layer.cpp, bbox_util.cpp).
    """

    index_bottoms = (2, 3)

    def setup(self, bottom: Shapes, tops: int) -> None:
        o = self.o = self.message.multibox_loss_param
        if o.num_classes < 1:
            raise self.refusal("num_classes must be given", "write num_classes: 21", "multibox_loss_param")
        self.mining = str(o.mining_type)
        if o.has_field("do_neg_mining") and bool(o.do_neg_mining) != (self.mining != "NONE"):
            raise self.refusal(f"do_neg_mining contradicts mining_type: {self.mining}", "remove do_neg_mining")
        if self.mining != "NONE" and not o.share_location:
            raise self.refusal("mining needs share_location: true", "mining_type: NONE, or share the locations")
        if self.mining == "HARD_EXAMPLE" and o.sample_size < 1:
            raise self.refusal("sample_size must be 1 or more", remedy="write sample_size: 64")
        self.background = int(np.array(o.background_label_id, np.uint32).astype(np.int32))
        if o.conf_loss_type == "SOFTMAX" and not 0 <= self.background < o.num_classes:
            raise self.refusal(
                f"background_label_id {self.background} is none of the {o.num_classes} classes",
                remedy=f"write background_label_id: 0, or one below {o.num_classes}",
            )
        classes = 2 if self.background >= 0 else 1
        if o.map_object_to_agnostic and o.num_classes != classes:
            raise self.refusal(
                f"map_object_to_agnostic leaves one class of objects: num_classes must be {classes}",
                remedy=f"write num_classes: {classes}",
            )
        self.places = 1 if o.share_location else int(o.num_classes)

    def top_shapes(self, bottom: Shapes) -> Shapes:
        if len(bottom[2]) < 3 or len(bottom[3]) != 4 or bottom[3][-1] != 8:
            raise self.error(
                f"default boxes (1, 2, boxes * 4) and objects (1, 1, m, 8) are needed, got {bottom[2]} and {bottom[3]}",
                remedy="the last two bottoms come from PriorBox and AnnotatedData",
            )
        count, classes = math.prod(bottom[2][2:]) // 4, int(self.o.num_classes)
        sizes = [math.prod(shape[1:]) for shape in bottom[:2]]
        if sizes != [count * self.places * 4, count * classes] or bottom[0][0] != bottom[1][0]:
            raise self.error(
                f"{count} default boxes and {classes} classes need bottoms (n, {count * self.places * 4}) and "
                f"(n, {count * classes}), got {bottom[0]} and {bottom[1]}",
                remedy="count num_classes with the background, and 4 locations per default box",
            )
        return [()]

    def compute(self, bottom: Variables, params: Variables) -> Results:
        count, o = bottom[0].shape[0], self.o
        priors, variance = bottom[2].data.reshape(2, -1, 4)
        offsets = bottom[0].reshape((count, len(priors), self.places, 4))
        scores = bottom[1].reshape((count, len(priors), int(o.num_classes)))
        truth = self.truth(bottom[3].data.reshape(-1, 8), count)
        chosen = self.choose(offsets.data, scores.data, priors, variance, truth)
        flags = list(self.message.propagate_down) or [True] * 4
        parts = []
        if flags[0] and len(chosen.image):
            parts.append(self.place_loss(offsets, chosen, variance) * o.loc_weight)
        if flags[1] and len(chosen.score_image):
            parts.append(self.class_loss(scores, chosen))
        if not parts:
            return np.zeros((), bottom[0].dtype)
        total = parts[0] if len(parts) == 1 else parts[0] + parts[1]
        mode = self.normalization("VALID")
        return total * (1 / self.divisor(mode, len(chosen.image), count * len(priors), count))

    # --- what counts ------------------------------------------------------------------------------------

    def truth(self, rows: Array, count: int) -> list[Truth]:
        """The objects of each image."""
        images, labels = integers(rows[:, 0]), integers(rows[:, 1])
        used = images != -1
        if not self.o.use_difficult_gt:
            used &= rows[:, 7] == 0
        for bad, reason in (
            (used & (labels == self.background), f"the class of the background, {self.background}"),
            (used & ((labels < 0) | (labels >= self.o.num_classes)) & (not self.o.map_object_to_agnostic),
             f"not one of the {self.o.num_classes} classes"),
        ):  # fmt: skip
            if bad.any():
                raise self.error(f"an object has class {labels[bad][0]}: {reason}", "look at the label map")
        return [
            Truth(rows[chosen, 3:7], labels[chosen]) for chosen in (used & (images == image) for image in range(count))
        ]

    def choose(self, offsets: Array, scores: Array, priors: Array, variance: Array, truth: list[Truth]) -> Chosen:
        """Match and mine, image by image; nothing of it has a gradient."""
        o = self.o
        boxes: list[tuple[Array, ...]] = []
        classes: list[tuple[Array, Array, Array]] = []
        for image, objects in enumerate(truth):
            labels = np.full(len(priors), self.background)
            if not len(objects.boxes):
                if self.mining == "NONE":
                    classes.append((np.full(len(priors), image), np.arange(len(priors)), labels))
                continue
            matched = self.match(offsets[image], priors, variance, objects)
            for place, found in matched.items():
                hit = np.flatnonzero(found.truth >= 0)
                labels[hit] = self.background + 1 if o.map_object_to_agnostic else objects.labels[found.truth[hit]]
                if self.mining != "NONE":  # then all classes share the locations
                    hit, negative = self.mine(offsets[image, :, 0], scores[image], priors, variance, objects, found,
                                              labels)  # fmt: skip
                    both = np.concatenate([hit, negative])
                    classes.append((np.full(len(both), image), both, labels[both]))
                target, inside = self.targets(offsets[image, :, max(place, 0)], priors, variance, objects, found, hit)
                boxes.append((np.full(len(hit), image), np.full(len(hit), max(place, 0)), hit, target, inside))
            if self.mining == "NONE":
                classes.append((np.full(len(priors), image), np.arange(len(priors)), labels))
        return Chosen(*joined(boxes, priors.dtype), *joined(classes, priors.dtype)[:3])

    def match(self, offsets: Array, priors: Array, variance: Array, objects: Truth) -> dict[int, Matches]:
        """Boxes given to objects, for each class that has boxes of its own (-1: all share them)."""
        o = self.o
        every, inside, limit = o.match_type == "PER_PREDICTION", bool(o.ignore_cross_boundary_bbox), o.overlap_threshold
        places = [-1] if o.share_location else [c for c in range(self.places) if c != self.background]
        if o.use_prior_for_matching:
            found = match(objects.boxes, priors, limit, every=every, inside=inside)
            if o.share_location:
                return {-1: found}
            label = np.where(found.truth >= 0, objects.labels[found.truth.clip(0)], self.background)
            return {c: Matches(np.where(label == c, found.truth, UNMATCHED), found.overlap) for c in places}
        result = {}
        for place in places:
            own = np.flatnonzero((objects.labels == place) | (place < 0))
            boxes = decode(offsets[:, max(place, 0)], priors, variance, o.code_type, o.encode_variance_in_target)
            found = match(objects.boxes[own], boxes, limit, every=every, inside=inside)
            if len(own):
                found = found._replace(truth=np.where(found.truth >= 0, own[found.truth.clip(0)], found.truth))
            result[place] = found
        return result

    def mine(
        self, offsets: Array, scores: Array, priors: Array, variance: Array, objects: Truth, found: Matches,
        labels: Array,
    ) -> tuple[Array, Array]:  # fmt: skip
        """The matched boxes that stay, and those that count as background."""
        o, hit = self.o, found.truth >= 0
        loss = self.score_losses(scores, labels)
        if self.mining == "HARD_EXAMPLE":
            eligible, wanted = np.arange(len(priors)), int(o.sample_size)
            places = np.flatnonzero(hit)
            target, inside = self.targets(offsets, priors, variance, objects, found, places)
            loss[places] += self.box_losses(np.where(inside, offsets[places] - target, 0), variance[places]).sum(1)
        else:
            eligible = np.flatnonzero((found.truth == UNMATCHED) & (found.overlap < o.neg_overlap))
            wanted = int(hit.sum() * o.neg_pos_ratio)
        chosen = np.zeros(len(priors), bool)
        if o.has_field("nms_param") and o.nms_param.nms_threshold > 0:
            boxes = priors
            if not o.use_prior_for_nms:
                boxes = decode(offsets, priors, variance, o.code_type, o.encode_variance_in_target)
            best = self._apart(boxes[eligible], loss[eligible])
        else:
            best = np.argsort(-loss[eligible], kind="stable")
        chosen[eligible[best[:wanted]]] = True
        kept = hit & chosen if self.mining == "HARD_EXAMPLE" else hit
        return np.flatnonzero(kept), np.flatnonzero(chosen & (found.truth == UNMATCHED))

    def _apart(self, boxes: Array, loss: Array) -> Array:
        """Positions by falling loss, without boxes that overlap a worse one or have no size."""
        nms = self.o.nms_param
        top_k = int(nms.top_k)
        order = np.argsort(-loss, kind="stable")[: len(loss) if top_k < 0 else top_k]
        order = order[areas(boxes[order]) >= 1e-5]
        return order[suppress(boxes[order], loss[order], nms.nms_threshold)]

    # --- the losses -------------------------------------------------------------------------------------

    def targets(
        self, offsets: Array, priors: Array, variance: Array, objects: Truth, found: Matches, hit: Array
    ) -> tuple[Array, Array]:
        """What should be predicted for matched boxes, and which of the numbers count (bp_inside leaves some out)."""
        o, truth = self.o, objects.boxes[found.truth[hit]]
        target = encode(truth, priors[hit], variance[hit], o.code_type, o.encode_variance_in_target)
        inside = np.ones(target.shape, bool)
        if o.bp_inside:
            boxes = priors[hit]
            if not o.use_prior_for_matching:
                boxes = decode(offsets[hit], boxes, variance[hit], o.code_type, o.encode_variance_in_target)
            inside = (boxes >= 0) & (boxes <= 1)
        return target, inside

    def box_losses(self, difference: Array, variance: Array) -> Array:
        """The losses of single numbers, without gradient."""
        d = difference / variance if self.o.encode_variance_in_target else difference
        size = np.abs(d)
        return d * d / 2 if self.o.loc_loss_type == "L2" else np.where(size < 1, d * d / 2, size - 0.5)

    def score_losses(self, scores: Array, labels: Array) -> Array:
        """The loss of each box's scores, without gradient."""
        if self.o.conf_loss_type == "SOFTMAX":
            shifted = scores - scores.max(1, keepdims=True)
            logarithm = shifted[np.arange(len(labels)), labels] - np.log(np.exp(shifted).sum(1))
            return np.minimum(-logarithm, -math.log(SMALLEST_FLOAT))
        target = labels[:, None] == np.arange(scores.shape[1])
        return (np.maximum(scores, 0) - scores * target + np.log1p(np.exp(-np.abs(scores)))).sum(1)

    def place_loss(self, offsets: Variable, chosen: Chosen, variance: Array) -> Variable:
        """The sum over matched boxes."""
        predicted = offsets[chosen.image, chosen.box, chosen.place]
        scale = chosen.inside.astype(predicted.dtype)
        if self.o.encode_variance_in_target:
            scale = scale / variance[chosen.box]
        difference = (predicted - chosen.target) * scale
        if self.dialect.multibox_ignores_variance:
            # The right value, with the gradient of the numbers before they were divided.
            difference = predicted + (difference.data - predicted.data)
        if self.o.loc_loss_type == "L2":
            return F.square(difference).sum() * 0.5
        return F.smooth_l1_loss(difference, np.zeros_like(difference.data), reduction="sum")

    def class_loss(self, scores: Variable, chosen: Chosen) -> Variable:
        """The sum over boxes that count."""
        x = scores[chosen.score_image, chosen.score_box]
        if self.o.conf_loss_type == "SOFTMAX":
            return self.softmax_loss(x, chosen.score_label)
        target = (chosen.score_label[:, None] == np.arange(x.shape[1])).astype(x.dtype)
        if self.mining == "NONE":
            # As in the original, boxes of the background have no class at all here.
            target[:, self.background : self.background + 1] = 0
        return F.sigmoid_cross_entropy(x, target, normalization="none")

    def softmax_loss(self, x: Variable, labels: Array) -> Variable:
        """-log softmax at the labels, summed; cut off as SoftmaxWithLoss does it."""
        y = F.softmax_cross_entropy(x, labels, normalization="none")
        if self.dialect.loss_clamps_forward_only:
            y.data = np.asarray(self.score_losses(x.data, labels).sum(dtype=np.float64), x.dtype)
        return y


def joined(parts: Sequence[tuple[Array, ...]], dtype: Any) -> list[Array]:
    """Columns of many images, one after the other: three of indexes, then two that are (n, 4)."""
    if not parts:
        return [np.zeros(0, int)] * 3 + [np.zeros((0, 4), dtype), np.zeros((0, 4), bool)]
    return [np.concatenate(column) for column in zip(*parts, strict=True)]
