"""LeNet's nine layers at batch 64, blob by blob and diff by diff, as Caffe recorded them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.replay.caffe import load_trace
from undertow.caffe.net import Net
from undertow.core.modes import Precision, precision

# name, type, bottom, shape of its top
LAYERS = [
    ("conv1", "Convolution", "data", (64, 20, 24, 24)),
    ("pool1", "Pooling", "conv1", (64, 20, 12, 12)),
    ("conv2", "Convolution", "pool1", (64, 50, 8, 8)),
    ("pool2", "Pooling", "conv2", (64, 50, 4, 4)),
    ("ip1", "InnerProduct", "pool2", (64, 500)),
    ("relu1", "ReLU", "ip1", (64, 500)),
    ("ip2", "InnerProduct", "ip1", (64, 10)),
    ("loss", "SoftmaxWithLoss", "ip2", ()),
]


@pytest.mark.reference
@pytest.mark.parametrize("dialect", ["caffe", "exact"])
@pytest.mark.parametrize("level", ["fast", "precise"])
def test_layer_by_layer(reference_data: Path, dialect: str, level: Precision) -> None:
    """Both dialects agree here: none of LeNet's gradients is anything but the derivative.

    Where several windows of conv2 see nothing but background, Caffe and "precise" get the same number for each and
    "fast" nearly the same: the maximum is then another of them, its gradient goes elsewhere within the pooling window.
    """
    with precision(level):
        check_layer_by_layer(reference_data, dialect, by_window={"conv2"} if level == "fast" else set())


def check_layer_by_layer(reference_data: Path, dialect: str, by_window: set[str]) -> None:
    """by_window: blobs whose gradients are compared summed over pooling windows; none is compared below them."""
    folder = reference_data / "goldens" / "caffe" / "lenet"
    trace = load_trace(folder)
    net = Net(folder / "net.prototxt", "TRAIN", weights=folder / "init.caffemodel", dialect=dialect)
    for name in ("data", "label"):
        net.blobs[name].data[...] = trace[f"input/{name}"]
    loss = 0.0
    for name, kind, bottom, shape in LAYERS:
        layer = net.layer_dict[name]
        assert layer.type == kind
        assert net.bottom_names[name][0] == bottom
        loss = net.forward(start=name, end=name)
        top = net.top_names[name][0]
        assert net.blobs[top].shape == shape
        if name != "ip1":  # recorded after the ReLU that works on it in place
            np.testing.assert_allclose(net.blobs[top].data, trace[f"blob/{top}/data"], rtol=1e-4, atol=1e-5)
    assert loss == pytest.approx(float(trace["loss"]), rel=1e-5)
    assert net.params["conv2"][0].data.reshape(50, -1).shape == (50, 500)
    net.clear_param_diffs()
    below = False
    for name, _, bottom, _ in reversed(LAYERS):
        net.backward(start=name, end=name)
        if bottom in by_window:
            close(over_windows(net.blobs[bottom].diff), over_windows(trace[f"blob/{bottom}/diff"]))
            below = True
        elif f"blob/{bottom}/diff" in trace and name != "ip2" and not below:  # the ReLU in place writes over ip1's
            close(net.blobs[bottom].diff, trace[f"blob/{bottom}/diff"])
        for index, blob in enumerate(net.params.get(name, ())):
            close(blob.diff, trace[f"param/{name}/{index}/diff"])
    assert not net.blobs["data"].diff.any()


def over_windows(diff: np.ndarray) -> np.ndarray:
    """Sums over the windows of 2 x 2."""
    n, c, h, w = diff.shape
    return diff.reshape(n, c, h // 2, 2, w // 2, 2).sum((3, 5))


def close(ours: np.ndarray, recorded: np.ndarray) -> None:
    np.testing.assert_allclose(ours, recorded, rtol=1e-4, atol=1e-6)
    assert recorded.any()


def test_what_the_losses_gradient_is(rng: np.random.Generator) -> None:
    """bottom.diff = (prob - 1 at the label, 0 where ignored) times top.diff[0] / normaliser."""
    from tests.caffe.net.texts import inputs, layer, net

    x, labels = rng.standard_normal((4, 3)), np.array([0, 2, 255, 1])
    prob = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    expected = prob.copy()
    for row, label in enumerate(labels):
        if label == 255:
            expected[row] = 0
        else:
            expected[row, label] -= 1
    for mode, count in (("VALID", 3), ("BATCH_SIZE", 4), ("FULL", 4), ("NONE", 1)):
        rest = f"loss_param {{ ignore_label: 255 normalization: {mode} }} loss_weight: 0.7"
        built = net(inputs(x=(4, 3), t=(4,)), layer("l", "SoftmaxWithLoss", "x t", rest=rest))
        built.blobs["x"].data[...], built.blobs["t"].data[...] = x, labels
        built.forward()
        built.backward()
        np.testing.assert_allclose(built.blobs["x"].diff, expected * 0.7 / count, atol=1e-14)


def test_an_ignored_label_of_two() -> None:
    """Case 85: VALID divides ln 2 by the one label that counts."""
    from tests.caffe.net.texts import inputs, layer, net

    built = net(inputs(x=(2, 2), t=(2,)), layer("l", "SoftmaxWithLoss", "x t", rest="loss_param { ignore_label: 255 }"))
    built.blobs["t"].data[...] = [1, 255]
    assert built.forward() == pytest.approx(np.log(2))
    built.backward()
    np.testing.assert_allclose(built.blobs["x"].diff, [[0.5, -0.5], [0, 0]])
