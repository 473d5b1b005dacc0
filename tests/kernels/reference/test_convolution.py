"""Convolution forward and backward against a loop nest and, where installed, PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.reference import direct
from tests.kernels.reference.strategies import convolutions
from undertow.errors import ShapeError
from undertow.kernels.geometry import ConvGeometry, ConvNdGeometry
from undertow.kernels.reference import convolution as conv


def close(actual, expected):
    assert actual.shape == expected.shape
    scale = np.abs(expected).max(initial=1.0)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-12 * scale)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_all_three_passes_equal_the_loop_nest(dims):
    @settings(max_examples={1: 30, 2: 50, 3: 15}[dims], deadline=None)
    @given(convolutions(dims=dims, most={1: 8, 2: 5, 3: 2}[dims]), st.integers(0, 2**32 - 1))
    def holds(problem, seed):
        x, w, b, geometry = problem.x, problem.w, problem.b, problem.geometry
        expected = direct.convolution(x, w, b, geometry)
        close(conv.convnd(x, w, b, geometry), expected)
        gy = np.random.default_rng(seed).standard_normal(expected.shape)
        gx, gw = direct.convolution_gradients(gy, x, w, geometry)
        close(conv.convnd_backward_data(gy, w, x.shape, geometry), gx)
        close(conv.convnd_backward_weights(gy, x, w.shape, geometry), gw)

    holds()


@settings(max_examples=40, deadline=None)
@given(convolutions(most=9))
def test_all_three_passes_equal_pytorch(problem):
    torch = pytest.importorskip("torch")
    top, bottom, left, right = problem.geometry.pad
    x, w, b = (torch.tensor(a, requires_grad=True) for a in (problem.x, problem.w, problem.b))
    y = torch.nn.functional.conv2d(
        torch.nn.functional.pad(x, (left, right, top, bottom)),
        w,
        b,
        stride=problem.geometry.stride,
        dilation=problem.geometry.dilation,
        groups=problem.geometry.groups,
    )
    close(conv.conv2d(problem.x, problem.w, problem.b, problem.geometry), y.detach().numpy())
    gy = torch.randn_like(y)
    y.backward(gy)
    close(conv.conv2d_backward_data(gy.numpy(), problem.w, problem.x.shape, problem.geometry), x.grad.numpy())
    close(
        conv.conv2d_backward_weights(gy.numpy(), problem.x, problem.w.shape, problem.geometry),
        w.grad.numpy(),
    )


def test_a_pointwise_convolution_is_a_matrix_product(rng):
    x, w = rng.standard_normal((2, 4, 3, 5)), rng.standard_normal((6, 4, 1, 1))
    expected = np.einsum("fc,bchw->bfhw", w[:, :, 0, 0], x)
    close(conv.conv2d(x, w, None, ConvGeometry()), expected)
    gy = rng.standard_normal(expected.shape)
    gx = np.einsum("fc,bfhw->bchw", w[:, :, 0, 0], gy)
    close(conv.conv2d_backward_data(gy, w, x.shape, ConvGeometry()), gx)
    gw = np.einsum("bfhw,bchw->fc", gy, x)
    close(conv.conv2d_backward_weights(gy, x, w.shape, ConvGeometry())[:, :, 0, 0], gw)


def test_a_pointwise_convolution_with_stride_or_padding_steps_and_pads(rng):
    x, w = rng.standard_normal((1, 2, 5, 5)), rng.standard_normal((3, 2, 1, 1))
    for geometry in (ConvGeometry(stride=(2, 2)), ConvGeometry(pad=(1, 0, 0, 2))):
        close(conv.conv2d(x, w, None, geometry), direct.convolution(x, w, None, geometry))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_type_stays_and_inputs_need_not_be_contiguous(rng, dtype):
    x = rng.standard_normal((5, 6, 3, 2)).astype(dtype).transpose(3, 2, 1, 0)
    w = rng.standard_normal((3, 3, 3, 4)).astype(dtype).transpose(3, 2, 1, 0)
    geometry = ConvGeometry(pad=(1, 1, 1, 1))
    y = conv.conv2d(x, w, None, geometry)
    gy = np.asfortranarray(rng.standard_normal(y.shape).astype(dtype))
    gx = conv.conv2d_backward_data(gy, w, x.shape, geometry)
    gw = conv.conv2d_backward_weights(gy, x, w.shape, geometry)
    assert {y.dtype, gx.dtype, gw.dtype} == {np.dtype(dtype)}
    tolerance = 1e-12 if dtype == np.float64 else 1e-5
    exact = (direct.convolution(x, w, None, geometry), *direct.convolution_gradients(gy, x, w, geometry))
    for actual, expected in zip((y, gx, gw), exact, strict=True):
        assert actual.flags.c_contiguous
        np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * np.abs(expected).max())


def test_an_empty_batch_gives_an_empty_result_and_a_zero_gradient():
    x, w = np.empty((0, 2, 4, 4)), np.ones((3, 2, 3, 3))
    y = conv.conv2d(x, w, None, ConvGeometry())
    assert y.shape == (0, 3, 2, 2)
    gw = conv.conv2d_backward_weights(y, x, w.shape, ConvGeometry())
    np.testing.assert_array_equal(gw, np.zeros(w.shape))


def test_backward_data_undoes_the_shape_of_a_transposed_convolution():
    geometry = ConvGeometry(stride=(2, 2), pad=(1, 1, 1, 1))
    small, w = np.ones((1, 3, 4, 4)), np.ones((3, 2, 4, 4))
    big = (1, 2, *geometry.input_size(4, 4, (4, 4)))
    assert big == (1, 2, 8, 8)
    assert conv.conv2d_backward_data(small, w, big, geometry).shape == big


@pytest.mark.parametrize(
    ("x", "w", "b", "geometry", "message"),
    [
        ((1, 3, 5, 5), (4, 2, 3, 3), None, ConvGeometry(), "fit 2 input channels"),
        ((1, 4, 5, 5), (3, 2, 3, 3), None, ConvGeometry(groups=2), "2 divides"),
        ((1, 2, 5, 5), (4, 2, 3, 3), (3,), ConvGeometry(), "4 biases"),
        ((1, 2, 2, 2), (4, 2, 3, 3), None, ConvGeometry(), "does not fit"),
        ((1, 2, 2, 2), (4, 2, 2, 2), None, ConvGeometry(dilation=(2, 2)), "does not fit"),
        ((2, 5, 5), (4, 2, 3, 3), None, ConvGeometry(), "batch, channels"),
    ],
)
def test_what_does_not_fit_is_refused(x, w, b, geometry, message):
    bias = None if b is None else np.ones(b)
    with pytest.raises(ShapeError, match=message):
        conv.conv2d(np.ones(x), np.ones(w), bias, geometry)


def test_a_gradient_of_the_wrong_size_is_refused():
    with pytest.raises(ShapeError, match="1x4x3x3"):
        conv.conv2d_backward_data(np.ones((1, 4, 2, 3)), np.ones((4, 2, 3, 3)), (1, 2, 5, 5), ConvGeometry())
    with pytest.raises(ShapeError, match="1x4x3x3"):
        conv.conv2d_backward_weights(np.ones((1, 4, 2, 3)), np.ones((1, 2, 5, 5)), (4, 2, 3, 3), ConvGeometry())


def test_an_nd_geometry_with_missing_numbers_is_refused():
    with pytest.raises(ShapeError, match="per dimension"):
        ConvNdGeometry(stride=(1, 1, 1), pad=(0, 0, 0), dilation=(1, 1, 1))
    with pytest.raises(ShapeError, match="at least"):
        ConvNdGeometry(stride=(0,), pad=(0, 0), dilation=(1,))
