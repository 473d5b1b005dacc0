"""The losses of softmax, logistic and cost layers as operations with Darknet's gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from undertow.core.function import Function
from undertow.core.registry import Sample, register
from undertow.core.variable import Operand, Variable
from undertow.kernels import select

Array = np.ndarray[Any, Any]

# Marks truth values that do not count (cost type masked); Darknet's SECRET_NUM.
MASKED_TRUTH = -1234


def _softmax_samples(rng: np.random.Generator) -> list[Sample]:
    truth = rng.dirichlet(np.ones(3), (2, 2)).reshape(2, 6)

    def sample(**options: Any) -> Sample:
        arrays = (rng.standard_normal((2, 6)),)
        return Sample(arrays, lambda x: softmax_loss(x, truth, groups=2, **options), note=str(options))

    tree = rng.choice([0.0, 1.0], (2, 6))
    tree[1, 2:4] = MASKED_TRUTH

    def of_tree(x: Variable) -> Any:
        return SoftmaxLoss((1, 3, 2), masked=True)(x, tree)

    in_tree = Sample((rng.standard_normal((2, 6)),), of_tree, note="groups of 1, 3 and 2")
    return [sample(), sample(temperature=2.5), in_tree]


@register(
    "darknet_softmax",
    gradient="once",
    forward="p = softmax(x / T) in each group; loss = - sum of truth log p",
    backward="gx = gloss (p sum(truth) - truth) / T + softmax' gp / T",
    samples=_softmax_samples,
)
class SoftmaxLoss(Function):
    """Softmax in groups with cross entropy (softmax_layer.c).

    The second input is the truth, without a gradient; left out, there is no loss. groups: how many equal ones, or their
    sizes (a class tree). masked: entries whose truth is -1234 do not count. temperature_in_gradient,
    straight_through: see `Dialect`; with the latter the truth of a group is taken to add up to 1, as the original does.
    """

    def __init__(
        self,
        groups: int | tuple[int, ...] = 1,
        temperature: float = 1.0,
        temperature_in_gradient: bool = True,
        straight_through: bool = False,
        masked: bool = False,
    ) -> None:
        self.groups, self.temperature, self.masked = groups, temperature, masked
        self.temperature_in_gradient, self.straight_through = temperature_in_gradient, straight_through
        self.probabilities: Array
        self.log_probabilities: Array
        self.truth: Array | None = None
        self._counts: Any = True

    def forward(self, x: Array, truth: Array | None = None) -> tuple[Array, Array]:
        rows = x / self.temperature
        rows = rows - self._over_groups(np.maximum, rows)
        sums = self._over_groups(np.add, np.exp(rows))
        self.probabilities = (np.exp(rows) / sums).astype(x.dtype, copy=False)
        self.log_probabilities = rows - np.log(sums)
        loss = 0.0
        self.truth = None
        if truth is not None:
            self.truth = truth.reshape(rows.shape).astype(x.dtype, copy=False)
            if self.masked:
                self._counts = self.truth != MASKED_TRUTH
                self.truth = np.where(self._counts, self.truth, 0)
            loss = -float(np.sum(self.truth * self.log_probabilities, dtype=np.float64))
        return self.probabilities, np.asarray(loss, x.dtype)

    def backward(self, gp: Array, gloss: Array) -> tuple[Array | None, ...]:
        p = self.probabilities
        gx = np.zeros_like(p)
        if self.truth is not None:
            mass = self._counts if self.straight_through else self._over_groups(np.add, self.truth)
            gx = gloss * (p * mass - self.truth)
        if gp.any():
            gx = gx + (gp if self.straight_through else p * (gp - self._over_groups(np.add, gp * p)))
        if self.temperature_in_gradient:
            gx = gx / self.temperature
        return (gx.astype(p.dtype, copy=False), None)[: len(self.inputs)]

    def _over_groups(self, reduction: np.ufunc, rows: Array) -> Array:
        """The sum (or another reduction) over each group, at every place of the group: an array of rows' shape."""
        if isinstance(self.groups, int):
            parts = rows.reshape(len(rows), self.groups, -1)
            return np.broadcast_to(reduction.reduce(parts, axis=2, keepdims=True), parts.shape).reshape(rows.shape)
        begins = np.cumsum((0, *self.groups[:-1]))
        return np.repeat(reduction.reduceat(rows, begins, axis=1), self.groups, axis=1)

    @property
    def printed_loss(self) -> Array:
        """Per element what Darknet adds up: -log p where the truth is not 0, whatever the truth is."""
        if self.truth is None:
            return np.zeros_like(self.probabilities)
        return np.where(self.truth != 0, -self.log_probabilities, 0)


