"""Classifiers written as lists of layers, built with Undertow's layers and with PyTorch's; their training steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

import undertow as ut
from benchmarks.timing import Timed, Timing, interleaved
from undertow import layers
from undertow.core.variable import Operand
from undertow.optimizers import SGD

Part = tuple[Any, ...]
MOMENTUM, DECAY = 0.9, 0.0005


@dataclass(frozen=True)
class Spec:
    """channels, size: of the input pictures. parts: see `ours` and `theirs`, which know the same words."""

    channels: int
    size: int
    classes: int
    rate: float
    parts: list[Part]


class Residual(layers.Module):
    """relu(main(x) + shortcut(x)); an empty shortcut is x itself."""

    def __init__(self, main: layers.Sequential, shortcut: layers.Sequential) -> None:
        self.main, self.shortcut = main, shortcut

    def forward(self, x: Operand) -> ut.Variable:
        return ut.relu(self.main(x) + self.shortcut(x))


def ours(spec: Spec) -> layers.Sequential:
    """The net in Undertow."""
    net = _ours(spec.parts)
    with ut.no_grad():
        net(np.zeros((2, spec.channels, spec.size, spec.size), np.float32))
    return net


def _ours(parts: list[Part]) -> layers.Sequential:
    made: dict[str, Callable[..., Any]] = {
        "conv": lambda filters, size, stride=1, pad=0, groups=1, bias=True: layers.Conv2d(
            filters, size, stride=stride, pad=pad, groups=groups, bias=bias, rng=1
        ),
        "norm": layers.BatchNorm,
        "max": lambda size, stride, pad=0: layers.MaxPool2d(size, stride, pad),
        "average": layers.AvgPool2d,
        "global": layers.GlobalAvgPool2d,
        "flat": layers.Flatten,
        "dense": lambda size: layers.Linear(size, rng=1),
        "relu": layers.ReLU,
        "residual": lambda main, shortcut: Residual(_ours(main), _ours(shortcut)),
    }
    return layers.Sequential(*(made[kind](*options) for kind, *options in parts))


def theirs(spec: Spec, net: layers.Sequential) -> Any:
    """The net in PyTorch, with the same parameters."""
    import torch

    model = _theirs(spec.parts)
    model(torch.zeros(2, spec.channels, spec.size, spec.size))
    with torch.no_grad():
        for to, parameter in zip(model.parameters(), net.parameters(), strict=True):
            to.copy_(torch.from_numpy(parameter.data.copy()))
    return model


def _theirs(parts: list[Part]) -> Any:
    from torch import nn

    from benchmarks.torch_nets import TorchResidual

    made: dict[str, Callable[..., Any]] = {
        "conv": lambda filters, size, stride=1, pad=0, groups=1, bias=True: nn.LazyConv2d(
            filters, size, stride=stride, padding=pad, groups=groups, bias=bias
        ),
        "norm": nn.LazyBatchNorm2d,
        "max": nn.MaxPool2d,
        "average": nn.AvgPool2d,
        "global": lambda: nn.AdaptiveAvgPool2d(1),
        "flat": nn.Flatten,
        "dense": nn.LazyLinear,
        "relu": lambda: nn.ReLU(inplace=True),
        "residual": lambda main, shortcut: TorchResidual(_theirs(main), _theirs(shortcut)),
    }
    return nn.Sequential(*(made[kind](*options) for kind, *options in parts))


def compare(
    spec: Spec, batch: int, threads: int, timing: Timing, *, warmup: int = 3, unplanned: bool = False
) -> dict[str, Timed]:
    """Time steps of both sides; raises AssertionError where losses of the first steps differ."""
    import torch

    ut.set_threads(threads)
    torch.set_num_threads(threads)
    rng = np.random.default_rng(0)
    shape = (batch, spec.channels, spec.size, spec.size)
    batches = [(rng.random(shape, dtype=np.float32), rng.integers(0, spec.classes, batch)) for _ in range(2)]
    net = ours(spec)
    pairs = [(torch.from_numpy(x), torch.from_numpy(t)) for x, t in batches]
    contenders: dict[str, Callable[[], float]] = {}
    for kind, memory in (("contiguous", torch.contiguous_format), ("channels_last", torch.channels_last)):
        model = theirs(spec, net).to(memory_format=memory)
        inputs = [(x.to(memory_format=memory), t) for x, t in pairs]
        contenders[f"torch {kind}"] = torch_step(model, inputs, spec.rate)
    if unplanned:
        contenders["undertow, unplanned"] = our_step(ours(spec), batches, spec.rate, planned=False)
    contenders = {"undertow": our_step(net, batches, spec.rate)} | contenders
    check_same_losses(contenders)
    return interleaved(cast(dict[str, Callable[[], object]], contenders), timing, warmup)


def check_same_losses(contenders: dict[str, Callable[[], float]], steps: int = 3) -> None:
    """Run each so often and hold their losses equal; later ones hold only if the updates are the same, too."""
    losses = {name: [step() for _ in range(steps)] for name, step in contenders.items()}
    expected = next(iter(losses.values()))
    for name, found in losses.items():
        assert np.allclose(found[0], expected[0], rtol=2e-3), f"{name} computes another loss: {losses}"
        assert np.allclose(found, expected, rtol=3e-2), f"{name} updates otherwise: {losses}"


def our_step(
    net: layers.Module, batches: list[tuple[np.ndarray, np.ndarray]], rate: float, planned: bool = True
) -> Callable[[], float]:
    """Forward, loss, backward, update, on the batches in turn."""
    optimizer = SGD(net, rate, MOMENTUM, weight_decay=DECAY)

    def step(x: np.ndarray, t: np.ndarray) -> ut.Variable:
        loss = ut.softmax_cross_entropy(net(ut.Variable(x, requires_grad=False)), t)
        loss.backward()
        return loss

    run = ut.plan(step) if planned else step
    count = iter(range(1 << 60))

    def train() -> float:
        optimizer.clear_grads()
        loss = run(*batches[next(count) % len(batches)])
        optimizer.update()
        return float(loss.data)

    return train


def torch_step(model: Any, batches: list[Any], rate: float) -> Callable[[], float]:
    """The same in PyTorch."""
    import torch
    from torch.nn import functional

    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(trained, rate, MOMENTUM, weight_decay=DECAY)
    count = iter(range(1 << 60))

    def train() -> float:
        x, t = batches[next(count) % len(batches)]
        optimizer.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(model(x), t)
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return train
