"""Comparing arrays with recorded ones: one number per case, and which array it comes from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

# An array whose largest value lies below this share of its layer's largest is compared absolutely: what is left
# of it is rounding noise (a bias gradient in front of batch norm is zero in exact arithmetic).
NOISE = 1e-6


@dataclass
class Comparison:
    """All comparisons of one case.

    tolerance: the largest error allowed. worst: the largest error seen, and the name of its array.
    problems: what makes the case fail, in words.
    """

    tolerance: float
    worst: float = 0.0
    worst_name: str = ""
    compared: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.problems and self.compared > 0

    def arrays(
        self,
        name: str,
        ours: Any,
        recorded: np.ndarray,
        scale: float | None = None,
        tolerance: float | None = None,
    ) -> None:
        """Compare one array. scale: the largest value of its layer, for arrays that are only noise.

        Floats: max|a-b| / max|b|, at most the tolerance (the case's unless given). Integers: exactly.
        """
        self.compared += 1
        found = np.asarray(ours)
        if found.size != recorded.size:
            self.problems.append(f"{name}: {found.shape} instead of {recorded.shape}")
            return
        found = found.reshape(recorded.shape)
        if recorded.dtype.kind in "iu":
            wrong = int(np.sum(found != recorded))
            if wrong:
                self.problems.append(f"{name}: {wrong} of {recorded.size} integers differ")
            return
        error = _error(found.astype(np.float64), recorded.astype(np.float64), scale)
        if not error <= self.worst:
            self.worst, self.worst_name = error, name
        if not error <= (self.tolerance if tolerance is None else tolerance):
            self.problems.append(f"{name}: error {error:.2e}")

    def text(self, name: str, ours: Any, recorded: Any) -> None:
        """Compare things that are equal or not."""
        self.compared += 1
        if ours != recorded:
            self.problems.append(f"{name}: {ours!r} instead of {recorded!r}")


def _error(found: np.ndarray, recorded: np.ndarray, scale: float | None) -> float:
    if recorded.size == 0:
        return 0.0
    same = (found == recorded) | (np.isnan(found) & np.isnan(recorded))
    if same.all():
        return 0.0
    difference = float(np.max(np.abs(np.where(same, 0.0, found - recorded))))
    finite = np.abs(recorded[np.isfinite(recorded)])
    largest = float(finite.max()) if finite.size else 0.0
    if scale is not None and largest < NOISE * scale:
        return difference / scale
    return difference / largest if largest else float("inf")
