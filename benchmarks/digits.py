"""LeNet trained on MNIST by Caffe's solver and by PyTorch: same start, same batches, same rates."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import undertow as ut
from benchmarks.layered import DECAY, MOMENTUM, ours, theirs
from benchmarks.solver import lenet
from benchmarks.specs import SPECS
from undertow.caffe.solver import Solver
from undertow.data import read_idx

Array = np.ndarray[Any, Any]
Digits = tuple[Array, Array]
BATCH, GAMMA, POWER = 64, 0.0001, 0.75


@dataclass(frozen=True)
class Learned:
    """seconds: of the iterations, without the measurement. accuracy: on the test set, after the last of them."""

    side: str
    iterations: int
    seconds: float
    accuracy: float

    def line(self) -> str:
        return f"{self.side:10} {self.iterations} iterations in {self.seconds:.1f} s, accuracy {self.accuracy:.4f}"


def read(folder: Path, name: str) -> Digits:
    """ "train" or "t10k": pictures (n, 1, 28, 28) from 0 to 1, and labels."""
    pictures = read_idx(folder / f"{name}-images-idx3-ubyte.gz")
    return pictures[:, None].astype(np.float32) / 256, read_idx(folder / f"{name}-labels-idx1-ubyte.gz").astype(
        np.int64
    )


def batches(digits: Digits) -> Iterator[Digits]:
    """One after the other, in the order of the file, again and again, as a database gives them."""
    pictures, labels = digits
    at = 0
    while True:
        rows = np.arange(at, at + BATCH) % len(labels)
        yield pictures[rows], labels[rows]
        at = (at + BATCH) % len(labels)


def compare(folder: Path, iterations: int, threads: int, say: Callable[[str], None]) -> list[Learned]:
    """Train both sides, one after the other; say is told each result."""
    train, test = read(folder, "train"), read(folder, "t10k")
    import torch

    ut.set_threads(threads)
    torch.set_num_threads(threads)
    net = ours(SPECS["lenet"])
    model = theirs(SPECS["lenet"], net)
    found = []
    for side in ("undertow", "torch"):
        seconds = by_solver(net, train, iterations) if side == "undertow" else by_torch(model, net, train, iterations)
        found.append(Learned(side, iterations, seconds, accuracy(net, test)))
        say(found[-1].line())
    return found


def by_solver(net: Any, train: Digits, iterations: int) -> float:
    """Seconds of so many iterations; the net of layers then has what was learned."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "net.prototxt").write_text(lenet(BATCH))
        (folder / "solver.prototxt").write_text(
            f'net: "{folder / "net.prototxt"}" base_lr: {SPECS["lenet"].rate} lr_policy: "inv" gamma: {GAMMA} '
            f"power: {POWER} momentum: {MOMENTUM} weight_decay: {DECAY} max_iter: {iterations} "
            f'snapshot_prefix: "{folder / "lenet"}"'
        )
        solver = Solver(folder / "solver.prototxt")
    pairs = list(zip(solver.net.learnable_params, net.parameters(), strict=True))
    for blob, parameter in pairs:
        blob.data[...] = parameter.data
    data, label, source = solver.net.blobs["data"], solver.net.blobs["label"], batches(train)
    begin = time.perf_counter()
    for _ in range(iterations):
        data.data[...], label.data[...] = next(source)
        solver.step(1)
    seconds = time.perf_counter() - begin
    for blob, parameter in pairs:
        parameter.data[...] = blob.data
    return seconds


def by_torch(model: Any, net: Any, train: Digits, iterations: int) -> float:
    """The same in PyTorch, in its better memory format for this model."""
    import torch
    from torch.nn import functional

    model = model.to(memory_format=torch.channels_last)
    rate, source = SPECS["lenet"].rate, batches(train)
    optimizer = torch.optim.SGD(model.parameters(), rate, MOMENTUM, weight_decay=DECAY)
    begin = time.perf_counter()
    for iteration in range(iterations):
        x, t = (torch.from_numpy(part) for part in next(source))
        optimizer.param_groups[0]["lr"] = rate * (1 + GAMMA * iteration) ** -POWER
        optimizer.zero_grad(set_to_none=True)
        functional.cross_entropy(model(x.to(memory_format=torch.channels_last)), t).backward()
        optimizer.step()
    seconds = time.perf_counter() - begin
    for values, parameter in zip(model.parameters(), net.parameters(), strict=True):
        parameter.data[...] = values.detach().numpy()
    return seconds


def accuracy(net: Any, test: Digits) -> float:
    """The share of the test set that a net of layers gets right."""
    right = 0
    with ut.no_grad():
        for at in range(0, len(test[1]), 500):
            scores = net(test[0][at : at + 500]).data
            right += int((scores.argmax(1) == test[1][at : at + 500]).sum())
    return right / len(test[1])
