"""Learning-rate policies: the rate of an update from the number of updates before it.

The one home of the formulas of Darknet (network.c, get_current_rate), of AlexeyAB's fork (sgdr), of Caffe
(sgd_solver.cpp, GetLearningRate) and of the usual ones. A policy is a small frozen dataclass; calling it with an
iteration gives the rate. i is that iteration, an integer of 0 and up; in Darknet's nets it is the number of the
batch, `seen / (batch * subdivisions)`. `from_darknet` and `from_caffe` build one from a file's option names.
"""

from __future__ import annotations

import difflib
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from undertow.errors import UndertowWarning


@dataclass(frozen=True)
class Policy:
    """Base of all policies. rate: the base learning rate."""

    rate: float

    def __call__(self, iteration: int) -> float:
        """The rate at that iteration."""
        raise NotImplementedError(f"{type(self).__name__} has no formula: write __call__(self, iteration)")


@dataclass(frozen=True)
class Constant(Policy):
    """rate at every iteration (Caffe: fixed)."""

    def __call__(self, iteration: int) -> float:
        return self.rate


@dataclass(frozen=True)
class Step(Policy):
    """rate * scale^floor(i / step). Caffe calls them gamma and stepsize. step: 1 and up."""

    step: int
    scale: float

    def __post_init__(self) -> None:
        _at_least_one("step", self.step)

    def __call__(self, iteration: int) -> float:
        return self.rate * _power(self.scale, iteration // self.step)


@dataclass(frozen=True)
class Steps(Policy):
    """rate times every scale, in order, up to the first step that lies after i (Darknet).

    steps: iterations, rising. A step that lies before its predecessor waits for it, as in the original.
    """

    steps: tuple[int, ...]
    scales: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.steps) != len(self.scales):
            raise ValueError(f"{len(self.steps)} steps but {len(self.scales)} scales: give one scale per step")

    def __call__(self, iteration: int) -> float:
        rate = self.rate
        for step, scale in zip(self.steps, self.scales, strict=True):
            if step > iteration:
                break
            rate *= scale
        return rate


@dataclass(frozen=True)
class MultiStep(Policy):
    """rate * gamma^(number of steps reached) (Caffe). One iteration passes at most one step, as in the original."""

    steps: tuple[int, ...]
    gamma: float

    def __call__(self, iteration: int) -> float:
        passed, earliest = 0, 0
        for step in self.steps:
            earliest = max(step, earliest)
            if earliest > iteration:
                break
            passed += 1
            earliest += 1
        return self.rate * _power(self.gamma, passed)


@dataclass(frozen=True)
class Exp(Policy):
    """rate * gamma^i."""

    gamma: float

    def __call__(self, iteration: int) -> float:
        return self.rate * _power(self.gamma, iteration)


@dataclass(frozen=True)
class Inv(Policy):
    """rate * (1 + gamma i)^-power (Caffe)."""

    gamma: float
    power: float

    def __call__(self, iteration: int) -> float:
        return self.rate * _power(1 + self.gamma * iteration, -self.power)


@dataclass(frozen=True)
class Poly(Policy):
    """rate * (1 - i / length)^power.

    length: max_batches in Darknet, max_iter in Caffe. Nothing stops at the end: past it an even power grows again
    and a fractional one gives NaN, in both originals; optimisers refuse a rate of NaN.
    """

    length: int
    power: float

    def __post_init__(self) -> None:
        _at_least_one("length (max_batches, max_iter)", self.length)

    def __call__(self, iteration: int) -> float:
        return self.rate * _power(1 - iteration / self.length, self.power)


@dataclass(frozen=True)
class Sigmoid(Policy):
    """rate / (1 + exp(-gamma (i - step))): rises for positive gamma (Caffe's sign; Darknet's gamma is the negative).

    unsigned: before `step` the difference wraps round to about 1.8e19, as in Darknet of 2018: the rate is 0 for
    rising and full for falling policies until `step`.
    """

    gamma: float
    step: int
    unsigned: bool = False

    def __call__(self, iteration: int) -> float:
        distance = float(iteration - self.step)
        if self.unsigned and distance < 0:
            distance += 2.0**64
        return self.rate / (1 + _exp(-self.gamma * distance))


@dataclass(frozen=True)
class Random(Policy):
    """rate * u^power with a new u between 0 and 1 for each iteration (Darknet).

    draw: from an iteration to u; None draws from (seed, iteration), so a resumed run sees the same rates.
    """

    power: float
    seed: int = 0
    draw: Callable[[int], float] | None = None

    def __call__(self, iteration: int) -> float:
        draw = self.draw or self._draw
        return self.rate * _power(draw(iteration), self.power)

    def _draw(self, iteration: int) -> float:
        return float(np.random.default_rng((self.seed, iteration)).random())


@dataclass(frozen=True)
class Cosine(Policy):
    """minimum + (rate - minimum) (1 + cos(pi i / length)) / 2, and `minimum` from `length` on."""

    length: int
    minimum: float = 0.0

    def __post_init__(self) -> None:
        _at_least_one("length", self.length)

    def __call__(self, iteration: int) -> float:
        angle = math.pi * min(iteration, self.length) / self.length
        return self.minimum + (self.rate - self.minimum) * (1 + math.cos(angle)) / 2


