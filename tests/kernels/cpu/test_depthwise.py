"""What depthwise convolutions do besides convolving: sums of their results, and batch norms before and behind."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.cpu import definitions
from tests.kernels.cpu.guards import GuardedBytes, GuardedScratch, GuardedTensor
from undertow.errors import ShapeError
from undertow.kernels.cpu.raw import depthwise, plan_depthwise
from undertow.kernels.cpu.raw.direct import Window
from undertow.kernels.cpu.raw.parts import SLOTS, Epilogue, Front
from undertow.kernels.geometry import ConvGeometry

Shape = tuple[int, int, int, int]  # images, channels, height, width
Case = tuple[Shape, tuple[int, int], ConvGeometry]

GRID: dict[str, Case] = {
    "3x3": ((2, 33, 9, 9), (3, 3), ConvGeometry(pad=(1, 1, 1, 1))),
    "whole vectors": ((3, 64, 14, 14), (3, 3), ConvGeometry(pad=(1, 1, 1, 1))),
    "stride 2": ((2, 20, 12, 11), (3, 3), ConvGeometry((2, 2), (1, 1, 1, 1))),
    "stride 2, uneven padding, dilation": ((2, 20, 11, 9), (3, 3), ConvGeometry((2, 2), (2, 1, 2, 0), (2, 1))),
    "5x5": ((1, 17, 30, 13), (5, 5), ConvGeometry(pad=(2, 2, 2, 2))),
    "5x5, stride 2": ((2, 40, 14, 14), (5, 5), ConvGeometry((2, 2), (2, 2, 2, 2))),
    "no padding": ((2, 5, 7, 8), (3, 2), ConvGeometry()),
    "windows in the padding alone": ((2, 4, 3, 13), (5, 5), ConvGeometry(pad=(7, 6, 1, 0))),
    "padding wider than the window": ((1, 9, 4, 3), (2, 2), ConvGeometry(pad=(3, 0, 5, 2))),
    "stride beyond the window": ((2, 8, 17, 16), (2, 3), ConvGeometry((5, 4), (1, 1, 1, 1))),
    "strides beyond the image": ((2, 8, 9, 9), (3, 3), ConvGeometry((99999999, 3), (1, 1, 1, 1))),
    "dilation": ((1, 16, 20, 18), (3, 3), ConvGeometry(pad=(3, 3, 2, 2), dilation=(3, 2))),
    "many images, few rows": ((19, 3, 2, 2), (3, 3), ConvGeometry(pad=(1, 1, 1, 1))),
}
SLOPES = [0.0, 0.1, 1.0]


def _filled(rng: np.random.Generator, n: int, c: int, h: int, w: int) -> GuardedTensor:
    made = GuardedTensor(n, c, h, w)
    made.array[:] = rng.standard_normal(made.array.shape)
    return made


def _per_channel(rng: np.random.Generator, rows: int, channels: int) -> np.ndarray:
    """Rows of numbers, the first of them near 1."""
    made = rng.standard_normal((rows, channels)) * 0.5
    made[0] = rng.uniform(0.5, 2, channels)
    return made.astype(np.float32)


def _image(channels: np.ndarray) -> np.ndarray:
    return channels.astype(np.float64)[:, None, None]


def _leaky(v: np.ndarray, slope: float) -> np.ndarray:
    return np.where(v > 0, v, v * np.float32(slope))


class _Setup:
    """One convolution: its input as it lies in memory, weights, and what stands in front of it."""

    def __init__(self, case: Case, slope: float, front: bool, seed: int = 0) -> None:
        self.rng = rng = np.random.default_rng(seed)
        (n, c, h, w), kernel, shape = case
        self.geometry = geometry = ConvGeometry(shape.stride, shape.pad, shape.dilation, c)
        self.window = Window(*kernel, *geometry.stride, *geometry.dilation, geometry.pad[0], geometry.pad[2])
        self.out = (n, c, *geometry.output_size(h, w, kernel))
        self.weights = rng.standard_normal((c, 1, *kernel)).astype(np.float32)
        self.x, self.memory = _filled(rng, n, c, h, w), GuardedScratch()
        self.line = slope
        self.numbers = _per_channel(rng, 4, c)  # scale, shift, k1, k0
        self.front = Front(self.numbers[0].ctypes.data, self.numbers[1].ctypes.data, slope) if front else None
        self.value = self.x.array.astype(np.float64)
        if front:
            # float32 decides on which side of 0 a value lies
            inner = (self.value * _image(self.numbers[0]) + _image(self.numbers[1])).astype(np.float32)
            self.value = _leaky(inner, slope).astype(np.float64)


def _check_forward(case: Case, slope: float, front: bool, seed: int = 0) -> None:
    s = _Setup(case, slope, front, seed)
    y, (bias,) = GuardedTensor(*s.out), _per_channel(s.rng, 1, s.out[1])
    sums = np.zeros((SLOTS, 2, s.out[1]))
    then = Epilogue(bias.ctypes.data, 0.5, sums.ctypes.data)
    depthwise.forward(s.x.tensor, s.weights.ctypes.data, y.tensor, s.window, s.memory, then, s.front)
    expected = _leaky(definitions.conv2d(s.value, s.weights, bias, s.geometry), 0.5)
    np.testing.assert_allclose(y.array, expected, rtol=1e-5, atol=1e-5)
    exact = y.array.astype(np.float64)
    totals = [exact.sum((0, 2, 3)), np.square(exact).sum((0, 2, 3))]
    np.testing.assert_allclose(sums.sum(0), totals, rtol=1e-5, atol=1e-3)
    for watched in (s.x, y, s.memory):
        watched.check()


@pytest.mark.parametrize("front", [False, True])
@pytest.mark.parametrize("slope", SLOPES)
@pytest.mark.parametrize("case", GRID)
def test_forward(case: str, slope: float, front: bool) -> None:
    _check_forward(GRID[case], slope, front)


@st.composite
def _cases(draw: st.DrawFn) -> Case:
    shape = draw(st.tuples(st.integers(1, 5), st.integers(1, 40), st.integers(1, 14), st.integers(1, 14)))
    kernel = draw(st.sampled_from([(1, 1), (3, 3), (2, 3), (5, 1), (4, 4), (5, 5)]))
    sides = st.integers(0, 3)
    stride, dilation = draw(st.tuples(*[st.integers(1, 3)] * 2)), draw(st.sampled_from([(1, 1), (2, 1), (1, 3)]))
    return shape, kernel, ConvGeometry(stride, draw(st.tuples(sides, sides, sides, sides)), dilation)


def _exists(case: Case) -> bool:
    (_, _, h, w), kernel, geometry = case
    try:
        geometry.output_size(h, w, kernel)
    except ShapeError:
        return False
    return True


@settings(max_examples=60, deadline=None)
@given(case=_cases().filter(_exists), slope=st.sampled_from(SLOPES), front=st.booleans(), seed=st.integers(0, 99))
def test_forward_on_random_shapes(case: Case, slope: float, front: bool, seed: int) -> None:
    _check_forward(case, slope, front, seed)


def _check_backward(case: Case, slope: float, front: bool, accumulate: bool, seed: int = 0) -> None:
    s = _Setup(case, slope, front, seed)
    n, c, h, w = s.value.shape
    gy = _filled(s.rng, *s.out)
    sums = np.zeros((SLOTS, 2, c))
    k1, k0 = s.numbers[2], s.numbers[3]
    ahead = None
    if s.front is not None:
        ahead = plan_depthwise.Ahead(s.front, k1.ctypes.data, k0.ctypes.data, sums.ctypes.data)
    gx, gw, before = _filled(s.rng, n, c, h, w), GuardedBytes(s.weights.nbytes), 0.0
    if accumulate:
        before = gx.array.astype(np.float64)
    plan_depthwise.backward(
        gy.tensor, s.x.tensor, ahead, s.weights.ctypes.data, gx.tensor, gw.address, s.window, s.memory,
        accumulate=accumulate,
    )  # fmt: skip

    expected = definitions.conv2d_backward_data(gy.array, s.weights, s.value.shape, s.geometry) + before
    np.testing.assert_allclose(gx.array, expected, rtol=1e-5, atol=2e-5)
    gradient = definitions.conv2d_backward_weights(gy.array, s.value, s.weights.shape, s.geometry)
    np.testing.assert_allclose(gw.floats().reshape(s.weights.shape), gradient, rtol=1e-5, atol=2e-4)
    if front:
        x = s.x.array.astype(np.float64)
        inner = (x * _image(s.numbers[0]) + _image(s.numbers[1])).astype(np.float32)
        g = gx.array * np.where(inner > 0, 1.0, np.float32(slope))
        totals = [g.sum((0, 2, 3)), (g * (x * _image(k1) + _image(k0))).sum((0, 2, 3))]
        np.testing.assert_allclose(sums.sum(0), totals, rtol=1e-5, atol=1e-3)
    for watched in (s.x, gy, gx, gw, s.memory):
        watched.check()


@pytest.mark.parametrize("front", [False, True])
@pytest.mark.parametrize("case", GRID)
def test_backward(case: str, front: bool) -> None:
    for slope in SLOPES if front else [1.0]:
        _check_backward(GRID[case], slope, front, accumulate=slope == 0.1)


@settings(max_examples=60, deadline=None)
@given(
    case=_cases().filter(_exists),
    slope=st.sampled_from(SLOPES),
    front=st.booleans(),
    accumulate=st.booleans(),
    seed=st.integers(0, 99),
)
def test_backward_on_random_shapes(case: Case, slope: float, front: bool, accumulate: bool, seed: int) -> None:
    _check_backward(case, slope, front, accumulate, seed)
