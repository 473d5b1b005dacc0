"""Feeds: batches without end, from a position that can be saved and taken up again exactly.

Random draws follow from the feed's seed and the number of the item alone, so a position is a few numbers.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from undertow.errors import FormatError, ShapeError, UndertowError

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]
State = dict[str, Array]
PathLike = str | os.PathLike[str]


class Feed:
    """What a data layer draws from.

    shapes: of the arrays of the first batch, one per top. random: whether the seed matters.
    """

    shapes: list[Shape]
    random = False

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.counter = 0  # items handed out

    def load(self) -> list[Array]:
        """The arrays of the next batch; raises UndertowError."""
        raise NotImplementedError

    def step(self) -> tuple[list[Array], State]:
        """The next batch, and the position after it."""
        arrays = self.load()
        return arrays, self.state()

    def state(self) -> State:
        """The position, as arrays."""
        return {"seed": np.array(self.seed, np.int64), "counter": np.array(self.counter, np.int64)}

    def load_state(self, state: Mapping[str, Array]) -> None:
        """Go to a position that `state` gave. Raises UndertowError for one of another kind of feed."""
        for name in self.state():
            if name not in state:
                raise UndertowError(
                    f"the saved position of the data lacks '{name}'",
                    remedy="go on without the side file beside the solverstate: data begin at their first record then",
                )
        self.seed, self.counter = int(state["seed"]), int(state["counter"])

    def draws(self, *numbers: int) -> np.random.Generator:
        """The random numbers that belong to these numbers."""
        return np.random.default_rng((self.seed, *numbers))

    def close(self) -> None:
        """Let go of files."""


def empty_batch(shape: Shape, dtype: Any) -> Array:
    """Memory for a batch. Raises ShapeError where there is not so much."""
    try:
        return np.empty(shape, dtype)
    except (MemoryError, ValueError) as problem:
        size = " x ".join(map(str, shape))
        raise ShapeError(
            f"there is no memory for a batch of {size} values", remedy="use a smaller batch_size"
        ) from problem


def stack_into(batch: Array | None, index: int, values: Array, count: int, what: str) -> Array:
    """Put one item into its batch; the first one decides the shape. what: names the item in messages."""
    if batch is None:
        batch = empty_batch((count, *values.shape), values.dtype)
    if batch.shape[1:] != values.shape:
        raise ShapeError(
            f"{what} has shape {values.shape}, the first of its batch {batch.shape[1:]}",
            remedy="bring all pictures to one size, or use batch_size: 1",
        )
    batch[index] = values
    return batch


def read_lines(path: PathLike) -> list[str]:
    """The lines of a list file, without their ends. Raises FormatError where it cannot be read or is empty."""
    try:
        text = Path(path).read_bytes().decode("utf-8", "surrogateescape")
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise FormatError(f"cannot be opened ({reason})", file=path, remedy="check the path") from problem
    lines = text.removeprefix("\ufeff").split("\n")
    if not lines[-1]:
        lines.pop()
    if not any(line.strip() for line in lines):
        raise FormatError("the list is empty", file=path, remedy="name at least one file in it")
    if "\0" in text:
        raise FormatError(
            "a zero byte: this is not a list",
            file=path,
            line=text[: text.index("\0")].count("\n") + 1,
            remedy="give a text file with one path a line",
        )
    return lines
