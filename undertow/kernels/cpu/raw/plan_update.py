"""Updates of parameters, all threads, on runs of floats."""

from __future__ import annotations

import numpy as np

from undertow.kernels.cpu.library import Kernels
from undertow.kernels.cpu.raw.parts import ceil_div
from undertow.kernels.cpu.threads import team

_update = Kernels("plan_update")
_UNIT = 16384  # floats; a thread gets whole units


def accumulate(updates: int, gradient: int, count: int, factor: float) -> None:
    """updates -= factor * gradient."""
    team().run(
        ceil_div(count, _UNIT),
        lambda t, a, b: _update.accumulate(updates, gradient, factor, a * _UNIT, min(count, b * _UNIT)),
    )


def move(rule: str, arrays: tuple[int, ...], count: int, numbers: int) -> None:
    """`darknet`, `momentum` or `caffe` of source/plan_update.py on arrays of `count` floats; numbers: float32 too."""
    kernel = getattr(_update, rule)
    team().run(
        ceil_div(count, _UNIT),
        lambda t, a, b: kernel(*arrays, numbers, a * _UNIT, min(count, b * _UNIT)),
    )


def all_finite(values: int, count: int) -> bool:
    """Whether there is no NaN and no infinity among them."""
    found = np.zeros(1, np.int64)
    find_infinite(values, count, found.ctypes.data)
    return not found[0]


def find_infinite(values: int, count: int, found: int) -> None:
    """The int64 at `found` becomes 1 where there is a NaN or an infinity."""
    team().run(
        ceil_div(count, _UNIT),
        lambda t, a, b: _update.find_infinite(values, a * _UNIT, min(count, b * _UNIT), found),
    )
