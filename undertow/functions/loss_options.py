"""What losses have in common: how the values of many elements become one number."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from undertow.core.variable import Variable
from undertow.errors import ShapeError

Array = np.ndarray[Any, Any]
Reduction = Literal["mean", "sum", "none"]
Normalization = Literal["valid", "full", "batch_size", "none", "weight"]


def reduced(values: Array, reduction: Reduction) -> Array:
    """The mean or sum of all values (added up in float64), or the values themselves."""
    if reduction == "none":
        return values
    total = values.sum(dtype=np.float64) * factor(values.size, reduction)
    return np.asarray(total, dtype=values.dtype)


def factor(size: int, reduction: Reduction) -> float:
    """What each element's gradient is multiplied by."""
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"a reduction is 'mean', 'sum' or 'none', got {reduction!r}")
    return 1 / max(size, 1) if reduction == "mean" else 1.0


def divisor(normalization: Normalization, *, valid: float, full: int, batch: int, weight: float | None = None) -> float:
    """What the sum of a loss is divided by, at least 1 as in Caffe (unlabelled batches give 0, not NaN).

    "valid": the labels that are not ignored. "full": all labels. "batch_size": the samples. "none": 1, the plain
    sum. "weight": the class weights of the valid labels, added up (what PyTorch's mean divides by).
    """
    counts: dict[str, float] = {"valid": valid, "full": full, "batch_size": batch, "none": 1}
    if weight is not None:
        counts["weight"] = weight
    if normalization not in counts:
        raise ValueError(f"a normalization is one of {', '.join(counts)}, got {normalization!r}")
    count = counts[normalization]
    return count if normalization == "weight" and count > 0 else max(count, 1)


def check_same_shape(name: str, x: Any, t: Any) -> None:
    """ShapeError unless prediction and target have one shape: broadcasting here is a mistake nearly always."""
    if x.shape != t.shape:
        raise ShapeError(f"{name} compares arrays of one shape, got {x.shape} and {t.shape}")


def check_labels(name: str, x_shape: tuple[int, ...], t: Array, valid: Array | None) -> None:
    """ShapeError or ValueError unless t holds a class number for every place of x (batch, classes, *spatial).

    valid: where t has to be one; None: everywhere.
    """
    expected = (x_shape[0], *x_shape[2:]) if len(x_shape) >= 2 else None
    if t.shape != expected:
        raise ShapeError(
            f"{name} needs scores (batch, classes, *spatial) and labels (batch, *spatial), got {x_shape} and {t.shape}"
        )
    if t.dtype.kind not in "iu":
        raise TypeError(f"{name}: labels must be integers, got {t.dtype}")
    if not t.size or (t.min() >= 0 and t.max() < x_shape[1]):
        return
    wrong = (t < 0) | (t >= x_shape[1])
    if valid is not None:
        wrong &= valid
    if wrong.any():
        where = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise ValueError(f"{name}: label {t[where]} at {where} is not one of the {x_shape[1]} classes")


def scalar(gy: Variable | Array, ndim: int) -> Any:
    """The gradient of a loss, ready to be multiplied with arrays of ndim axes."""
    return gy if gy.ndim in (0, ndim) else gy.reshape(*gy.shape, *(1,) * (ndim - gy.ndim))
