"""Numbers, shapes and columns for people."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from undertow.inspect.record import Array, Shape

_MOST_PRINTED = 40


def shapes_text(shapes: Sequence[Shape]) -> str:
    """`1x20x12x12`; several with a plus sign between them; `1` for a single number."""
    return " + ".join("x".join(map(str, shape)) or "1" for shape in shapes) or "-"


def bytes_text(count: int) -> str:
    """A number of bytes."""
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.2f} GiB"


def number_text(value: float, bad: float = 0) -> str:
    """Three digits, so that columns stay narrow; `-` for what is not there.

    bad: how many of the values behind it are not finite: then NaN is the number itself, and stands there as such.
    """
    if math.isnan(value):
        return "nan" if bad > 0 else "-"
    return f"{value:.3g}"


def share_text(value: float, bad: float = 0) -> str:
    """A share as percent; bad: see `number_text`."""
    return number_text(value, bad) if math.isnan(value) else f"{100 * value:.0f}%"


def columns(head: Sequence[str], rows: Sequence[Sequence[str]], left: int = 2) -> list[str]:
    """Aligned lines: the first `left` columns to the left, numbers to the right."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    return [
        "  ".join(
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in [head, *rows]
    ]


def array_lines(name: str, array: Array) -> list[str]:
    """A small array with its name and shape; of one with many values the first two of its last axes."""
    shape = "x".join(map(str, array.shape)) or "1"
    told = f"{name} ({shape}) ="
    array = np.squeeze(array)
    if array.size > _MOST_PRINTED and array.ndim > 2:
        told = f"{name} ({shape}), the first {'x'.join(map(str, array.shape[-2:]))} of it ="
        array = array.reshape(-1, *array.shape[-2:])[0]
    # Adding 0 makes 0 of the -0 that rounding leaves.
    shown = np.round(array, 5) + 0.0 if array.dtype.kind == "f" else array
    text = np.array2string(shown, precision=5, suppress_small=True, max_line_width=100, threshold=_MOST_PRINTED)
    return [told, *(f"    {line}" for line in text.splitlines())]
