"""Recorded results of the original programs, from tests/goldens or, where not copied there, the reference data."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

BESIDE = Path(__file__).parent.parent / "goldens"


@dataclass
class Golden:
    """folder with the inputs; case: case.json; arrays: trace.npz."""

    folder: Path
    case: dict[str, Any]
    arrays: dict[str, np.ndarray]

    def close(self, name: str, ours: np.ndarray, tolerance: float) -> None:
        """Equal shape, and no element further away than `tolerance`."""
        recorded = self.arrays[name]
        assert ours.shape == recorded.shape, name
        assert np.abs(ours.astype(np.float64) - recorded).max() <= tolerance, name


def load(program: str, name: str) -> Golden:
    """The golden `name` of "darknet" or "alexeyab"; skips the test where there is none."""
    folder = BESIDE / program / name
    if not folder.is_dir():
        folder = Path(os.environ.get("UNDERTOW_REFERENCE_DATA", "")) / "goldens" / program / name
    if not folder.is_dir():
        pytest.skip(f"the golden {program}/{name} is not here; UNDERTOW_REFERENCE_DATA would name the folder")
    with np.load(folder / "trace.npz") as archive:
        arrays = {key: archive[key] for key in archive.files}
    return Golden(folder, json.loads((folder / "case.json").read_text()), arrays)
