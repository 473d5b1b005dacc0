"""Whole numbers where an operation computes with real ones: what they count as, the same for every operation.

Booleans and integers become floats before such an operation reads them: beside floats, of the type that NumPy gives
the two together (uint8 beside float32 is float32, int32 beside float32 is float64); without any float, float64.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

WHOLE = "biu"  # the kinds of NumPy's types that are whole numbers


def as_reals(arguments: Sequence[Any], kept: Collection[int] = ()) -> tuple[Any, ...]:
    """The arguments with arrays of whole numbers as floats. kept: positions of labels and indexes, left as they are."""
    numbers = [x for i, x in enumerate(arguments) if isinstance(x, np.ndarray) and i not in kept]
    if not any(x.dtype.kind in WHOLE for x in numbers):
        return tuple(arguments)
    together = np.result_type(*(x.dtype for x in numbers))
    chosen = np.dtype(np.float64) if together.kind in WHOLE else together
    return tuple(
        x.astype(chosen) if isinstance(x, np.ndarray) and x.dtype.kind in WHOLE and i not in kept else x
        for i, x in enumerate(arguments)
    )


def on_reals(forward: Callable[..., Any], labels: Collection[int]) -> Callable[..., Any]:
    """A Function's forward that is given floats. labels: positions of the inputs that are handed on as they are."""

    @functools.wraps(forward)
    def with_reals(self: Any, *xs: Any) -> Any:
        for i, x in enumerate(xs):
            if x is not None and x.dtype.kind in WHOLE and i not in labels:
                return forward(self, *as_reals(xs, labels))
        return forward(self, *xs)

    return with_reals
