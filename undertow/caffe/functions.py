"""Operations that only Caffe's layers need, or whose gradient there is not the derivative."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from undertow.core.function import Function
from undertow.core.registry import Sample, register
from undertow.core.variable import Variable
from undertow.functions.activations import sigmoid_array
from undertow.functions.elementary import exp

Array = np.ndarray[Any, Any]


def _power_samples(rng: np.random.Generator) -> list[Sample]:
    def sample(power: float, scale: float, shift: float) -> Sample:
        return Sample(
            (rng.uniform(0.5, 2, (3, 4)),),
            lambda x: PowerAffine(power, scale, shift)(x),
            lambda x: np.vectorize(lambda v: math.pow(shift + scale * v, power))(x),
            f"({shift} + {scale} x)^{power}",
        )

    return [sample(1, 0.5, 2), sample(2, -1, 3), sample(3, -0.5, 0.3), sample(-1, 0.5, 1), sample(1.7, 1.2, 0)]


@register(
    "power_affine",
    gradient="twice",
    forward="y = (shift + scale x)^power",
    backward="gx = gy power scale (shift + scale x)^(power - 1)",
    samples=_power_samples,
)
class PowerAffine(Function):
    """Caffe's Power. divide: take the gradient as gy power scale y / (shift + scale x), as the original does."""

    def __init__(self, power: float, scale: float = 1.0, shift: float = 0.0, divide: bool = False) -> None:
        self.power, self.scale, self.shift, self.divide = power, scale, shift, divide

    def forward(self, x: Array) -> Array:
        inner = x * x.dtype.type(self.scale) + x.dtype.type(self.shift)
        return inner if self.power == 1 else inner ** x.dtype.type(self.power)

    def backward(self, gy: Array) -> Array:
        x = self.inputs[0].data
        slope = self.power * self.scale
        if self.power == 1:
            return gy * slope
        inner = x * x.dtype.type(self.scale) + x.dtype.type(self.shift)
        if self.power == 2:
            return gy * inner * slope
        if self.divide:
            with np.errstate(divide="ignore", invalid="ignore"):
                return gy * (self.output.data / inner * x.dtype.type(slope))
        return gy * inner ** x.dtype.type(self.power - 1) * x.dtype.type(slope)

    def backward_graph(self, gy: Variable) -> Variable:
        if self.power == 1:
            return gy * self.scale
        inner = PowerAffine(self.power - 1, self.scale, self.shift)(self.input)
        return gy * inner * (self.power * self.scale)


def _exp_samples(rng: np.random.Generator) -> list[Sample]:
    return [
        Sample(
            (rng.standard_normal((2, 3)),),
            lambda x, a=a, b=b: ExpAffine(a, b)(x),
            lambda x, a=a, b=b: b * np.vectorize(lambda v: math.exp(a * v))(x),
            f"{b} exp({a} x)",
        )
        for a, b in ((1.0, 1.0), (-0.5, 2.0))
    ]


@register(
    "exp_affine",
    gradient="twice",
    forward="y = outer exp(inner x)",
    backward="gx = gy inner y",
    samples=_exp_samples,
)
class ExpAffine(Function):
    """Caffe's Exp, base^(shift + scale x), with inner = scale log(base) and outer = base^shift."""

    def __init__(self, inner: float, outer: float = 1.0) -> None:
        self.inner, self.outer = inner, outer

    def forward(self, x: Array) -> Array:
        return np.exp(x * x.dtype.type(self.inner)) * x.dtype.type(self.outer)

    def backward(self, gy: Array) -> Array:
        return gy * self.output.data * gy.dtype.type(self.inner)

    def backward_graph(self, gy: Variable) -> Variable:
        return gy * exp(self.input * self.inner) * (self.inner * self.outer)


def _log_samples(rng: np.random.Generator) -> list[Sample]:
    return [
        Sample(
            (rng.uniform(0.5, 2, (2, 3)),),
            lambda x, args=args: LogAffine(*args)(x),
            lambda x, args=args: np.vectorize(lambda v: math.log(args[2] + args[1] * v) * args[0])(x),
            f"{args[0]} log({args[2]} + {args[1]} x)",
        )
        for args in ((1.0, 1.0, 0.0), (1.4, 3.0, 0.5))
    ]


