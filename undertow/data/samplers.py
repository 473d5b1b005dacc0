"""Samplers: in which order the items of an epoch come. The order follows from the epoch's number alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np


class Sampler(Protocol):
    """Item numbers of an epoch; every epoch has the same count."""

    def __call__(self, epoch: int) -> np.ndarray: ...


@dataclass(frozen=True)
class InOrder:
    """0, 1, ..., count - 1."""

    count: int

    def __call__(self, epoch: int) -> np.ndarray:
        return np.arange(self.count)


@dataclass(frozen=True)
class Shuffled:
    """Every item once, in an order drawn from (seed, epoch)."""

    count: int
    seed: int = 0

    def __call__(self, epoch: int) -> np.ndarray:
        return np.random.default_rng((self.seed, epoch)).permutation(self.count)


@dataclass(frozen=True)
class Weighted:
    """`draws` items per epoch, drawn with replacement in proportion to these weights, from (seed, epoch)."""

    weights: tuple[float, ...]
    draws: int
    seed: int = 0

    def __call__(self, epoch: int) -> np.ndarray:
        weights = np.asarray(self.weights, dtype=np.float64)
        generator = np.random.default_rng((self.seed, epoch))
        return generator.choice(len(weights), size=self.draws, p=weights / weights.sum())
