"""BN as the forks of SegNet and PSPNet have it, against PyTorch and central differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.caffe.net.texts import NetCall, inputs, layer
from undertow.caffe.net import Net
from undertow.caffe.proto import parse_text
from undertow.core.gradcheck import check_gradients
from undertow.errors import FormatError, ShapeError

SHAPE = (4, 3, 2, 5)


def build(fork: str, rest: str = "", phase: str = "TRAIN", tops: str = "y", more: str = "") -> Net:
    text = inputs(x=SHAPE) + layer("bn", "BN", "x", tops, f"bn_param {{ {rest} }} {more}")
    text = "force_backward: true " + text
    return Net(parse_text(text, "NetParameter", fork=fork), phase, dtype=np.float64, fork=fork)


def put(built: Net, rng: np.random.Generator) -> np.ndarray:
    """Values for the input and all parameters; the input."""
    for index, blob in enumerate(built.params["bn"]):
        blob.data[...] = rng.uniform(0.5, 2, blob.shape) if index in (0, 3) else rng.standard_normal(blob.shape)
    built.blobs["x"].data[...] = rng.standard_normal(SHAPE) * 2 + 1
    return built.blobs["x"].data.copy()


def normalised(x: np.ndarray, params: list[Any], epsilon: float, fixed: bool = False) -> np.ndarray:
    torch = pytest.importorskip("torch")
    arrays = [torch.tensor(blob.data.reshape(-1).copy()) for blob in params]
    mean, variance = arrays[2:] if fixed else (None, None)
    found = torch.nn.functional.batch_norm(torch.tensor(x), mean, variance, *arrays[:2], not fixed, 0, epsilon)
    return np.asarray(found)


def test_segnet_learns_from_the_batch_in_both_phases(rng: np.random.Generator) -> None:
    for phase in ("TRAIN", "TEST"):
        built = build("segnet", phase=phase, tops="y mean variance")
        x = put(built, rng)
        built.forward()
        np.testing.assert_allclose(built.blobs["y"].data, normalised(x, built.params["bn"], 1e-9), atol=1e-9)
        assert built.blobs["mean"].shape == built.blobs["variance"].shape == (1, 3, 1, 1)
        np.testing.assert_allclose(built.blobs["mean"].data.reshape(-1), x.mean((0, 2, 3)))
        np.testing.assert_allclose(built.blobs["variance"].data.reshape(-1), x.var((0, 2, 3)))


def test_segnet_at_inference_scales_and_shifts(rng: np.random.Generator) -> None:
    built = build("segnet", "bn_mode: INFERENCE")
    x = put(built, rng)
    built.forward()
    scale, shift = (blob.data for blob in built.params["bn"])
    np.testing.assert_allclose(built.blobs["y"].data, scale * x + shift)


def test_pspnet_keeps_running_statistics(rng: np.random.Generator) -> None:
    built = build("pspnet", "momentum: 0.8 eps: 0.01")
    x = put(built, rng)
    before = [blob.data.copy() for blob in built.params["bn"]]
    built.forward()
    np.testing.assert_allclose(built.blobs["y"].data, normalised(x, built.params["bn"], 0.01), atol=1e-12)
    for index, batch in ((2, x.mean((0, 2, 3))), (3, x.var((0, 2, 3)))):
        expected = 0.8 * before[index].reshape(-1) + (1 - 0.8) * batch
        np.testing.assert_allclose(built.params["bn"][index].data.reshape(-1), expected, rtol=1e-6)
    assert built.params_lr == [1, 1, 0, 0]


@pytest.mark.parametrize(("rest", "phase"), [("", "TEST"), ("frozen: true", "TRAIN"), ("frozen: true", "TEST")])
def test_pspnet_uses_them(rest: str, phase: str, rng: np.random.Generator) -> None:
    built = build("pspnet", rest, phase, more="param { lr_mult: 5 } param { lr_mult: 6 } param { lr_mult: 7 }")
    x = put(built, rng)
    before = [blob.data.copy() for blob in built.params["bn"]]
    built.forward()
    np.testing.assert_allclose(built.blobs["y"].data, normalised(x, built.params["bn"], 1e-5, True), atol=1e-9)
    for blob, old in zip(built.params["bn"], before, strict=True):
        np.testing.assert_array_equal(blob.data, old)
    assert built.params_lr == ([0, 0, 0, 0] if rest else [5, 6, 0, 0])


def test_first_values() -> None:
    fillers = 'slope_filler { type: "constant" value: 2 } bias_filler { type: "constant" value: 3 }'
    values = [blob.data.flat[0] for blob in build("pspnet", fillers).params["bn"]]
    assert values == [2, 3, 0, 0]
    assert build("pspnet", "frozen: true").params["bn"][3].data.flat[0] == 1
    fillers = 'scale_filler { type: "constant" value: 2 } shift_filler { type: "constant" value: 3 }'
    assert [blob.data.flat[0] for blob in build("segnet", fillers).params["bn"]] == [2, 3]


@pytest.mark.parametrize(
    ("fork", "rest", "phase"),
    [
        ("segnet", "", "TRAIN"), ("segnet", "bn_mode: INFERENCE", "TRAIN"), ("pspnet", "eps: 0.1", "TRAIN"),
        ("pspnet", "", "TEST"),
    ],
)  # fmt: skip
def test_gradients(fork: str, rest: str, phase: str, rng: np.random.Generator) -> None:
    built = build(fork, rest, phase)
    x = put(built, rng)
    values = [blob.data.copy() for blob in built.params["bn"]]
    kept = values[2:]

    def function(*variables: Any) -> Any:
        return NetCall(built, ["x"], ["y"])(*variables, *kept)

    assert check_gradients(function, [x, *values[:2]], rtol=1e-5).checked > 0


def test_what_cannot_be(rng: np.random.Generator) -> None:
    with pytest.raises(FormatError, match=r"has no statistics of a batch to give.*bn_mode: LEARN"):
        build("segnet", "bn_mode: INFERENCE", tops="y mean")
    with pytest.raises(FormatError, match="BN of PSPNet has one top, not 2"):
        build("pspnet", tops="y mean")
    with pytest.raises(FormatError, match=r'bn_param, which the net was read without.*fork="pspnet" or fork="segnet"'):
        Net(parse_text(inputs(x=SHAPE) + layer("bn", "BN", "x", "y"), "NetParameter"))
    built = build("pspnet")
    built.blobs["x"].reshape(4, 2, 2, 5)
    with pytest.raises(ShapeError, match="must have 3 channels on axis 1"):
        built.reshape()
