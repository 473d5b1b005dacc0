"""Layers that combine values: Eltwise, Reduction, and ArgMax and Accuracy, which have no gradient."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

import undertow.functions as F
from undertow.caffe.functions import QuotientProduct
from undertow.caffe.indexes import whole_numbers
from undertow.caffe.layer import Layer, NoGradient, Result, Results, Shapes
from undertow.core.variable import Variable

Variables = Sequence[Variable]


class Eltwise(Layer):
    """Sum (with coefficients), product or maximum of bottoms of one shape."""

    def setup(self, bottom: Shapes, tops: int) -> None:
        o = self.message.eltwise_param
        if o.coeff and o.operation == "PROD":
            raise self.refusal("coefficients belong to SUM, a product has none", "remove coeff", "eltwise_param")
        if len(o.coeff) not in (0, len(bottom)):
            raise self.refusal(
                f"{len(bottom)} bottoms need {len(bottom)} coeff, got {len(o.coeff)}",
                remedy=f"write coeff {len(bottom)} times, or not at all",
            )

    def top_shapes(self, bottom: Shapes) -> Shapes:
        for i, shape in enumerate(bottom):
            if shape != bottom[0]:
                raise self.error(
                    f"bottom {i} has shape {shape}, bottom 0 has {bottom[0]}: they must be equal",
                    remedy="bring the bottoms to one shape",
                )
        return [bottom[0]]

    def compute(self, bottom: Variables, params: Variables) -> Results:
        o = self.message.eltwise_param
        if o.operation == "SUM":
            factors = o.coeff or [1.0] * len(bottom)
            parts = [x if factor == 1 else x * factor for x, factor in zip(bottom, factors, strict=True)]
            y = parts[0] + parts[1]
            for part in parts[2:]:
                y = y + part
            return y
        if o.operation == "PROD":
            if self.dialect.division_gradients and not o.stable_prod_grad:
                return QuotientProduct()(*bottom)
            y = bottom[0] * bottom[1]
            for x in bottom[2:]:
                y = y * x
            return y
        # On a tie between the first two the second wins; any other must be greater than all before it.
        y = F.where(bottom[0].data > bottom[1].data, bottom[0], bottom[1])
        for x in bottom[2:]:
            y = F.where(x.data > y.data, x, y)
        return y


class Reduction(Layer):
    """Sum, sum of absolute values or squares, or mean over the axes from `axis` on, times coeff."""

    def top_shapes(self, bottom: Shapes) -> Shapes:
        return [bottom[0][: self._axis(len(bottom[0]))]]

    def _axis(self, ndim: int) -> int:
        return self.axis(self.message.reduction_param.axis, ndim, "reduction_param") if ndim else 0

    def compute(self, bottom: Variables, params: Variables) -> Results:
        o, x = self.message.reduction_param, bottom[0]
        axes = tuple(range(self._axis(x.ndim), x.ndim))
        if o.operation == "ASUM":
            x = F.abs(x)
        elif o.operation == "SUMSQ":
            x = F.square(x)
        return (x.mean(axes) if o.operation == "MEAN" else x.sum(axes)) * o.coeff


class ArgMax(NoGradient):
    """The indexes (or values) of the top_k largest; of equal ones the larger index comes first."""

    def setup(self, bottom: Shapes, tops: int) -> None:
        o, shape = self.message.argmax_param, bottom[0]
        self.axis(0, len(shape))
        axis = self.axis(o.axis, len(shape), "argmax_param") if o.has_field("axis") else None
        count = math.prod(shape[1:]) if axis is None else shape[axis]
        if not 1 <= o.top_k <= count:
            raise self.error(
                f"top_k lies from 1 to the {count} values there are, got {o.top_k}",
                field="argmax_param",
                remedy=f"write top_k: 1 to {count}",
            )

    def top_shapes(self, bottom: Shapes) -> Shapes:
        o, shape = self.message.argmax_param, tuple(bottom[0])
        self.axis(0, len(shape))
        if 0 in shape:
            raise self.error(
                f"there is nothing to compare in a bottom of shape {shape}",
                remedy="give a bottom with at least one value",
            )
        if o.has_field("axis"):
            axis = self.axis(o.axis, len(shape))
            return [(*shape[:axis], o.top_k, *shape[axis + 1 :])]
        return [(shape[0], 2 if o.out_max_val else 1, o.top_k, *(1,) * (len(shape) - 3))]

    def compute(self, bottom: Variables, params: Variables) -> Results:
        o, x = self.message.argmax_param, bottom[0].data
        axis = self.axis(o.axis, x.ndim) if o.has_field("axis") else 1
        values = x if o.has_field("axis") else x.reshape(len(x), -1)
        # Stable sorting of the reversed row puts larger indexes first among equal values.
        backwards = np.flip(values, axis)
        order = np.argsort(-backwards, axis=axis, kind="stable")
        order = values.shape[axis] - 1 - np.take(order, np.arange(o.top_k), axis)
        best = np.take_along_axis(values, order, axis)
        if not o.has_field("axis"):
            found = np.stack([order.astype(x.dtype), best], 1) if o.out_max_val else order
            return found.astype(x.dtype).reshape(tuple(self.top_shapes([x.shape])[0]))
        return best if o.out_max_val else order.astype(x.dtype)


class Accuracy(NoGradient):
    """The share of labels that are among the top_k scores; a tie with another class is a miss. Top 1: per class."""

    def allow_force_backward(self, index: int) -> bool:
        return True

    def top_shapes(self, bottom: Shapes) -> Shapes:
        scores, labels = (tuple(shape) for shape in bottom)
        o = self.message.accuracy_param
        axis = self.axis(o.axis, len(scores), "accuracy_param")
        places = math.prod(scores[:axis]) * math.prod(scores[axis + 1 :])
        if places != math.prod(labels):
            raise self.error(
                f"{places} predictions in the scores {scores} (classes along axis {axis}), but {math.prod(labels)} "
                f"labels in {labels}",
                remedy="give one label per prediction, or set accuracy_param { axis: ... }",
            )
        if o.top_k > scores[axis]:
            raise self.error(
                f"top_k: {o.top_k} of {scores[axis]} classes", f"use a top_k up to {scores[axis]}", "accuracy_param"
            )
        return [(), scores[axis : axis + 1]][: max(len(self.message.top), 1)]

    def compute(self, bottom: Variables, params: Variables) -> Results:
        o, x = self.message.accuracy_param, bottom[0].data
        axis = self.axis(o.axis, x.ndim)
        scores = np.moveaxis(x, axis, -1).reshape(-1, x.shape[axis])
        labels = whole_numbers(self, bottom[1].data, "a label").reshape(-1)
        valid = labels != o.ignore_label if o.has_field("ignore_label") else np.ones(labels.shape, bool)
        scores, labels = scores[valid], labels[valid]
        if labels.size and not (labels.min() >= 0 and labels.max() < scores.shape[1]):
            raise self.error(
                f"labels from {labels.min()} to {labels.max()}, but {scores.shape[1]} classes",
                remedy=f"labels go from 0 to {scores.shape[1] - 1}: correct them, or raise num_output before",
            )
        better = scores >= np.take_along_axis(scores, labels[:, None], 1)
        hits = better.sum(1) - 1 < o.top_k
        found: list[Result] = [np.asarray(hits.mean() if hits.size else 0.0, x.dtype)]
        if len(self.message.top) > 1:
            counts = np.bincount(labels, minlength=scores.shape[1])
            right = np.bincount(labels, hits, minlength=scores.shape[1])
            found.append((right / np.maximum(counts, 1)).astype(x.dtype))
        return found
