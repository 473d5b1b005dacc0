"""A training step of an LSTM: hidden size 256, 50 time steps, batch 32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import undertow as ut
from benchmarks.layered import check_same_losses, our_step, torch_step
from benchmarks.timing import Timed, Timing, interleaved
from undertow import layers
from undertow.core.variable import Operand

RATE = 0.05


class Model(layers.Module):
    """An LSTM, from zeros, and a dense layer on its last output. x: (steps, batch, in_size)."""

    def __init__(self, hidden: int, in_size: int, classes: int) -> None:
        self.lstm = layers.LSTM(hidden, in_size, rng=1)
        self.dense = layers.Linear(classes, hidden, rng=2)

    def forward(self, x: Operand) -> ut.Variable:
        self.lstm.reset_state()
        return self.dense(self.lstm(x)[-1])


def _theirs(net: Model) -> Any:
    """PyTorch's has two biases that are added; only the first learns here."""
    import torch

    from benchmarks.torch_nets import TorchLSTM

    hidden, in_size, classes = net.lstm.hidden, net.lstm.weight_x.shape[1], net.dense.weight.shape[0]
    model = TorchLSTM(hidden, in_size, classes)
    ours = (net.lstm.weight_x, net.lstm.weight_h, net.lstm.bias, net.dense.weight, net.dense.bias)
    lstm: Any = model.lstm
    to = (lstm.weight_ih_l0, lstm.weight_hh_l0, lstm.bias_ih_l0, model.dense.weight, model.dense.bias)
    with torch.no_grad():
        for target, source in zip(to, ours, strict=True):
            assert source is not None
            target.copy_(torch.from_numpy(source.data.copy()))
        lstm.bias_hh_l0.zero_()
    lstm.bias_hh_l0.requires_grad_(False)
    return model


def compare(
    threads: int, timing: Timing, hidden: int = 256, steps: int = 50, batch: int = 32, classes: int = 10
) -> dict[str, Timed]:
    """Time both sides; raises AssertionError where losses of the first steps differ."""
    import torch

    ut.set_threads(threads)
    torch.set_num_threads(threads)
    rng = np.random.default_rng(0)
    shape = (steps, batch, hidden)
    batches = [(rng.random(shape, dtype=np.float32), rng.integers(0, classes, batch)) for _ in range(2)]
    contenders: dict[str, Callable[[], float]] = {
        "undertow": our_step(Model(hidden, hidden, classes), batches, RATE),
        "torch": torch_step(
            _theirs(Model(hidden, hidden, classes)),
            [(torch.from_numpy(x), torch.from_numpy(t)) for x, t in batches],
            RATE,
        ),
    }
    check_same_losses(contenders)
    return interleaved(dict(contenders), timing)
