"""Labels and indexes, which blobs hold as floats."""

from __future__ import annotations

from typing import Any

import numpy as np

from undertow.caffe.layer import Layer, integers

Array = np.ndarray[Any, Any]


def whole_numbers(layer: Layer, values: Array, what: str) -> Array:
    """Labels or indexes as whole numbers, cut as C does. what: one of them, for the error where it is no number."""
    finite = np.isfinite(values)
    if not finite.all():
        bad = values[~finite].reshape(-1)[0]
        raise layer.error(f"{what} is {bad}, not a number", "look where the bottom comes from")
    return integers(values)
