"""Copies between tensors, with gaps between pixels and without."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.kernels.cpu.guards import GuardedTensor
from undertow.kernels.cpu.raw import packing

SHAPES = {"one value": (1, 1, 1, 1), "one channel": (5, 1, 28, 29), "odd": (3, 17, 5, 7), "panels": (2, 64, 9, 8)}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("surplus", list(itertools.product((0, 3), (0, 3))), ids=str)
@pytest.mark.parametrize("accumulate", [False, True])
def test_a_copy_has_the_values_and_touches_nothing_else(
    shape: tuple[int, int, int, int], surplus: tuple[int, int], accumulate: bool
) -> None:
    rng = np.random.default_rng(0)
    x, y = (GuardedTensor(*shape, surplus=s) for s in surplus)
    for one in (x, y):
        one.array[...] = rng.standard_normal(shape)
    expected = x.array + y.array if accumulate else x.array.copy()
    packing.copy(x.tensor, y.tensor, accumulate=accumulate)
    np.testing.assert_array_equal(y.array, expected)
    x.check()
    y.check()
