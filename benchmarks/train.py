"""Whole training steps: forward, loss, backward, update."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import undertow as ut
from benchmarks.nets import config_of
from benchmarks.timing import Timed, Timing, interleaved
from undertow.darknet.network import Network
from undertow.errors import UndertowError

Batch = tuple[np.ndarray, np.ndarray]


def make_net(name: str, batch: int, size: int) -> Network:
    """The network, as the trainer runs it."""
    net = Network(config_of(name, batch, size))
    net.keep_deltas = False
    return net


def make_batch(net: Network, seed: int) -> Batch:
    """Random pictures with five boxes each, of the classes that the net's yolo layers know, or a class each."""
    rng = np.random.default_rng(seed)
    layers: list[Any] = list(net.layers)
    known = [layer.classes for layer in layers if layer.type == "yolo"]
    if not known and layers[-1].type != "softmax":
        raise UndertowError(
            f"{net.config.file}: the benchmarks make no truth for a net that ends in [{layers[-1].type}]",
            remedy="give a net with [yolo] layers, or one that ends in [softmax]",
        )
    truth = np.zeros((net.batch, net.truths), np.float32)
    for row in truth:
        if not known:
            row[rng.integers(net.truths)] = 1
            continue
        for k in range(5):
            row[5 * k : 5 * k + 5] = (*rng.uniform(0.2, 0.8, 2), *rng.uniform(0.1, 0.4, 2), rng.integers(min(known)))
    return rng.random((net.batch, net.c, net.h, net.w), dtype=np.float32), truth


def our_step(net: Network) -> Callable[[], float]:
    """Steps on two batches in turn."""
    batches = [make_batch(net, seed) for seed in (0, 1)]
    count = iter(range(1 << 60))
    return lambda: net.train_datum(*batches[next(count) % 2])


def torch_step(net: Network, kind: str, threads: int) -> tuple[Callable[[], float], float]:
    """PyTorch's steps from the same parameters, and the loss of the first batch before any update."""
    import torch

    from benchmarks.torch_nets import ClassTargets, Targets, TorchTrainer

    torch.set_num_threads(threads)
    memory = torch.channels_last if "channels_last" in kind else torch.contiguous_format
    pairs: list[tuple[torch.Tensor, Targets | ClassTargets]] = []
    trainer = TorchTrainer(net, memory, compiled="compile" in kind)
    for seed in (0, 1):
        images, truth = make_batch(net, seed)
        with ut.no_grad():
            net.forward(images, truth)
        targets = ClassTargets(truth) if net.layers[-1].type == "softmax" else Targets(net)
        pairs.append((torch.from_numpy(images), targets))
    net.release()
    with torch.no_grad():
        first = float(pairs[0][1].loss(trainer.model(pairs[0][0].to(memory_format=memory))))
    count = iter(range(1 << 60))
    return lambda: trainer.step(*pairs[next(count) % 2]), first


def compare(name: str, batch: int, size: int, threads: int, kinds: list[str], timing: Timing) -> dict[str, Timed]:
    """Time both sides; raises AssertionError where their losses differ."""
    ut.set_threads(threads)
    contenders: dict[str, Callable[[], object]] = {}
    firsts = {}
    source = make_net(name, batch, size)
    with ut.no_grad():
        source.forward(*make_batch(source, 0))
    expected = 0.0 if source.loss is None else float(source.loss.data)
    for kind in kinds:
        contenders[kind], firsts[kind] = torch_step(make_net(name, batch, size), kind, threads)
    for kind, loss in firsts.items():  # Darknet's variance divides by n - 1: not quite the same net
        assert abs(loss - expected) < 5e-3 * expected, f"{kind} computes another loss: {loss}, not {expected}"
    contenders = {"undertow": our_step(make_net(name, batch, size))} | contenders
    return interleaved(contenders, timing)
