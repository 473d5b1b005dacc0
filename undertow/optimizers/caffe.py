"""Caffe's update rules on arrays: what is subtracted from one parameter, and the history behind it.

Each takes the gradient in `diff` and leaves there the value to subtract, as the original does (src/caffe/solvers); the
histories are those of its solverstate. rate: the global rate times the parameter's lr_mult. All arrays of a call have
one shape and one float type. They differ from `rules` in where the rate stands: inside the history here, so that a
change of the rate reaches the parameters only as the momentum fades.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

Array = np.ndarray


@dataclass(frozen=True)
class RuleOptions:
    """The fields of a solver prototxt that rules read, with Caffe's defaults."""

    momentum: float = 0.0
    momentum2: float = 0.999
    delta: float = 1e-8
    rms_decay: float = 0.99


@dataclass(frozen=True)
class Rule:
    """update(diff, histories, rate, t, options): t counts updates from 1. histories: how many arrays it keeps."""

    update: Callable[[Array, Sequence[Array], float, int, RuleOptions], None]
    histories: int = 1


def sgd(diff: Array, histories: Sequence[Array], rate: float, t: int, options: RuleOptions) -> None:
    """h = momentum h + rate g;  the update is h."""
    (h,) = histories
    diff *= rate
    h *= options.momentum
    h += diff
    diff[...] = h


def nesterov(diff: Array, histories: Sequence[Array], rate: float, t: int, options: RuleOptions) -> None:
    """h' = momentum h + rate g;  the update is (1 + momentum) h' - momentum h."""
    (h,) = histories
    before = h * options.momentum
    diff *= rate
    np.add(before, diff, out=h)
    np.multiply(h, 1 + options.momentum, out=diff)
    diff -= before


def adagrad(diff: Array, histories: Sequence[Array], rate: float, t: int, options: RuleOptions) -> None:
    """s += g^2;  the update is rate g / (sqrt(s) + delta)."""
    (s,) = histories
    s += diff * diff
    _divide(diff, s, options.delta, rate)


def rmsprop(diff: Array, histories: Sequence[Array], rate: float, t: int, options: RuleOptions) -> None:
    """s = rms_decay s + (1 - rms_decay) g^2;  the update is rate g / (sqrt(s) + delta)."""
    (s,) = histories
    _towards(s, diff * diff, options.rms_decay)
    _divide(diff, s, options.delta, rate)


def adadelta(diff: Array, histories: Sequence[Array], rate: float, t: int, options: RuleOptions) -> None:
    """s = m s + (1-m) g^2;  d = g sqrt((u + delta) / (s + delta));  u = m u + (1-m) d^2;  the update is rate d.

    m is the momentum.
    """
    s, u = histories
    _towards(s, diff * diff, options.momentum)
    ratio = u + options.delta
    ratio /= s + options.delta
    diff *= np.sqrt(ratio, out=ratio)
    _towards(u, diff * diff, options.momentum)
    diff *= rate


def adam(diff: Array, histories: Sequence[Array], rate: float, t: int, options: RuleOptions) -> None:
    """m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2;  the update is rate sqrt(1-b2^t)/(1-b1^t) m / (sqrt(v) + delta).

    b1 is momentum, b2 momentum2. delta is added to the root of the uncorrected v: Kingma and Ba's epsilon-hat.
    """
    m, v = histories
    _towards(m, diff, options.momentum)
    _towards(v, diff * diff, options.momentum2)
    correction = math.sqrt(1 - options.momentum2**t) / (1 - options.momentum**t)
    diff[...] = m
    _divide(diff, v, options.delta, rate * correction)


def _divide(diff: Array, squares: Array, delta: float, rate: float) -> None:
    root = np.sqrt(squares)
    root += delta
    diff /= root
    diff *= rate


def _towards(history: Array, value: Array, keep: float) -> None:
    """history = keep history + (1 - keep) value."""
    history *= keep
    history += value * (1 - keep)


RULES: dict[str, Rule] = {
    "SGD": Rule(sgd),
    "Nesterov": Rule(nesterov),
    "AdaGrad": Rule(adagrad),
    "RMSProp": Rule(rmsprop),
    "AdaDelta": Rule(adadelta, 2),
    "Adam": Rule(adam, 2),
}