def softmax_loss(x: Operand, truth: Operand, groups: int = 1, temperature: float = 1.0) -> tuple[Variable, Variable]:
    """Probabilities (batch, n) and summed cross entropy, see `SoftmaxLoss`. x, truth: (batch, n)."""
    return SoftmaxLoss(groups, temperature)(x, truth)


def _logistic_samples(rng: np.random.Generator) -> list[Sample]:
    truth = rng.uniform(0, 1, (2, 5))

    def by_hand(x: Array) -> tuple[Array, Array]:
        p = 1 / (1 + np.exp(-x))
        return p, np.asarray(-(truth * np.log(p) + (1 - truth) * np.log(1 - p)).sum())

    return [Sample((rng.standard_normal((2, 5)),), lambda x: logistic_loss(x, truth), by_hand)]


@register(
    "darknet_logistic",
    gradient="once",
    forward="p = 1 / (1 + e^-x); loss = - sum of truth log p + (1 - truth) log(1 - p)",
    backward="gx = gloss (p - truth) + p (1 - p) gp",
    samples=_logistic_samples,
)
class LogisticLoss(Function):
    """Logistic with cross entropy, element by element (logistic_layer.c).

    The second input is the truth, without a gradient; left out, there is no loss. straight_through: see `Dialect`.
    printed_loss: per element, (batch, n).
    """

    def __init__(self, straight_through: bool = False) -> None:
        self.straight_through = straight_through
        self.truth: Array | None = None
        self.printed_loss: Array

    def forward(self, x: Array, truth: Array | None = None) -> tuple[Array, Array]:
        self._p = select.activate(x, "logistic")
        self.truth = None if truth is None else truth.astype(x.dtype, copy=False)
        self.printed_loss = np.zeros_like(x)
        if self.truth is not None:
            # log p = x - log(1 + e^x) and log(1 - p) = -log(1 + e^x): finite where p rounds to 0 or 1.
            self.printed_loss = np.logaddexp(0, x) - self.truth * x
        return self._p, np.asarray(float(np.sum(self.printed_loss, dtype=np.float64)), x.dtype)

    def backward(self, gp: Array, gloss: Array) -> tuple[Array | None, ...]:
        gx = gp if self.straight_through else gp * self._p * (1 - self._p)
        if self.truth is not None:
            gx = gx + gloss * (self._p - self.truth)
        return (gx, None)[: len(self.inputs)]


def logistic_loss(x: Operand, truth: Operand) -> tuple[Variable, Variable]:
    """Probabilities (batch, n) and summed cross entropy, see `LogisticLoss`. x, truth: (batch, n)."""
    return LogisticLoss()(x, truth)


def _cost_samples(rng: np.random.Generator) -> list[Sample]:
    truth = rng.uniform(-3, 3, (2, 5))
    truth[0, 1:3] = 0

    def sample(kind: str, **options: float) -> Sample:
        arrays = (rng.uniform(-3, 3, (2, 5)),)
        return Sample(arrays, lambda x: cost_loss(x, truth, kind, scale=0.5, **options), note=f"{kind} {options}")

    plain = [sample(kind) for kind in ("sse", "L1", "smooth", "wgan")]
    return [*plain, sample("seg", noobject_scale=0.3), sample("sse", threshold=4.0), sample("L1", smoothing=0.4)]


