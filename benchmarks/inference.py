"""Inference: one network, one batch, on both sides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np

import undertow as ut
from benchmarks.timing import Timed, Timing, interleaved
from benchmarks.train import make_net


def compare(name: str, batch: int, size: int, threads: int, kinds: list[str], timing: Timing) -> dict[str, Timed]:
    """Time `Network.predict` and PyTorch in eval mode; raises AssertionError where results differ."""
    import torch

    from benchmarks.torch_nets import TorchNet

    ut.set_threads(threads)
    torch.set_num_threads(threads)
    net = make_net(name, batch, size)
    rng = np.random.default_rng(0)
    for layer in net.layers:
        if layer.batch_normalize:
            layer.buffers["rolling_mean"][...] = rng.normal(0, 0.1, layer.n)
            layer.buffers["rolling_variance"][...] = rng.uniform(0.5, 1.5, layer.n)
    images = rng.random((batch, 3, size, size), dtype=np.float32)
    contenders: dict[str, Callable[[], object]] = {"undertow": lambda: net.predict(images)}
    expected = [layer.output.copy() for layer in net.layers if net.predict(images) is not None and layer.type == "yolo"]
    for kind in kinds:
        memory = torch.channels_last if "channels_last" in kind else torch.contiguous_format
        model = cast(Any, TorchNet(net)).to(memory_format=memory).eval()
        x = torch.from_numpy(images).to(memory_format=memory)

        def run(model: Any = model, x: torch.Tensor = x) -> object:
            with torch.inference_mode():
                return model(x)

        contenders[kind] = run
        heads = run()
        for head, output in zip(heads, expected, strict=True):  # type: ignore[call-overload]
            raw = head.numpy().reshape(batch, 3, -1, *output.shape[2:])[:, :, 4:]
            ours = output.reshape(batch, 3, -1, *output.shape[2:])[:, :, 4:]
            with np.errstate(over="ignore"):
                distance = np.linalg.norm(1 / (1 + np.exp(-raw)) - ours)
            # With random statistics outputs grow to 1e5; Darknet's other epsilon shows there.
            assert distance < 2e-2 * np.linalg.norm(ours), f"{kind} computes another output"
    return interleaved(contenders, timing.rounds, timing.clock)
