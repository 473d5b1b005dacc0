"""Distances of distributions and directions, and the share of right answers."""

from __future__ import annotations

from typing import Any

import numpy as np

from undertow.core.function import Function
from undertow.core.modes import no_grad
from undertow.core.registry import Sample, register
from undertow.core.variable import Operand, Variable, as_variable
from undertow.functions.elementary import exp, log
from undertow.functions.loss_options import Reduction, check_labels, check_same_shape, factor, reduced

__all__ = ["Accuracy", "KLDivergence", "accuracy", "gaussian_kl_divergence", "kl_divergence"]

Array = np.ndarray[Any, Any]


def _kl_samples(rng: np.random.Generator) -> list[Sample]:
    def sample(shape: tuple[int, ...], reduction: Reduction) -> Sample:
        def by_hand(log_q: Array, p: Array) -> Any:
            values = p * np.log(p / np.exp(log_q))
            return {"mean": values.sum() / values.size, "sum": values.sum(), "none": values}[reduction]

        return Sample(
            (np.log(rng.uniform(0.1, 1, shape)), rng.uniform(0.1, 1, shape)),
            lambda log_q, p: kl_divergence(log_q, p, reduction),
            by_hand,
            reduction,
        )

    return [sample((3, 4), "sum"), sample((5,), "mean"), sample((2, 1, 3), "none")]


@register(
    "kl_divergence",
    gradient="twice",
    forward="y = sum (or mean) of p (log p - log q)",
    backward="glog_q = -p gy / n, gp = (log p + 1 - log q) gy / n",
    samples=_kl_samples,
)
class KLDivergence(Function):
    """`kl_divergence`. Kink: p = 0, where the term is 0 and gp, in truth minus infinity, is given as 0."""

    def __init__(self, reduction: Reduction = "sum") -> None:
        self.reduction: Reduction = reduction

    def forward(self, log_q: Array, p: Array) -> Array:
        check_same_shape("kl_divergence", log_q, p)
        terms = p * (np.log(np.where(p > 0, p, 1)) - log_q)
        return reduced(np.where(p > 0, terms, 0).astype(log_q.dtype, copy=False), self.reduction)

    def backward_graph(self, gy: Variable) -> tuple[Variable, Variable]:
        log_q, p = self.inputs
        scale = gy * factor(p.size, self.reduction)
        positive = (p.data > 0).astype(p.dtype)
        return p * -scale, (log(p * positive + (1 - positive)) + 1 - log_q) * (scale * positive)


def kl_divergence(log_q: Operand, p: Operand, reduction: Reduction = "sum") -> Variable:
    """How far q is from p: the sum of p (log p - log q), 0 only where they are equal.

    log_q: logarithms of probabilities (from log_softmax); p: probabilities, of the same shape.
    reduction: "sum", "mean" over all elements, or "none".
    """
    return KLDivergence(reduction)(log_q, p)


def gaussian_kl_divergence(mean: Operand, log_variance: Operand) -> Variable:
    """How far the normal distribution N(mean, exp(log_variance)) is from N(0, 1), added up over all elements.

    -1/2 * sum of (1 + log_variance - mean^2 - exp(log_variance)): the second term of a variational autoencoder.
    """
    mean, log_variance = as_variable(mean), as_variable(log_variance)
    return (mean * mean + exp(log_variance) - log_variance - 1).sum() * 0.5


def _accuracy_samples(rng: np.random.Generator) -> list[Sample]:
    def by_hand(x: Array, t: Array, top_k: int) -> float:
        rows = np.moveaxis(x, 1, -1).reshape(-1, x.shape[1])
        hits = [label in sorted(range(len(row)), key=lambda c: -row[c])[:top_k] for row, label in zip(rows, t.ravel(), strict=True)]  # fmt: skip  # noqa: E501
        return sum(hits) / len(hits)

    def sample(shape: tuple[int, ...], top_k: int) -> Sample:
        return Sample(
            (rng.standard_normal(shape), rng.integers(0, shape[1], (shape[0], *shape[2:]))),
            lambda x, t: accuracy(x, t, top_k),
            lambda x, t: by_hand(x, t, top_k),
            f"top {top_k}",
        )

    return [sample((8, 3), 1), sample((6, 5), 2), sample((2, 3, 4, 4), 1)]


@register(
    "accuracy",
    gradient="none",
    forward="y = (labels whose score is among the top_k of their place) / (labels that are not ignored)",
    samples=_accuracy_samples,
    labels=(1,),
)
class Accuracy(Function):
    """`accuracy` for given options."""

    def __init__(self, top_k: int = 1, ignore_label: int | None = None) -> None:
        self.top_k, self.ignore_label = top_k, ignore_label

    def forward(self, x: Array, t: Array) -> Array:
        valid = np.ones(t.shape, bool) if self.ignore_label is None else t != self.ignore_label
        check_labels("accuracy", x.shape, t, valid)
        labels = np.where(valid, t, 0)[:, None]
        score = np.take_along_axis(x, labels, 1)
        classes = np.arange(x.shape[1]).reshape(-1, *(1,) * (x.ndim - 2))
        before = (x > score) | ((x == score) & (classes < labels))
        hits = (before.sum(1) < self.top_k) & ~np.isnan(score[:, 0]) & valid
        return np.asarray(hits.sum() / max(int(valid.sum()), 1), x.dtype)


def accuracy(x: Operand, t: Operand, top_k: int = 1, ignore_label: int | None = None) -> Variable:
    """The share of labels whose class is among the top_k highest scores; of equal scores the first class is first.

    x: scores (batch, classes, *spatial). t: integers (batch, *spatial). Labels equal to ignore_label do not count.
    Returns a number from 0 to 1 that has no gradient.
    """
    with no_grad():
        return Accuracy(top_k, ignore_label)(x, t)
