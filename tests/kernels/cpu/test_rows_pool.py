"""Convolution of few channels, bias, leaky and pooling in one, against the four one after another."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.cpu import definitions
from tests.kernels.cpu.guards import GuardedBytes, GuardedScratch, GuardedTensor
from undertow.kernels.cpu.raw import pooling, rows_pool
from undertow.kernels.cpu.raw.convolution import Convolution
from undertow.kernels.cpu.raw.parts import Epilogue
from undertow.kernels.cpu.raw.pooling import Pool
from undertow.kernels.cpu.raw.tensor import scratch
from undertow.kernels.cpu.threads import set_threads
from undertow.kernels.geometry import ConvGeometry

_HALVES = Pool(2, 2, 2, 2, 0, 0)


class Trial:
    """One layer with random values; coarse ones, so that windows hold equal values. size: of what is pooled."""

    def __init__(self, n, ci, co, size, kernel, pad, slope, bias, seed=0, coarse=True):
        rng = np.random.default_rng(seed)
        h, w = (2 * out + k - 1 - a - b for out, k, a, b in zip(size, kernel, pad[::2], pad[1::2], strict=True))
        self.geometry, self.slope = ConvGeometry(pad=pad), slope
        self.layer = Convolution(n, h, w, ci, co, kernel, self.geometry, True)
        assert self.layer.kind == "rows"
        assert rows_pool.fits(self.layer.window)
        self.x, self.gz = GuardedTensor(n, ci, h, w), GuardedTensor(n, co, *size)
        self.weights, self.bias = np.zeros((co, ci, *kernel), np.float32), np.zeros(co, np.float32)
        for array in (self.x.array, self.weights, self.bias):
            array[...] = rng.integers(-2, 3, array.shape) * 0.5 if coarse else rng.standard_normal(array.shape)
        self.gz.array[...] = rng.standard_normal(self.gz.array.shape)
        self.then = Epilogue(bias=self.bias.ctypes.data if bias else 0, slope=slope)
        self.z, self.apart = GuardedTensor(n, co, *size), GuardedTensor(n, co, *size)
        self.full, self.y, self.gy = (GuardedTensor(n, co, 2 * size[0], 2 * size[1]) for _ in range(3))
        self.winners = GuardedBytes(n * size[0] * size[1] * rows_pool.winner_bytes(co))
        self.packed, self.gw = GuardedBytes(self.layer.packed_size), GuardedBytes(self.layer.packed_size)
        self.layer.pack(self.weights.ctypes.data, self.packed.address, scratch())
        self.memory = GuardedScratch()

    def forward(self, full=True):
        rows_pool.forward(
            self.x.tensor, self.packed.address, self.z.tensor, self.winners.address, self.layer.window, self.memory,
            self.then, self.full.tensor if full else None,
        )  # fmt: skip

    def backward(self):
        """The gradients of weights and bias."""
        parts, step, count = rows_pool.backward_weights(
            self.x.tensor, self.gz.tensor, self.z.tensor, self.winners.address, self.slope, self.gw.address,
            self.layer.window, self.memory,
        )  # fmt: skip
        gw, channels = np.zeros_like(self.weights), len(self.bias)
        self.layer.unpack(self.gw.address, gw.ctypes.data, scratch())
        sums = np.frombuffer((np.ctypeslib.ctypes.c_char * (step * count)).from_address(parts), np.float64)
        return gw, sums.reshape(count, -1)[:, :channels].sum(0)

    def check(self):
        watched = (self.x, self.gz, self.z, self.apart, self.full, self.y, self.gy, self.winners, self.packed, self.gw)
        for one in (*watched, self.memory):
            one.check()


def _compare(trial):
    trial.forward()
    trial.layer.forward(trial.x.tensor, trial.packed.address, trial.y.tensor, scratch(), trial.then)
    assert np.array_equal(trial.full.array, trial.y.array)
    pooling.max_forward(trial.y.tensor, trial.apart.tensor, 0, _HALVES)
    assert np.array_equal(trial.z.array, trial.apart.array)

    rows_pool.spread(trial.gz.tensor, trial.z.tensor, trial.winners.address, trial.slope, trial.gy.tensor)
    expected = GuardedTensor(*trial.y.array.shape)
    pooling.max_backward_from(trial.gz.tensor, trial.y.tensor, expected.tensor)
    slopes = np.where(trial.y.array > 0, np.float32(1), np.float32(trial.slope))
    assert np.array_equal(trial.gy.array, expected.array * slopes)

    gw, gb = trial.backward()
    expected = definitions.conv2d_backward_weights(trial.gy.array, trial.x.array, gw.shape, trial.geometry)
    np.testing.assert_allclose(gw, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max() + 1e-6)
    np.testing.assert_allclose(gb, trial.gy.array.astype(np.float64).sum((0, 2, 3)), rtol=1e-5, atol=1e-5)
    trial.check()


GRID = {
    "lenet": (3, 1, 20, (12, 12), (5, 5), (0, 0, 0, 0), 1.0, True),
    "cifar": (3, 3, 32, (16, 16), (5, 5), (2, 2, 2, 2), 0.0, True),
    "3x3": (2, 3, 16, (9, 11), (3, 3), (1, 1, 1, 1), 0.1, True),
    "one pixel": (1, 1, 1, (1, 1), (1, 1), (0, 1, 1, 0), 0.0, False),
    "one row of taps": (2, 2, 7, (5, 6), (1, 7), (0, 0, 3, 3), 1.0, True),
    "one column of taps": (2, 2, 40, (5, 6), (7, 1), (3, 3, 0, 0), 0.5, True),
    "many taps": (1, 15, 8, (7, 5), (4, 3), (2, 1, 0, 2), 1.0, False),
    "much padding": (2, 4, 33, (6, 4), (3, 4), (4, 6, 5, 3), 0.1, True),
    "wide": (1, 3, 24, (2, 70), (11, 11), (5, 5, 5, 5), 0.0, True),
}


@pytest.mark.parametrize("case", GRID.values(), ids=GRID)
@pytest.mark.parametrize("coarse", [True, False], ids=["equal values", "random values"])
def test_one_pass_equals_four(case, coarse):
    _compare(Trial(*case, coarse=coarse))


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(1, 3),
    ci=st.integers(1, 15),
    co=st.integers(1, 40),
    size=st.tuples(st.integers(1, 10), st.integers(1, 9)),
    kernel=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    slope=st.sampled_from([0.0, 0.1, 1.0]),
    bias=st.booleans(),
    data=st.data(),
)
def test_random_layers(n, ci, co, size, kernel, slope, bias, data):
    pad = []
    for out, k in zip(size, kernel, strict=True):
        pad += data.draw(st.tuples(*[st.integers(0, min(k, (2 * out + k - 2) // 2))] * 2))
    if kernel == (1, 1) and not any(pad):
        pad = [0, 0, 1, 0] if size[1] > 1 else [0, 1, 0, 0]
    _compare(Trial(n, ci, co, size, kernel, tuple(pad), slope, bias))


def test_what_is_not_asked_for_is_not_written():
    trial = Trial(*GRID["lenet"])
    trial.full.array[...] = 77
    trial.forward(full=False)
    assert (trial.full.array == 77).all()


def test_results_do_not_depend_on_the_number_of_threads():
    results = []
    try:
        for threads in (1, 2, 3):
            set_threads(threads)
            trial = Trial(*GRID["cifar"], coarse=False)
            trial.forward()
            results.append((trial.z.array.copy(), *trial.backward()))
    finally:
        set_threads(None)
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            assert np.array_equal(a, b)


@pytest.mark.parametrize("window", [(1, 1, 2, 2, 1, 1, 0, 0), (3, 3, 1, 1, 2, 1, 0, 0)], ids=["stride", "dilation"])
def test_other_windows_have_no_kernels(window):
    assert not rows_pool.fits(rows_pool.Window(*window))
