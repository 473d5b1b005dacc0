"""Inference: one network, one batch, on both sides; PyTorch and, where installed, the engines that read ONNX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np

import undertow as ut
from benchmarks import engines
from benchmarks.timing import Timed, Timing, interleaved
from benchmarks.train import make_net
from undertow.darknet.network import Network


def compare(name: str, batch: int, size: int, threads: int, kinds: list[str], timing: Timing) -> dict[str, Timed]:
    """Time `Network.predict`, PyTorch in eval mode, and engines; raises AssertionError where results differ.

    kinds: names with "torch" in them, or of `engines.ENGINES`.
    """
    ut.set_threads(threads)
    net = make_net(name, batch, size)
    _settle_statistics(net)
    images = np.random.default_rng(0).random((batch, 3, size, size), dtype=np.float32)
    contenders: dict[str, Callable[[], object]] = {"undertow": lambda: net.predict(images)}
    net.predict(images)
    expected = [layer.output.copy() for layer in net.layers if layer.type == "yolo"]
    model = engines.onnx_model(net, images) if any(kind in engines.ENGINES for kind in kinds) else b""
    for kind in kinds:
        if kind in engines.ENGINES:
            run = engines.ENGINES[kind](model, images, threads)
        else:
            run = _torch(net, images, kind, threads)
        contenders[kind] = run
        _check(kind, run(), expected)
    return interleaved(contenders, timing)


def _settle_statistics(net: Network) -> None:
    rng = np.random.default_rng(0)
    for layer in net.layers:
        if layer.batch_normalize:
            layer.buffers["rolling_mean"][...] = rng.normal(0, 0.1, layer.n)
            layer.buffers["rolling_variance"][...] = rng.uniform(0.5, 1.5, layer.n)


def _torch(net: Network, images: np.ndarray, kind: str, threads: int) -> Callable[[], list[np.ndarray]]:
    import torch

    from benchmarks.torch_nets import TorchNet

    torch.set_num_threads(threads)
    memory = torch.channels_last if "channels_last" in kind else torch.contiguous_format
    model = cast(Any, TorchNet(net)).to(memory_format=memory).eval()
    x = torch.from_numpy(images).to(memory_format=memory)

    def run() -> list[np.ndarray]:
        with torch.inference_mode():
            return [head.numpy() for head in model(x)]

    return run


def _check(kind: str, heads: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for raw, output in zip(heads, expected, strict=True):
        batch, _, *plane = output.shape
        theirs = raw.reshape(batch, 3, -1, *plane)[:, :, 4:]
        ours = output.reshape(batch, 3, -1, *plane)[:, :, 4:]
        with np.errstate(over="ignore"):
            distance = np.linalg.norm(1 / (1 + np.exp(-theirs)) - ours)
        # With random statistics outputs grow to 1e5; Darknet's other epsilon shows there.
        assert distance < 2e-2 * np.linalg.norm(ours), f"{kind} computes another output"
