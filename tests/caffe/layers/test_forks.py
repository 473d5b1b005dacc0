"""Layers of forks against PyTorch and formulas written out."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from tests.caffe.net.texts import inputs, layer, net
from undertow.caffe.boxes import overlaps
from undertow.caffe.layers_detection import DetectionOutput
from undertow.caffe.net import Net
from undertow.errors import UndertowError

torch = pytest.importorskip("torch")


def run(built: Net, *values: np.ndarray, output: str = "y") -> np.ndarray:
    for name, value in zip(built.inputs, values, strict=True):
        built.blobs[name].data[...] = value
    built.forward()
    return built.blobs[output].data


@pytest.mark.parametrize("size", [(7, 9), (3, 2), (1, 1), (5, 6)])
def test_interp_keeps_corners(rng: np.random.Generator, size: tuple[int, int]) -> None:
    x = rng.standard_normal((2, 3, 5, 6))
    rest = f"interp_param {{ height: {size[0]} width: {size[1]} }}"
    found = run(net(inputs(x=x.shape), layer("y", "Interp", "x", rest=rest)), x)
    expected = torch.nn.functional.interpolate(torch.tensor(x), size, mode="bilinear", align_corners=True)
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-12)


def test_interp_cuts_shrinks_and_zooms(rng: np.random.Generator) -> None:
    x = rng.standard_normal((1, 1, 10, 10))
    rest = "interp_param { pad_beg: -1 pad_end: -2 shrink_factor: 2 zoom_factor: 3 }"
    found = run(net(inputs(x=x.shape), layer("y", "Interp", "x", rest=rest)), x)
    # 7 pixels are left, (7 - 1) / 2 + 1 = 4, then 4 + 3 * 2 = 10
    expected = torch.nn.functional.interpolate(
        torch.tensor(x[..., 1:8, 1:8]), (10, 10), mode="bilinear", align_corners=True
    )
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-12)


def test_interp_takes_the_size_of_a_second_bottom() -> None:
    built = net(inputs(x=(1, 2, 3, 3), z=(1, 1, 5, 4)), layer("y", "Interp", "x z"))
    assert built.blobs["y"].shape == (1, 2, 5, 4)


def test_upsample_by_repeating_and_by_a_mask(rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 3, 4, 6))
    found = run(net(inputs(x=x.shape), layer("y", "Upsample", "x", rest="upsample_param { scale: 2 }")), x)
    assert np.array_equal(found, x.repeat(2, 2).repeat(2, 3))
    built = net(
        inputs(x=x.shape),
        layer("p", "Pooling", "x", "p m", "pooling_param { kernel_size: 2 stride: 2 }"),
        layer("y", "Upsample", "p m", rest="upsample_param { scale: 2 } propagate_down: true propagate_down: false"),
    )
    pooled, places = torch.nn.functional.max_pool2d(torch.tensor(x), 2, return_indices=True)
    np.testing.assert_allclose(run(built, x), torch.nn.functional.max_unpool2d(pooled, places, 2).numpy())


def test_ceil_mode_is_the_forks_word_for_round_mode() -> None:
    for option, side in (("ceil_mode: false", 3), ("ceil_mode: true", 4), ("ceil_mode: false round_mode: CEIL", 4)):
        built = net(
            inputs(x=(1, 1, 8, 8)),
            layer("y", "Pooling", "x", rest=f"pooling_param {{ kernel_size: 3 stride: 2 {option} }}"),
        )
        assert built.blobs["y"].shape == (1, 1, side, side)


def test_shuffle_and_permute(rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 6, 3, 4))
    found = run(net(inputs(x=x.shape), layer("y", "ShuffleChannel", "x", rest="shuffle_channel_param { group: 3 }")), x)
    assert np.array_equal(found, torch.nn.functional.channel_shuffle(torch.tensor(x), 3).numpy())
    found = run(net(inputs(x=x.shape), layer("y", "Permute", "x", rest="permute_param { order: 3 order: 1 }")), x)
    assert np.array_equal(found, x.transpose(3, 1, 0, 2))


def test_normalize(rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 3, 2, 2))
    rest = "norm_param { across_spatial: false channel_shared: false scale_filler { value: 20 } }"
    found = run(net(inputs(x=x.shape), layer("y", "Normalize", "x", rest=rest)), x)
    np.testing.assert_allclose(found, torch.nn.functional.normalize(torch.tensor(x), dim=1).numpy() * 20)
    whole = run(net(inputs(x=x.shape), layer("y", "Normalize", "x")), x)
    np.testing.assert_allclose(whole, x / np.sqrt((x**2).sum((1, 2, 3), keepdims=True)))


def test_axpy_relu6_depthwise(rng: np.random.Generator) -> None:
    a, x, y = (rng.standard_normal(shape) for shape in ((2, 3, 1, 1), (2, 3, 4, 4), (2, 3, 4, 4)))
    found = run(net(inputs(a=a.shape, x=x.shape, z=y.shape), layer("y", "Axpy", "a x z")), a, x, y)
    np.testing.assert_allclose(found, a * x + y)
    found = run(net(inputs(x=x.shape), layer("y", "ReLU6", "x")), x * 5)
    np.testing.assert_allclose(found, np.clip(x * 5, 0, 6))
    built = net(inputs(x=x.shape), layer("y", "ConvolutionDepthwise", "x", rest="convolution_param { num_output: 3 "
                "kernel_size: 3 pad: 1 weight_filler { type: \"xavier\" } }"))  # fmt: skip
    weights = built.params["y"][0].data
    assert weights.shape == (3, 1, 3, 3)
    expected = torch.nn.functional.conv2d(torch.tensor(x), torch.tensor(weights), padding=1, groups=3)
    np.testing.assert_allclose(run(built, x), expected.numpy(), atol=1e-12)


def test_default_boxes_by_hand() -> None:
    rest = ("prior_box_param { min_size: 30.7 max_size: 60 aspect_ratio: 2 aspect_ratio: 1 clip: true offset: 0.5 "
            "variance: 0.1 variance: 0.1 variance: 0.2 variance: 0.2 }")  # fmt: skip
    built = net(inputs(x=(1, 1, 2, 3), data=(1, 3, 100, 150)), layer("y", "PriorBox", "x data", rest=rest))
    found = run(built, np.zeros((1, 1, 2, 3)), np.zeros((1, 3, 100, 150)))
    assert found.shape == (1, 2, 2 * 3 * 4 * 4)
    expected = []
    for row in range(2):
        for column in range(3):
            for w, h in ((30, 30), (math.sqrt(1800),) * 2, (30 * math.sqrt(2), 30 / math.sqrt(2)),
                         (30 / math.sqrt(2), 30 * math.sqrt(2))):  # fmt: skip
                x, y = (column + 0.5) * 50, (row + 0.5) * 50
                corners = (x - w / 2) / 150, (y - h / 2) / 100, (x + w / 2) / 150, (y + h / 2) / 100
                expected += [min(max(corner, 0), 1) for corner in corners]
    np.testing.assert_allclose(found[0, 0], expected, rtol=1e-7)
    np.testing.assert_allclose(found[0, 1].reshape(-1, 4), np.tile([0.1, 0.1, 0.2, 0.2], (24, 1)), rtol=1e-6)


DETECTION = "detection_output_param {{ num_classes: 3 code_type: CENTER_SIZE nms_param {{ nms_threshold: 0.4 top_k: 10 }} confidence_threshold: 0.3 {} }}"  # noqa: E501


def detect(scores: Sequence[Sequence[float]], offsets: np.ndarray, boxes: np.ndarray, rest: str = "") -> np.ndarray:
    count = len(boxes)
    built = net(
        inputs(loc=(1, count * 4), conf=(1, count * 3), prior=(1, 2, count * 4)),
        layer("y", "DetectionOutput", "loc conf prior", rest=DETECTION.format(rest)),
        phase="TEST",
        force=False,
    )
    priors = np.stack([boxes.reshape(-1), np.tile([0.1, 0.1, 0.2, 0.2], count)])
    return run(built, offsets.reshape(1, -1), np.reshape(scores, (1, -1)), priors[None])


def test_detections_by_hand() -> None:
    boxes = np.array([[0.1, 0.1, 0.3, 0.5], [0.12, 0.1, 0.32, 0.5], [0.6, 0.6, 0.8, 0.8]])
    offsets = np.zeros((3, 4))
    offsets[0] = [1, -1, math.log(2) / 0.2, 0]
    found = detect([[0.1, 0.8, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]], offsets, boxes)[0, 0]
    # box 0: centre (0.2, 0.3) moved by (0.1 * 0.2, -0.1 * 0.4), twice as wide
    first = [0.22 - 0.2, 0.26 - 0.2, 0.22 + 0.2, 0.26 + 0.2]
    np.testing.assert_allclose(found[0], [0, 1, 0.8, *first], atol=1e-12)
    assert found[:, 1].tolist() == [1, 2]
    np.testing.assert_allclose(found[1], [0, 2, 0.7, 0.6, 0.6, 0.8, 0.8], atol=1e-12)
    best = detect([[0.1, 0.8, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]], offsets, boxes, "keep_top_k: 1")[0, 0]
    assert best[:, 2].tolist() == [0.8]


def test_nothing_found_is_one_row_per_image() -> None:
    found = detect([[0.9, 0.05, 0.05]], np.zeros((1, 4)), np.array([[0.1, 0.1, 0.3, 0.5]]))
    assert found.tolist() == [[[[0, -1, -1, -1, -1, -1, -1]]]]


def test_overlap() -> None:
    box = np.array([0.0, 0, 2, 2])
    others = np.array([[1.0, 1, 3, 3], [0, 0, 2, 2], [2, 2, 3, 3], [5, 5, 6, 6]])
    np.testing.assert_allclose(overlaps(box, others), [1 / 7, 1, 0, 0])


@pytest.mark.parametrize("code", ["CORNER", "CORNER_SIZE"])
def test_other_codes(code: str) -> None:
    built = net(
        inputs(loc=(1, 4), conf=(1, 2), prior=(1, 2, 4)),
        layer(
            "y",
            "DetectionOutput",
            "loc conf prior",
            rest=f"detection_output_param {{ num_classes: 2 code_type: {code} }}",
        ),
        force=False,
    )
    part = built.layer_dict["y"]
    assert isinstance(part, DetectionOutput)
    box, variance, offset = np.array([[0.2, 0.2, 0.6, 0.4]]), np.full((1, 4), 0.5), np.array([[0.1, -0.2, 0.3, 0.4]])
    scale = [1, 1, 1, 1] if code == "CORNER" else [0.4, 0.2, 0.4, 0.2]
    np.testing.assert_allclose(part.decode(offset, box, variance), box + offset * 0.5 * scale)


@pytest.mark.parametrize(
    ("kind", "rest", "reason"),
    [
        ("Permute", "permute_param { order: 1 order: 1 }", "different axes"),
        ("ShuffleChannel", "shuffle_channel_param { group: 2 }", "does not divide 3"),
        ("Interp", "interp_param { pad_beg: 1 }", "cut off"),
    ],
)
def test_refusals(kind: str, rest: str, reason: str) -> None:
    with pytest.raises(UndertowError, match=reason):
        net(inputs(x=(1, 3, 4, 4)), layer("y", kind, "x", rest=rest))
