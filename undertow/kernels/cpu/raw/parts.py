"""How work is cut up. The parts follow from the shapes alone, so results depend on no thread count."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from undertow.kernels.cpu.threads import team

SLOTS = 16  # partial sums of a batch norm: parts of the pixels that are summed up separately


class Epilogue(NamedTuple):
    """What a convolution does to its result while it is in cache.

    bias: address of C floats, or 0. slope: leaky with this slope for negative values; 1 for none.
    sums: address of zeroed float64 [SLOTS][2][C] that get the sums of y and y^2, or 0.
    accumulate: add to what is there (without bias, slope and sums).
    """

    bias: int = 0
    slope: float = 1.0
    sums: int = 0
    accumulate: bool = False

    def channels(self, first: int) -> Epilogue:
        """The same for a slice of the channels."""
        bias = self.bias and self.bias + 4 * first
        sums = self.sums and self.sums + 8 * first
        return self._replace(bias=bias, sums=sums)


PLAIN = Epilogue()


class Front(NamedTuple):
    """What a convolution does to its input while it reads it: leaky(x * scale + shift).

    scale, shift: addresses of C floats. slope: of the leaky; 1 for none.
    """

    scale: int
    shift: int
    slope: float


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def over_blocks(blocks: int, sums: int, channels: int, call: Callable[[int, int, int, int], None]) -> None:
    """call(thread, first, last, sums of the slot) over ranges of blocks; one range per slot if sums are kept.

    channels: the C of sums [SLOTS][2][C].
    """
    if not sums:
        team().run(blocks, lambda thread, low, high: call(thread, low, high, 0))
        return
    slots = min(SLOTS, blocks)

    def task(thread: int, low: int, high: int) -> None:
        for s in range(low, high):
            call(thread, blocks * s // slots, blocks * (s + 1) // slots, sums + s * 16 * channels)

    team().run(slots, task)


def over_panels(panels: int, call: Callable[[int, int, int], None]) -> None:
    """call(thread, first panel, last panel) over pairs of 16-channel panels."""
    pairs = ceil_div(panels, 2)
    team().run(pairs, lambda thread, low, high: call(thread, 2 * low, min(panels, 2 * high)))


def over_slices(slices: int, blocks: int, panels: int, call: Callable[[int, int, int, int, int, int], None]) -> None:
    """call(thread, slice, b0, b1, p0, p1): a reduction over blocks cut into slices, and panels if threads remain.

    The number of slices decides the order of addition; how many groups of panels there are does not.
    """
    groups = min(ceil_div(panels, 2), ceil_div(team().size, slices))
    pairs = ceil_div(panels, 2)

    def task(thread: int, low: int, high: int) -> None:
        for item in range(low, high):
            s, g = divmod(item, groups)
            p0, p1 = 2 * (pairs * g // groups), min(panels, 2 * (pairs * (g + 1) // groups))
            call(thread, s, blocks * s // slices, blocks * (s + 1) // slices, p0, p1)

    team().run(slices * groups, task)
