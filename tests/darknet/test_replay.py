"""Recorded traces of the C program, array by array; and the replayer itself."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.replay.__main__ import case_folders, main, replay
from tests.replay.compare import Comparison

HERE = Path(__file__).parent.parent / "goldens" / "darknet"
WHOLE = Path(os.environ.get("UNDERTOW_REFERENCE_DATA", "/nowhere")) / "goldens" / "darknet"


@pytest.mark.parametrize("folder", case_folders(HERE), ids=lambda folder: folder.name)
def test_cases_kept_here(folder: Path) -> None:
    result = replay("darknet", folder)
    assert result.ok, result.problems


@pytest.mark.reference
@pytest.mark.parametrize("folder", case_folders(WHOLE), ids=lambda folder: folder.name)
def test_whole_set(folder: Path) -> None:
    result = replay("darknet", folder)
    assert result.ok, result.problems


def test_a_changed_trace_is_noticed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = shutil.copytree(HERE / "conv_bn", tmp_path / "conv_bn")
    assert main(["darknet", str(tmp_path)]) == 0
    with np.load(folder / "trace.npz") as archive:
        arrays = {name: archive[name] for name in archive.files}
    arrays["it0/layer01/weight_updates"][0, 0, 0, 0] += 0.1
    np.savez(folder / "trace.npz", **arrays)
    assert main(["darknet", str(tmp_path)]) == 1
    shown = capsys.readouterr().out
    assert "NOT OK" in shown
    assert "it0/layer01/weight_updates" in shown


def test_case_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["darknet", str(HERE), "--case", "conv_bn"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "1 of 1 cases hold"
    assert main(["darknet", str(HERE), "--case", "nothing"]) == 2


@pytest.mark.parametrize(
    ("ours", "recorded", "scale", "holds"),
    [
        ([1.0, 2.0], [1.0, 2.0], None, True),
        ([1.0, 2.00001], [1.0, 2.0], None, True),
        ([1.0, 2.0001], [1.0, 2.0], None, False),
        ([np.nan, 2.0], [1.0, 2.0], None, False),
        ([np.nan, 2.0], [np.nan, 2.0], None, True),
        ([1e-9], [2e-9], None, False),
        ([1e-9], [2e-9], 1.0, True),
        ([1.0], [1.0, 2.0], None, False),
    ],
)
def test_comparison(ours: list[float], recorded: list[float], scale: float | None, holds: bool) -> None:
    result = Comparison(tolerance=1e-5)
    result.arrays("x", ours, np.array(recorded), scale)
    assert result.ok == holds


def test_integers_are_compared_exactly() -> None:
    result = Comparison(tolerance=1e-5)
    result.arrays("x", np.array([1, 2]), np.array([1, 3]))
    assert not result.ok
