"""Pooling and resampling: rules of size, ties, what padding counts, PyTorch where it is installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from undertow.core import Variable, grad
from undertow.errors import ShapeError
from undertow.functions.pooling import (
    MaxPool2d,
    avg_pool2d,
    global_average_pool2d,
    global_max_pool2d,
    max_pool2d,
    pooling_geometry,
)
from undertow.functions.resample import downsample, upsample


@pytest.mark.parametrize(
    ("length", "size", "stride", "pad", "rule", "expected"),
    [
        # PyTorch's floor
        (7, 2, 2, 0, "floor", 3),
        (7, 3, 2, 1, "floor", 4),
        # Caffe rounds up (pooling_layer.cpp): ceil((7 - 2) / 2) + 1
        (7, 2, 2, 0, "caffe", 4),
        # ... and drops a window that starts at or after the image and its padding: (3-1)*2 >= 3 + 1
        (3, 2, 2, 1, "caffe", 2),
        (6, 3, 2, 1, "caffe", 4),
        # Darknet (maxpool_layer.c): (13 + 1 - 2) / 1 + 1, the 2x2 window of yolov3-tiny that keeps the size
        (13, 2, 1, None, "darknet", 13),
        (416, 2, 2, None, "darknet", 208),
        (13, 3, 2, None, "darknet", 7),
        (13, 2, 2, 0, "darknet", 6),
    ],
)
def test_size_of_the_output(length: int, size: int, stride: int, pad: Any, rule: Any, expected: int) -> None:
    x = np.zeros((1, 2, length, length))
    assert max_pool2d(x, size, stride, pad, rule).shape == (1, 2, expected, expected)
    assert avg_pool2d(x, size, stride, pad, rule).shape == (1, 2, expected, expected)


def test_darknet_window_that_keeps_the_size_looks_right_and_down() -> None:
    x = np.array([[[[1.0, 5, 2], [3, 4, 9], [8, 7, 6]]]])
    np.testing.assert_array_equal(max_pool2d(x, 2, 1, rule="darknet").data, [[[[5, 9, 9], [8, 9, 9], [8, 7, 6]]]])


def test_stride_is_the_window_unless_said(rng: np.random.Generator) -> None:
    x = rng.standard_normal((1, 1, 6, 9))
    np.testing.assert_array_equal(max_pool2d(x, (2, 3)).data, x.reshape(1, 1, 3, 2, 3, 3).max(axis=(3, 5)))


def test_padding_never_wins() -> None:
    assert max_pool2d(np.full((1, 1, 2, 2), -5.0), 3, 1, 1).data.max() == -5


def test_of_equal_elements_the_first_gets_the_gradient() -> None:
    x = Variable(np.ones((1, 1, 2, 2)))
    max_pool2d(x, 2).backward()
    np.testing.assert_array_equal(x.grad, [[[[1, 0], [0, 0]]]])


def test_winners_are_kept_for_unpooling(rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 3, 4, 6))
    function = MaxPool2d(pooling_geometry(x.shape, 2))
    y = function(x)
    flat = x.reshape(2, 3, -1)
    np.testing.assert_array_equal(
        np.take_along_axis(flat, function.indexes.reshape(2, 3, -1).astype(int), 2), y.data.reshape(2, 3, -1)
    )


def test_second_derivative_through_max_pooling(rng: np.random.Generator) -> None:
    """The sum of max(x)^2: its second derivative is 2 at the winners."""
    x = Variable(rng.standard_normal((1, 1, 4, 4)))
    y = max_pool2d(x, 2)
    (gx,) = (grad((y * y).sum(), x, create_graph=True),)
    ggx = grad(gx.sum(), x)
    winners = np.isin(x.data, y.data)
    np.testing.assert_array_equal(ggx.data, np.where(winners, 2.0, 0.0))


def test_what_padding_counts_in_an_average() -> None:
    x = np.ones((1, 1, 2, 2))
    corner = avg_pool2d(x, 3, 1, 1).data[0, 0, 0, 0]
    assert corner == pytest.approx(4 / 9)
    assert avg_pool2d(x, 3, 1, 1, count_include_pad=False).data[0, 0, 0, 0] == pytest.approx(1)


def test_caffe_average_counts_padding_but_not_beyond() -> None:
    """pooling_layer.cpp: the window is cut at image plus padding before its cells are counted."""
    x = np.ones((1, 1, 4, 4))
    y = avg_pool2d(x, 3, 2, 1, "caffe").data[0, 0]
    # 3 windows: from -1, 1 and 3. The last reaches to 6, is cut at 5, and sees rows 3 (image) and 4 (padding).
    np.testing.assert_allclose(y, np.outer([2 / 3, 1, 1 / 2], [2 / 3, 1, 1 / 2]))


def test_global_pooling(rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 3, 4, 5))
    np.testing.assert_allclose(global_average_pool2d(x).data[:, :, 0, 0], x.mean((2, 3)))
    np.testing.assert_array_equal(global_max_pool2d(x).data[:, :, 0, 0], x.max((2, 3)))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: max_pool2d(x, 5),
        lambda x: max_pool2d(x, 2, 0),
        lambda x: max_pool2d(x[0], 2),
        lambda x: max_pool2d(x, (1, 2), rule="darknet"),
        lambda x: max_pool2d(x, 2, 1, (1, 1), "darknet"),
        lambda x: max_pool2d(x, 2, 1, 2, "caffe"),
        lambda x: avg_pool2d(x, 2, 1, (1, 2, 3)),
        lambda x: downsample(x, 3),
        lambda x: upsample(x, 0),
    ],
)
def test_what_does_not_fit_is_refused(call: Any) -> None:
    with pytest.raises(ShapeError):
        call(np.zeros((1, 1, 4, 4)))


def test_unknown_rule() -> None:
    with pytest.raises(ValueError, match="floor, caffe, darknet"):
        max_pool2d(np.zeros((1, 1, 4, 4)), 2, rule="keras")  # type: ignore[arg-type]


@pytest.mark.parametrize(("size", "stride", "pad"), [(2, 2, 0), (3, 2, 1), ((3, 2), (1, 3), (1, 0))])
@pytest.mark.parametrize("round_up", [False, True])
def test_against_pytorch(size: Any, stride: Any, pad: Any, round_up: bool, rng: np.random.Generator) -> None:
    """PyTorch's ceil_mode follows Caffe's rule."""
    torch = pytest.importorskip("torch")
    values = rng.standard_normal((2, 3, 8, 7))
    options = {"kernel_size": size, "stride": stride, "padding": pad, "ceil_mode": round_up}
    rule: Any = "caffe" if round_up else "floor"
    pairs = [
        (lambda x: max_pool2d(x, size, stride, pad, rule), lambda x: torch.nn.functional.max_pool2d(x, **options)),
        (lambda x: avg_pool2d(x, size, stride, pad, rule), lambda x: torch.nn.functional.avg_pool2d(x, **options)),
        (
            lambda x: avg_pool2d(x, size, stride, pad, rule, count_include_pad=False),
            lambda x: torch.nn.functional.avg_pool2d(x, **options, count_include_pad=False),
        ),
    ]
    for ours, theirs in pairs:
        x, t = Variable(values), torch.tensor(values, requires_grad=True)
        y, expected = ours(x), theirs(t)
        np.testing.assert_allclose(y.data, expected.detach().numpy(), rtol=1e-12)
        y.grad = rng.standard_normal(y.shape)
        y.backward()
        expected.backward(torch.tensor(y.grad))
        np.testing.assert_allclose(x.grad, t.grad.numpy(), rtol=1e-12)


def test_upsampling_and_shrinking_are_transposes(rng: np.random.Generator) -> None:
    x, y = rng.standard_normal((2, 3, 4, 5)), rng.standard_normal((2, 3, 8, 10))
    up, down = upsample(x, 2, 0.25).data, downsample(y, 2, 0.25).data
    np.testing.assert_array_equal(up[:, :, 1::2, ::2], x / 4)
    np.testing.assert_allclose(np.sum(up * y), np.sum(x * down))
