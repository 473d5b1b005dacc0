"""Recurrent networks over sequences: against their own cells, against PyTorch, and through a long time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow.core import Variable
from undertow.errors import ShapeError

Array = np.ndarray[Any, Any]
STEPS, BATCH, INPUTS, HIDDEN = 6, 3, 4, 5


def variables(rng: np.random.Generator, parts: int, states: int, biases: int) -> list[Variable]:
    shapes: list[tuple[int, ...]] = [(STEPS, BATCH, INPUTS), *[(BATCH, HIDDEN)] * states]
    shapes += [(parts * HIDDEN, INPUTS), (parts * HIDDEN, HIDDEN), *[(parts * HIDDEN,)] * biases]
    return [Variable(rng.standard_normal(shape)) for shape in shapes]


def gradients(y: Variable, seed: Array, inputs: list[Variable]) -> list[Array]:
    return [g.data for g in ut.grad(y, inputs, seed)]


def test_lstm_is_its_cell_step_by_step(rng: np.random.Generator) -> None:
    inputs = variables(rng, 4, 2, 1)
    x, h, c, w_x, w_h, b = inputs
    y, last = ut.lstm(*inputs)
    outputs = []
    for t in range(STEPS):
        h, c = ut.lstm_cell(x[t], h, c, w_x, w_h, b)
        outputs.append(h)
    stacked = ut.stack(outputs)
    np.testing.assert_allclose(y.data, stacked.data, rtol=1e-12)
    np.testing.assert_allclose(last.data, c.data, rtol=1e-12)
    seeds = [rng.standard_normal(y.shape), rng.standard_normal(c.shape)]
    fused, plain = ut.grad([y, last], inputs, seeds), ut.grad([stacked, c], inputs, seeds)
    for f, p in zip(fused, plain, strict=True):
        np.testing.assert_allclose(f.data, p.data, rtol=1e-9, atol=1e-12)


def test_gru_and_rnn_are_their_cells_step_by_step(rng: np.random.Generator) -> None:
    for whole, cell, inputs in (
        (ut.gru, ut.gru_cell, variables(rng, 3, 1, 2)),
        (ut.rnn, ut.rnn_cell, variables(rng, 1, 1, 1)),
    ):
        x, h, *weights = inputs
        outputs = []
        for t in range(STEPS):
            h = cell(x[t], h, *weights)
            outputs.append(h)
        y, stacked = whole(*inputs), ut.stack(outputs)
        np.testing.assert_allclose(y.data, stacked.data, rtol=1e-12)
        seed = rng.standard_normal(y.shape)
        for f, p in zip(gradients(y, seed, inputs), gradients(stacked, seed, inputs), strict=True):
            np.testing.assert_allclose(f, p, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", ["rnn", "relu", "lstm", "gru"])
def test_against_pytorch(kind: str, rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    parts = {"rnn": 1, "relu": 1, "lstm": 4, "gru": 3}[kind]
    inputs = variables(rng, parts, 2 if kind == "lstm" else 1, 2 if kind == "gru" else 1)
    options = {"nonlinearity": "relu"} if kind == "relu" else {}
    module = {"rnn": torch.nn.RNN, "relu": torch.nn.RNN, "lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[kind]
    net = module(INPUTS, HIDDEN, dtype=torch.float64, **options)
    biases = inputs[-2:] if kind == "gru" else [inputs[-1], None]
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    weights = inputs[2 if kind != "lstm" else 3 :][:2]
    with torch.no_grad():
        for name, value in zip(names, [*weights, *biases], strict=True):
            getattr(net, name).copy_(torch.zeros(()) if value is None else torch.tensor(value.data))
    x, *states = [torch.tensor(v.data, requires_grad=True) for v in inputs[: 3 if kind == "lstm" else 2]]
    expected, _ = net(x, tuple(s[None] for s in states) if kind == "lstm" else states[0][None])
    run = {"rnn": ut.rnn, "relu": lambda *a: ut.rnn(*a, "relu"), "lstm": lambda *a: ut.lstm(*a)[0], "gru": ut.gru}
    y = run[kind](*inputs)
    np.testing.assert_allclose(y.data, expected.detach().numpy(), rtol=1e-10)
    seed = rng.standard_normal(y.shape)
    expected.backward(torch.tensor(seed))
    wanted = [x.grad, *(s.grad for s in states), net.weight_ih_l0.grad, net.weight_hh_l0.grad, net.bias_ih_l0.grad]
    if kind == "gru":
        wanted.append(net.bias_hh_l0.grad)
    for g, w in zip(gradients(y, seed, inputs), wanted, strict=True):
        np.testing.assert_allclose(g, w.numpy(), rtol=1e-8, atol=1e-11)


def test_states_and_biases_left_out_are_zero(rng: np.random.Generator) -> None:
    x, h, _, w_x, w_h, b = variables(rng, 4, 2, 1)
    zero = np.zeros_like(h.data)
    np.testing.assert_array_equal(
        ut.lstm(x, None, None, w_x, w_h)[0].data, ut.lstm(x, zero, zero, w_x, w_h, np.zeros(b.shape))[0].data
    )
    x, h, w_x, w_h, b, _ = variables(rng, 3, 1, 2)
    np.testing.assert_array_equal(
        ut.gru(x, None, w_x, w_h).data, ut.gru(x, zero, w_x, w_h, np.zeros(b.shape), np.zeros(b.shape)).data
    )


def test_a_sequence_in_two_pieces_is_the_whole(rng: np.random.Generator) -> None:
    """State and cell carried over: the gradient flows through the seam."""
    inputs = variables(rng, 4, 2, 1)
    x, h, c, *weights = inputs
    y, _ = ut.lstm(*inputs)
    first, cell = ut.lstm(x[:2], h, c, *weights)
    second, _ = ut.lstm(x[2:], first[-1], cell, *weights)
    np.testing.assert_allclose(second.data, y.data[2:], rtol=1e-12)
    seed = np.zeros(y.shape)
    seed[2:] = rng.standard_normal(second.shape)
    for f, p in zip(gradients(y, seed, inputs), gradients(second, seed[2:], inputs), strict=True):
        np.testing.assert_allclose(f, p, rtol=1e-9, atol=1e-12)


def test_gates_pushed_far_stay_finite() -> None:
    x = Variable(np.full((3, 1, 1), 1e4, np.float32))
    w = np.array([[1.0], [-1], [1], [-1]], np.float32)
    y, c = ut.lstm(x, None, None, w, np.zeros_like(w))
    assert np.isfinite(y.data).all()
    assert c.data == 1
    (gx,) = gradients(y, np.ones(y.shape, np.float32), [x])
    np.testing.assert_array_equal(gx, 0)


def test_float32_stays(rng: np.random.Generator) -> None:
    for run, parts, states in ((ut.lstm, 4, 2), (ut.gru, 3, 1), (ut.rnn, 1, 1)):
        inputs = [Variable(v.data.astype(np.float32)) for v in variables(rng, parts, states, 1)]
        y = run(*inputs)
        y = y[0] if isinstance(y, tuple) else y
        assert y.dtype == np.float32
        assert all(g.dtype == np.float32 for g in gradients(y, np.ones(y.shape, np.float32), inputs))


@pytest.mark.parametrize(
    "change", [{0: (3, 4)}, {0: (0, 3, 4)}, {1: (2, 5)}, {3: (20, 3)}, {4: (20, 4)}, {5: (5,)}], ids=str
)
def test_what_does_not_fit_is_refused(change: dict[int, tuple[int, ...]], rng: np.random.Generator) -> None:
    arrays = [v.data for v in variables(rng, 4, 2, 1)]
    for position, shape in change.items():
        arrays[position] = np.zeros(shape)
    with pytest.raises(ShapeError, match="Lstm needs a sequence"):
        ut.lstm(*arrays)


def test_unknown_activation(rng: np.random.Generator) -> None:
    with pytest.raises(ValueError, match="'tanh' or 'relu'"):
        ut.rnn(*variables(rng, 1, 1, 1), "sigmoid")  # type: ignore[arg-type]
