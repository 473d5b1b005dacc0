"""Recorded traces of Caffe, array by array, in dialect `caffe`; and the replayer itself."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.replay.__main__ import case_folders, main, replay
from tests.replay.caffe import Closeness, kind_of

HERE = Path(__file__).parents[2] / "goldens" / "caffe"
WHOLE = Path(os.environ.get("UNDERTOW_REFERENCE_DATA", "/nowhere")) / "goldens" / "caffe"


def folders(place: Path) -> list[Path]:
    return [f for f in case_folders(place, "caffe") if kind_of(f)] if place.is_dir() else []


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


def test_a_changed_number_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "case"
    shutil.copytree(next(f for f in folders(HERE) if f.name == "layer_conv_basic"), folder)
    with np.load(folder / "trace.npz") as archive:
        arrays = dict(archive)
    arrays["param/op/0/diff"][0, 0, 0, 0] += 1e-3
    np.savez(folder / "trace.npz", **arrays)
    result = replay("caffe", folder)
    assert result is not None
    assert not result.ok
    assert result.problems[0].startswith("param/op/0/diff")


def test_the_command_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = next(f for f in folders(HERE) if f.name == "layer_conv_basic")
    shutil.copytree(folder, tmp_path / "whole" / "layer_conv_basic")
    unknown = tmp_path / "whole" / "something_else"
    unknown.mkdir()
    (unknown / "odd.prototxt").write_text("")
    assert main(["caffe", str(tmp_path / "whole")]) == 0
    assert "1 of 1 cases hold; 1 not replayed yet" in capsys.readouterr().out


def test_closeness_is_per_element() -> None:
    result = Closeness()
    result.arrays("large beside small", np.array([1000.0, 0.0]), np.array([1000.0, 0.01]))
    assert not result.ok
    again = Closeness()
    again.arrays("near", np.array([1000.05, 5e-6]), np.array([1000.0, 0.0]))
    assert again.ok
