"""Gradients of weights in strips against the definition in float64, within guard bytes, whatever the threads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kernels.cpu import definitions
from tests.kernels.cpu.definitions import relative_error
from tests.kernels.cpu.guards import GuardedScratch, GuardedTensor
from undertow.kernels import cpu
from undertow.kernels.cpu.raw import strips
from undertow.kernels.cpu.raw.direct import Window
from undertow.kernels.cpu.threads import begin
from undertow.kernels.geometry import ConvGeometry

# Images, input and output channels, height and width, window, geometry.
SHAPES = {
    "one number": (1, 1, 1, 1, 1, (1, 1), ConvGeometry()),
    "stride 2": (2, 64, 96, 26, 26, (3, 3), ConvGeometry((2, 2), (1, 1, 1, 1))),
    "stride 2, odd sizes": (3, 70, 91, 15, 13, (3, 3), ConvGeometry((2, 2), (1, 1, 1, 1))),
    "many pixels": (2, 40, 50, 60, 62, (3, 3), ConvGeometry((2, 2), (1, 1, 1, 1))),
    "many blocks of outputs": (1, 33, 600, 9, 8, (3, 3), ConvGeometry((2, 2), (1, 1, 1, 1))),
    "a strip of one panel": (2, 48, 30, 9, 8, (3, 3), ConvGeometry((1, 1), (1, 1, 1, 1))),
    "no padding": (2, 40, 30, 9, 8, (3, 3), ConvGeometry((2, 2))),
    "more padding than window": (1, 35, 30, 5, 6, (3, 3), ConvGeometry((2, 2), (5, 4, 4, 5))),
    "dilation": (2, 40, 30, 11, 12, (3, 3), ConvGeometry((1, 1), (2, 2, 2, 2), (2, 2))),
    "stride 2, dilation 3 by 2": (2, 40, 30, 14, 15, (3, 3), ConvGeometry((2, 2), (1, 2, 2, 1), (3, 2))),
    "stride beyond the window": (2, 40, 30, 14, 15, (2, 3), ConvGeometry((3, 4), (0, 1, 2, 0))),
    "5x5": (2, 40, 30, 11, 12, (5, 5), ConvGeometry((1, 1), (2, 2, 2, 2))),
    "3x1": (2, 40, 30, 11, 12, (3, 1), ConvGeometry((1, 2), (1, 1, 0, 0))),
    "images smaller than the window": (4, 40, 30, 2, 1, (3, 3), ConvGeometry((2, 2), (1, 1, 1, 1))),
}


def _gradients(n, ci, co, h, w, kernel, geometry, surplus, rng):
    """Gradient and original minus gradient, from guarded memory, and what was expected."""
    out_h, out_w = geometry.output_size(h, w, kernel)
    x, gy = GuardedTensor(n, ci, h, w, surplus), GuardedTensor(n, co, out_h, out_w, surplus)
    x.array[:] = 0.5 + rng.random(x.array.shape)  # sums that do not cancel
    gy.array[:] = 0.5 + rng.random(gy.array.shape)
    window = Window(*kernel, *geometry.stride, *geometry.dilation, geometry.pad[0], geometry.pad[2])
    found, taken = (np.full((co + 2, ci, *kernel), 7, np.float32) for _ in range(2))
    before = taken[1:-1] = rng.standard_normal(taken[1:-1].shape)
    memory = GuardedScratch()
    begin()
    strips.backward_weights(x.tensor, gy.tensor, found[1].ctypes.data, window, memory, subtract=False)
    told = np.zeros(2, np.int64)  # of what is finite, then of one number that is not
    ruined = taken.copy()
    ruined[1:-1].flat[rng.integers(0, ruined[1:-1].size)] = np.inf
    for target, which in ((taken, told), (ruined, told[1:])):
        strips.backward_weights(
            x.tensor, gy.tensor, target[1].ctypes.data, window, memory, subtract=True, ruined=which.ctypes.data
        )
    assert told.tolist() == [0, 1]
    for guarded in (x, gy, memory):
        guarded.check()
    for result in (found, taken):
        assert (result[[0, -1]] == 7).all()
    np.testing.assert_array_equal(taken[1:-1], before.astype(np.float32) - found[1:-1])
    return found[1:-1], definitions.conv2d_backward_weights(gy.array, x.array, (co, ci, *kernel), geometry)


@pytest.mark.parametrize("case", SHAPES)
@pytest.mark.parametrize("surplus", [0, 3])
def test_gradients_on_the_grid(case, surplus, rng):
    found, expected = _gradients(*SHAPES[case], surplus, rng)
    assert relative_error(found, expected) < 1e-6


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    n=st.integers(1, 3),
    channels=st.tuples(st.integers(1, 80), st.integers(1, 80)),
    size=st.tuples(st.integers(3, 20), st.integers(3, 20)),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    pad=st.tuples(*[st.integers(0, 3)] * 4),
    surplus=st.sampled_from([0, 1, 16]),
)
def test_gradients_of_random_shapes(n, channels, size, kernel, stride, pad, surplus):
    shape = n, *channels, *size, kernel, ConvGeometry(stride, pad)
    found, expected = _gradients(*shape, surplus, np.random.default_rng(0))
    assert relative_error(found, expected) < 1e-6


@pytest.mark.parametrize("case", SHAPES)
def test_same_bits_whatever_the_number_of_threads(case):
    results = []
    try:
        for threads in (1, 2, 3, 11):
            cpu.set_threads(threads)
            results.append(_gradients(*SHAPES[case], 0, np.random.default_rng(1))[0].copy())
    finally:
        cpu.set_threads(None)
    for other in results[1:]:
        np.testing.assert_array_equal(results[0], other)


def test_windows_it_is_for():
    """Where threads can share the weights and many pixels at a time stay in the second cache."""
    three, one = Window(3, 3, 2, 2, 1, 1, 1, 1), Window(1, 1, 2, 2, 1, 1, 0, 0)
    x, gy = GuardedTensor(1, 128, 9, 9).tensor, GuardedTensor(1, 128, 5, 5).tensor
    assert strips.takes(x, gy, three)
    assert not strips.takes(x, gy, one)
    assert not strips.takes(x.channels(0, 127), gy, three)
    assert not strips.takes(x, GuardedTensor(1, 128, 5, 99).tensor, three), "one row takes up too much"
