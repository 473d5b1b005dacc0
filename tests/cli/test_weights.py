"""`undertow darknet partial`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Answer
from tests.darknet.training.scenes import Scene
from undertow.darknet import load

Command = Callable[..., Answer]


@pytest.fixture
def weights(scene: Scene, tmp_path: Path) -> Path:
    net = load(scene.cfg, seed=3)
    net.seen = 640
    path = tmp_path / "whole.weights"
    net.save_weights(path)
    return path


def test_a_backbone_is_cut(undertow: Command, scene: Scene, weights: Path, tmp_path: Path) -> None:
    out = tmp_path / "backbone.conv.1"
    assert undertow("darknet", "partial", scene.cfg, weights, out, 1).status == 0
    whole, cut = weights.read_bytes(), out.read_bytes()
    assert cut[20:] == whole[20 : len(cut)]
    assert len(cut) < len(whole)
    assert int.from_bytes(cut[12:20], "little") == 0
    net = load(scene.cfg, seed=9)
    with pytest.warns(UserWarning, match="partial file"):
        net.load_weights(out)
    assert np.array_equal(net.layers[0].weights, load(scene.cfg, seed=3).layers[0].weights)


@pytest.mark.parametrize("layers", ["0", "99", "-1", "x", "1.5"])
def test_wrong_numbers_are_told(undertow: Command, scene: Scene, weights: Path, tmp_path: Path, layers: str) -> None:
    answer = undertow("darknet", "partial", scene.cfg, weights, tmp_path / "out", layers)
    assert f"LAYERS is '{layers}'" in answer.error
    assert not (tmp_path / "out").exists()


def test_a_file_that_ends_before_the_cut_is_told(
    undertow: Command, scene: Scene, weights: Path, tmp_path: Path
) -> None:
    cut = tmp_path / "cut"
    assert undertow("darknet", "partial", scene.cfg, weights, cut, 1).status == 0
    answer = undertow("darknet", "partial", scene.cfg, cut, tmp_path / "out", len(load(scene.cfg).layers))
    assert "ends after layer 0" in answer.error
    assert "cut at 1" in answer.error


@pytest.mark.parametrize("name", ["partial", "average", "rescale", "oneoff2"])
def test_no_tool_writes_over_what_it_reads(
    undertow: Command, scene: Scene, weights: Path, tmp_path: Path, name: str
) -> None:
    before = weights.read_bytes()
    other = tmp_path / "link.weights"
    other.symlink_to(weights)
    for target in (weights, other, scene.cfg):
        words = (target, weights) if name == "average" else (weights, target)
        answer = undertow("darknet", name, scene.cfg, *words, *([1] if name in ("partial", "oneoff2") else []))
        assert answer.status == 2
        assert "would write over" in answer.error
    assert weights.read_bytes() == before


@pytest.mark.parametrize("tool", ["statistics", "partial", "average"])
def test_no_file_is_named(undertow: Callable[..., Answer], scene: Scene, tool: str) -> None:
    """Empty WEIGHTS mean random ones where a net computes; where a file is changed, there is nothing to change."""
    more = {"statistics": [scene.cfg, ""], "partial": [scene.cfg, "", "out", 1], "average": [scene.cfg, "out", ""]}
    assert undertow("darknet", tool, *more[tool]).error == (
        "error: '': cannot be read: no file is named. To mend it: check the path"
    )
