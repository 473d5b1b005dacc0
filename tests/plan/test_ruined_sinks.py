"""Kernels that subtract gradients of weights tell where what they leave is not finite."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

import undertow as ut
from undertow.functions import conv2d
from undertow.kernels import cpu
from undertow.kernels.cpu import memory
from undertow.kernels.cpu.raw import pointwise, strips, winograd
from undertow.kernels.cpu.raw.tensor import scratch
from undertow.kernels.cpu.threads import begin
from undertow.kernels.geometry import ConvGeometry
from undertow.plans import plan
from undertow.plans.kernels import ConvKernel

PAD = (1, 1, 1, 1)
LARGEST = np.finfo(np.float32).max

# The way, images, input and output channels, image size, window, geometry, precision.
WAYS = {
    "4x4 tiles, many": ("winograd 43 many", 2, 20, 35, 24, 3, ConvGeometry(pad=PAD), "fast"),
    "4x4 tiles, few": ("winograd 43 few", 1, 75, 93, 12, 3, ConvGeometry(pad=PAD), "fast"),
    "5x5 tiles": ("winograd 53 few", 2, 130, 150, 10, 3, ConvGeometry(pad=PAD), "fast"),
    "2x2 tiles, many": ("winograd 23 many", 2, 20, 35, 24, 3, ConvGeometry(pad=PAD), "precise"),
    "2x2 tiles, few": ("winograd 23 few", 1, 75, 93, 8, 3, ConvGeometry(pad=PAD), "precise"),
    "5x5 windows": ("winograd 45 many", 2, 17, 19, 24, 5, ConvGeometry(pad=(2, 2, 2, 2)), "fast"),
    "stride 2, tiles": ("winograd 432 many", 8, 45, 50, 48, 3, ConvGeometry((2, 2), PAD), "fast"),
    "1x1, slices": ("pointwise", 2, 45, 37, 21, 1, ConvGeometry(), "fast"),
    "1x1, two pieces": ("pointwise", 2, 300, 50, 13, 1, ConvGeometry(), "fast"),
    "1x1, stride 2": ("pointwise", 1, 40, 30, 12, 1, ConvGeometry((2, 2)), "precise"),
    "dense": ("pointwise", 6, 530, 37, 1, 1, ConvGeometry(), "fast"),
    "strips, stride 2": ("strips", 2, 150, 131, 9, 3, ConvGeometry((2, 2), PAD), "fast"),
    "strips, 5x5": ("strips", 2, 150, 131, 9, 5, ConvGeometry((2, 2), (2, 2, 2, 2)), "precise"),
    "direct": ("direct", 2, 30, 37, 9, 3, ConvGeometry((1, 1), (2, 2, 2, 2), (2, 2)), "fast"),
    "rows": ("rows", 2, 3, 19, 15, 3, ConvGeometry(pad=PAD), "fast"),
    "groups": ("winograd 43 many", 2, 40, 70, 24, 3, ConvGeometry(pad=PAD, groups=2), "fast"),
    "groups, 1x1": ("pointwise", 2, 40, 70, 9, 1, ConvGeometry(groups=2), "fast"),
    "depthwise": ("depthwise", 2, 37, 37, 9, 3, ConvGeometry(pad=PAD, groups=37), "fast"),
}  # fmt: skip


class Way:
    """A kernel and what it is given; gradients are small beside `LARGEST`, but not beside its last digit."""

    def __init__(self, case: str) -> None:
        self.name, n, inputs, outputs, size, window, geometry, precision = WAYS[case]
        rng = np.random.default_rng(3)
        self.shape = outputs, inputs // geometry.groups, window, window
        self.kernel = ConvKernel((n, inputs, size, size), self.shape, geometry, precision)
        out_h, out_w = geometry.output_size(size, size, (window, window))
        x, gy = (rng.standard_normal(s) * 3e16 for s in ((n, inputs, size, size), (n, outputs, out_h, out_w)))
        self.x, self.gy = (memory.as_nhwc(a.astype(np.float32)) for a in (x, gy))
        self.before = rng.standard_normal(self.shape).astype(np.float32)

    def taken(self) -> str:
        """The way that the kernels go."""
        layer, x, gy = self.kernel.layer, memory.view(self.x), memory.view(self.gy)
        xs, gys = self.kernel._inputs(x, 0), self.kernel._outputs(gy, 0)
        if self.kernel.depthwise:
            return "depthwise"
        if layer.kind == "winograd":
            grid = winograd.grid_of(xs, gys, layer.window.top, layer.window.left, layer.form)
            few = layer.form < winograd.STRIDED and winograd._few(grid.tiles, layer.inputs, layer.outputs)
            return f"winograd {layer.form} {'few' if few else 'many'}"
        if pointwise.takes(xs, gys, layer.window):
            return "pointwise"
        return "strips" if layer.kind == "direct" and strips.takes(xs, gys, layer.window) else layer.kind

    def left(self, sink: np.ndarray) -> tuple[np.ndarray, int]:
        """What is left of a sink, and what the kernels tell about it; memory they scribble in is full of NaN."""
        begin()
        with scratch().frame():
            ctypes.memset(scratch().take(1 << 24), 0xFF, 1 << 24)
        sink, told = sink.copy(), np.zeros(3, np.int64)
        x, gy = memory.view(self.x), memory.view(self.gy)
        self.kernel.backward_weights(x, gy, sink.ctypes.data, subtract=True, ruined=told[1:].ctypes.data)
        assert told[0] == told[2] == 0
        return sink, int(told[1])


@pytest.mark.parametrize("case", WAYS)
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_what_is_left_is_looked_at(case: str, threads: int) -> None:
    """Wherever it stands, whether it was there before or has overflowed just now."""
    way = Way(case)
    assert way.taken() == way.name
    try:
        cpu.set_threads(threads)
        sink, told = way.left(way.before)
        assert told == 0
        assert np.isfinite(sink).all()
        count, per_output = sink.size, sink[0].size
        rng = np.random.default_rng(4)
        places = {0, per_output - 1, count - per_output, count - 1, *rng.integers(0, count, 6)}
        for place in places:
            values = np.nan, np.inf, -np.inf, np.copysign(LARGEST, way.before.flat[place] - sink.flat[place])
            for value in values if place in (0, count - 1) else values[:1]:
                ruined = way.before.copy()
                ruined.flat[place] = -value
                sink, told = way.left(ruined)
                assert told == 1, (place, value)
                assert np.flatnonzero(~np.isfinite(sink)).tolist() == [place]
            sink, _ = way.left(way.before)
    finally:
        cpu.set_threads(None)


@pytest.mark.parametrize("case", WAYS)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_gradients_that_are_not_finite_are_told(case: str, value: float) -> None:
    """In any output channel, also the last one."""
    way = Way(case)
    channels = way.gy.shape[1]
    for channel in (0, channels // 2, channels - 1):
        before = way.gy.copy()
        way.gy[-1, channel, -1, -1] = value
        sink, told = way.left(way.before)
        assert told == 1
        assert not np.isfinite(sink[channel]).all()
        way.gy[...] = before


@pytest.mark.parametrize("case", ["4x4 tiles, many", "1x1, slices", "depthwise"])
def test_nobody_needs_to_be_told(case: str) -> None:
    way = Way(case)
    sink = np.full(way.shape, np.nan, np.float32)
    way.kernel.backward_weights(memory.view(way.x), memory.view(way.gy), sink.ctypes.data, subtract=True)
    assert np.isnan(sink).all()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_of_two_convolutions(value: float) -> None:
    """Both gradients go to one sink; whichever ruins it, it is not among those known to be finite."""
    rng = np.random.default_rng(1)
    w = ut.Parameter(rng.standard_normal((20, 20, 3, 3)).astype(np.float32) / 20)
    other = ut.Parameter(rng.standard_normal((20, 20, 1, 1)).astype(np.float32) / 20)

    def step(x: np.ndarray, t: np.ndarray) -> ut.Variable:
        loss = (conv2d(ut.tanh(conv2d(conv2d(x, w, pad=1), other)), w, pad=1) * t).sum()
        loss.backward()
        return loss

    planned = plan(step)
    sinks = {id(p): np.zeros_like(p.data) for p in (w, other)}
    for n in range(6):
        x, t = (rng.standard_normal((2, 20, 12, 12)).astype(np.float32) for _ in range(2))
        w.clear_grad()
        other.clear_grad()
        planned.sinks = sinks if n > 1 else {}
        before = {key: sink.copy() for key, sink in sinks.items()}
        if n == 4:
            t[0, -1, -1, -1] = value
        planned(x, t)
        if n < 2:
            continue
        assert planned.last is not None
        assert planned.last.searched == {id(sink) for sink in sinks.values()}
        finite = all(np.isfinite(sink).all() for sink in sinks.values())
        assert finite == (n != 4)
        assert planned.last.finite_sinks() == (planned.last.searched if finite else set())
        if n != 4:
            w.clear_grad()
            other.clear_grad()
            step(x, t)
            for p in (w, other):
                np.testing.assert_allclose(before[id(p)] - p.grad, sinks[id(p)], rtol=1e-3, atol=1e-3)
        for sink in sinks.values():
            sink[...] = 0
