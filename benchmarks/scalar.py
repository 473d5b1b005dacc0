"""Three operations on a scalar, forward and backward, built anew each time: what an operation costs in itself."""

from __future__ import annotations

import numpy as np

import undertow as ut
from benchmarks.timing import Timed, Timing, interleaved

REPEATS = 1000


def compare(threads: int, timing: Timing) -> dict[str, Timed]:
    """Time square(exp(square(x))) and its gradient, REPEATS times a round; seconds are those of one."""
    import torch

    torch.set_num_threads(threads)
    x = ut.Variable(np.array(0.5))
    peer = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)

    def ours() -> None:
        for _ in range(REPEATS):
            x.clear_grad()
            ut.square(ut.exp(ut.square(x))).backward()

    def theirs() -> None:
        for _ in range(REPEATS):
            peer.grad = None
            torch.square(torch.exp(torch.square(peer))).backward()

    ours()
    theirs()
    assert x.grad is not None
    assert peer.grad is not None
    assert np.allclose(x.grad, peer.grad.numpy(), rtol=1e-12)
    timed = interleaved({"undertow": ours, "torch": theirs}, timing)
    return {name: Timed(name, tuple(s / REPEATS for s in each.seconds)) for name, each in timed.items()}
