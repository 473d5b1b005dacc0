"""What a page tells about the heads of a detector, whatever their format."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from undertow.inspect.record import Array

# Classes that are told of one box: its own, and those that are pulled hardest.
MOST_CLASSES = 6


def told_classes(pulls: Array, wanted: Array) -> list[int]:
    """Which classes to tell of a box. pulls, wanted: (classes,); wanted is largest for its own class, if it has one."""
    own = [int(wanted.argmax())] if len(wanted) and wanted.max() > 0 else []
    hardest = [int(i) for i in np.argsort(-np.abs(pulls), kind="stable") if int(i) not in own]
    return [*own, *hardest][:MOST_CLASSES]


@dataclass(frozen=True)
class Term:
    """One output: what the layer gives, what is asked of it, and the pull (minus the gradient) that follows."""

    name: str
    output: float
    target: float
    pull: float


@dataclass(frozen=True)
class Responsible:
    """The cell and anchor that answer for a truth. truth: its number, -1 for none of the list.

    anchor, predicted, wanted: boxes x, y, w, h relative to the picture; no anchor for heads without. terms: of the box,
    and of the objectness where there is one. classes: see `told_classes`.
    """

    truth: int
    number: int
    row: int
    column: int
    anchor: tuple[float, ...] | None
    predicted: tuple[float, ...]
    wanted: tuple[float, ...]
    terms: list[Term]
    classes: list[Term]


@dataclass(frozen=True)
class HeadView:
    """One head. grid: (rows, columns), (0, 0) where boxes lie on no grid.

    objectness: (rows, columns), the pulls towards objects summed over the boxes of each cell; None without a grid.
    totals: norms of the pulls by term, over all cells.
    """

    layer: int
    type: str
    grid: tuple[int, int]
    responsible: list[Responsible]
    objectness: Array | None
    totals: dict[str, float]


@dataclass(frozen=True)
class Heads:
    """truths: (count, 5) x, y, w, h, class. found: (count, 6) x, y, w, h, class, probability: the surest.

    word: what the boxes are called that answer for objects. unit: a strong pull on one of a box's four numbers.
    overlay: what `HeadView.objectness` is called.
    """

    truths: Array
    found: Array
    heads: list[HeadView]
    word: str
    unit: float = 1.0
    overlay: str = "objectness"