@register(
    "log_affine",
    gradient="twice",
    forward="y = outer log(shift + scale x)",
    backward="gx = gy outer scale / (shift + scale x)",
    samples=_log_samples,
)
class LogAffine(Function):
    """Caffe's Log, the logarithm of shift + scale x to a base, with outer = 1 / log(base)."""

    def __init__(self, outer: float, scale: float = 1.0, shift: float = 0.0) -> None:
        self.outer, self.scale, self.shift = outer, scale, shift

    def forward(self, x: Array) -> Array:
        return np.log(x * x.dtype.type(self.scale) + x.dtype.type(self.shift)) * x.dtype.type(self.outer)

    def backward(self, gy: Array) -> Array:
        x = self.inputs[0].data
        return gy * x.dtype.type(self.outer * self.scale) / (x * x.dtype.type(self.scale) + x.dtype.type(self.shift))

    def backward_graph(self, gy: Variable) -> Variable:
        return gy * (self.outer * self.scale) / (self.input * self.scale + self.shift)


def _swish_samples(rng: np.random.Generator) -> list[Sample]:
    return [
        Sample(
            (rng.standard_normal((2, 3)) * 2,),
            lambda x, beta=beta: SwishBeta(beta)(x),
            lambda x, beta=beta: np.vectorize(lambda v: v / (1 + math.exp(-beta * v)))(x),
            f"beta {beta}",
        )
        for beta in (1.0, 0.4, -1.5)
    ]


@register(
    "swish_beta",
    gradient="once",
    forward="y = x s, s = sigmoid(beta x)",
    backward="gx = gy (beta y + s (1 - beta y))",
    samples=_swish_samples,
)
class SwishBeta(Function):
    """Caffe's Swish."""

    def __init__(self, beta: float) -> None:
        self.beta = beta

    def forward(self, x: Array) -> Array:
        self._sigmoid = sigmoid_array(x * x.dtype.type(self.beta))
        return x * self._sigmoid

    def backward(self, gy: Array) -> Array:
        scaled = self.output.data * gy.dtype.type(self.beta)
        return gy * (scaled + self._sigmoid * (1 - scaled))


def _mvn_samples(rng: np.random.Generator) -> list[Sample]:
    def by_hand(x: Array, variance: bool, eps: float) -> Array:
        rows = [(row - row.mean()) / ((math.sqrt(row.var()) + eps) if variance else 1) for row in x]
        return np.stack(rows)

    return [
        Sample(
            (rng.standard_normal((3, 5)),),
            lambda x, v=v, eps=eps: MeanVariance(v, eps)(x),
            lambda x, v=v, eps=eps: by_hand(x, v, eps),
            f"variance {v}, eps {eps}",
        )
        for v, eps in ((True, 1e-9), (True, 0.1), (False, 0.0))
    ]


@register(
    "mean_variance_normalize",
    gradient="once",
    forward="y = (x - mean) / (deviation + eps) per row, or x - mean",
    backward="gx = (gy - mean(gy) - y mean(gy y) (deviation + eps) / deviation) / (deviation + eps), or gy - mean(gy)",
    samples=_mvn_samples,
)
class MeanVariance(Function):
    """Caffe's MVN on rows (rows, values). ignore_eps: the original's gradient, without (deviation + eps) / deviation.

    Kink: a row whose values are all equal; its gradient is then that of the mean alone.
    """

    def __init__(self, variance: bool = True, eps: float = 1e-9, ignore_eps: bool = False) -> None:
        self.variance, self.eps, self.ignore_eps = variance, eps, ignore_eps

    def forward(self, x: Array) -> Array:
        centred = x - x.mean(1, keepdims=True)
        if not self.variance:
            return centred
        self._deviation = np.sqrt(np.square(centred).mean(1, keepdims=True))
        return centred / (self._deviation + x.dtype.type(self.eps))

    def backward(self, gy: Array) -> Array:
        gx = gy - gy.mean(1, keepdims=True)
        if not self.variance:
            return gx
        y, scale = self.output.data, self._deviation + gy.dtype.type(self.eps)
        share = (gy * y).mean(1, keepdims=True)
        if not self.ignore_eps:
            share = share * np.divide(scale, self._deviation, out=np.ones_like(scale), where=self._deviation > 0)
        return (gx - y * share) / scale


