"""A whole planned training step of YOLOv3-tiny held against PyTorch: loss, gradients, running statistics."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import undertow as ut
from benchmarks.nets import yolov3, yolov3_tiny
from undertow.darknet.dialect import EXACT
from undertow.darknet.network import Network
from undertow.functions.norm_batch import BatchNormRule

torch = pytest.importorskip("torch")


def test_the_benchmarks_networks_are_those_of_the_papers() -> None:
    tiny, large = Network(yolov3_tiny(1, 96)), Network(yolov3(1, 96))
    assert (tiny.n, large.n) == (24, 107)
    # As many numbers as in the official .weights files.
    sizes = [sum(a.size for layer in net.layers for a in layer.arrays().values()) for net in (tiny, large)]
    assert sizes == [8_858_734, 62_001_757]


def test_a_planned_step_has_pytorchs_loss_gradients_and_statistics() -> None:
    from benchmarks.torch_nets import Targets, TorchNet
    from benchmarks.train import make_batch

    as_torch = replace(EXACT, batch_norm=BatchNormRule())  # Darknet divides the variance by N - 1
    net = Network(yolov3_tiny(2, 96), as_torch)
    net.keep_deltas = False
    images, truth = make_batch(net, 3)
    with ut.no_grad():
        net.forward(images, truth)  # assigns; moves the statistics, which are set back
    targets = Targets(net)
    for layer in net.layers:
        for buffer in layer.buffers.values():
            buffer[...] = 0
    model = TorchNet(net)
    loss = targets.loss(model(torch.from_numpy(images)))
    loss.backward()

    net._plans.train(images, truth)
    assert net._plans._train.is_replaying
    assert net.loss is not None
    assert float(net.loss.data) == pytest.approx(float(loss.detach()), rel=1e-5)
    for layer, block in zip(net.layers, model.blocks, strict=True):
        if layer.type != "convolutional":
            continue
        parts: Any = list(block)  # type: ignore[call-overload]
        close(-layer.weight_updates, parts[0].weight.grad, 1e-2)
        bias = parts[1].bias if layer.batch_normalize else parts[0].bias
        close(-layer.bias_updates, bias.grad, 1e-2)
        if layer.batch_normalize:
            close(-layer.scale_updates, parts[1].weight.grad, 1e-2)
            close(layer.rolling_mean, parts[1].running_mean, 1e-4)
            count = net.batch * layer.out_h * layer.out_w
            close(layer.rolling_variance, parts[1].running_var * (count - 1) / count, 1e-4)


def close(ours: np.ndarray, theirs: Any, share: float) -> None:
    """Within a share of the norm; signs that flip at a kink of leaky cost gradients some thousandths in any program."""
    expected = theirs.detach().numpy()
    assert np.linalg.norm(ours - expected) <= share * np.linalg.norm(expected) + 1e-6
