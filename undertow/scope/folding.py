"""What a graph shows as one node: blocks that repeat one after another (the residual blocks of YOLOv3 fold to x8), and
branches side by side that are alike (the heads of SSD), those that leave from the same layers together."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

LONGEST = 12
# Two equal layers in a row are not worth a fold of their own.
_FEWEST_LAYERS = 4
_FEWEST_BRANCHES = 3


@dataclass(frozen=True)
class Fold:
    """Layers first .. first + size * times - 1 (places in the list) repeat a block of `size` layers."""

    first: int
    size: int
    times: int

    @property
    def layers(self) -> int:
        return self.size * self.times


def folds(signs: Sequence[Hashable], begins: Sequence[bool] = ()) -> list[Fold]:
    """Repeats in a list of signs (layers that are alike have the same), none overlapping, in order.

    At each place the block that covers most layers is taken, the shortest of those that cover as many. begins: which
    layers a block should begin with, where it can without being repeated less often: convolutions, not what follows.
    """
    found = []
    place = 0
    while place < len(signs):
        candidates = [_repeat(signs, place, size) for size in range(1, LONGEST + 1)]
        repeated = [fold for fold in candidates if fold.times > 1 and fold.layers >= _FEWEST_LAYERS]
        if repeated:
            best = _begun(signs, begins, max(repeated, key=lambda fold: (fold.layers, -fold.size)))
            found.append(best)
            place = best.first + best.layers
        else:
            place += 1
    return found


def _begun(signs: Sequence[Hashable], begins: Sequence[bool], fold: Fold) -> Fold:
    """The same repeat, moved to a layer that blocks begin with."""
    if not begins or begins[fold.first]:
        return fold
    moved = (
        _repeat(signs, first, fold.size) for first in range(fold.first + 1, fold.first + fold.size) if begins[first]
    )
    return next((other for other in moved if other.times >= fold.times), fold)


def branches(reads: Mapping[int, Sequence[int]], kinds: Mapping[int, str]) -> list[list[list[int]]]:
    """Alike branches that end in the same layer: for each group its branches, each a list of layers in order.

    reads: for each layer those it reads. A branch goes up from a layer that one other alone reads, as long as each
    layer reads one that nothing else reads; one that gathers more than two is no part of it. Alike are those whose
    layers are of the same kinds; at least three.
    """
    readers: dict[int, list[int]] = {}
    for layer, sources in reads.items():
        for source in sources:
            readers.setdefault(source, []).append(layer)
    groups = []
    for sources in reads.values():
        alike: dict[tuple[str, ...], list[list[int]]] = {}
        for source in dict.fromkeys(sources):
            branch = _branch(source, reads, readers)
            alike.setdefault(tuple(kinds[layer] for layer in branch), []).append(branch)
        groups += [found for signs, found in alike.items() if signs and len(found) >= _FEWEST_BRANCHES]
    return groups


def joined(groups: list[list[list[int]]], reads: Mapping[int, Sequence[int]]) -> list[list[list[int]]]:
    """Groups of branches whose first, second, ... leave from the same layers, each as one group of heads.

    The heads of an SSD: at each scale a branch for places, one for classes and one for default boxes.
    """
    heads: dict[tuple[int, ...], list[list[int]]] = {}
    for group in groups:
        tapped = tuple(next(iter(reads[branch[0]]), -1) for branch in group)
        known = heads.setdefault(tapped, [[] for _ in group])
        for head, branch in zip(known, group, strict=True):
            head.extend(branch)
    return list(heads.values())


def _branch(last: int, reads: Mapping[int, Sequence[int]], readers: Mapping[int, Sequence[int]]) -> list[int]:
    """The layers of the branch that ends with this one; none where others read it too."""
    found: list[int] = []
    while last in reads and len(readers[last]) == 1 and len(reads[last]) <= 2:
        found.insert(0, last)
        if len(reads[last]) != 1:
            break
        last = reads[last][0]
    return found


def _repeat(signs: Sequence[Hashable], first: int, size: int) -> Fold:
    """How often the block that begins here follows itself; times 1 for never."""
    block = list(signs[first : first + size])
    times = 1
    while len(block) == size and list(signs[first + times * size : first + (times + 1) * size]) == block:
        times += 1
    return Fold(first, size, times if len(block) == size else 0)
