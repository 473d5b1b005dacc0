"""Gradients of inputs from gradients with many zeros, against the definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.cpu import definitions
from tests.kernels.cpu.guards import GuardedScratch, GuardedTensor
from undertow.kernels.cpu.raw import sparse
from undertow.kernels.cpu.raw.convolution import Convolution
from undertow.kernels.cpu.threads import set_threads
from undertow.kernels.geometry import ConvGeometry


def _run(n, ci, co, size, kernel, pad, share, accumulate=False, seed=0):
    rng = np.random.default_rng(seed)
    geometry = ConvGeometry(pad=pad)
    layer = Convolution(n, *size, ci, co, kernel, geometry, True)
    gy, gx, memory = GuardedTensor(n, co, layer.out_h, layer.out_w), GuardedTensor(n, ci, *size), GuardedScratch()
    gy.array[...] = rng.standard_normal(gy.array.shape) * (rng.random(gy.array.shape) < share)
    before = rng.standard_normal(gx.array.shape).astype(np.float32)
    gx.array[...] = before if accumulate else np.nan
    w = rng.standard_normal((co, ci, *kernel)).astype(np.float32)
    sparse.backward_data(gy.tensor, w.ctypes.data, gx.tensor, layer.window, memory, accumulate=accumulate)
    for watched in (gy, gx, memory):
        watched.check()
    expected = definitions.conv2d_backward_data(gy.array, w, gx.array.shape, geometry)
    np.testing.assert_allclose(gx.array, expected + before if accumulate else expected, rtol=1e-4, atol=1e-4)
    return gx.array.copy()


GRID = {
    "lenet": (3, 20, 50, (12, 12), (5, 5), (0, 0, 0, 0), 0.25),
    "3x3": (2, 17, 33, (9, 11), (3, 3), (1, 1, 1, 1), 0.25),
    "one of each": (1, 1, 1, (1, 1), (1, 1), (0, 0, 0, 0), 1.0),
    "zeros alone": (2, 5, 4, (6, 5), (3, 3), (1, 1, 1, 1), 0.0),
    "no zeros": (2, 5, 4, (6, 5), (3, 3), (1, 1, 1, 1), 1.0),
    "several strips": (1, 70, 9, (7, 6), (3, 4), (1, 1, 2, 1), 0.3),
    "uneven padding": (2, 3, 7, (5, 6), (4, 3), (3, 1, 0, 2), 0.5),
}


@pytest.mark.parametrize("case", GRID.values(), ids=GRID)
@pytest.mark.parametrize("accumulate", [False, True])
def test_gradient_of_the_input(case, accumulate):
    _run(*case, accumulate=accumulate)


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(1, 3),
    ci=st.integers(1, 40),
    co=st.integers(1, 40),
    kernel=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    more=st.tuples(st.integers(0, 6), st.integers(0, 6)),
    share=st.sampled_from([0.05, 0.25, 1.0]),
    accumulate=st.booleans(),
    data=st.data(),
)
def test_random_layers(n, ci, co, kernel, more, share, accumulate, data):
    pad = tuple(data.draw(st.integers(0, k - 1)) for k in kernel for _ in range(2))
    size = tuple(max(1, k + m - a - b) for k, m, a, b in zip(kernel, more, pad[::2], pad[1::2], strict=True))
    _run(n, ci, co, size, kernel, pad, share, accumulate)


def test_a_value_that_is_no_number_is_no_zero():
    layer = Convolution(1, 4, 4, 1, 1, (3, 3), ConvGeometry(pad=(1, 1, 1, 1)), True)
    gy, gx = GuardedTensor(1, 1, 4, 4), GuardedTensor(1, 1, 4, 4)
    gy.array[...] = 0
    gy.array[0, 0, 0, 0] = np.nan
    w = np.ones((1, 1, 3, 3), np.float32)
    sparse.backward_data(gy.tensor, w.ctypes.data, gx.tensor, layer.window, GuardedScratch(), accumulate=False)
    assert np.isnan(gx.array[0, 0, :2, :2]).all()


def test_results_do_not_depend_on_the_number_of_threads():
    results = []
    try:
        for threads in (1, 2, 3):
            set_threads(threads)
            results.append(_run(*GRID["lenet"]))
    finally:
        set_threads(None)
    for other in results[1:]:
        assert np.array_equal(results[0], other)


@pytest.mark.parametrize(
    ("n", "channels", "size", "kernel", "stride", "share", "pays"),
    [
        (64, (20, 50), 12, 5, 1, 0.25, True),
        (64, (20, 50), 12, 5, 1, 1.0, False),
        (64, (20, 50), 12, 5, 2, 0.25, False),
        (64, (20, 50), 12, 1, 1, 0.25, False),
        (2, (20, 50), 12, 5, 1, 0.25, False),
        (8, (20, 50), 30, 7, 1, 0.25, True),
        (8, (20, 50), 64, 7, 1, 0.25, False),
        (64, (32, 200), 12, 5, 1, 0.25, False),
        (64, (64, 64), 16, 3, 1, 0.25, False),
    ],
)
def test_where_it_is_used(n, channels, size, kernel, stride, share, pays):
    layer = Convolution(n, size, size, *channels, (kernel, kernel), ConvGeometry((stride, stride)), True)
    gx, gy = (GuardedTensor(n, c, h, w) for c, h, w in zip(channels, *[(size, layer.out_h)] * 2, strict=True))
    assert sparse.pays(layer, gy.tensor, gx.tensor, share) == pays
