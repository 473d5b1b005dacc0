"""Sample inputs for the registry: arrays of several shapes, and references that do not use NumPy's own answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from undertow.core.registry import Sample

Samples = Callable[[np.random.Generator], list[Sample]]


def unary_samples(
    call: Callable[..., Any], reference: Callable[[float], float], low: float = -2.0, high: float = 2.0
) -> Samples:
    """Samples of an element by element operation: a number, a row, an odd-sized array, values in [low, high].

    reference: the same for one Python float, from Python's math module or written out.
    """

    def samples(rng: np.random.Generator) -> list[Sample]:
        shapes: Sequence[tuple[int, ...]] = [(), (7,), (3, 1, 5)]
        return [Sample((rng.uniform(low, high, shape),), call, elementwise(reference)) for shape in shapes]

    return samples


def binary_samples(
    call: Callable[..., Any], reference: Callable[[float, float], float], low: float = -2.0, high: float = 2.0
) -> Samples:
    """Samples of an operation on two broadcast operands, values in [low, high]."""
    shapes: Sequence[tuple[tuple[int, ...], tuple[int, ...]]] = [
        ((), ()),
        ((3, 4), (3, 4)),
        ((3, 4), (4,)),
        ((2, 1, 5), (3, 1)),
        ((), (2, 3)),
        ((4, 1), (1, 1, 3)),
    ]

    def samples(rng: np.random.Generator) -> list[Sample]:
        return [
            Sample((rng.uniform(low, high, a), rng.uniform(low, high, b)), call, elementwise(reference))
            for a, b in shapes
        ]

    return samples


def elementwise(function: Callable[..., float]) -> Callable[..., np.ndarray]:
    """A function of Python floats, applied to every element of broadcast arrays."""

    def apply(*arrays: np.ndarray) -> np.ndarray:
        broadcast = np.broadcast_arrays(*arrays)
        flat = [function(*map(float, values)) for values in zip(*(a.ravel() for a in broadcast), strict=True)]
        return np.array(flat, dtype=np.float64).reshape(broadcast[0].shape)

    return apply


def distinct(rng: np.random.Generator, shape: tuple[int, ...], gap: float = 0.1) -> np.ndarray:
    """Values of which no two are nearer than `gap` and none is nearer to 0 than gap / 2: no ties, no kinks at 0."""
    count = int(np.prod(shape))
    return ((rng.permutation(count) - count // 2 + 0.5) * gap).reshape(shape)
