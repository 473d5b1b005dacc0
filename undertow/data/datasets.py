"""Datasets: items by number, and small wrappers around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from undertow.errors import ShapeError


class Dataset(Protocol):
    """Anything with a length and items 0 .. length - 1.

    An item is what `collate` of the Loader can join: an array, a number, or a tuple or dict of these. A dataset may
    also have `describe(index) -> str`, where an item comes from (its path); errors show it. With several workers
    `__getitem__` is called from several threads at once.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


class ArrayDataset:
    """Rows of arrays of equal length: item i is (first[i], second[i], ...), or first[i] alone when there is one.

    Raises ShapeError when the lengths differ.
    """

    def __init__(self, *arrays: np.ndarray) -> None:
        lengths = {len(array) for array in arrays}
        if len(lengths) != 1:
            shapes = ", ".join(str(array.shape) for array in arrays) or "none"
            raise ShapeError(f"a dataset needs arrays of one length, got {shapes}")
        self.arrays = arrays

    def __len__(self) -> int:
        return len(self.arrays[0])

    def __getitem__(self, index: int) -> Any:
        if len(self.arrays) == 1:
            return self.arrays[0][index]
        return tuple(array[index] for array in self.arrays)


class MappedDataset:
    """function(item) for every item of another dataset, computed when it is asked for."""

    def __init__(self, dataset: Dataset, function: Callable[[Any], Any]) -> None:
        self.dataset, self.function = dataset, function

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        return self.function(self.dataset[index])

    def describe(self, index: int) -> str:
        """Where the item underneath comes from."""
        return describe(self.dataset, index)


class Subset:
    """The items of another dataset at these numbers, in this order."""

    def __init__(self, dataset: Dataset, indexes: Sequence[int] | np.ndarray) -> None:
        self.dataset, self.indexes = dataset, np.asarray(indexes, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.indexes)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[int(self.indexes[index])]

    def describe(self, index: int) -> str:
        """Where the item underneath comes from."""
        return describe(self.dataset, int(self.indexes[index]))


def split(dataset: Dataset, held_out: float, seed: int = 0) -> tuple[Subset, Subset]:
    """Two parts without overlap, the second with a share `held_out` (0 to 1, rounded) of the items drawn by seed."""
    if not 0 <= held_out <= 1:
        raise ValueError(f"held_out is a share between 0 and 1, got {held_out}")
    order = np.random.default_rng(seed).permutation(len(dataset))
    first = len(dataset) - round(held_out * len(dataset))
    return Subset(dataset, np.sort(order[:first])), Subset(dataset, np.sort(order[first:]))


def describe(dataset: Any, index: int) -> str:
    """What the dataset says about where an item comes from; "" when it says nothing."""
    method = getattr(dataset, "describe", None)
    return str(method(index)) if method is not None else ""
