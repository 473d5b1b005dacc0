"""Peak memory of a few training steps, each side in a process of its own."""

from __future__ import annotations

import resource
import subprocess
import sys

import undertow as ut
from undertow.errors import UndertowError


def peak_megabytes() -> float:
    """Largest resident size of this process so far."""
    scale = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale / 1e6


def measure(side: str, name: str, batch: int, size: int, threads: int) -> float:
    """Runs `python -m benchmarks peak ...` and reads what it says."""
    numbers = ["--batch", str(batch), "--size", str(size), "--threads", str(threads)]
    command = [sys.executable, "-m", "benchmarks", "peak", side, "--net", name, *numbers]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        raise UndertowError(f"the process that measures {side} has failed: {said[-1].removeprefix('error: ')}")
    return float(done.stdout.strip().splitlines()[-1])


def run_side(side: str, name: str, batch: int, size: int, threads: int) -> float:
    """Four steps of one side in this process; its peak in megabytes."""
    from benchmarks.train import make_net, our_step

    ut.set_threads(threads)
    if side == "undertow":
        step = our_step(make_net(name, batch, size))
        for _ in range(4):
            step()
        return peak_megabytes()
    return _run_torch(side, name, batch, size, threads)


def _run_torch(kind: str, name: str, batch: int, size: int, threads: int) -> float:
    """PyTorch alone: targets of the right shape, but no net of ours that computes beside it."""
    import torch

    from benchmarks.torch_nets import Targets, TorchTrainer
    from benchmarks.train import make_batch, make_net

    torch.set_num_threads(threads)
    net = make_net(name, batch, size)
    images = torch.from_numpy(make_batch(net, 0)[0])
    memory = torch.channels_last if "channels_last" in kind else torch.contiguous_format
    trainer = TorchTrainer(net, memory)
    targets = object.__new__(Targets)
    targets.parts = []
    for layer in net.layers:
        if layer.type == "yolo":
            shape = (batch, 3, layer.c // 3, layer.h, layer.w)
            targets.parts.append((torch.zeros(shape), torch.ones(shape)))
    trainer.model.layers = [_Outline(layer) for layer in net.layers]
    del net
    for _ in range(4):
        trainer.step(images, targets)
    return peak_megabytes()


class _Outline:
    """Of a layer, what the forward pass in PyTorch asks for, without its arrays."""

    def __init__(self, layer: object) -> None:
        for name in ("input_layers", "source", "stride"):
            setattr(self, name, getattr(layer, name, None) if name in vars(layer) else 0)
