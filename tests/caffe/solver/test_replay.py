"""Recorded trainings of Caffe: every iteration, its snapshots, resuming, the tool's log; NetSpec and Classifier."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.replay.__main__ import case_folders, replay
from tests.replay.caffe import caffe_solver_kind

HERE = Path(__file__).parents[2] / "goldens" / "caffe"
WHOLE = Path(os.environ.get("UNDERTOW_REFERENCE_DATA", "/nowhere")) / "goldens" / "caffe"


def folders(place: Path) -> list[Path]:
    return [f for f in case_folders(place, "caffe") if caffe_solver_kind(f)] if place.is_dir() else []


@pytest.mark.parametrize("folder", folders(HERE), ids=lambda folder: folder.name)
def test_cases_kept_here(folder: Path) -> None:
    result = replay("caffe", folder)
    assert result is not None
    assert result.ok, result.problems


@pytest.mark.reference
@pytest.mark.parametrize("folder", folders(WHOLE), ids=lambda folder: folder.name)
def test_all_recorded_cases(folder: Path) -> None:
    result = replay("caffe", folder)
    assert result is not None
    assert result.ok, result.problems


def test_a_changed_update_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "case"
    shutil.copytree(HERE / "solver_nesterov", folder)
    with np.load(folder / "trace.npz") as archive:
        arrays = dict(archive)
    arrays["it2/param/ip1/0/update"][0, 0] += 1e-3
    np.savez(folder / "trace.npz", **arrays)
    result = replay("caffe", folder)
    assert result is not None
    assert [problem.split(":")[0] for problem in result.problems] == ["it2/param/ip1/0/update"]
