"""Recorded traces of AlexeyAB's fork: what they hold about inference, boxes, overlap and folding."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.replay.__main__ import case_folders, main, replay

HERE = Path(__file__).parents[2] / "goldens" / "alexeyab"
WHOLE = Path(os.environ.get("UNDERTOW_REFERENCE_DATA", "/nowhere")) / "goldens" / "alexeyab"


@pytest.mark.parametrize("folder", case_folders(HERE), ids=lambda folder: folder.name)
def test_cases_kept_here(folder: Path) -> None:
    result = replay("alexeyab", folder)
    assert result is not None
    assert result.ok, result.problems


@pytest.mark.reference
@pytest.mark.parametrize("folder", case_folders(WHOLE), ids=lambda folder: folder.name)
def test_whole_set(folder: Path) -> None:
    result = replay("alexeyab", folder)
    if result is None:
        pytest.skip("training in the fork's way is not replayed yet")
    assert result.ok, result.problems


@pytest.mark.parametrize(
    ("case", "array"),
    [
        ("act_layer_mish", "infer/layer04/output"),
        ("boxes_gaussian", "diounms/prob"),
        ("boxes_gaussian", "raw/uc"),
        ("iou", "ciou/value"),
        ("fuse", "fused/layer01/weights"),
        ("conv_lstm_bn_peephole", "infer/layer00/cell"),
    ],
)
def test_a_changed_trace_is_noticed(case: str, array: str, tmp_path: Path) -> None:
    folder = shutil.copytree(HERE / case, tmp_path / case)
    with np.load(folder / "trace.npz") as archive:
        arrays = {name: archive[name] for name in archive.files}
    arrays[array].reshape(-1)[0] += 0.1
    np.savez(folder / "trace.npz", **arrays)
    assert main(["alexeyab", str(tmp_path)]) == 1
