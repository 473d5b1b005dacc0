"""The sums that a plan's convolution takes for the batch norm after it."""

from __future__ import annotations

import numpy as np
import pytest

from undertow.functions import conv2d
from undertow.kernels.cpu import memory
from undertow.kernels.cpu.raw.parts import SLOTS, Epilogue
from undertow.kernels.geometry import ConvGeometry
from undertow.kernels.reference.batchnorm import EXACT
from undertow.plans.kernels import ConvKernel
from undertow.plans.norm import Norm


@pytest.mark.parametrize("size", [7, 12])
@pytest.mark.parametrize("window", [1, 3])
@pytest.mark.parametrize(("inputs", "groups", "outputs"), [(4, 1, 6), (4, 2, 4), (8, 4, 8), (8, 2, 48), (32, 2, 64)])
def test_sums_of_the_result_and_of_its_square(inputs: int, groups: int, outputs: int, window: int, size: int) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((3, inputs, size, size)).astype(np.float32)
    w = rng.standard_normal((outputs, inputs // groups, window, window)).astype(np.float32)
    pad = window // 2
    kernel = ConvKernel(x.shape, w.shape, ConvGeometry((1, 1), (pad,) * 4, (1, 1), groups), "fast")
    y, sums = memory.empty_nhwc(3, outputs, size, size), np.zeros((SLOTS, 2, outputs))
    held = memory.as_nhwc(x)
    kernel.forward(memory.view(held), w.ctypes.data, memory.view(y), Epilogue(sums=sums.ctypes.data))
    np.testing.assert_allclose(y, conv2d(x, w, pad=pad, groups=groups).data, rtol=1e-4, atol=1e-4)
    exact = y.astype(np.float64)
    expected = np.stack([exact.sum(axis=(0, 2, 3)), np.square(exact).sum(axis=(0, 2, 3))])
    parts = sums.reshape(groups, SLOTS, 2, outputs // groups).sum(axis=1)
    np.testing.assert_allclose(parts.transpose(1, 0, 2).reshape(2, -1), expected, rtol=1e-5, atol=1e-3)

    norm = Norm(EXACT, outputs, 3 * size * size)
    norm.take_sums(sums.ctypes.data, groups)
    one, zero = np.ones(outputs, np.float32), np.zeros(outputs, np.float32)
    norm.set_affine(one.ctypes.data, zero.ctypes.data)
    np.testing.assert_allclose(norm.mean, exact.mean(axis=(0, 2, 3)), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(norm.variance, exact.var(axis=(0, 2, 3)), rtol=1e-5)
