"""RNN, LSTM and GRU against PyTorch; state that is kept, cut, reset; sequences in pieces."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow.errors import ShapeError
from undertow.layers import GRU, LSTM, RNN, Linear
from undertow.layers.recurrent import Recurrent
from undertow.optimizers import Adam

KINDS: dict[str, type[Recurrent]] = {"RNN": RNN, "LSTM": LSTM, "GRU": GRU}


def share(layer: Recurrent, peer: Any, torch: Any) -> None:
    """Give a PyTorch module our parameters; it has two biases where RNN and LSTM have one."""
    values = {name: torch.tensor(p.data) for name, p in layer.named_parameters()}
    with torch.no_grad():
        peer.weight_ih_l0.copy_(values["weight_x"])
        peer.weight_hh_l0.copy_(values["weight_h"])
        peer.bias_ih_l0.copy_(values["bias_x"] if "bias_x" in values else values["bias"])
        peer.bias_hh_l0.copy_(values["bias_h"] if "bias_h" in values else torch.zeros_like(values["bias"]))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_values_and_gradients_of_pytorch(kind: str, rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    layer = KINDS[kind](3, 2, rng=0).to_dtype(np.float64)
    for parameter in layer.parameters():
        parameter.data[...] = rng.normal(size=parameter.shape)
    peer = getattr(torch.nn, kind)(2, 3).double()
    share(layer, peer, torch)
    x, weights = rng.normal(size=(4, 5, 2)), rng.normal(size=(4, 5, 3))
    y, (expected, _) = layer(x), peer(torch.tensor(x))
    np.testing.assert_allclose(y.data, expected.detach().numpy(), rtol=1e-10)
    (y * weights).sum().backward()
    (expected * torch.tensor(weights)).sum().backward()
    np.testing.assert_allclose(layer.weight_x.grad, peer.weight_ih_l0.grad.numpy(), rtol=1e-9)
    np.testing.assert_allclose(layer.weight_h.grad, peer.weight_hh_l0.grad.numpy(), rtol=1e-9)
    if isinstance(layer, GRU):
        np.testing.assert_allclose(layer.bias_h.grad, peer.bias_hh_l0.grad.numpy(), rtol=1e-9)
    else:
        np.testing.assert_allclose(layer.bias.grad, peer.bias_ih_l0.grad.numpy(), rtol=1e-9)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_sequence_in_pieces_or_step_by_step_is_the_same_sequence(kind: str, rng: np.random.Generator) -> None:
    x = rng.normal(size=(6, 2, 3))
    layer = KINDS[kind](4, rng=0).to_dtype(np.float64)
    whole = layer(x)
    whole.sum().backward()
    gradient = layer.weight_h.grad
    layer.clear_grads()
    layer.reset_state()
    pieces = [layer(x[:2]), layer(x[2:5]), layer(x[5])]
    assert pieces[2].shape == (2, 4)
    joined = np.concatenate([pieces[0].data, pieces[1].data, pieces[2].data[None]])
    np.testing.assert_allclose(joined, whole.data, rtol=1e-12)
    (pieces[0].sum() + pieces[1].sum() + pieces[2].sum()).backward()
    np.testing.assert_allclose(layer.weight_h.grad, gradient, rtol=1e-10)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_unchain_keeps_the_values_and_ends_the_way_back(kind: str, rng: np.random.Generator) -> None:
    layer = KINDS[kind](4, 3, rng=0)
    first = ut.Variable(rng.normal(size=(2, 2, 3)).astype(np.float32))
    second = rng.normal(size=(2, 2, 3)).astype(np.float32)
    layer(first)
    state = layer.h.data
    layer.unchain()
    np.testing.assert_array_equal(layer.h.data, state)
    assert layer.h.creator is None
    y = layer(second)
    y.sum().backward()
    assert first.grad is None
    layer.reset_state()
    assert not np.allclose(layer(second).data, y.data)


def test_first_parameters() -> None:
    lstm = LSTM(5, 4, rng=0)
    np.testing.assert_array_equal(lstm.bias.data.reshape(4, 5).sum(1), [0, 5, 0, 0])
    assert lstm.weight_x.shape == (20, 4)
    assert not LSTM(5, forget_bias=0.0).bias.data.any()
    wide = GRU(300, 200, rng=0)
    assert wide.weight_x.data.var() == pytest.approx(1 / 200, rel=0.05)
    assert wide.weight_h.data.var() == pytest.approx(1 / 300, rel=0.05)
    np.testing.assert_array_equal(GRU(3, 2, rng=7).weight_h.data, GRU(3, 2, rng=7).weight_h.data)


def test_relu_and_names() -> None:
    layer = RNN(3, 2, activation="relu", rng=0)
    assert layer(np.ones((5, 1, 2), np.float32)).data.min() >= 0
    assert [name for name, _ in layer.named_parameters()] == ["weight_x", "weight_h", "bias"]
    assert repr(RNN(3)) == "RNN(? -> 3)  weight_x waits for its input, weight_h waits for its input, bias (3,)"
    assert repr(GRU(1, 2)) == "GRU(2 -> 1)  weight_x (3, 2), weight_h (3, 1), bias_x (3,), bias_h (3,)"


def test_wrong_inputs_are_refused() -> None:
    layer = GRU(3, 2)
    layer(np.zeros((4, 5, 2), np.float32))
    with pytest.raises(ShapeError, match=r"has 5 sequences, the input 4.*reset_state"):
        layer(np.zeros((4, 4, 2), np.float32))
    with pytest.raises(ShapeError, match=r"takes \(steps, batch, in_size\) or"):
        layer(np.zeros(2, np.float32))


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_it_learns_to_remember_the_first_value(kind: str) -> None:
    rng = np.random.default_rng(3)
    layer, head = KINDS[kind](12, 1, rng=rng), Linear(1, 12, rng=rng)
    parameters = {**dict(layer.named_parameters()), "head": head.weight, "head bias": head.bias}
    optimizer = Adam(parameters, 0.02)
    for _ in range(200):
        x = rng.choice([-1.0, 1.0], (8, 32, 1)).astype(np.float32)
        layer.reset_state()
        loss = ut.mean_squared_error(head(layer(x)[-1]), x[0])
        optimizer.clear_grads()
        loss.backward()
        optimizer.update()
    assert loss.item() < 0.05