@dataclass(frozen=True)
class SGDR(Policy):
    """Cosine with warm restarts (AlexeyAB's policy=sgdr; Loshchilov and Hutter 2016).

    minimum + (rate - minimum) (1 + cos(pi t / c)) / 2 with t iterations since the restart and a cycle of c; each
    cycle is `growth` times as long as the one before. The last iteration of a cycle (t = c) is its minimum, and
    the next cycle is entered at t = 1: after the first one, `rate` itself is not reached again.
    """

    cycle: int
    growth: int = 2
    minimum: float = 1e-5

    def __post_init__(self) -> None:
        _at_least_one("cycle (sgdr_cycle, max_batches)", self.cycle)
        _at_least_one("growth (sgdr_mult)", self.growth)

    def __call__(self, iteration: int) -> float:
        start, cycle = 0, self.cycle
        if self.growth == 1:
            start = max(0, (iteration - 1) // cycle) * cycle
        while start + cycle < iteration:
            start += cycle
            cycle *= self.growth
        return self.minimum + 0.5 * (self.rate - self.minimum) * (1 + math.cos(math.pi * (iteration - start) / cycle))


@dataclass(frozen=True)
class BurnIn(Policy):
    """Warm-up (Darknet): rate * (i / length)^power for i < length, afterwards `policy`.

    Made by `burn_in(policy, length, power)`; `rate` is that of the policy.
    """

    policy: Policy
    length: int
    power: float = 4.0

    def __call__(self, iteration: int) -> float:
        if iteration < self.length:
            return self.rate * _power(iteration / self.length, self.power)
        return self.policy(iteration)


def burn_in(policy: Policy, length: int, power: float = 4.0) -> Policy:
    """The policy after a warm-up over its first `length` iterations; the policy itself when length is 0."""
    return BurnIn(policy.rate, policy, length, power) if length else policy


def as_policy(rate: float | Policy) -> Policy:
    """A number as a constant policy."""
    return rate if isinstance(rate, Policy) else Constant(float(rate))


DARKNET_POLICIES = ("constant", "step", "steps", "exp", "poly", "random", "sigmoid", "sgdr")


def from_darknet(
    policy: str = "constant",
    *,
    learning_rate: float = 0.001,
    burn_in: int = 0,
    power: float = 4.0,
    step: int = 1,
    scale: float = 1.0,
    steps: Sequence[int] = (),
    scales: Sequence[float] = (),
    gamma: float = 1.0,
    max_batches: int = 0,
    learning_rate_min: float = 1e-5,
    sgdr_cycle: int | None = None,
    sgdr_mult: int = 2,
    seed: int = 0,
    draw: Callable[[int], float] | None = None,
    unsigned: bool = True,
) -> Policy:
    """The policy of a cfg's [net] section; arguments are its options with their defaults.

    seed, draw: see `Random`. unsigned: see `Sigmoid`; False for AlexeyAB's fork.
    A name that Darknet does not know counts as constant, as there, with an UndertowWarning.
    """
    rate = learning_rate
    builders: dict[str, Callable[[], Policy]] = {
        "constant": lambda: Constant(rate),
        "step": lambda: Step(rate, step, scale),
        "steps": lambda: Steps(rate, tuple(steps), tuple(scales)),
        "exp": lambda: Exp(rate, gamma),
        "poly": lambda: Poly(rate, max_batches, power),
        "random": lambda: Random(rate, power, seed, draw),
        "sigmoid": lambda: Sigmoid(rate, -gamma, step, unsigned),
        "sgdr": lambda: SGDR(rate, max_batches if sgdr_cycle is None else sgdr_cycle, sgdr_mult, learning_rate_min),
    }
    if policy not in builders:
        message = f"Darknet knows no policy '{policy}' and takes constant{_suggestion(policy, DARKNET_POLICIES)}"
        warnings.warn(message, UndertowWarning, stacklevel=2)
        policy = "constant"
    chosen = builders[policy]()
    return BurnIn(rate, chosen, burn_in, power) if burn_in > 0 else chosen


CAFFE_POLICIES = ("fixed", "step", "exp", "inv", "multistep", "poly", "sigmoid")


def from_caffe(
    lr_policy: str,
    *,
    base_lr: float,
    gamma: float = 0.0,
    power: float = 0.0,
    stepsize: int = 0,
    stepvalue: Sequence[int] = (),
    max_iter: int = 0,
) -> Policy:
    """The policy of a solver prototxt; arguments are its fields. ValueError for a name that Caffe does not know."""
    builders: dict[str, Callable[[], Policy]] = {
        "fixed": lambda: Constant(base_lr),
        "step": lambda: Step(base_lr, stepsize, gamma),
        "exp": lambda: Exp(base_lr, gamma),
        "inv": lambda: Inv(base_lr, gamma, power),
        "multistep": lambda: MultiStep(base_lr, tuple(stepvalue), gamma),
        "poly": lambda: Poly(base_lr, max_iter, power),
        "sigmoid": lambda: Sigmoid(base_lr, gamma, stepsize),
    }
    if lr_policy not in builders:
        raise ValueError(f"Caffe knows no lr_policy '{lr_policy}'{_suggestion(lr_policy, CAFFE_POLICIES)}")
    return builders[lr_policy]()


def _power(base: float, exponent: float) -> float:
    """C's pow: NaN and infinity where Python would raise or turn complex."""
    with np.errstate(all="ignore"):
        return float(np.power(np.float64(base), np.float64(exponent)))


def _exp(exponent: float) -> float:
    with np.errstate(all="ignore"):
        return float(np.exp(np.float64(exponent)))


def _at_least_one(name: str, value: int) -> None:
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")


def _suggestion(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean '{close[0]}'?" if close else f" (it knows {', '.join(known)})"