def _unit_samples(rng: np.random.Generator) -> list[Sample]:
    def by_hand(c: Array, x: Array, cont: Array) -> tuple[Array, Array]:
        new, hidden = np.empty_like(c), np.empty_like(c)
        for (n, d), past in np.ndenumerate(c):
            i, f, o, g = (x[n, part * c.shape[1] + d] for part in range(4))
            kept = cont[n] * past / (1 + math.exp(-f))
            new[n, d] = kept + math.tanh(g) / (1 + math.exp(-i))
            hidden[n, d] = math.tanh(new[n, d]) / (1 + math.exp(-o))
        return new, hidden

    cont = np.array([0.0, 1.0, 0.3])
    return [
        Sample(
            (rng.standard_normal((3, 2)), rng.standard_normal((3, 8))),
            lambda c, x: LstmUnit(cont)(c, x),
            lambda c, x: by_hand(c, x, cont),
        )
    ]


@register(
    "lstm_unit",
    gradient="once",
    forward="i, f, o, g = s(.), s(.), s(.), tanh(.) of the parts of x; c' = cont f c + i g, h = o tanh(c')",
    backward="e = gc' + gh o (1 - tanh(c')^2); gc = e cont f, "
    "gx = (e g i(1-i), e c cont f(1-f), gh tanh(c') o(1-o), e i (1-g^2))",
    samples=_unit_samples,
)
class LstmUnit(Function):
    """Caffe's LSTMUnit: c (streams, d) and x (streams, 4 d) to c' and h. cont: (streams,), a constant.

    true_gate: whether the forget gate's slope is the derivative, or f (1 - f) with f = cont s(f) as in the original;
    the two differ where cont is neither 0 nor 1.
    """

    def __init__(self, cont: Array, true_gate: bool = True) -> None:
        self.cont, self.true_gate = cont, true_gate

    def forward(self, c: Array, x: Array) -> tuple[Array, Array]:
        d = c.shape[1]
        cont = self.cont.reshape(-1, 1).astype(c.dtype)
        gates = sigmoid_array(x[:, : 3 * d])
        self._i, self._forget, self._o = gates[:, :d], gates[:, d : 2 * d], gates[:, 2 * d :]
        self._f, self._g = np.where(cont == 0, 0, cont * self._forget), np.tanh(x[:, 3 * d :])
        new = self._f * c + self._i * self._g
        self._tanh_c = np.tanh(new)
        return new, self._o * self._tanh_c

    def backward(self, gc: Array, gh: Array) -> tuple[Array, Array]:
        c = self.inputs[0].data
        i, f, o, g, tanh_c = self._i, self._f, self._o, self._g, self._tanh_c
        total = gc + gh * o * (1 - tanh_c * tanh_c)
        slope = f * (1 - self._forget) if self.true_gate else f * (1 - f)
        parts = (total * g * i * (1 - i), total * c * slope, gh * tanh_c * o * (1 - o), total * i * (1 - g * g))
        return total * f, np.concatenate(parts, axis=1)


def _product_samples(rng: np.random.Generator) -> list[Sample]:
    arrays = tuple(rng.uniform(0.5, 2, (2, 3)) for _ in range(3))
    return [Sample(arrays, lambda *xs: QuotientProduct()(*xs), lambda a, b, c: a * b * c)]


@register(
    "quotient_product",
    gradient="once",
    forward="y = product of the x",
    backward="gx = gy y / x",
    samples=_product_samples,
)
class QuotientProduct(Function):
    """Caffe's Eltwise PROD with `stable_prod_grad: false`: the gradient is not a number where an input is 0."""

    def forward(self, *xs: Array) -> Array:
        y = xs[0].copy()
        for x in xs[1:]:
            y *= x
        return y

    def backward(self, gy: Array) -> tuple[Array, ...]:
        with np.errstate(divide="ignore", invalid="ignore"):
            return tuple(gy * (self.output.data / x.data) for x in self.inputs)
