"""Packed gradients subtracted from accumulators, all threads."""

from __future__ import annotations

from undertow.kernels.cpu.library import Kernels
from undertow.kernels.cpu.raw.parts import ceil_div
from undertow.kernels.cpu.raw.tensor import Scratch
from undertow.kernels.cpu.threads import team

_unpack = Kernels("plan_unpack")
_TMP = 1024


def subtract(packed: int, inputs: int, outputs: int, taps: int, w: int, memory: Scratch) -> None:
    """OIHW numbers at w -= packed panels of output channels."""
    with memory.frame():
        tmp, step = memory.take_each(_TMP, team().size)
        team().run(
            ceil_div(outputs, 16),
            lambda t, a, b: _unpack.subtract(packed, inputs, taps, outputs, w, a, b, tmp + t * step),
        )
