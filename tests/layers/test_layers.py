"""Layers against PyTorch with the same parameters (values and gradients, float64), and what is their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow import layers
from undertow.errors import ShapeError, UndertowError
from undertow.layers import Module, initializers
from undertow.optimizers import SGD

torch: Any = None


@pytest.fixture
def nn() -> Any:
    global torch
    torch = pytest.importorskip("torch")
    return torch.nn


def compare(layer: Module, peer: Any, x: np.ndarray, names: dict[str, str]) -> None:
    """Give the peer our parameters; outputs and all gradients must agree. names: ours -> theirs."""
    layer.to_dtype(np.float64)
    peer.double()
    ours, theirs = ut.Variable(x), torch.tensor(x, requires_grad=True)
    y = layer(ours)
    parameters, peers = dict(layer.named_parameters()), dict(peer.named_parameters())
    assert parameters.keys() == names.keys()
    with torch.no_grad():
        for name, other in names.items():
            peers[other].copy_(torch.tensor(parameters[name].data))
    expected = peer(theirs)
    np.testing.assert_allclose(y.data, expected.detach().numpy(), rtol=1e-9, atol=1e-11)
    weights = np.random.default_rng(1).normal(size=y.shape)
    (y * weights).sum().backward()
    (expected * torch.tensor(weights)).sum().backward()
    np.testing.assert_allclose(ours.grad, theirs.grad.numpy(), rtol=1e-8, atol=1e-10)
    for name, other in names.items():
        np.testing.assert_allclose(parameters[name].grad, peers[other].grad.numpy(), rtol=1e-8, atol=1e-10)


BOTH = {"weight": "weight", "bias": "bias"}
AFFINE = {"gamma": "weight", "beta": "bias"}


def test_linear(nn: Any, rng: np.random.Generator) -> None:
    compare(layers.Linear(3, rng=0), nn.Linear(5, 3), rng.normal(size=(2, 4, 5)), BOTH)
    compare(
        layers.Linear(3, 5, bias=False, rng=0), nn.Linear(5, 3, bias=False), rng.normal(size=5), {"weight": "weight"}
    )


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({}, {}),
        ({"stride": 2, "pad": 1}, {"stride": 2, "padding": 1}),
        ({"groups": 2, "dilation": 2, "pad": 2}, {"groups": 2, "dilation": 2, "padding": 2}),
    ],
)
def test_conv2d(ours: dict[str, Any], theirs: dict[str, Any], nn: Any, rng: np.random.Generator) -> None:
    x = rng.normal(size=(2, 4, 7, 6))
    compare(layers.Conv2d(6, 3, rng=0, **ours), nn.Conv2d(4, 6, 3, **theirs), x, BOTH)
    compare(layers.Deconv2d(6, 3, rng=0, **ours), nn.ConvTranspose2d(4, 6, 3, **theirs), x, BOTH)


def test_convolutions_in_other_dimensions(nn: Any, rng: np.random.Generator) -> None:
    sound, volume = rng.normal(size=(2, 3, 9)), rng.normal(size=(1, 2, 4, 5, 4))
    compare(layers.ConvNd(1, 4, 3, rng=0, stride=2), nn.Conv1d(3, 4, 3, stride=2), sound, BOTH)
    compare(layers.ConvNd(3, 3, (2, 3, 1), rng=0, pad=1), nn.Conv3d(2, 3, (2, 3, 1), padding=1), volume, BOTH)
    ours = layers.DeconvNd(1, 4, 3, rng=0, stride=2, output_padding=1)
    compare(ours, nn.ConvTranspose1d(3, 4, 3, stride=2, output_padding=1), sound, BOTH)


def test_normalisation(nn: Any, rng: np.random.Generator) -> None:
    x = rng.normal(size=(4, 6, 3, 2))
    batch_norm = layers.BatchNorm()
    batch_norm(x.astype(np.float32))
    batch_norm.gamma.data[...] = rng.normal(size=6)
    compare(batch_norm, nn.BatchNorm2d(6), x, AFFINE)
    compare(layers.BatchNorm(6, affine=False), nn.BatchNorm2d(6, affine=False), x, {})
    compare(layers.LayerNorm((3, 2)), nn.LayerNorm((3, 2)), x, AFFINE)
    compare(layers.LayerNorm(5), nn.LayerNorm(5), rng.normal(size=(3, 5)), AFFINE)
    compare(layers.GroupNorm(3, 6), nn.GroupNorm(3, 6), x, AFFINE)
    compare(layers.LRN(3, alpha=0.5, k=2.0), nn.LocalResponseNorm(3, alpha=0.5, k=2.0), x, {})


def test_running_statistics_of_batch_norm(nn: Any, rng: np.random.Generator) -> None:
    ours, theirs = layers.BatchNorm(3, momentum=0.3), nn.BatchNorm2d(3, momentum=0.3)
    for _ in range(3):
        x = (rng.normal(size=(4, 3, 2, 2)) * 2 + 1).astype(np.float32)
        ours(x)
        theirs(torch.tensor(x))
    np.testing.assert_allclose(ours.running_mean, theirs.running_mean.numpy(), rtol=1e-5)
    np.testing.assert_allclose(ours.running_variance, theirs.running_var.numpy(), rtol=1e-5)
    theirs.eval()
    before = ours.running_mean.copy()
    with ut.test_mode():
        y = ours(x)
    np.testing.assert_allclose(y.data, theirs(torch.tensor(x)).detach().numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(ours.running_mean, before)
    assert [name for name, _ in ours.named_buffers()] == ["running_mean", "running_variance"]


def test_activations_and_pooling(nn: Any, rng: np.random.Generator) -> None:
    x = rng.normal(size=(2, 4, 6, 6))
    pairs = [
        (layers.ReLU(), nn.ReLU()),
        (layers.LeakyReLU(0.2), nn.LeakyReLU(0.2)),
        (layers.ELU(0.7), nn.ELU(0.7)),
        (layers.SELU(), nn.SELU()),
        (layers.GELU(), nn.GELU()),
        (layers.GELU(approximate=True), nn.GELU("tanh")),
        (layers.Swish(), nn.SiLU()),
        (layers.Mish(), nn.Mish()),
        (layers.Sigmoid(), nn.Sigmoid()),
        (layers.Tanh(), nn.Tanh()),
        (layers.Softplus(2.0), nn.Softplus(2.0)),
        (layers.Softmax(), nn.Softmax(1)),
        (layers.Softmax(-1), nn.Softmax(-1)),
        (layers.Activation(ut.relu6), nn.ReLU6()),
        (layers.MaxPool2d(3, 2, 1), nn.MaxPool2d(3, 2, 1)),
        (layers.AvgPool2d(2), nn.AvgPool2d(2)),
        (layers.AvgPool2d(3, 2, 1, count_include_pad=False), nn.AvgPool2d(3, 2, 1, count_include_pad=False)),
        (layers.GlobalAvgPool2d(), nn.AdaptiveAvgPool2d(1)),
        (layers.Flatten(), nn.Flatten()),
    ]
    for ours, theirs in pairs:
        compare(ours, theirs, x, {})
    compare(layers.PReLU(4), nn.PReLU(4), x, {"slope": "weight"})


def test_pooling_rules_of_caffe_and_darknet() -> None:
    x = np.zeros((1, 1, 5, 5), np.float32)
    assert layers.MaxPool2d(2, 2)(x).shape == (1, 1, 2, 2)
    assert layers.MaxPool2d(2, 2, rule="caffe")(x).shape == (1, 1, 3, 3)
    assert layers.MaxPool2d(2, 1, rule="darknet")(x).shape == (1, 1, 5, 5)


def test_embedding_adds_the_gradients_of_a_row_used_twice() -> None:
    table = layers.Embedding(5, 3, rng=0)
    rows = table(np.array([[4, 1], [4, 0]]))
    np.testing.assert_array_equal(rows.data[0, 0], table.weight.data[4])
    assert rows.shape == (2, 2, 3)
    rows.sum().backward()
    np.testing.assert_array_equal(table.weight.grad[:, 0], [1, 1, 0, 0, 2])
    ignoring = layers.Embedding(5, 3, ignore_index=-1)
    assert not ignoring(np.array([-1])).data.any()


def test_dropout_is_repeatable_resumable_and_off_under_test_mode() -> None:
    x = np.ones((50, 40), np.float32)
    drop = layers.Dropout(0.25, rng=3)
    first, second = drop(x).data, drop(x).data
    assert set(np.unique(first)) == {0, np.float32(1 / 0.75)}
    assert (first == 0).mean() == pytest.approx(0.25, abs=0.03)
    assert not np.array_equal(first, second)
    again = layers.Dropout(0.25, rng=3)
    np.testing.assert_array_equal(again(x).data, first)
    state = again.state()
    resumed = layers.Dropout(0.25, rng=3)
    resumed.load_state(state)
    np.testing.assert_array_equal(resumed(x).data, second)
    with ut.test_mode():
        np.testing.assert_array_equal(drop(x).data, x)
    assert drop.calls == 2
    shared = np.random.default_rng(0)
    one, other = layers.Dropout(rng=shared), layers.Dropout(rng=shared)
    assert not np.array_equal(one(x).data, other(x).data)


LAZY = [
    (lambda: layers.Linear(3, rng=1), lambda: layers.Linear(3, 4, rng=1), (2, 4)),
    (lambda: layers.Conv2d(6, 3, rng=1, groups=2), lambda: layers.Conv2d(6, 3, 4, rng=1, groups=2), (1, 4, 5, 5)),
    (lambda: layers.Deconv2d(3, 2, rng=1), lambda: layers.Deconv2d(3, 2, 4, rng=1), (1, 4, 5, 5)),
    (layers.BatchNorm, lambda: layers.BatchNorm(4), (2, 4, 3)),
]


@pytest.mark.parametrize(("lazy", "eager", "shape"), LAZY)
def test_a_size_taken_from_the_first_input(lazy: Any, eager: Any, shape: Any, rng: np.random.Generator) -> None:
    x = rng.normal(size=shape).astype(np.float32)
    waiting, ready = lazy(), eager()
    with pytest.raises(UndertowError, match="has no values yet"):
        waiting.state()
    filled = lazy()
    filled.load_state(ready.state())
    y = ready(x).data
    np.testing.assert_array_equal(waiting(x).data, y)
    np.testing.assert_array_equal(filled(x).data, y)
    state, expected = waiting.state(), ready.state()
    assert state.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(state[name], array)


def test_an_optimiser_may_be_made_before_the_first_input(rng: np.random.Generator) -> None:
    net = layers.Sequential(layers.Linear(8, rng=1), ut.tanh, layers.Linear(1, rng=2))
    optimizer = SGD(net, 0.1, momentum=0.9)
    x = rng.normal(size=(20, 3)).astype(np.float32)
    target = x[:, :1] - x[:, 1:2]
    losses = []
    for _ in range(60):
        loss = ut.mean_squared_error(net(x), target)
        optimizer.clear_grads()
        loss.backward()
        optimizer.update()
        losses.append(loss.item())
    assert losses[-1] < 0.05 * losses[0]


def test_first_weights_have_the_variance_their_fans_ask_for() -> None:
    make = {"init": initializers.MSRA(), "rng": 0}
    assert layers.Linear(400, 300, **make).weight.data.var() == pytest.approx(2 / 300, rel=0.05)
    assert layers.Conv2d(64, 3, 32, **make).weight.data.var() == pytest.approx(2 / (32 * 9), rel=0.05)
    # stride 2: every output of the transposed convolution sees a quarter of the window's cells
    spread = layers.Deconv2d(64, 4, 32, stride=2, **make)
    assert spread.weight.data.var() == pytest.approx(2 / (32 * 16 / 4), rel=0.05)
    x = np.random.default_rng(0).normal(size=(1, 32, 20, 20)).astype(np.float32)
    assert spread(x).data[:, :, 5:-5, 5:-5].var() == pytest.approx(2, rel=0.1)


def test_everything_is_float32_by_default() -> None:
    net = layers.Sequential(
        layers.Conv2d(4, 3), layers.BatchNorm(), ut.relu, layers.Flatten(), layers.Dropout(), layers.Linear(2)
    )
    y = net(np.ones((2, 1, 5, 5), np.float32))
    assert y.dtype == np.float32
    assert {p.dtype for p in net.parameters()} == {np.dtype(np.float32)}


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(ShapeError, match="5 output channels cannot be split into 2 groups"):
        layers.Conv2d(5, 3, groups=2)
    with pytest.raises(ShapeError, match="3 input channels cannot be split into 2 groups"):
        layers.Conv2d(4, 3, 3, groups=2)
    with pytest.raises(ShapeError, match=r"channels, 2 spatial dimensions\), got \(3, 4\)"):
        layers.Conv2d(4, 3)(np.zeros((3, 4), np.float32))
    with pytest.raises(ShapeError):
        layers.Linear(2, 3)(np.zeros((1, 4), np.float32))


def test_repr_of_layers() -> None:
    assert repr(layers.LeakyReLU(0.1)) == "LeakyReLU(slope=0.1)"
    assert repr(layers.Activation(ut.tanh)) == "Activation(tanh)"
    assert (
        repr(layers.Conv2d(4, (3, 1), 2, stride=2)) == "Conv2d(2 -> 4, 3x1, stride=2)  weight (4, 2, 3, 1), bias (4,)"
    )
    assert repr(layers.Deconv2d(3, 4, bias=False)) == "Deconv2d(? -> 3, 4x4)  weight waits for its input"
    assert repr(layers.MaxPool2d(2, rule="caffe")) == "MaxPool2d(size=2, rule=caffe)"
    assert repr(layers.Linear(2, 3)) == "Linear(3 -> 2)  weight (2, 3), bias (2,)"
    assert repr(layers.Embedding(7, 2)) == "Embedding(7 rows of 2)  weight (7, 2)"
    assert repr(layers.Dropout(0.5)) == "Dropout(0.5)"
    assert repr(layers.LRN()) == "LRN(5 across, alpha=1.0, beta=0.75, k=1.0)"
    assert repr(layers.GroupNorm(2, 4)) == "GroupNorm(2 groups)  gamma (4,), beta (4,)"