@register(
    "darknet_cost",
    gradient="once",
    forward=(
        "d = truth - x; loss = scale sum of e: sse, seg d^2/2, L1 |d|, smooth d^2/2 within 1 and |d| - 1/2 beyond, "
        "wgan -x where truth is not 0, else x; seg: times noobj where truth is 0; nothing where |delta| < thresh / n"
    ),
    backward="gx = - gloss scale delta: sse d, L1 sign d, smooth d within 1 and sign d beyond, wgan sign of truth",
    samples=_cost_samples,
)
class CostLoss(Function):
    """The loss of a cost layer (cost_layer.c).

    The second input is the truth, without a gradient. kind: sse, L1, smooth, wgan, seg (squares, those where the truth
    is 0 times noobject_scale), or masked: sse where the truth is not -1234. threshold: deltas below threshold / n are
    left out. smoothing: the truth is drawn to 1/n by so much. n: values of a sample.
    delta: Darknet's, (batch, n), without scale. error: per element what Darknet prints.
    wrong_sign: smooth as the C program has it, with the sign turned beyond 1.
    """

    def __init__(
        self,
        kind: str,
        scale: float = 1.0,
        wrong_sign: bool = False,
        noobject_scale: float = 1.0,
        threshold: float = 0.0,
        smoothing: float = 0.0,
    ) -> None:
        self.kind, self.scale, self.wrong_sign = kind, scale, wrong_sign
        self.noobject_scale, self.threshold, self.smoothing = noobject_scale, threshold, smoothing
        self.delta: Array
        self.error: Array

    def forward(self, x: Array, truth: Array) -> Array:
        truth = truth.reshape(x.shape).astype(x.dtype, copy=False)
        if self.smoothing:
            truth = (1 - self.smoothing) * truth + self.smoothing / x.shape[1]
        if self.kind == "masked":
            truth = np.where(truth == MASKED_TRUTH, x, truth)
        loss = self._loss(x, truth)
        if self.kind == "seg":
            weight = np.where(truth == 0, self.noobject_scale, 1).astype(x.dtype)
            self.delta, self.error, loss = self.delta * weight, self.error * weight, loss * weight
        if self.threshold:
            counts = np.abs(self.delta) >= self.threshold / x.shape[1]
            self.delta, loss = self.delta * counts, loss * counts
        return np.asarray(self.scale * float(np.sum(loss, dtype=np.float64)), x.dtype)

    def _loss(self, x: Array, truth: Array) -> Array:
        """Per element; sets delta and error."""
        d = truth - x
        one = np.asarray(1, x.dtype)
        if self.kind == "L1":
            self.error, self.delta = np.abs(d), np.where(d > 0, one, -one)
            return self.error
        if self.kind == "wgan":
            self.delta = np.where(truth != 0, one, -one)
            self.error = -self.delta * x
            return self.error
        if self.kind == "smooth":
            inside = np.abs(d) < 1
            self.error = np.where(inside, d * d, 2 * np.abs(d) - 1)
            beyond = np.where(d < 0, -one, one)
            self.delta = np.where(inside, d, -beyond if self.wrong_sign else beyond)
        else:
            self.error, self.delta = d * d, d
        return self.error / 2

    def backward(self, gloss: Array) -> tuple[Array, None]:
        return -gloss * np.asarray(self.scale, gloss.dtype) * self.delta, None


def cost_loss(
    x: Operand,
    truth: Operand,
    kind: str = "sse",
    scale: float = 1.0,
    noobject_scale: float = 1.0,
    threshold: float = 0.0,
    smoothing: float = 0.0,
) -> Variable:
    """Summed loss, shape (), of predictions x against truth, both (batch, n); see `CostLoss`."""
    function = CostLoss(kind, scale, noobject_scale=noobject_scale, threshold=threshold, smoothing=smoothing)
    loss: Variable = function(x, truth)
    return loss


def _mark_samples(rng: np.random.Generator) -> list[Sample]:
    truth = np.array([[MASKED_TRUTH, 0.5, 1.0]])

    def call(x: Variable) -> Variable:
        return MarkMasked()(x, truth)

    def by_hand(x: Array) -> Array:
        return np.array([[MASKED_TRUTH, x[0, 1], x[0, 2]]])

    return [Sample((rng.standard_normal((1, 3)),), call, by_hand)]


@register(
    "mark_masked",
    gradient="estimate",
    forward="y = -1234 where truth = -1234, else x",
    backward="gx = gy",
    samples=_mark_samples,
)
class MarkMasked(Function):
    """What a cost layer of type masked does to its input in place (cost_layer.c): deltas of later layers still pass.

    The second input is the truth, without a gradient.
    """

    def forward(self, x: Array, truth: Array) -> Array:
        return np.where(truth.reshape(x.shape) == MASKED_TRUTH, np.asarray(MASKED_TRUTH, x.dtype), x)

    def backward(self, gy: Array) -> tuple[Array, None]:
        return gy, None
