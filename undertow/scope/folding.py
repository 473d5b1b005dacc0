"""Blocks that repeat, one after another, in a list of layers: the residual blocks of YOLOv3 fold to x8."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

LONGEST = 12
# Two equal layers in a row are not worth a fold of their own.
_FEWEST_LAYERS = 4


@dataclass(frozen=True)
class Fold:
    """Layers first .. first + size * times - 1 (places in the list) repeat a block of `size` layers."""

    first: int
    size: int
    times: int

    @property
    def layers(self) -> int:
        return self.size * self.times


def folds(signs: Sequence[Hashable]) -> list[Fold]:
    """Repeats in a list of signs (layers that are alike have the same), none overlapping, in order.

    At each place the block that covers most layers is taken, the shortest of those that cover as many.
    """
    found = []
    place = 0
    while place < len(signs):
        candidates = [_repeat(signs, place, size) for size in range(1, LONGEST + 1)]
        repeated = [fold for fold in candidates if fold.times > 1 and fold.layers >= _FEWEST_LAYERS]
        if repeated:
            best = max(repeated, key=lambda fold: (fold.layers, -fold.size))
            found.append(best)
            place += best.layers
        else:
            place += 1
    return found


def _repeat(signs: Sequence[Hashable], first: int, size: int) -> Fold:
    """How often the block that begins here follows itself; times 1 for never."""
    block = list(signs[first : first + size])
    times = 1
    while len(block) == size and list(signs[first + times * size : first + (times + 1) * size]) == block:
        times += 1
    return Fold(first, size, times if len(block) == size else 0)
