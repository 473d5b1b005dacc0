"""Updates of parameters, in place."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def darknet_accumulate(updates: Array, gradient: Array, factor: float = 1.0) -> None:
    """updates -= factor * gradient."""
    updates -= gradient if factor == 1.0 else factor * gradient


def darknet_update(values: Array, updates: Array, decay: float, rate: float, momentum: float) -> None:
    """updates -= decay * values;  values += rate * updates;  updates *= momentum."""
    if decay:
        updates -= decay * values
    values += rate * updates
    updates *= momentum
