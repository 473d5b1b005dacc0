"""Linear, Embedding, Flatten and Dropout."""

from __future__ import annotations

import numpy as np

from undertow import functions as F
from undertow.core import Parameter, Variable, as_variable, is_training
from undertow.core.variable import Operand
from undertow.functions.regularization import CountedDraws
from undertow.layers.initializers import Gaussian, Initializer, LeCun, as_generator
from undertow.layers.module import Module

Seed = np.random.Generator | int | None


class Linear(Module):
    """y = x W^T + b over the last axis.

    x: (..., in_size). Returns (..., out_size).
    in_size: taken from the first input when None. init: of the weight; the bias starts at 0.
    rng: Generator or seed for the initialiser.
    """

    out_size: int
    weight: Parameter  # (out_size, in_size)
    bias: Parameter | None  # (out_size,)

    def __init__(
        self,
        out_size: int,
        in_size: int | None = None,
        *,
        bias: bool = True,
        init: Initializer = LeCun(),  # noqa: B008  (frozen)
        rng: Seed = None,
    ) -> None:
        self.out_size = out_size
        self.init, self.rng = init, as_generator(rng)
        self.weight = Parameter(None)
        self.bias = Parameter(np.zeros(out_size, self.dtype)) if bias else None
        if in_size is not None:
            self._make_weight(in_size)

    def _make_weight(self, in_size: int) -> None:
        self.weight.data = self.init((self.out_size, in_size), self.rng, self.dtype)

    def forward(self, x: Operand) -> Variable:
        x = as_variable(x)
        if self.weight.data is None:
            self._make_weight(x.shape[-1])
        return F.linear(x, self.weight, self.bias)

    def options(self) -> str:
        in_size = "?" if self.weight.data is None else self.weight.shape[1]
        return f"{in_size} -> {self.out_size}"


class Embedding(Module):
    """The rows of a learned table with the given numbers.

    indexes: integers of any shape, 0 to count - 1, or ignore_index (a row of zeros). Returns (*indexes.shape, size).
    """

    weight: Parameter  # (count, size)

    def __init__(
        self,
        count: int,
        size: int,
        *,
        ignore_index: int | None = None,
        init: Initializer = Gaussian(1.0),  # noqa: B008  (frozen)
        rng: Seed = None,
    ) -> None:
        self.ignore_index = ignore_index
        self.weight = Parameter(init((count, size), as_generator(rng), self.dtype))

    def forward(self, indexes: np.ndarray) -> Variable:
        return F.embedding(indexes, self.weight, self.ignore_index)

    def options(self) -> str:
        return f"{self.weight.shape[0]} rows of {self.weight.shape[1]}"


class Flatten(Module):
    """(batch, ...) to (batch, all the rest)."""

    def forward(self, x: Operand) -> Variable:
        return F.flatten(x, 1)


class Dropout(Module):
    """In training, 0 with probability `ratio`, other values divided by 1 - ratio; unchanged under `test_mode`.

    The numbers follow from a seed and from how often the layer was used in training (buffer `calls`), so a run that
    continues from a saved state drops the same values. rng: a seed, a Generator that one is drawn from, or None.
    """

    calls: np.ndarray  # (), int64

    def __init__(self, ratio: float = 0.5, *, rng: Seed = None) -> None:
        self.ratio = ratio
        self.seed = rng if isinstance(rng, int) else int(as_generator(rng).integers(2**63))
        self.register_buffer("calls", np.zeros((), np.int64))

    def forward(self, x: Operand) -> Variable:
        if not is_training():
            return as_variable(x)
        return F.dropout(x, self.ratio, CountedDraws(self.seed, self.calls))

    def options(self) -> str:
        return str(self.ratio)
