"""Packed gradients subtracted where they are wanted."""

from __future__ import annotations

import numpy as np
import pytest

from undertow.kernels.cpu.raw import packing, plan_unpack
from undertow.kernels.cpu.raw.tensor import scratch


@pytest.mark.parametrize(("outputs", "inputs", "taps"), [(1, 1, 1), (16, 3, 9), (21, 17, 9), (40, 8, 1), (32, 16, 25)])
def test_subtracting_equals_unpacking_and_subtracting(outputs: int, inputs: int, taps: int) -> None:
    rng = np.random.default_rng(outputs)
    gradient = rng.standard_normal((outputs, inputs, taps)).astype(np.float32)
    guarded = rng.standard_normal(gradient.size + 16).astype(np.float32)
    before = guarded.copy()
    memory = scratch()
    with memory.frame():
        packed = memory.take(packing.packed_size(inputs, outputs, taps))
        packing.pack(gradient.ctypes.data, inputs, outputs, taps, packed, memory)
        plan_unpack.subtract(packed, inputs, outputs, taps, guarded.ctypes.data, memory)
    np.testing.assert_array_equal(guarded[: gradient.size], before[: gradient.size] - gradient.reshape(-1))
    np.testing.assert_array_equal(guarded[gradient.size :], before[gradient.size :])
