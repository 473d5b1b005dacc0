"""Convolution kernels against the definition in float64, on a grid of shapes and on random ones."""

from __future__ import annotations

import ctypes
import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.kernels.cpu import definitions
from tests.kernels.cpu.definitions import relative_error
from tests.kernels.cpu.guards import GuardedBytes, GuardedScratch, GuardedTensor
from undertow.core.modes import precision
from undertow.errors import ShapeError
from undertow.kernels import cpu
from undertow.kernels.cpu.memory import is_nhwc
from undertow.kernels.cpu.raw import winograd
from undertow.kernels.cpu.raw.convolution import Convolution
from undertow.kernels.cpu.raw.parts import Epilogue
from undertow.kernels.cpu.raw.tensor import Tensor, scratch
from undertow.kernels.geometry import ConvGeometry

# Root mean square errors relative to the result's: several times what was measured for these sizes.
TOLERANCE = {"fast": 1e-5, "precise": 3e-6}


def _compare(n, ci, co, h, w, kernel, geometry, level, rng):
    x = rng.standard_normal((n, ci, h, w)).astype(np.float32)
    weights = rng.standard_normal((co, ci // geometry.groups, *kernel)).astype(np.float32)
    b = rng.standard_normal(co).astype(np.float32)
    with precision(level):
        y = cpu.conv2d(x, weights, b, geometry)
        expected = definitions.conv2d(x, weights, b, geometry)
        assert relative_error(y, expected) < TOLERANCE[level]
        assert is_nhwc(y)
        gy = rng.standard_normal(y.shape).astype(np.float32)
        gx = cpu.conv2d_backward_data(gy, weights, x.shape, geometry)
        assert relative_error(gx, definitions.conv2d_backward_data(gy, weights, x.shape, geometry)) < TOLERANCE[level]
        gw = cpu.conv2d_backward_weights(gy, x, weights.shape, geometry)
        assert gw.flags.c_contiguous
        expected = definitions.conv2d_backward_weights(gy, x, weights.shape, geometry)
        assert relative_error(gw, expected) < TOLERANCE[level]


GRID = {
    "first layer": (2, 3, 16, 20, 21, (3, 3), ConvGeometry(pad=(1, 1, 1, 1))),
    "one channel": (1, 1, 1, 5, 5, (5, 5), ConvGeometry(pad=(2, 2, 2, 2))),
    "winograd, few tiles": (1, 64, 48, 12, 11, (3, 3), ConvGeometry(pad=(1, 1, 1, 1))),
    "winograd, small weights": (2, 16, 32, 20, 21, (3, 3), ConvGeometry(pad=(1, 1, 1, 1))),
    "winograd, many tiles": (2, 32, 48, 66, 50, (3, 3), ConvGeometry(pad=(1, 1, 1, 1))),
    "winograd, mosaic": (4, 16, 32, 13, 13, (3, 3), ConvGeometry(pad=(1, 1, 1, 1))),
    "winograd, mosaic with a gap": (3, 20, 24, 13, 9, (3, 3), ConvGeometry(pad=(1, 1, 1, 1))),
    "winograd, mosaic, uneven padding": (5, 16, 16, 5, 7, (3, 3), ConvGeometry(pad=(2, 0, 3, 1))),
    "winograd, mosaic, no padding": (6, 18, 17, 11, 7, (3, 3), ConvGeometry()),
    "winograd, odd channels": (1, 17, 19, 70, 71, (3, 3), ConvGeometry(pad=(1, 1, 1, 1))),
    "winograd, no padding": (1, 20, 48, 19, 18, (3, 3), ConvGeometry()),
    "winograd, uneven padding": (1, 20, 48, 19, 18, (3, 3), ConvGeometry(pad=(3, 1, 0, 2))),
    "winograd, several blocks of k": (1, 300, 40, 12, 12, (3, 3), ConvGeometry(pad=(1, 1, 1, 1))),
    "winograd, larger tiles": (2, 48, 64, 14, 14, (3, 3), ConvGeometry(pad=(1, 1, 1, 1))),
    "winograd, larger tiles, mosaic": (8, 33, 50, 7, 7, (3, 3), ConvGeometry(pad=(1, 1, 1, 1))),
    "winograd, larger tiles, uneven padding": (2, 21, 23, 14, 14, (3, 3), ConvGeometry(pad=(2, 0, 0, 2))),
    "winograd, larger tiles, several blocks of k": (2, 300, 40, 14, 14, (3, 3), ConvGeometry(pad=(1, 1, 1, 1))),
    "winograd 5x5, few tiles": (2, 20, 40, 11, 12, (5, 5), ConvGeometry(pad=(2, 2, 2, 2))),
    "winograd 5x5, many tiles": (3, 20, 37, 33, 30, (5, 5), ConvGeometry(pad=(2, 2, 2, 2))),
    "winograd 5x5, no padding, odd sizes": (9, 20, 50, 13, 12, (5, 5), ConvGeometry()),
    "winograd 5x5, whole panels": (1, 32, 48, 16, 21, (5, 5), ConvGeometry(pad=(2, 2, 2, 2))),
    "winograd 5x5, one tile": (1, 17, 16, 3, 4, (5, 5), ConvGeometry(pad=(2, 2, 2, 2))),
    "winograd 5x5, mosaic, uneven padding": (7, 33, 18, 9, 7, (5, 5), ConvGeometry(pad=(4, 0, 1, 3))),
    "winograd 5x5, several blocks of k": (1, 300, 20, 12, 12, (5, 5), ConvGeometry()),
    "winograd stride 2": (2, 32, 64, 96, 89, (3, 3), ConvGeometry((2, 2), (1, 1, 1, 1))),
    "winograd stride 2, odd sizes": (4, 45, 46, 65, 64, (3, 3), ConvGeometry((2, 2), (1, 0, 1, 0))),
    "winograd stride 2, several blocks of k": (6, 300, 18, 56, 48, (3, 3), ConvGeometry((2, 2), (1, 1, 1, 1))),
    "winograd stride 2, padding beyond": (4, 48, 50, 63, 62, (3, 3), ConvGeometry((2, 2), (1, 3, 1, 2))),
    "stride 2, wide": (2, 24, 40, 30, 100, (3, 3), ConvGeometry(stride=(2, 2), pad=(1, 1, 1, 1))),
    "wide, dilation, uneven": (1, 17, 70, 9, 131, (2, 3), ConvGeometry((1, 2), (0, 1, 5, 0), (1, 3))),
    "direct, many channels": (2, 136, 150, 9, 12, (3, 5), ConvGeometry((2, 2), (1, 1, 2, 2))),
    "stride 2": (2, 32, 64, 21, 20, (3, 3), ConvGeometry(stride=(2, 2), pad=(1, 1, 1, 1))),
    "1x1, odd outputs": (1, 40, 255, 13, 13, (1, 1), ConvGeometry()),
    "1x1, several blocks of k": (1, 600, 24, 30, 30, (1, 1), ConvGeometry()),
    "1x1, stride 2": (1, 64, 64, 9, 9, (1, 1), ConvGeometry(stride=(2, 2))),
    "7x7, stride 2": (2, 18, 33, 40, 41, (7, 7), ConvGeometry(stride=(2, 2), pad=(3, 3, 3, 3))),
    "5x5 on few pixels": (2, 20, 50, 12, 12, (5, 5), ConvGeometry()),
    "windows in the padding alone": (2, 40, 24, 3, 13, (5, 5), ConvGeometry(pad=(7, 6, 1, 0))),
    "uneven in all": (3, 7, 5, 9, 8, (3, 2), ConvGeometry((2, 3), (1, 0, 2, 1), (1, 2))),
    "stride 3, dilation 2": (1, 20, 20, 17, 19, (3, 3), ConvGeometry((3, 3), (2, 2, 2, 2), (2, 2))),
    "groups": (2, 8, 12, 9, 9, (3, 3), ConvGeometry(pad=(1, 1, 1, 1), groups=4)),
    "groups, wide": (1, 64, 64, 9, 9, (3, 3), ConvGeometry(pad=(1, 1, 1, 1), groups=2)),
    "groups, 5x5": (2, 34, 64, 13, 12, (5, 5), ConvGeometry(pad=(2, 2, 2, 2), groups=2)),
    "depthwise": (2, 33, 33, 9, 9, (3, 3), ConvGeometry(pad=(1, 1, 1, 1), groups=33)),
    "depthwise, stride 2, dilation": (2, 20, 20, 11, 9, (3, 3), ConvGeometry((2, 2), (2, 1, 2, 0), (2, 1), 20)),
    "strides beyond the image": (2, 20, 17, 9, 8, (3, 3), ConvGeometry((99999999, 2**31 - 1), (1, 1, 1, 1))),
    "strides beyond the image, few channels": (2, 3, 8, 9, 8, (3, 2), ConvGeometry((7, 99999999), (1, 0, 0, 1))),
    "1x1, strides beyond the image": (1, 32, 16, 6, 5, (1, 1), ConvGeometry((99999999, 99999999))),
    "depthwise, strides beyond the image": (2, 8, 8, 9, 9, (3, 3), ConvGeometry((99999999, 3), (1, 1, 1, 1), groups=8)),
    "depthwise, twice the channels": (2, 16, 32, 9, 9, (3, 3), ConvGeometry((2, 2), (1, 1, 1, 1), groups=16)),
}


@pytest.mark.parametrize("level", ["fast", "precise"])
@pytest.mark.parametrize("case", GRID)
def test_all_passes_on_the_grid(case, level, rng):
    _compare(*GRID[case], level, rng)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    n=st.integers(1, 3),
    channels=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    size=st.tuples(st.integers(1, 14), st.integers(1, 14)),
    kernel=st.sampled_from([(1, 1), (3, 3), (2, 3), (5, 1), (4, 4), (5, 5)]),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    pad=st.tuples(*[st.integers(0, 3)] * 4),
    dilation=st.sampled_from([(1, 1), (2, 1), (1, 3)]),
    groups=st.sampled_from([1, 1, 1, 2, 3, "depthwise"]),
    level=st.sampled_from(["fast", "precise"]),
)
def test_all_passes_on_random_shapes(n, channels, size, kernel, stride, pad, dilation, groups, level):
    ci, co = channels
    if groups == "depthwise":
        groups = co = ci
    ci, co = -(-ci // groups) * groups, -(-co // groups) * groups
    geometry = ConvGeometry(stride, pad, dilation, groups)
    try:
        geometry.output_size(*size, kernel)
    except ShapeError:
        assume(False)
    _compare(n, ci, co, *size, kernel, geometry, level, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("n", "size", "tiles", "images"),
    [(4, 13, 49, (2, 2)), (2, 13, 28, (1, 2)), (1, 13, 16, (1, 1)), (4, 52, 676, (1, 1))],
)
def test_images_share_tiles(n, size, tiles, images):
    grid, numbers = winograd._grid(n, (size, size), (size, size), (1, 1), 43)
    assert grid.tiles == tiles
    assert sorted(numbers[3:5]) == sorted(images)


@pytest.mark.parametrize(
    ("kernel", "level", "size", "bound"),
    [
        (3, "fast", (1, 13), 4e-6),
        (3, "fast", (2, 14), 6e-6),
        (3, "precise", (1, 13), 1.5e-6),
        (5, "fast", (1, 13), 1e-5),
        (5, "precise", (1, 13), 3e-6),
    ],
)
def test_error_at_many_channels(kernel, level, size, bound, rng):
    """Sums over 9 * 512 or 25 * 512 products."""
    x = rng.standard_normal((size[0], 512, size[1], size[1])).astype(np.float32)
    w = rng.standard_normal((64, 512, kernel, kernel)).astype(np.float32)
    geometry = ConvGeometry(pad=(kernel // 2,) * 4)
    with precision(level):
        y = cpu.conv2d(x, w, None, geometry)
    error = relative_error(y, definitions.conv2d(x, w, None, geometry))
    assert error < bound


@pytest.mark.parametrize("layout", ["nchw", "nhwc", "channel slice", "strided"])
def test_any_layout_gives_the_same_bits(layout, rng):
    geometry = ConvGeometry(pad=(1, 1, 1, 1))
    dense = rng.standard_normal((2, 20, 9, 10)).astype(np.float32)
    w = rng.standard_normal((24, 20, 3, 3)).astype(np.float32)
    if layout == "nhwc":
        x = np.ascontiguousarray(dense.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    elif layout == "channel slice":
        wide = np.full((2, 9, 10, 33), np.nan, np.float32)
        wide[..., 5:25] = dense.transpose(0, 2, 3, 1)
        x = wide[..., 5:25].transpose(0, 3, 1, 2)
        assert is_nhwc(x)
    elif layout == "strided":
        x = np.repeat(dense, 2, axis=3)[..., ::2]
        assert not is_nhwc(x)
    else:
        x = dense
    expected = cpu.conv2d(dense, w, None, geometry)
    np.testing.assert_array_equal(cpu.conv2d(x, w, None, geometry), expected)
    gw = cpu.conv2d_backward_weights(expected, x, w.shape, geometry)
    np.testing.assert_array_equal(gw, cpu.conv2d_backward_weights(expected, dense, w.shape, geometry))


@pytest.mark.parametrize("case", [c for c in GRID if "groups" not in c and "depthwise" not in c])
def test_nothing_is_written_outside(case, rng):
    n, ci, co, h, w, kernel, geometry = GRID[case]
    layer = Convolution(n, h, w, ci, co, kernel, geometry, fast=True)
    x, gx = GuardedTensor(n, ci, h, w), GuardedTensor(n, ci, h, w)
    y, gy = (GuardedTensor(n, co, layer.out_h, layer.out_w) for _ in range(2))
    x.array[:] = rng.standard_normal(x.array.shape)
    gy.array[:] = rng.standard_normal(gy.array.shape)
    weights = rng.standard_normal((co, ci, *kernel)).astype(np.float32)
    gw = np.full((co + 2, ci, *kernel), 12345.0, np.float32)
    packed, transposed, gradient = (
        GuardedBytes(size) for size in (layer.packed_size, layer.transposed_size, layer.packed_size)
    )
    memory = GuardedScratch()
    layer.pack(weights.ctypes.data, packed.address, memory)
    layer.pack_transposed(weights.ctypes.data, transposed.address, memory)
    layer.forward(x.tensor, packed.address, y.tensor, memory)
    layer.backward_data(gy.tensor, transposed.address, gx.tensor, memory)
    layer.backward_weights(x.tensor, gy.tensor, gradient.address, memory)
    layer.unpack(gradient.address, gw[1].ctypes.data, memory)
    for guarded in (x, gx, y, gy, packed, transposed, gradient, memory):
        guarded.check()
    assert (gw[0] == 12345.0).all()
    assert (gw[-1] == 12345.0).all()
    assert relative_error(y.array, definitions.conv2d(x.array, weights, None, geometry)) < TOLERANCE["fast"]
    expected = definitions.conv2d_backward_data(gy.array, weights, x.array.shape, geometry)
    assert relative_error(gx.array, expected) < TOLERANCE["fast"]
    expected = definitions.conv2d_backward_weights(gy.array, x.array, weights.shape, geometry)
    assert relative_error(gw[1:-1], expected) < TOLERANCE["fast"]


@pytest.mark.parametrize("form", [43, 23, 45])
def test_the_grid_takes_both_ways_through_winograd(form):
    """The weights as a whole or panel by panel, in every form."""
    ways = set()
    for n, ci, co, h, w, kernel, geometry in GRID.values():
        layer = Convolution(n, h, w, ci, co, kernel, geometry, fast=form != 23)
        if layer.kind == "winograd" and layer.form == form:
            size, out, before = (h, w), (layer.out_h, layer.out_w), (layer.window.top, layer.window.left)
            ways.add(winograd._few(winograd.tiles_of(n, size, out, before, form), ci, co))
    assert ways == {True, False}


def _all_passes(n, ci, co, h, w, kernel, geometry, form, rng):
    """All passes with guards round every buffer, in `form` if one is given."""
    layer = Convolution(n, h, w, ci, co, kernel, geometry, fast=True)
    layer.form = form or layer.form
    x, gx = GuardedTensor(n, ci, h, w), GuardedTensor(n, ci, h, w)
    y, gy = (GuardedTensor(n, co, layer.out_h, layer.out_w) for _ in range(2))
    x.array[:] = rng.standard_normal(x.array.shape)
    gy.array[:] = rng.standard_normal(gy.array.shape)
    weights = rng.standard_normal((co, ci, *kernel)).astype(np.float32)
    gw, memory = GuardedBytes(weights.nbytes), GuardedScratch()
    layer.forward_oihw(x.tensor, weights.ctypes.data, y.tensor, memory)
    layer.backward_data_oihw(gy.tensor, weights.ctypes.data, gx.tensor, memory)
    layer.backward_weights_oihw(x.tensor, gy.tensor, gw.address, memory)
    for guarded in (x, gx, y, gy, gw, memory):
        guarded.check()
    found = np.ctypeslib.as_array((ctypes.c_float * weights.size).from_address(gw.address)).reshape(weights.shape)
    assert relative_error(y.array, definitions.conv2d(x.array, weights, None, geometry)) < TOLERANCE["fast"]
    expected = definitions.conv2d_backward_data(gy.array, weights, x.array.shape, geometry)
    assert relative_error(gx.array, expected) < TOLERANCE["fast"]
    expected = definitions.conv2d_backward_weights(gy.array, x.array, weights.shape, geometry)
    assert relative_error(found, expected) < TOLERANCE["fast"]


@pytest.mark.parametrize("form", [43, 53, 23])
@pytest.mark.parametrize("case", [c for c in GRID if c.startswith("winograd,")])
def test_every_form_in_every_way(form, case, rng):
    """Whichever form a shape would choose."""
    _all_passes(*GRID[case], form, rng)


SMALL_STRIDED = [
    (1, 16, 16, 1, 1, (1, 1, 1, 1)),
    (1, 17, 33, 8, 8, (1, 1, 1, 1)),
    (2, 20, 40, 13, 12, (1, 0, 1, 0)),
    (1, 16, 16, 3, 30, (1, 5, 1, 4)),
    (3, 48, 33, 37, 50, (1, 1, 1, 2)),
]


@pytest.mark.parametrize("case", SMALL_STRIDED)
def test_stride_2_by_winograd_at_any_size(case, rng, monkeypatch):
    """Also where it does not pay."""
    monkeypatch.setattr(winograd, "strided_pays", lambda *_: True)
    n, ci, co, h, w, pad = case
    geometry = ConvGeometry((2, 2), pad)
    assert Convolution(n, h, w, ci, co, (3, 3), geometry, fast=True).form == winograd.STRIDED
    _all_passes(n, ci, co, h, w, (3, 3), geometry, None, rng)


@pytest.mark.parametrize(
    ("n", "size", "channels", "geometry", "kind"),
    [
        (2, 104, (128, 256), ConvGeometry((2, 2), (1, 1, 1, 1)), "winograd"),
        (2, 104, (128, 256), ConvGeometry((2, 2), (0, 2, 1, 1)), "direct"),
        (2, 104, (128, 256), ConvGeometry((2, 1), (1, 1, 1, 1)), "direct"),
        (2, 104, (128, 256), ConvGeometry((2, 2), (1, 1, 1, 1), (2, 2)), "direct"),
        (2, 26, (512, 1024), ConvGeometry((2, 2), (1, 1, 1, 1)), "direct"),
        (1, 32, (64, 64), ConvGeometry((2, 2), (1, 1, 1, 1)), "direct"),
    ],
)
def test_stride_2_goes_through_winograd_where_it_pays(n, size, channels, geometry, kind):
    assert Convolution(n, size, size, *channels, (3, 3), geometry, fast=True).kind == kind
    assert Convolution(n, size, size, *channels, (3, 3), geometry, fast=False).kind == "direct"


@pytest.mark.parametrize(
    ("n", "size", "channels", "form"),
    [(8, 14, 256, 53), (8, 7, 512, 53), (2, 26, 512, 43), (1, 13, 512, 43), (8, 28, 128, 43)],
)
def test_larger_tiles_where_they_save_products(n, size, channels, form):
    layer = Convolution(n, size, size, channels, channels, (3, 3), ConvGeometry(pad=(1, 1, 1, 1)), fast=True)
    assert layer.form == form


@pytest.mark.parametrize("case", ["winograd, many tiles", "winograd, few tiles", "1x1, odd outputs", "first layer"])
def test_transposing_packed_weights_equals_packing_transposed(case, rng):
    n, ci, co, h, w, kernel, geometry = GRID[case]
    layer = Convolution(n, h, w, ci, co, kernel, geometry, fast=True)
    weights = rng.standard_normal((co, ci, *kernel)).astype(np.float32)
    packed, one, two = (np.zeros(s // 4, np.float32) for s in (layer.packed_size, *[layer.transposed_size] * 2))
    memory = GuardedScratch()
    layer.pack(weights.ctypes.data, packed.ctypes.data, memory)
    layer.pack_transposed(weights.ctypes.data, one.ctypes.data, memory)
    layer.transpose(packed.ctypes.data, two.ctypes.data)
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("level", ["fast", "precise"])
@pytest.mark.parametrize("case", [c for c in GRID if "groups" not in c and "depthwise" not in c])
def test_every_form_of_weights_gives_the_same_bits(case, level, rng):
    n, ci, co, h, w, kernel, geometry = GRID[case]
    layer = Convolution(n, h, w, ci, co, kernel, geometry, fast=level == "fast")
    weights = rng.standard_normal((co, ci, *kernel)).astype(np.float32)
    gy, one, two = (GuardedTensor(n, co, layer.out_h, layer.out_w), *(GuardedTensor(n, ci, h, w) for _ in range(2)))
    gy.array[:] = rng.standard_normal(gy.array.shape)
    packed, transposed = GuardedBytes(layer.packed_size), GuardedBytes(layer.transposed_size)
    memory = GuardedScratch()
    layer.pack(weights.ctypes.data, packed.address, memory)
    layer.pack_transposed(weights.ctypes.data, transposed.address, memory)
    layer.backward_data(gy.tensor, transposed.address, one.tensor, memory)
    layer.backward_data_from(gy.tensor, packed.address, two.tensor, memory)
    np.testing.assert_array_equal(one.array, two.array)
    layer.backward_data_oihw(gy.tensor, weights.ctypes.data, two.tensor, memory)
    np.testing.assert_array_equal(one.array, two.array)

    x, *ys = (GuardedTensor(n, ci, h, w), *(GuardedTensor(n, co, layer.out_h, layer.out_w) for _ in range(2)))
    x.array[:] = rng.standard_normal(x.array.shape)
    layer.forward(x.tensor, packed.address, ys[0].tensor, memory)
    layer.forward_oihw(x.tensor, weights.ctypes.data, ys[1].tensor, memory)
    np.testing.assert_array_equal(ys[0].array, ys[1].array)

    gradients = [np.full((co + 2, ci, *kernel), 12345.0, np.float32) for _ in range(2)]
    layer.backward_weights(x.tensor, gy.tensor, packed.address, memory)
    layer.unpack(packed.address, gradients[0][1].ctypes.data, memory)
    layer.backward_weights_oihw(x.tensor, gy.tensor, gradients[1][1].ctypes.data, memory)
    if kernel == (1, 1):  # summed up in another order where the weights need not be packed
        assert relative_error(gradients[1], gradients[0].astype(np.float64)) < 1e-6
        assert (gradients[1][[0, -1]] == 12345.0).all()
    else:
        np.testing.assert_array_equal(*gradients)
    for guarded in (one, two, *ys, packed, memory):
        guarded.check()


KINDS = [
    "first layer",
    "winograd, few tiles",
    "winograd, larger tiles, mosaic",
    "winograd, mosaic",
    "winograd, many tiles",
    "winograd 5x5, few tiles",
    "winograd 5x5, many tiles",
    "stride 2",
    "winograd stride 2",
    "direct, many channels",
    "1x1, several blocks of k",
]


@pytest.mark.parametrize("case", KINDS)
def test_epilogue(case, rng):
    """Bias, leaky and the sums for a batch norm, and adding to what is there."""
    n, ci, co, h, w, kernel, geometry = GRID[case]
    layer = Convolution(n, h, w, ci, co, kernel, geometry, fast=True)
    x, y = GuardedTensor(n, ci, h, w), GuardedTensor(n, co, layer.out_h, layer.out_w)
    x.array[:] = rng.standard_normal(x.array.shape)
    weights = rng.standard_normal((co, ci, *kernel)).astype(np.float32)
    bias = rng.standard_normal(co).astype(np.float32)
    sums = np.zeros((16, 2, co))
    packed, memory = GuardedBytes(layer.packed_size), GuardedScratch()
    layer.pack(weights.ctypes.data, packed.address, memory)
    then = Epilogue(bias=bias.ctypes.data, slope=0.1, sums=sums.ctypes.data)
    layer.forward(x.tensor, packed.address, y.tensor, memory, then)
    linear = definitions.conv2d(x.array, weights, bias, geometry)
    expected = np.where(linear > 0, linear, 0.1 * linear)
    assert relative_error(y.array, expected) < TOLERANCE["fast"]
    np.testing.assert_allclose(sums[:, 0].sum(0), expected.sum((0, 2, 3)), rtol=1e-4, atol=1e-5 * expected.size / co)
    np.testing.assert_allclose(sums[:, 1].sum(0), np.square(expected).sum((0, 2, 3)), rtol=1e-5)
    layer.forward(x.tensor, packed.address, y.tensor, memory, Epilogue(accumulate=True))
    expected += definitions.conv2d(x.array, weights, None, geometry)
    assert relative_error(y.array, expected) < TOLERANCE["fast"]
    y.check()
    memory.check()


@pytest.mark.parametrize("case", [*KINDS, "depthwise", "groups"])
def test_same_bits_whatever_the_number_of_threads(case, rng):
    n, ci, co, h, w, kernel, geometry = GRID[case]
    x = rng.standard_normal((n, ci, h, w)).astype(np.float32)
    weights = rng.standard_normal((co, ci // geometry.groups, *kernel)).astype(np.float32)
    results = []
    try:
        for threads in (1, 2, 3, 2):
            cpu.set_threads(threads)
            y = cpu.conv2d(x, weights, None, geometry)
            results.append(
                (
                    y,
                    cpu.conv2d_backward_data(y, weights, x.shape, geometry),
                    cpu.conv2d_backward_weights(y, x, weights.shape, geometry),
                )
            )
    finally:
        cpu.set_threads(None)
    for one, two in itertools.pairwise(results):
        for a, b in zip(one, two, strict=True):
            np.testing.assert_array_equal(a, b)


def test_shapes_that_do_not_fit_are_refused(rng):
    x, w = np.zeros((1, 4, 5, 5), np.float32), np.zeros((2, 3, 3, 3), np.float32)
    with pytest.raises(ShapeError, match="do not fit"):
        cpu.conv2d(x, w, None, ConvGeometry())
    with pytest.raises(ShapeError, match="bias"):
        cpu.conv2d(x, np.zeros((2, 4, 3, 3), np.float32), np.zeros(3, np.float32), ConvGeometry())
    with pytest.raises(ShapeError, match="gradient"):
        cpu.conv2d_backward_data(np.zeros((1, 2, 5, 5), np.float32), w, (1, 3, 5, 5), ConvGeometry())
    with pytest.raises(ShapeError, match="gradient"):
        cpu.conv2d_backward_weights(np.zeros((1, 2, 5, 5), np.float32), x, (2, 4, 3, 3), ConvGeometry())


def test_supports_float32_only():
    x, w = np.ones((1, 1, 3, 3), np.float32), np.ones((1, 1, 1, 1), np.float32)
    assert cpu.supports("conv2d", x, w, None, ConvGeometry())
    assert not cpu.supports("conv2d", x.astype(np.float64), w, None, ConvGeometry())
    assert not cpu.supports("conv2d", x[:0], w, None, ConvGeometry())
    assert not cpu.supports("no_such_kernel", x)


@pytest.mark.parametrize("kernel", [1, 3, 5])
@pytest.mark.parametrize(("n", "size"), [(1, 9), (3, 40)], ids=["few tiles", "many tiles"])
@pytest.mark.parametrize(("ci", "co"), [(20, 35), (32, 48)])
def test_gradients_of_weights_can_be_subtracted(n, size, ci, co, kernel, rng):
    """With the bits of the gradient itself, and nothing outside touched."""
    geometry = ConvGeometry(pad=(kernel // 2,) * 4)
    layer = Convolution(n, size, size, ci, co, (kernel, kernel), geometry, fast=True)
    x = rng.standard_normal((n, size, size, ci)).astype(np.float32)
    gy = rng.standard_normal((n, size, size, co)).astype(np.float32)
    count, guard = co * ci * kernel * kernel, 32
    found, taken = np.full(count + guard, 7, np.float32), rng.standard_normal(count + guard).astype(np.float32)
    before = taken.copy()
    tensors = (Tensor(x.ctypes.data, 4 * ci, n, size, size, ci), Tensor(gy.ctypes.data, 4 * co, n, size, size, co))
    layer.backward_weights_oihw(*tensors, found.ctypes.data, scratch())
    layer.backward_weights_oihw(*tensors, taken.ctypes.data, scratch(), subtract=True)
    np.testing.assert_array_equal(taken[:count], before[:count] - found[:count])
    np.testing.assert_array_equal(taken[count:], before[count:])
    assert (found[count:] == 7).all()
