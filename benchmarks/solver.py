"""LeNet through Caffe's solver, iteration by iteration, against PyTorch with the same parameters and batches."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np

import undertow as ut
from benchmarks.layered import DECAY, MOMENTUM, check_same_losses, ours, theirs, torch_step
from benchmarks.specs import SPECS
from benchmarks.timing import Timed, Timing, interleaved
from undertow.caffe.solver import Solver


def _layer(name: str, kind: str, bottom: str, top: str, options: str = "") -> str:
    bottoms = " ".join(f'bottom: "{word}"' for word in bottom.split())
    return f'layer {{ name: "{name}" type: "{kind}" {bottoms} top: "{top}" {options} }}'


def lenet(batch: int) -> str:
    """The net of Caffe's examples, fed from outside."""
    pool = "pooling_param { pool: MAX kernel_size: 2 stride: 2 }"
    return "\n".join([
        f'layer {{ name: "data" type: "Input" top: "data" top: "label" input_param {{ '
        f"shape {{ dim: {batch} dim: 1 dim: 28 dim: 28 }} shape {{ dim: {batch} }} }} }}",
        _layer("conv1", "Convolution", "data", "conv1", "convolution_param { num_output: 20 kernel_size: 5 }"),
        _layer("pool1", "Pooling", "conv1", "pool1", pool),
        _layer("conv2", "Convolution", "pool1", "conv2", "convolution_param { num_output: 50 kernel_size: 5 }"),
        _layer("pool2", "Pooling", "conv2", "pool2", pool),
        _layer("ip1", "InnerProduct", "pool2", "ip1", "inner_product_param { num_output: 500 }"),
        _layer("relu1", "ReLU", "ip1", "ip1"),
        _layer("ip2", "InnerProduct", "ip1", "ip2", "inner_product_param { num_output: 10 }"),
        _layer("loss", "SoftmaxWithLoss", "ip2 label", "loss"),
    ])  # fmt: skip


def make_solver(folder: Path, batch: int, rate: float) -> Solver:
    """With the rate, momentum and decay of the other side; it writes and prints nothing."""
    net, solver = folder / "net.prototxt", folder / "solver.prototxt"
    net.write_text(lenet(batch))
    solver.write_text(
        f'net: "{net}" base_lr: {rate} lr_policy: "fixed" momentum: {MOMENTUM} weight_decay: {DECAY} '
        f'max_iter: 1000000 snapshot_prefix: "{folder / "lenet"}"'
    )
    return Solver(solver)


def compare(batch: int, threads: int, timing: Timing) -> dict[str, Timed]:
    """Time iterations of both sides; raises AssertionError where losses of the first ones differ."""
    import torch

    ut.set_threads(threads)
    torch.set_num_threads(threads)
    spec = SPECS["lenet"]
    rng = np.random.default_rng(0)
    batches = [
        (rng.random((batch, 1, 28, 28), dtype=np.float32), rng.integers(0, spec.classes, batch)) for _ in range(2)
    ]
    net = ours(spec)
    pairs = [(torch.from_numpy(x), torch.from_numpy(t)) for x, t in batches]
    contenders: dict[str, Callable[[], float]] = {}
    for kind, memory in (("contiguous", torch.contiguous_format), ("channels_last", torch.channels_last)):
        inputs = [(x.to(memory_format=memory), t) for x, t in pairs]
        contenders[f"torch {kind}"] = torch_step(theirs(spec, net).to(memory_format=memory), inputs, spec.rate)
    with tempfile.TemporaryDirectory() as folder:
        solver = make_solver(Path(folder), batch, spec.rate)
        for blob, parameter in zip(solver.net.learnable_params, net.parameters(), strict=True):
            blob.data[...] = parameter.data
        contenders = {"undertow": solver_step(solver, batches)} | contenders
        check_same_losses(contenders)
        return interleaved(cast(dict[str, Callable[[], object]], contenders), timing, warmup=5)


def solver_step(solver: Solver, batches: list[Any]) -> Callable[[], float]:
    """One iteration on the batches in turn."""
    blobs = solver.net.blobs
    count = iter(range(1 << 60))

    def train() -> float:
        x, t = batches[next(count) % len(batches)]
        blobs["data"].data[...] = x
        blobs["label"].data[...] = t
        solver.step(1)
        return solver.last_loss

    return train
