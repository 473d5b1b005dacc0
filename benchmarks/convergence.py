"""Whole trainings of a detector from the same pictures and schedule: with each precision, and in PyTorch.

All sides see the same samples in the same order, start from the same parameters, and follow the cfg's rates. What they
learned is measured on valid= once, at the end, by the same code.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

import undertow as ut
from undertow.core.modes import precision
from undertow.darknet.files.datafile import read_data
from undertow.darknet.layers.yolo_assignment import assign
from undertow.darknet.learning.trainer import Trainer, TrainOptions
from undertow.darknet.network import Network
from undertow.darknet.runs import training, validation_set

SIDES = ("fast", "precise", "reference", "torch")


@dataclass(frozen=True)
class Learned:
    """seconds: of training, with loading, without the measurement. loss: the average that Darknet prints."""

    side: str
    iterations: int
    seconds: float
    loss: float
    mean_average_precision: float

    def line(self) -> str:
        return (
            f"{self.side:10} {self.iterations} iterations in {self.seconds:.0f} s, average loss {self.loss:.2f}, "
            f"mAP@0.5 {self.mean_average_precision:.4f}"
        )


def learn(side: str, data: Path, cfg: Path, weights: Path | None, seed: int, threads: int) -> Learned:
    """Train up to max_batches and measure. The weights go to a folder that is removed."""
    ut.set_threads(threads)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "run.data"
        lines = [line for line in data.read_text().splitlines() if not line.replace(" ", "").startswith("backup=")]
        source.write_text("\n".join([*lines, f"backup={folder}", ""]))
        trainer = training(source, cfg, weights, TrainOptions(seed=seed))
        theirs = TorchSide(trainer, threads) if side == "torch" else None
        if theirs is not None:
            trainer.step = theirs.step
        start = time.perf_counter()
        with precision("fast" if theirs is not None else cast(Any, side)):
            result = trainer.run()
            seconds = time.perf_counter() - start
            if theirs is not None:
                theirs.give_back()
            found = validation_set(read_data(source), trainer.net).measure(trainer.net)
    return Learned(side, result.iteration, seconds, float(result.average or 0), found.mean_average_precision)


class TorchSide:
    """The same passes in PyTorch: its own forward and backward, truths assigned to its own outputs."""

    def __init__(self, trainer: Trainer, threads: int) -> None:
        import torch

        from benchmarks.torch_nets import TorchTrainer

        torch.set_num_threads(threads)
        self.net = trainer.net
        self.rules = _rules(trainer.net)
        self.trainer = TorchTrainer(trainer.net, torch.channels_last)

    def step(self, net: Network, images: np.ndarray, truth: np.ndarray) -> float:
        """One pass; the cost as Darknet counts it, the mean over the heads of their squared deltas' sums."""
        import torch

        from benchmarks.torch_nets import Targets

        model, optimizer = self.trainer.model, self.trainer.optimizer
        net.seen += net.batch
        heads = model(torch.from_numpy(images).to(memory_format=self.trainer.format))
        parts, cost = [], 0.0
        for head, rule in zip(heads, self.rules, strict=True):
            raw = head.detach().contiguous().numpy()
            raw = raw.reshape(len(raw), len(rule.mask), 5 + rule.classes, *raw.shape[2:])
            output = 1 / (1 + np.exp(-raw))
            output[:, :, 2:4] = raw[:, :, 2:4]
            found = assign(output, truth.astype(np.float32), rule)
            parts.append((torch.from_numpy(found.target), torch.from_numpy(found.weight)))
            cost += float(np.sum(np.square(found.delta()), dtype=np.float64))
        Targets.of(parts).loss(heads).backward()
        if (net.seen // net.batch) % net.subdivisions == 0:
            for group in optimizer.param_groups:
                group["lr"] = net.learning_rate / (net.batch * net.subdivisions)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            net.updates_done += 1
        return cost / len(heads)

    def give_back(self) -> None:
        """PyTorch's parameters to the network, to be measured there."""
        for layer, block in zip(self.net.layers, self.trainer.model.blocks, strict=True):
            if layer.type == "convolutional":
                for to, values in _pairs(cast(Any, layer), block):
                    to[...] = values.detach().numpy()


def _pairs(layer: Any, block: Any) -> Iterator[tuple[np.ndarray, Any]]:
    yield layer.weights, block[0].weight
    if layer.batch_normalize:
        norm = block[1]
        yield from ((layer.scales, norm.weight), (layer.biases, norm.bias))
        yield from ((layer.rolling_mean, norm.running_mean), (layer.rolling_variance, norm.running_var))
    else:
        yield layer.biases, block[0].bias


def _rules(net: Network) -> list[Any]:
    """Those of the yolo layers, which exist once a truth has been seen: by another network of this cfg."""
    other = Network(net.config)
    images = np.zeros((net.batch, net.c, net.h, net.w), np.float32)
    with ut.no_grad():
        other.forward(images, np.zeros((net.batch, net.truths), np.float32))
    return [cast(Any, layer)._function.rule for layer in other.layers if layer.type == "yolo"]


def compare(
    sides: list[str], data: Path, cfg: Path, weights: Path | None, seed: int, threads: int, say: Callable[[str], None]
) -> list[Learned]:
    """Each side in turn; say is told each result."""
    found = []
    for side in sides:
        found.append(learn(side, data, cfg, weights, seed, threads))
        say(found[-1].line())
    return found
