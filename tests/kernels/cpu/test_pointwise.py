"""1x1 windows on OIHW weights against the definition in float64, within guard bytes, whatever the threads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.kernels.cpu import definitions
from tests.kernels.cpu.definitions import relative_error
from tests.kernels.cpu.guards import GuardedScratch, GuardedTensor
from undertow.kernels import cpu
from undertow.kernels.cpu.raw import pointwise
from undertow.kernels.cpu.raw.direct import Window
from undertow.kernels.cpu.raw.parts import Epilogue
from undertow.kernels.cpu.threads import begin
from undertow.kernels.geometry import ConvGeometry

# Images, input and output channels, height and width, stride.
SHAPES = {
    "one number": (1, 1, 1, 1, 1, (1, 1)),
    "dense": (64, 500, 10, 1, 1, (1, 1)),
    "dense, many pieces": (5, 800, 530, 1, 1, (1, 1)),
    "slices": (3, 40, 33, 20, 21, (1, 1)),
    "slices, two pieces": (2, 300, 50, 30, 31, (1, 1)),
    "slices, three pieces": (2, 48, 600, 40, 31, (1, 1)),
    "a strip of one panel": (2, 48, 17, 14, 14, (1, 1)),
    "a strip that ends within its second panel": (2, 57, 30, 14, 14, (1, 1)),
    "pieces of several blocks": (2, 520, 300, 22, 20, (1, 1)),
    "stride 2": (2, 70, 100, 24, 20, (2, 2)),
    "stride 2, odd width": (3, 32, 40, 26, 13, (2, 2)),
    "stride 2, odd height": (1, 32, 40, 27, 13, (2, 2)),
    "stride 2, pieces of several blocks": (4, 512, 520, 28, 28, (2, 2)),
    "stride 3 by 1": (2, 20, 24, 9, 8, (3, 1)),
    "strides beyond the image": (1, 32, 16, 6, 5, (99999999, 99999999)),
}


def _gradients(n, ci, co, h, w, stride, surplus, rng):
    """Gradient and original minus gradient, from guarded memory, and what was expected."""
    geometry = ConvGeometry(stride)
    out_h, out_w = geometry.output_size(h, w, (1, 1))
    x, gy = GuardedTensor(n, ci, h, w, surplus), GuardedTensor(n, co, out_h, out_w, surplus)
    x.array[:] = 0.5 + rng.random(x.array.shape)  # sums that do not cancel
    gy.array[:] = 0.5 + rng.random(gy.array.shape)
    window = Window(1, 1, *stride, 1, 1, 0, 0)
    assert pointwise.takes(x.tensor, gy.tensor, window)
    found, taken = (np.full((co + 2, ci), 7, np.float32) for _ in range(2))
    before = taken[1:-1] = rng.standard_normal((co, ci))
    memory = GuardedScratch()
    begin()
    pointwise.backward_weights(x.tensor, gy.tensor, found[1].ctypes.data, window, memory, subtract=False)
    told = np.zeros(2, np.int64)  # of what is finite, then of one number that is not
    ruined = taken.copy()
    ruined[1:-1].flat[rng.integers(0, ruined[1:-1].size)] = np.inf
    for target, which in ((taken, told), (ruined, told[1:])):
        pointwise.backward_weights(
            x.tensor, gy.tensor, target[1].ctypes.data, window, memory, subtract=True, ruined=which.ctypes.data
        )
    assert told.tolist() == [0, 1]
    for guarded in (x, gy, memory):
        guarded.check()
    for result in (found, taken):
        assert (result[[0, -1]] == 7).all()
    np.testing.assert_array_equal(taken[1:-1], before.astype(np.float32) - found[1:-1])
    expected = definitions.conv2d_backward_weights(gy.array, x.array, (co, ci, 1, 1), geometry)[:, :, 0, 0]
    return found[1:-1], expected


@pytest.mark.parametrize("case", SHAPES)
@pytest.mark.parametrize("surplus", [0, 3])
def test_gradients_on_the_grid(case, surplus, rng):
    found, expected = _gradients(*SHAPES[case], surplus, rng)
    assert relative_error(found, expected) < 1e-6


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    n=st.integers(1, 3),
    channels=st.tuples(st.integers(1, 80), st.integers(1, 80)),
    size=st.tuples(st.integers(1, 30), st.integers(1, 30)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    surplus=st.sampled_from([0, 1, 16]),
)
def test_gradients_of_random_shapes(n, channels, size, stride, surplus):
    assume(n == 1 or size[0] % stride[0] == 0)
    found, expected = _gradients(n, *channels, *size, stride, surplus, np.random.default_rng(0))
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


# Images, input and output channels, height and width.
PRODUCTS = {
    "one number": (1, 1, 1, 1, 1),
    "dense": (64, 500, 10, 1, 1),
    "dense, channels shared": (64, 300, 530, 1, 1),
    "channels shared, odd": (2, 77, 91, 15, 14),
    "channels shared, gradient of the input in two odd parts": (2, 91, 149, 15, 14),
    "channels shared, one panel behind": (1, 530, 112, 9, 9),
    "few pixels": (1, 40, 30, 9, 9),
    "many pixels": (2, 70, 90, 30, 31),
    "many pixels, blocks of equal work": (4, 30, 56, 13, 13),
    "many pixels, several passes": (2, 1040, 90, 22, 20),
    "many pixels, few channels": (2, 3, 17, 30, 31),
    "many pixels, one panel": (2, 48, 16, 30, 31),
}


def _products(n, ci, co, h, w, surplus, rng):
    """y with bias, leaky and sums, twice y, gx, twice gx; asserts that they are right."""
    x, y, gx = GuardedTensor(n, ci, h, w, surplus), *(GuardedTensor(n, c, h, w, surplus) for c in (co, ci))
    gy = GuardedTensor(n, co, h, w, surplus)
    weights, bias = rng.standard_normal((co, ci)).astype(np.float32), rng.standard_normal(co).astype(np.float32)
    x.array[:], gy.array[:] = rng.standard_normal(x.array.shape), rng.standard_normal(gy.array.shape)
    sums, memory = np.zeros((16, 2, co)), GuardedScratch()
    linear = np.einsum("nihw,oi->nohw", x.array.astype(np.float64), weights) + bias[:, None, None]
    back = np.einsum("nohw,oi->nihw", gy.array.astype(np.float64), weights)
    begin()
    then = Epilogue(bias=bias.ctypes.data, slope=0.1, sums=sums.ctypes.data)
    pointwise.forward(x.tensor, weights.ctypes.data, y.tensor, memory, then)
    expected = np.where(linear > 0, linear, 0.1 * linear)
    assert relative_error(y.array, expected) < 1e-6
    np.testing.assert_allclose(sums[:, 0].sum(0), expected.sum((0, 2, 3)), rtol=1e-4, atol=2e-5 * expected.size / co)
    np.testing.assert_allclose(sums[:, 1].sum(0), np.square(expected).sum((0, 2, 3)), rtol=1e-5)
    results = [y.array.copy(), sums]
    pointwise.forward(x.tensor, weights.ctypes.data, y.tensor, memory, Epilogue(accumulate=True))
    expected = expected + linear - bias[:, None, None]
    assert relative_error(y.array, expected) < 1e-6
    for times, accumulate in ((1, False), (2, True)):
        pointwise.backward_data(gy.tensor, weights.ctypes.data, gx.tensor, memory, accumulate=accumulate)
        assert relative_error(gx.array, times * back) < 1e-6
    for guarded in (x, gy, y, gx, memory):
        guarded.check()
    return [*results, y.array.copy(), gx.array.copy()]


@pytest.mark.parametrize("case", PRODUCTS)
@pytest.mark.parametrize("surplus", [0, 3])
def test_products_on_the_grid(case, surplus, rng):
    _products(*PRODUCTS[case], surplus, rng)


@pytest.mark.parametrize("case", PRODUCTS)
def test_products_have_the_same_bits_whatever_the_number_of_threads(case):
    results = []
    try:
        for threads in (1, 2, 5):
            cpu.set_threads(threads)
            results.append(_products(*PRODUCTS[case], 0, np.random.default_rng(1)))
    finally:
        cpu.set_threads(None)
    for others in results[1:]:
        for one, other in zip(results[0], others, strict=True):
            np.testing.assert_array_equal(one, other)


def test_windows_it_is_not_for():
    x, gy = GuardedTensor(2, 3, 9, 9).tensor, GuardedTensor(2, 3, 5, 5).tensor
    assert not pointwise.takes(x, gy, Window(1, 1, 2, 2, 1, 1, 0, 0)), "the rows of the second image are elsewhere"
    assert pointwise.takes(x.image(0), gy.image(0), Window(1, 1, 2, 2, 1, 1, 0, 0))
    assert not pointwise.takes(x, gy, Window(3, 1, 1, 1, 1, 1, 1, 0))
    assert not pointwise.takes(x.image(0), gy.image(0), Window(1, 1, 2, 2, 1, 1, 1, 0)), "padding above"
    assert not pointwise.takes(x.image(0), gy.image(0), Window(1, 1, 3, 2, 1, 1, 0, 0)), "padding below"
