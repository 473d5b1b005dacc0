"""Convolution and its transpose against their definition, and against PyTorch where it is installed."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from undertow.core import Variable, check_gradients, grad
from undertow.errors import ShapeError
from undertow.functions.conv import ConvWeights, conv2d, conv_transpose2d, deconv2d
from undertow.functions.conv_nd import convnd, deconvnd
from undertow.functions.windows import geometry_2d

Array = np.ndarray[Any, Any]


def convolve(x: Array, w: Array, stride: tuple[int, ...], pad: Any, dilation: tuple[int, ...], groups: int) -> Array:
    """The definition, one output element at a time, over any number of dimensions."""
    dims = x.ndim - 2
    padded = np.pad(x, [(0, 0), (0, 0), *pad])
    out = [(padded.shape[2 + i] - dilation[i] * (w.shape[2 + i] - 1) - 1) // stride[i] + 1 for i in range(dims)]
    y = np.zeros((x.shape[0], w.shape[0], *out), x.dtype)
    per_group = w.shape[0] // groups
    for n, f in np.ndindex(*y.shape[:2]):
        first = (f // per_group) * w.shape[1]
        for place in np.ndindex(*out):
            window = tuple(
                slice(p * s, p * s + d * (k - 1) + 1, d)
                for p, s, d, k in zip(place, stride, dilation, w.shape[2:], strict=True)
            )
            y[(n, f, *place)] = np.sum(padded[(n, slice(first, first + w.shape[1]), *window)] * w[f])
    return y


CASES = [
    # x, w, stride, pad (top, bottom, left, right), dilation, groups
    ((2, 1, 5, 4), (1, 1, 3, 3), (1, 1), (0, 0, 0, 0), (1, 1), 1),
    ((2, 3, 7, 5), (4, 3, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1),
    ((1, 3, 8, 9), (2, 3, 3, 3), (2, 2), (1, 1, 1, 1), (1, 1), 1),
    ((1, 3, 8, 9), (2, 3, 2, 4), (2, 3), (0, 1, 2, 0), (1, 1), 1),
    ((2, 6, 6, 7), (4, 3, 3, 2), (1, 2), (2, 0, 1, 1), (2, 1), 2),
    ((1, 5, 6, 6), (5, 1, 3, 3), (1, 1), (2, 2, 2, 2), (2, 2), 5),
    ((3, 7, 3, 2), (5, 7, 1, 1), (1, 1), (0, 0, 0, 0), (1, 1), 1),
]


@pytest.mark.parametrize("case", CASES)
def test_conv2d_is_its_definition(case: Any, rng: np.random.Generator) -> None:
    x_shape, w_shape, stride, pad, dilation, groups = case
    x, w, b = rng.standard_normal(x_shape), rng.standard_normal(w_shape), rng.standard_normal(w_shape[0])
    expected = convolve(x, w, stride, [pad[:2], pad[2:]], dilation, groups)
    y = conv2d(x, w, b, stride=stride, pad=pad, dilation=dilation, groups=groups)
    np.testing.assert_allclose(y.data, expected + b[:, None, None], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(
        conv2d(x, w, stride=stride, pad=pad, dilation=dilation, groups=groups).data, expected, rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("case", CASES)
def test_conv2d_gradients(case: Any, rng: np.random.Generator) -> None:
    x_shape, w_shape, stride, pad, dilation, groups = case
    x, w, b = rng.standard_normal(x_shape), rng.standard_normal(w_shape), rng.standard_normal(w_shape[0])

    def run(x: Variable, w: Variable, b: Variable) -> Variable:
        return conv2d(x, w, b, stride=stride, pad=pad, dilation=dilation, groups=groups)

    check_gradients(run, (x, w, b))


@pytest.mark.parametrize("case", CASES)
def test_deconv2d_is_the_transpose_of_conv2d(case: Any, rng: np.random.Generator) -> None:
    """<conv(x, w), y> = <x, deconv(y, w)> for all x and y says exactly that."""
    x_shape, w_shape, stride, pad, dilation, groups = case
    x, w = rng.standard_normal(x_shape), rng.standard_normal(w_shape)
    options = {"stride": stride, "pad": pad, "dilation": dilation, "groups": groups}
    y = rng.standard_normal(conv2d(x, w, **options).shape)
    smallest = deconv2d(y, w, **options).shape[2:]
    missing = tuple(a - b for a, b in zip(x.shape[2:], smallest, strict=True))
    back = deconv2d(y, w, output_padding=missing, **options)
    assert back.shape == x.shape
    np.testing.assert_allclose(
        np.sum(back.data * x), np.sum(convolve(x, w, stride, [pad[:2], pad[2:]], dilation, groups) * y)
    )


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_convnd_is_its_definition(dims: int, rng: np.random.Generator) -> None:
    x, w, b = (rng.standard_normal(s) for s in ((2, 4, 6, 5, 4)[: 2 + dims], (6, 2, 3, 2, 1)[: 2 + dims], (6,)))
    stride, dilation = (2, 1, 1)[:dims], (1, 2, 1)[:dims]
    pad = ((1, 0), (0, 1), (2, 1))[:dims]
    flat = tuple(itertools.chain(*pad))
    y = convnd(x, w, b, stride=stride, pad=flat, dilation=dilation, groups=2)
    expected = convolve(x, w, stride, pad, dilation, 2) + b.reshape(-1, *(1,) * dims)
    np.testing.assert_allclose(y.data, expected, rtol=1e-12, atol=1e-12)
    back = deconvnd(
        y, w, stride=stride, pad=flat, dilation=dilation, groups=2, output_padding=_rest(x, w, stride, flat, dilation)
    )
    np.testing.assert_allclose(np.sum(back.data * x), np.sum((expected - b.reshape(-1, *(1,) * dims)) * y.data))


def _rest(x: Array, w: Array, stride: Any, pad: Any, dilation: Any) -> tuple[int, ...]:
    """What a strided convolution leaves over at the end of each dimension."""
    return tuple(
        (x.shape[2 + i] + pad[2 * i] + pad[2 * i + 1] - dilation[i] * (w.shape[2 + i] - 1) - 1) % stride[i]
        for i in range(len(stride))
    )


def test_second_derivatives(rng: np.random.Generator) -> None:
    x, w, b = rng.standard_normal((1, 2, 4, 4)), rng.standard_normal((2, 2, 3, 3)), rng.standard_normal(2)
    check_gradients(lambda x, w, b: conv2d(x, w, b, pad=1, stride=2), (x, w, b), second_order=True)
    check_gradients(lambda x, w, b: deconv2d(x, w, b, pad=1, stride=2), (x, w, b), second_order=True)


def test_third_derivative_stays_in_the_family(rng: np.random.Generator) -> None:
    """y = conv(conv(x, w), w) is quadratic in w; its gradient with respect to x, differentiated twice, is not 0."""
    x = Variable(rng.standard_normal((1, 1, 5, 5)))
    w = Variable(rng.standard_normal((1, 1, 2, 2)))
    gx = grad(conv2d(conv2d(x, w), w), x, create_graph=True)
    gw = grad(gx, w, create_graph=True)
    check_gradients(
        lambda w: grad(grad(conv2d(conv2d(x, w), w), x, create_graph=True), w, create_graph=True),
        (w.data,),
    )
    assert gw.shape == w.shape


def test_only_wanted_gradients_are_computed(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    """The first layer of a net needs no gradient of its images: no time is spent on it."""
    from undertow.kernels import select

    def refuse(*args: Any) -> Array:
        raise AssertionError("computed a gradient nobody asked for")

    monkeypatch.setattr(select, "conv2d_backward_data", refuse)
    w = Variable(rng.standard_normal((2, 1, 3, 3)))
    conv2d(rng.standard_normal((1, 1, 4, 4)), w).backward()
    assert w.grad.shape == w.shape


def test_padding_forms_agree(rng: np.random.Generator) -> None:
    x, w = rng.standard_normal((1, 2, 5, 5)), rng.standard_normal((2, 2, 3, 3))
    y = conv2d(x, w, pad=(1, 1, 2, 2)).data
    np.testing.assert_array_equal(conv2d(x, w, pad=(1, 2)).data, y)
    np.testing.assert_array_equal(conv2d(np.pad(x, [(0, 0), (0, 0), (1, 1), (2, 2)]), w).data, y)
    np.testing.assert_array_equal(convnd(x, w, pad=(1, 2)).data, y)


def test_float32_stays_float32(rng: np.random.Generator) -> None:
    x, w, b = (Variable(rng.standard_normal(s).astype(np.float32)) for s in ((1, 2, 5, 5), (2, 2, 3, 3), (2,)))
    for y in (conv2d(x, w, b), deconv2d(x, w, b)):
        assert y.dtype == np.float32
        y.backward()
        assert x.grad.dtype == w.grad.dtype == b.grad.dtype == np.float32


@pytest.mark.parametrize(
    "call",
    [
        lambda: conv2d(np.zeros((1, 3, 5, 5)), np.zeros((2, 2, 3, 3))),
        lambda: conv2d(np.zeros((1, 2, 2, 2)), np.zeros((2, 2, 3, 3))),
        lambda: conv2d(np.zeros((1, 2, 5, 5)), np.zeros((2, 2, 3, 3)), np.zeros(3)),
        lambda: conv2d(np.zeros((1, 4, 5, 5)), np.zeros((3, 2, 3, 3)), groups=2),
        lambda: conv2d(np.zeros((1, 2, 5, 5)), np.zeros((2, 2, 3, 3)), stride=0),
        lambda: conv2d(np.zeros((1, 2, 5, 5)), np.zeros((2, 2, 3, 3)), pad=(1, 1, 1)),
        lambda: deconv2d(np.zeros((1, 3, 5, 5)), np.zeros((2, 2, 3, 3))),
        lambda: deconv2d(np.zeros((1, 2, 5, 5)), np.zeros((2, 2, 3, 3)), np.zeros(3)),
        lambda: deconv2d(np.zeros((1, 2, 5, 5)), np.zeros((2, 2, 3, 3)), stride=2, output_padding=2),
        lambda: deconv2d(np.zeros((1, 2, 1, 1)), np.zeros((2, 2, 3, 3)), pad=2),
        lambda: convnd(np.zeros((1, 2)), np.zeros((2, 2))),
        lambda: convnd(np.zeros((1, 2, 5)), np.zeros((2, 2, 3, 3))),
        lambda: deconvnd(np.zeros((1, 3, 5)), np.zeros((2, 2, 3))),
    ],
)
def test_what_does_not_fit_is_refused(call: Any) -> None:
    with pytest.raises(ShapeError):
        call()


@pytest.mark.parametrize("case", CASES)
def test_against_pytorch(case: Any, rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    x_shape, w_shape, stride, pad, dilation, groups = case
    arrays = (rng.standard_normal(x_shape), rng.standard_normal(w_shape), rng.standard_normal(w_shape[0]))
    ours = [Variable(a) for a in arrays]
    theirs = [torch.tensor(a, requires_grad=True) for a in arrays]
    y = conv2d(*ours, stride=stride, pad=pad, dilation=dilation, groups=groups)
    padded = torch.nn.functional.pad(theirs[0], (pad[2], pad[3], pad[0], pad[1]))
    expected = torch.nn.functional.conv2d(padded, *theirs[1:], stride=stride, dilation=dilation, groups=groups)
    _compare(torch, y, expected, ours, theirs, rng)


@pytest.mark.parametrize(
    "options", [{}, {"stride": 2, "pad": 1, "output_padding": 1}, {"stride": (2, 3), "dilation": 2}]
)
@pytest.mark.parametrize("groups", [1, 2])
def test_transposed_against_pytorch(options: dict[str, Any], groups: int, rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    arrays = (rng.standard_normal((2, 4, 4, 3)), rng.standard_normal((4, 3, 3, 2)), rng.standard_normal(3 * groups))
    ours = [Variable(a) for a in arrays]
    theirs = [torch.tensor(a, requires_grad=True) for a in arrays]
    y = conv_transpose2d(*ours, groups=groups, **options)
    words = {"pad": "padding"}
    named = {words.get(key, key): value for key, value in options.items()}
    expected = torch.nn.functional.conv_transpose2d(*theirs, groups=groups, **named)
    _compare(torch, y, expected, ours, theirs, rng)


def _compare(torch: Any, y: Variable, expected: Any, ours: Any, theirs: Any, rng: np.random.Generator) -> None:
    np.testing.assert_allclose(y.data, expected.detach().numpy(), rtol=1e-10, atol=1e-10)
    y.grad = rng.standard_normal(y.shape)
    y.backward()
    expected.backward(torch.tensor(y.grad))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.grad, b.grad.numpy(), rtol=1e-10, atol=1e-10)


def test_weights_function_is_the_derivative_with_respect_to_w(rng: np.random.Generator) -> None:
    """The convolution is linear in w, so <conv(x, v), gy> = <v, ConvWeights(gy, x)> for every v."""
    geometry = geometry_2d(stride=2, pad=(1, 0), dilation=1, groups=2)
    x, v = rng.standard_normal((2, 4, 5, 6)), rng.standard_normal((2, 2, 3, 2))
    y = convolve(x, v, (2, 2), [(1, 1), (0, 0)], (1, 1), 2)
    gy = rng.standard_normal(y.shape)
    np.testing.assert_allclose(np.sum(y * gy), np.sum(v * ConvWeights(geometry, v.shape)(gy, x).data))
