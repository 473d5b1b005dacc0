"""Losses of numbers against numbers: squared error, absolute error, Huber."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from undertow.core.function import Function
from undertow.core.registry import Sample, register
from undertow.core.variable import Operand, Variable
from undertow.functions.loss_options import Reduction, check_same_shape, factor, reduced
from undertow.functions.sampling import Samples, distinct

__all__ = ["HuberLoss", "L1Loss", "MeanSquaredError", "huber_loss", "l1_loss", "mean_squared_error", "smooth_l1_loss"]

Array = np.ndarray[Any, Any]


def _samples(call: Callable[..., Variable], value: Callable[[float], float]) -> Samples:
    """value: the loss of one difference, in plain Python."""

    def by_hand(x: Array, t: Array, reduction: Reduction) -> Any:
        values = np.array([value(float(d)) for d in (x - t).ravel()]).reshape(x.shape)
        return {"mean": values.sum() / max(values.size, 1), "sum": values.sum(), "none": values}[reduction]

    def sample(rng: np.random.Generator, shape: tuple[int, ...], reduction: Reduction) -> Sample:
        t = np.asarray(rng.standard_normal(shape))
        return Sample(
            (np.asarray(t + distinct(rng, shape, 0.17) + 0.03), t),
            lambda x, t: call(x, t, reduction=reduction),
            lambda x, t: by_hand(x, t, reduction),
            reduction,
        )

    return lambda rng: [sample(rng, (), "mean"), sample(rng, (3, 4), "mean"), sample(rng, (5,), "sum"),
                        sample(rng, (2, 1, 3), "none")]  # fmt: skip


class DifferenceLoss(Function):
    """A loss of d = x - t, element by element, then reduced. Subclasses say `value` and `slope`."""

    def __init__(self, reduction: Reduction = "mean") -> None:
        self.reduction = reduction

    def value(self, d: Array) -> Array:
        """The loss of each difference."""
        raise NotImplementedError

    def slope(self, d: Any) -> Any:
        """Its derivative; d is an array or a Variable."""
        raise NotImplementedError

    def forward(self, x: Array, t: Array) -> Array:
        check_same_shape(self.label, x, t)
        return reduced(self.value(x - t), self.reduction)

    def backward(self, gy: Array) -> tuple[Array, Array]:
        d = self.inputs[0].data - self.inputs[1].data
        gx = gy * factor(d.size, self.reduction) * self.slope(d)
        return gx, -gx

    def backward_graph(self, gy: Variable) -> tuple[Variable, Variable]:
        d = self.inputs[0] - self.inputs[1]
        gx = gy * factor(d.size, self.reduction) * self.slope(d)
        return gx, -gx


@register(
    "mean_squared_error",
    gradient="twice",
    forward="y = mean (or sum) of (x - t)^2",
    backward="gx = 2 (x - t) gy / n, gt = -gx",
    samples=_samples(lambda *args, **options: mean_squared_error(*args, **options), lambda d: d * d),
)
class MeanSquaredError(DifferenceLoss):
    """The square of the difference."""

    def value(self, d: Array) -> Array:
        return d * d

    def slope(self, d: Any) -> Any:
        return 2 * d


def mean_squared_error(x: Operand, t: Operand, reduction: Reduction = "mean") -> Variable:
    """(x - t)^2, averaged over all elements ("mean"), added up ("sum") or left as they are ("none").

    x, t: arrays of one shape, else ShapeError. Returns a number, or an array of that shape for "none".
    """
    return MeanSquaredError(reduction)(x, t)


@register(
    "l1_loss",
    gradient="twice",
    forward="y = mean (or sum) of |x - t|",
    backward="gx = sign(x - t) gy / n, gt = -gx; 0 where x = t",
    samples=_samples(lambda *args, **options: l1_loss(*args, **options), abs),
)
class L1Loss(DifferenceLoss):
    """The absolute difference. Kink: x = t, where the gradient is 0."""

    def value(self, d: Array) -> Array:
        return np.abs(d)

    def slope(self, d: Any) -> Any:
        return np.sign(d.data if isinstance(d, Variable) else d)


def l1_loss(x: Operand, t: Operand, reduction: Reduction = "mean") -> Variable:
    """|x - t|, averaged over all elements ("mean"), added up ("sum") or left as they are ("none")."""
    return L1Loss(reduction)(x, t)


@register(
    "huber_loss",
    gradient="twice",
    forward="y = mean (or sum) of d^2/2 where |d| <= delta, else delta (|d| - delta/2), d = x - t",
    backward="gx = d clipped to [-delta, delta], times gy / n, gt = -gx",
    samples=_samples(
        lambda x, t, reduction: huber_loss(x, t, 0.4, reduction),
        lambda d: d * d / 2 if abs(d) <= 0.4 else 0.4 * (abs(d) - 0.2),
    ),
)
class HuberLoss(DifferenceLoss):
    """Quadratic near 0, straight beyond delta; the slope has a kink at |x - t| = delta."""

    def __init__(self, delta: float = 1.0, reduction: Reduction = "mean") -> None:
        if not delta > 0:
            raise ValueError(f"delta of a Huber loss must be positive, got {delta}")
        super().__init__(reduction)
        self.delta = delta

    def value(self, d: Array) -> Array:
        size = np.abs(d)
        near = np.minimum(size, self.delta)
        return near * (size - near / 2)

    def slope(self, d: Any) -> Any:
        array = d.data if isinstance(d, Variable) else d
        near = (np.abs(array) <= self.delta).astype(array.dtype)
        return d * near + (1 - near) * np.sign(array) * self.delta


def huber_loss(x: Operand, t: Operand, delta: float = 1.0, reduction: Reduction = "mean") -> Variable:
    """(x - t)^2 / 2 up to a difference of delta, then delta (|x - t| - delta/2): large errors count only linearly.

    x, t: arrays of one shape. reduction as in `mean_squared_error`.
    """
    return HuberLoss(delta, reduction)(x, t)


def smooth_l1_loss(x: Operand, t: Operand, beta: float = 1.0, reduction: Reduction = "mean") -> Variable:
    """`huber_loss` with delta = beta, divided by beta: slope 1 beyond beta (Fast R-CNN)."""
    return huber_loss(x, t, beta, reduction) * (1 / beta)
