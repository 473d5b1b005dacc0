"""Loss layers: from predictions and labels to one number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import undertow.functions as F
from undertow.caffe.functions_loss import PaddedContrastiveLoss
from undertow.caffe.indexes import whole_numbers
from undertow.caffe.layer import IndexBottom, Result, Results, Shapes, integers
from undertow.caffe.proto.api import read_binary
from undertow.caffe.proto.blobs import blob_array
from undertow.core.variable import Variable
from undertow.functions.loss_options import divisor

Array = np.ndarray[Any, Any]
Variables = Sequence[Variable]

SMALLEST_FLOAT = float(np.finfo(np.float32).tiny)
LOG_THRESHOLD = 1e-20


class Loss(IndexBottom):
    """What losses share: one number, a loss weight of 1 unless set, a top made when none is named."""

    loss = True
    auto_tops = True

    def top_shapes(self, bottom: Shapes) -> Shapes:
        for shape in bottom[:2]:
            self.axis(0, len(shape))
            if not math.prod(shape):
                raise self.error(
                    f"a loss of nothing: a bottom has shape {tuple(shape)}",
                    remedy="give bottoms with at least one value",
                )
        if bottom[0][0] != bottom[1][0]:
            raise self.error(
                f"data and labels must agree in axis 0; their shapes are {bottom[0]} and {bottom[1]}",
                remedy="give one label per item",
            )
        return [()]

    def check_labels(self, labels: Array, classes: int) -> None:
        """Raise unless all labels are classes."""
        if labels.size and not (labels.min() >= 0 and labels.max() < classes):
            bad = int(labels[(labels < 0) | (labels >= classes)].reshape(-1)[0])
            raise self.error(
                f"label {bad} is not one of the {classes} classes",
                remedy=f"labels count from 0 to {classes - 1}; loss_param {{ ignore_label: {bad} }} leaves it out",
            )

    def normalization(self, default: str) -> str:
        """VALID, BATCH_SIZE, FULL or NONE, from `normalization` or the old `normalize`."""
        o = self.message.loss_param
        if o.has_field("normalization"):
            return o.normalization
        if o.has_field("normalize"):
            return "VALID" if o.normalize else "BATCH_SIZE"
        return default

    def divisor(self, mode: str, valid: int, full: int, batch: int) -> float:
        """What the sum is divided by, at least 1."""
        name: Any = mode.lower()
        return divisor(name, valid=valid, full=full, batch=batch)


class _ClassLoss(Loss):
    """Scores along an axis, and one label for every other place."""

    def class_axis(self) -> int:
        """The option."""
        raise NotImplementedError

    def top_shapes(self, bottom: Shapes) -> Shapes:
        super().top_shapes(bottom)
        axis = self.axis(self.class_axis(), len(bottom[0]))
        places = math.prod(bottom[0][:axis]) * math.prod(bottom[0][axis + 1 :])
        if places != math.prod(bottom[1]):
            raise self.error(
                f"{places} predictions in the scores {bottom[0]} (classes along axis {axis}), but "
                f"{math.prod(bottom[1])} labels in {bottom[1]}",
                remedy="give one label, a class number, per prediction",
            )
        return [(), bottom[0]][: max(len(self.message.top), 1)]

    def parts(self, bottom: Variables) -> tuple[Variable, Array, Array | None]:
        """Scores (outer, classes, inner), labels (outer, inner), and which of these count, or None where all do.

        For scores (outer, classes) there is no inner axis.
        """
        x = bottom[0]
        axis = self.axis(self.class_axis(), x.ndim)
        outer, inner = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
        flat = x.ndim == 2 and axis == 1
        labels = whole_numbers(self, bottom[1].data, "a label").reshape(outer if flat else (outer, inner))
        o = self.message.loss_param
        valid = labels != o.ignore_label if o.has_field("ignore_label") else None
        self.check_labels(labels if valid is None else labels[valid], x.shape[axis])
        return x if flat else x.reshape((outer, x.shape[axis], inner)), labels, valid


class SoftmaxWithLoss(_ClassLoss):
    """-log softmax(x) at the label, over valid labels, batch, all places or 1."""

    def setup(self, bottom: Shapes, tops: int) -> None:
        if tops > 1:
            raise self.refusal(
                "SoftmaxWithLoss with a second top does not work in Caffe 1.0: the count of loss weights is wrong for "
                "the layer or for the Softmax inside it",
                remedy="leave out the second top, and add a Softmax layer for the probabilities",
                field="top",
            )

    def class_axis(self) -> int:
        return self.message.softmax_param.axis

    def compute(self, bottom: Variables, params: Variables) -> Results:
        x, labels, valid = self.parts(bottom)
        ignored = None
        if valid is not None:
            ignored, labels = -1, np.where(valid, labels, -1)
        mode: Any = self.normalization("VALID").lower()
        y = F.softmax_cross_entropy(x, labels, ignored, normalization=mode)
        limit = -math.log(SMALLEST_FLOAT)
        count = self.divisor(mode, labels.size if valid is None else int(valid.sum()), labels.size, len(labels))
        # No single loss is above the limit where their sum is not.
        if self.dialect.loss_clamps_forward_only and not float(y.data) * count < limit:
            losses = F.softmax_cross_entropy(Variable(x.data, None, False), labels, ignored, elementwise=True)
            clamped = np.minimum(losses.data, limit).sum(dtype=np.float64)
            # Only the value is cut off; the gradient is that of the uncut loss.
            y.data = np.asarray(clamped / count, x.dtype)
        return y


class InfogainLoss(_ClassLoss):
    """-sum of H[label] log softmax(x); H is bottom 2 or in the file `source`. Top 1: the probabilities."""

    def setup(self, bottom: Shapes, tops: int) -> None:
        o = self.message.infogain_loss_param
        if self.message.loss_param.has_field("normalize"):
            raise self.refusal("InfogainLoss has no `normalize`", "use normalization", "loss_param")
        self._matrix: Array | None = None
        if len(bottom) < 3:
            if not o.has_field("source"):
                raise self.refusal(
                    "the matrix H is given as a third bottom, or as a file in `source`",
                    'write infogain_loss_param { source: "H.binaryproto" }',
                )
            self._matrix = np.array(blob_array(read_binary(o.source, "BlobProto")))

    def is_index(self, index: int) -> bool:
        return index > 0

    def allow_force_backward(self, index: int) -> bool:
        return index != 1

    def class_axis(self) -> int:
        return self.message.infogain_loss_param.axis

    def top_shapes(self, bottom: Shapes) -> Shapes:
        found = super().top_shapes(bottom)
        classes = bottom[0][self.axis(self.class_axis(), len(bottom[0]))]
        size = math.prod(bottom[2]) if self._matrix is None else self._matrix.size
        if size != classes * classes:
            raise self.error(
                f"H must be {classes} x {classes} for {classes} classes, it holds {size} values",
                remedy=f"make the matrix with undertow.caffe.io.array_to_blobproto of a {classes} x {classes} array",
            )
        return found

    def compute(self, bottom: Variables, params: Variables) -> Results:
        x, labels, valid = self.parts(bottom)
        valid = np.ones(labels.shape, bool) if valid is None else valid
        classes = x.shape[1]
        matrix = (bottom[2].data if self._matrix is None else self._matrix).reshape(classes, classes)
        rows = np.moveaxis(matrix[np.where(valid, labels, 0)], -1, 1) * valid[:, None]
        mode = self.normalization("VALID")
        count = self.divisor(mode, int(valid.sum()), labels.size, len(labels))
        log_p = F.log_softmax(x, 1)
        y = (log_p * rows.astype(x.dtype)).sum() * (-1 / count)
        if self.dialect.loss_clamps_forward_only:
            clamped = np.maximum(log_p.data, math.log(LOG_THRESHOLD)) * rows
            y.data = np.asarray(-clamped.sum(dtype=np.float64) / count, x.dtype)
        found: list[Result] = [y]
        if len(self.message.top) > 1:
            through = self.dialect.prob_top_gradient
            p = F.softmax(x, 1) if through else F.softmax(Variable(x.data, None, False), 1)
            found.append(p.reshape(bottom[0].shape) if through else p.data.reshape(bottom[0].shape))
        return found


class MultinomialLogisticLoss(Loss):
    """-log x at the label; x are probabilities, those below 1e-20 count as 1e-20."""

    def top_shapes(self, bottom: Shapes) -> Shapes:
        if math.prod(bottom[1][1:]) != 1:
            raise self.error(
                f"labels must be one per item, their shape is {bottom[1]}",
                remedy=f"reshape the labels to ({bottom[0][0]},)",
            )
        return super().top_shapes(bottom)

    def compute(self, bottom: Variables, params: Variables) -> Results:
        x = bottom[0].reshape((bottom[0].shape[0], -1))
        labels = whole_numbers(self, bottom[1].data, "a label").reshape(-1)
        self.check_labels(labels, x.shape[1])
        p = x[np.arange(len(labels)), labels]
        limited = np.maximum(p.data, p.dtype.type(LOG_THRESHOLD))
        # In the original: the value of the limited probability, with the gradient of the given one.
        original = self.dialect.loss_clamps_forward_only
        p = p + (limited - p.data) if original else F.where(p.data >= limited, p, limited)
        return F.log(p).sum() * (-1 / len(labels))


class SigmoidCrossEntropyLoss(Loss):
    """-t log s(x) - (1 - t) log(1 - s(x)), over the batch unless said otherwise."""

    def top_shapes(self, bottom: Shapes) -> Shapes:
        if math.prod(bottom[0]) != math.prod(bottom[1]):
            raise self.error(
                f"inputs {bottom[0]} and targets {bottom[1]} must hold as many values",
                remedy="give targets of the same shape",
            )
        return super().top_shapes(bottom)

    def compute(self, bottom: Variables, params: Variables) -> Results:
        x, o = bottom[0], self.message.loss_param
        t = bottom[1].data.reshape(x.shape)
        valid = integers(t) != o.ignore_label if o.has_field("ignore_label") else np.ones(x.shape, bool)
        mode = self.normalization("BATCH_SIZE")
        count = self.divisor(mode, int(valid.sum()), t.size, x.shape[0])
        losses = F.sigmoid_cross_entropy(x, t, elementwise=True)
        return (losses * (valid / count).astype(x.dtype)).sum()


class EuclideanLoss(Loss):
    """Half the squared distance, averaged over the batch; both bottoms have a gradient."""

    index_bottoms = ()

    def top_shapes(self, bottom: Shapes) -> Shapes:
        if math.prod(bottom[0][1:]) != math.prod(bottom[1][1:]):
            raise self.error(
                f"the bottoms {bottom[0]} and {bottom[1]} must hold as many values per item",
                remedy="bring them to one shape",
            )
        return super().top_shapes(bottom)

    def compute(self, bottom: Variables, params: Variables) -> Results:
        difference = bottom[0] - bottom[1].reshape(bottom[0].shape)
        return F.square(difference).sum() * (0.5 / bottom[0].shape[0])


class ContrastiveLoss(Loss):
    """Pulls the items of similar pairs together and pushes others apart up to a margin; bottom 2 says which."""

    index_bottoms = (2,)

    def top_shapes(self, bottom: Shapes) -> Shapes:
        flat = all(math.prod(shape[2:]) == 1 for shape in bottom) and math.prod(bottom[2][1:]) == 1
        if not flat or bottom[0][:2] != bottom[1][:2] or bottom[2][:1] != bottom[0][:1]:
            raise self.error(
                f"two bottoms (batch, values) and a flag per pair are needed, got {', '.join(map(str, bottom))}",
                remedy="give two feature blobs of one shape and one label per pair",
            )
        return super().top_shapes(bottom)

    def compute(self, bottom: Variables, params: Variables) -> Results:
        o, count = self.message.contrastive_loss_param, bottom[0].shape[0]
        a, b = (x.reshape((count, -1)) for x in bottom[:2])
        similar = whole_numbers(self, bottom[2].data, "a flag").reshape(-1)
        epsilon = self.dialect.contrastive_epsilon
        if epsilon:
            return PaddedContrastiveLoss(o.margin, o.legacy_version, epsilon)(a, b, similar)
        return F.contrastive_loss(a, b, similar, o.margin, o.legacy_version)


class HingeLoss(Loss):
    """How far scores miss the margin of 1, or its square, averaged over the batch."""

    def compute(self, bottom: Variables, params: Variables) -> Results:
        x = bottom[0].reshape((bottom[0].shape[0], -1))
        labels = whole_numbers(self, bottom[1].data, "a label").reshape(-1)[: x.shape[0]]
        self.check_labels(labels, x.shape[1])
        return F.hinge_loss(x, labels, self.message.hinge_loss_param.norm)
