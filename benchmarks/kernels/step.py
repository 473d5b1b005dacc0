"""Forward and backward of a whole net with given head gradients: the kernels against PyTorch.

    python -m benchmarks.kernels.step CFG --batch 4 --size 416 --threads 2     interleaved in one process
    python -m benchmarks.kernels.step CFG --side ours|torch|torch-nhwc         one side alone: peak memory
    python -m benchmarks.kernels.step CFG --check                              both against PyTorch in float64

No loss and no update on either side. Times are medians; with one thread processor time counts, else wall time.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.rows import require_torch
from undertow.errors import MissingPackage

Step = Callable[[], None]


def our_step(cfg: str, x: np.ndarray, *, fast: bool = True) -> Step:
    from benchmarks.kernels.static_net import StaticNet

    net = StaticNet(cfg, x.shape[0], x.shape[2], fast=fast)
    net.x.array[...] = x
    rng = np.random.default_rng(1)
    gradients = [0.1 * rng.standard_normal(node.z.array.shape, np.float32) for node in net.heads]

    def step() -> None:
        net.forward()
        net.set_gradients(gradients)
        net.backward()

    return step


def torch_step(cfg: str, x: np.ndarray, nhwc: bool) -> Step:
    import torch

    from benchmarks.kernels.torch_net import TorchNet

    layout = torch.channels_last if nhwc else torch.contiguous_format
    net = TorchNet(cfg).to(memory_format=layout).train()  # type: ignore[call-overload]
    images = torch.from_numpy(x).contiguous(memory_format=layout)
    with torch.no_grad():
        gradients = [0.1 * torch.randn_like(head) for head in net(images)]

    def step() -> None:
        net.zero_grad(set_to_none=True)
        torch.autograd.backward(net(images), gradients)

    return step


def compare(cfg: str, x: np.ndarray, threads: int, repeats: int) -> None:
    """Every side once per round; the ratio is the faster of PyTorch's two layouts over ours."""
    sides = {
        "ours fast": our_step(cfg, x),
        "ours precise": our_step(cfg, x, fast=False),
        "torch": torch_step(cfg, x, nhwc=False),
        "torch nhwc": torch_step(cfg, x, nhwc=True),
    }
    clock = time.process_time if threads == 1 else time.perf_counter
    times: dict[str, list[float]] = {name: [] for name in sides}
    for step in sides.values():
        step()
    for _ in range(repeats):
        for name, step in sides.items():
            start = clock()
            step()
            times[name].append(clock() - start)
    medians = {name: float(np.median(values)) for name, values in times.items()}
    best = min(medians["torch"], medians["torch nhwc"])
    for name, median in medians.items():
        print(f"{name:13s} {median:7.3f} s (least {min(times[name]):.3f})   best of torch / this: {best / median:.2f}")


def check(cfg: str, x: np.ndarray) -> None:
    """Heads and weight gradients, ours and PyTorch's float32, relative to PyTorch's float64.

    Without activations: one leaky whose input changes its sign by rounding moves all gradients before it by some
    thousandths, in PyTorch as well, and hides the arithmetic.
    """
    import torch

    from benchmarks.kernels.static_net import StaticNet
    from benchmarks.kernels.torch_net import TorchNet

    net = StaticNet(cfg, x.shape[0], x.shape[2], linear=True)
    single, double = TorchNet(cfg, linear=True).train(), TorchNet(cfg, linear=True).double().train()
    for conv, layers in zip(net.convolutions(), single.convolutions(), strict=True):
        first: Any = layers[0]
        first.weight.data = torch.from_numpy(net.as_oihw(conv, conv.w))
        if not conv.normalized:
            first.bias.data.zero_()
    double.load_state_dict(single.state_dict())
    net.x.array[...] = x
    rng = np.random.default_rng(1)
    gradients = [0.1 * rng.standard_normal(node.z.array.shape, np.float32) for node in net.heads]
    for _ in range(2):  # twice: nothing may add up
        net.forward()
        net.set_gradients(gradients)
        net.backward()
    results = []
    for model, kind in ((double, torch.float64), (single, torch.float32)):
        heads = model(torch.from_numpy(x).to(kind))
        torch.autograd.backward(heads, [torch.from_numpy(g).to(kind) for g in gradients])
        firsts: list[Any] = [layers[0] for layers in model.convolutions()]
        results.append([*(head.detach().numpy() for head in heads), *(first.weight.grad.numpy() for first in firsts)])
    ours = [node.z.array for node in net.heads]
    ours += [net.as_oihw(conv, conv.gw) for conv in net.convolutions()]

    def errors(values: list[np.ndarray]) -> np.ndarray:
        pairs = zip(values, results[0], strict=True)
        return np.array([np.sqrt(np.mean((a - b) ** 2) / np.mean(b**2)) for a, b in pairs])

    heads_count = len(net.heads)
    for name, values in (("ours", ours), ("torch float32", results[1])):
        found = errors(values)
        print(
            f"{name:14s} heads {found[:heads_count].max():.1e}   weights: median {np.median(found[heads_count:]):.1e}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cfg")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--size", type=int, default=416)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--side", choices=("ours", "torch", "torch-nhwc"))
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    x = np.random.default_rng(0).random((given.batch, 3, given.size, given.size), np.float32)
    if given.side != "ours":
        try:
            require_torch("all but --side ours")
        except MissingPackage as problem:
            raise SystemExit(f"error: {problem}") from None
        import torch

        torch.set_num_threads(given.threads)
    from undertow.kernels.cpu import set_threads

    set_threads(given.threads)
    if given.check:
        check(given.cfg, x)
    elif given.side:
        step = our_step(given.cfg, x) if given.side == "ours" else torch_step(given.cfg, x, "nhwc" in given.side)
        for _ in range(4):
            step()
        print(f"{given.side}: peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")
    else:
        compare(given.cfg, x, given.threads, given.repeats)


if __name__ == "__main__":
    main()
