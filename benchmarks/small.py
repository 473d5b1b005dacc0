"""Small classifiers written with layers and an optimiser from Python: LeNet on MNIST's size, CIFAR-10 quick."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np

import undertow as ut
from benchmarks.timing import Timed, Timing, interleaved
from undertow import layers
from undertow.functions import softmax_cross_entropy
from undertow.optimizers import SGD

# Per net: input (channels, size), and its layers.
SPECS: dict[str, tuple[int, int, list[tuple[Any, ...]]]] = {
    "lenet": (
        1, 28,
        [
            ("conv", 20, 5, 0), ("max",), ("conv", 50, 5, 0), ("max",), ("flat",), ("dense", 500), ("relu",),
            ("dense", 10),
        ],
    ),
    "cifar-quick": (
        3, 32,
        [
            ("conv", 32, 5, 2), ("max",), ("relu",), ("conv", 32, 5, 2), ("relu",), ("average",), ("conv", 64, 5, 2),
            ("relu",), ("average",), ("flat",), ("dense", 64), ("dense", 10),
        ],
    ),
}  # fmt: skip
RATE, MOMENTUM, DECAY = 0.01, 0.9, 0.0005


def ours(name: str) -> layers.Sequential:
    """The net in Undertow."""
    made: dict[str, Callable[..., Any]] = {
        "conv": lambda filters, size, pad: layers.Conv2d(filters, size, pad=pad, rng=1),
        "max": lambda: layers.MaxPool2d(2),
        "average": lambda: layers.AvgPool2d(2),
        "flat": layers.Flatten,
        "dense": lambda size: layers.Linear(size, rng=1),
        "relu": layers.ReLU,
    }
    channels, size, parts = SPECS[name]
    net = layers.Sequential(*(made[kind](*options) for kind, *options in parts))
    with ut.no_grad():
        net(np.zeros((1, channels, size, size), np.float32))
    return net


def theirs(name: str, net: layers.Sequential) -> Any:
    """The net in PyTorch, with the same parameters."""
    import torch
    from torch import nn

    made: dict[str, Callable[..., Any]] = {
        "conv": lambda filters, size, pad: nn.LazyConv2d(filters, size, padding=pad),
        "max": lambda: nn.MaxPool2d(2),
        "average": lambda: nn.AvgPool2d(2),
        "flat": nn.Flatten,
        "dense": nn.LazyLinear,
        "relu": nn.ReLU,
    }
    channels, size, parts = SPECS[name]
    model = nn.Sequential(*(made[kind](*options) for kind, *options in parts))
    model(torch.zeros(1, channels, size, size))
    with torch.no_grad():
        for to, parameter in zip(model.parameters(), net.parameters(), strict=True):
            to.copy_(torch.from_numpy(parameter.data.copy()))
    return model


def compare(name: str, batch: int, threads: int, timing: Timing) -> dict[str, Timed]:
    """Time planned and unplanned steps and PyTorch; raises AssertionError where the first losses differ."""
    import torch

    ut.set_threads(threads)
    torch.set_num_threads(threads)
    rng = np.random.default_rng(0)
    channels, size, _ = SPECS[name]
    batches = [
        (rng.random((batch, channels, size, size), dtype=np.float32), rng.integers(0, 10, batch)) for _ in range(2)
    ]
    contenders: dict[str, Callable[[], object]] = {
        "undertow": _our_step(ours(name), batches, planned=True),
        "undertow, unplanned": _our_step(ours(name), batches, planned=False),
    }
    pairs = [(torch.from_numpy(x), torch.from_numpy(t)) for x, t in batches]
    for kind, memory in (("contiguous", torch.contiguous_format), ("channels_last", torch.channels_last)):
        contenders[f"torch {kind}"] = _torch_step(theirs(name, ours(name)).to(memory_format=memory), pairs, memory)
    firsts = {kind: float(cast(Any, step())) for kind, step in contenders.items()}
    assert max(firsts.values()) - min(firsts.values()) < 1e-3, firsts
    return interleaved(contenders, timing.rounds, timing.clock, warmup=5)


def _our_step(
    net: layers.Sequential, batches: list[tuple[np.ndarray, np.ndarray]], planned: bool
) -> Callable[[], float]:
    optimizer = SGD(net, RATE, MOMENTUM, weight_decay=DECAY)

    def step(x: np.ndarray, t: np.ndarray) -> ut.Variable:
        loss = softmax_cross_entropy(net(ut.Variable(x, requires_grad=False)), t)
        loss.backward()
        return loss

    run = ut.plan(step) if planned else step
    count = iter(range(1 << 60))

    def train() -> float:
        optimizer.clear_grads()
        loss = run(*batches[next(count) % 2])
        optimizer.update()
        return float(loss.data)

    return train


def _torch_step(model: Any, batches: list[Any], memory: Any) -> Callable[[], float]:
    import torch
    from torch.nn import functional

    optimizer = torch.optim.SGD(model.parameters(), RATE, MOMENTUM, weight_decay=DECAY)
    count = iter(range(1 << 60))

    def train() -> float:
        x, t = batches[next(count) % 2]
        optimizer.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(model(x.to(memory_format=memory)), t)
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return train
