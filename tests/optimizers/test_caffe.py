"""Caffe's rules against the formulas of its documentation, one number at a time in float64."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from undertow.optimizers.caffe import RULES, RuleOptions

OPTIONS = RuleOptions(momentum=0.9, momentum2=0.99, delta=1e-3, rms_decay=0.8)
GRADIENTS = (0.5, -0.25, 2.0, 0.0, -1.5)
RATES = (0.1, 0.1, 0.05, 0.05, 0.2)


def sgd() -> list[float]:
    h, updates = 0.0, []
    for g, rate in zip(GRADIENTS, RATES, strict=True):
        h = 0.9 * h + rate * g
        updates.append(h)
    return updates


def nesterov() -> list[float]:
    h, updates = 0.0, []
    for g, rate in zip(GRADIENTS, RATES, strict=True):
        before, h = h, 0.9 * h + rate * g
        updates.append(1.9 * h - 0.9 * before)
    return updates


def adagrad() -> list[float]:
    s, updates = 0.0, []
    for g, rate in zip(GRADIENTS, RATES, strict=True):
        s += g * g
        updates.append(rate * g / (math.sqrt(s) + 1e-3))
    return updates


def rmsprop() -> list[float]:
    s, updates = 0.0, []
    for g, rate in zip(GRADIENTS, RATES, strict=True):
        s = 0.8 * s + 0.2 * g * g
        updates.append(rate * g / (math.sqrt(s) + 1e-3))
    return updates


def adadelta() -> list[float]:
    s, u, updates = 0.0, 0.0, []
    for g, rate in zip(GRADIENTS, RATES, strict=True):
        s = 0.9 * s + 0.1 * g * g
        d = math.sqrt((u + 1e-3) / (s + 1e-3)) * g
        u = 0.9 * u + 0.1 * d * d
        updates.append(rate * d)
    return updates


def adam() -> list[float]:
    m, v, updates = 0.0, 0.0, []
    for t, (g, rate) in enumerate(zip(GRADIENTS, RATES, strict=True), 1):
        m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
        correction = math.sqrt(1 - 0.99**t) / (1 - 0.9**t)
        updates.append(rate * correction * m / (math.sqrt(v) + 1e-3))
    return updates


REFERENCES: dict[str, Callable[[], list[float]]] = {
    "SGD": sgd, "Nesterov": nesterov, "AdaGrad": adagrad, "RMSProp": rmsprop, "AdaDelta": adadelta, "Adam": adam,
}  # fmt: skip


def test_every_rule_has_a_reference() -> None:
    assert set(REFERENCES) == set(RULES)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_rule(name: str, dtype: type) -> None:
    rule = RULES[name]
    histories = [np.zeros((2, 1), dtype) for _ in range(rule.histories)]
    found = []
    for t, (g, rate) in enumerate(zip(GRADIENTS, RATES, strict=True), 1):
        diff = np.full((2, 1), g, dtype)
        rule.update(diff, histories, rate, t, OPTIONS)
        assert diff.dtype == dtype
        assert diff[0, 0] == diff[1, 0]
        found.append(float(diff[0, 0]))
    np.testing.assert_allclose(found, REFERENCES[name](), rtol=1e-12 if dtype is np.float64 else 1e-5)
