"""The losses of softmax and cost layers as operations with Darknet's gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from undertow.core.function import Function
from undertow.core.registry import Sample, register
from undertow.core.variable import Operand, Variable

Array = np.ndarray[Any, Any]

# Marks truth values that do not count (cost type masked); Darknet's SECRET_NUM.
MASKED_TRUTH = -1234


def _softmax_samples(rng: np.random.Generator) -> list[Sample]:
    truth = rng.dirichlet(np.ones(3), (2, 2)).reshape(2, 6)

    def sample(**options: Any) -> Sample:
        arrays = (rng.standard_normal((2, 6)),)
        return Sample(arrays, lambda x: softmax_loss(x, truth, groups=2, **options), note=str(options))

    return [sample(), sample(temperature=2.5)]


@register(
    "darknet_softmax",
    gradient="once",
    forward="p = softmax(x / T) in each group; loss = - sum of truth log p",
    backward="gx = gloss (p sum(truth) - truth) / T + softmax' gp / T",
    samples=_softmax_samples,
)
class SoftmaxLoss(Function):
    """Softmax in groups with cross entropy (softmax_layer.c).

    The second input is the truth, without a gradient; left out, there is no loss. temperature_in_gradient,
    straight_through: see `Dialect`; with the latter the truth of a group is taken to add up to 1, as the original does.
    """

    def __init__(
        self,
        groups: int = 1,
        temperature: float = 1.0,
        temperature_in_gradient: bool = True,
        straight_through: bool = False,
    ) -> None:
        self.groups, self.temperature = groups, temperature
        self.temperature_in_gradient, self.straight_through = temperature_in_gradient, straight_through
        self.probabilities: Array
        self.log_probabilities: Array
        self.truth: Array | None = None

    def forward(self, x: Array, truth: Array | None = None) -> tuple[Array, Array]:
        rows = x.reshape(x.shape[0], self.groups, -1) / self.temperature
        rows = rows - rows.max(axis=2, keepdims=True)
        sums = np.exp(rows).sum(axis=2, keepdims=True)
        self.probabilities = (np.exp(rows) / sums).astype(x.dtype, copy=False)
        self.log_probabilities = rows - np.log(sums)
        loss = 0.0
        self.truth = None
        if truth is not None:
            self.truth = truth.reshape(rows.shape).astype(x.dtype, copy=False)
            loss = -float(np.sum(self.truth * self.log_probabilities, dtype=np.float64))
        return self.probabilities.reshape(x.shape), np.asarray(loss, x.dtype)

    def backward(self, gp: Array, gloss: Array) -> tuple[Array | None, ...]:
        p = self.probabilities
        gx = np.zeros_like(p)
        if self.truth is not None:
            mass = 1.0 if self.straight_through else self.truth.sum(axis=2, keepdims=True)
            gx = gloss * (p * mass - self.truth)
        if gp.any():
            gp = gp.reshape(p.shape)
            gx = gx + (gp if self.straight_through else p * (gp - (gp * p).sum(axis=2, keepdims=True)))
        if self.temperature_in_gradient:
            gx = gx / self.temperature
        gx = gx.reshape(self.inputs[0].shape).astype(p.dtype, copy=False)
        return (gx, None)[: len(self.inputs)]

    @property
    def printed_loss(self) -> Array:
        """Per element what Darknet adds up: -log p where the truth is not 0, whatever the truth is."""
        if self.truth is None:
            loss = np.zeros_like(self.probabilities)
        else:
            loss = np.where(self.truth != 0, -self.log_probabilities, 0)
        return loss.reshape(self.probabilities.shape[0], -1)


def softmax_loss(x: Operand, truth: Operand, groups: int = 1, temperature: float = 1.0) -> tuple[Variable, Variable]:
    """Probabilities (batch, n) and summed cross entropy, see `SoftmaxLoss`. x, truth: (batch, n)."""
    return SoftmaxLoss(groups, temperature)(x, truth)


def _cost_samples(rng: np.random.Generator) -> list[Sample]:
    truth = rng.uniform(-3, 3, (2, 5))

    def sample(kind: str) -> Sample:
        arrays = (rng.uniform(-3, 3, (2, 5)),)
        return Sample(arrays, lambda x: cost_loss(x, truth, kind, scale=0.5), note=kind)

    return [sample(kind) for kind in ("sse", "L1", "smooth", "wgan")]


@register(
    "darknet_cost",
    gradient="once",
    forward=(
        "d = truth - x; loss = scale sum of e: sse d^2/2, L1 |d|, smooth d^2/2 within 1 and |d| - 1/2 beyond, "
        "wgan -x where truth is not 0, else x"
    ),
    backward="gx = - gloss scale delta: sse d, L1 sign d, smooth d within 1 and sign d beyond, wgan sign of truth",
    samples=_cost_samples,
)
class CostLoss(Function):
    """The loss of a cost layer (cost_layer.c).

    The second input is the truth, without a gradient. kind: sse, L1, smooth, wgan, or masked: sse where the truth is
    not -1234. delta: Darknet's, (batch, n), without scale. error: per element what Darknet prints.
    wrong_sign: smooth as the C program has it, with the sign turned beyond 1.
    """

    def __init__(self, kind: str, scale: float = 1.0, wrong_sign: bool = False) -> None:
        self.kind, self.scale, self.wrong_sign = kind, scale, wrong_sign
        self.delta: Array
        self.error: Array

    def forward(self, x: Array, truth: Array) -> Array:
        truth = truth.reshape(x.shape).astype(x.dtype, copy=False)
        if self.kind == "masked":
            # The original writes the mark into its input as well, so that the difference is 0 there.
            truth = np.where(truth == MASKED_TRUTH, x, truth)
        d = truth - x
        one = np.asarray(1, x.dtype)
        if self.kind == "L1":
            self.error, self.delta = np.abs(d), np.where(d > 0, one, -one)
            loss = self.error
        elif self.kind == "smooth":
            inside = np.abs(d) < 1
            self.error = np.where(inside, d * d, 2 * np.abs(d) - 1)
            beyond = np.where(d < 0, -one, one)
            self.delta = np.where(inside, d, -beyond if self.wrong_sign else beyond)
            loss = self.error / 2
        elif self.kind == "wgan":
            self.delta = np.where(truth != 0, one, -one)
            self.error = loss = -self.delta * x
        else:
            self.error, self.delta = d * d, d
            loss = self.error / 2
        return np.asarray(self.scale * float(np.sum(loss, dtype=np.float64)), x.dtype)

    def backward(self, gloss: Array) -> tuple[Array, None]:
        return -gloss * np.asarray(self.scale, gloss.dtype) * self.delta, None


def cost_loss(x: Operand, truth: Operand, kind: str = "sse", scale: float = 1.0) -> Variable:
    """Summed loss, shape (), of predictions x against truth, both (batch, n); see `CostLoss`."""
    return CostLoss(kind, scale)(x, truth)
