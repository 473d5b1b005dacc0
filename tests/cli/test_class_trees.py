"""-hier: how far detections go down a class tree."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Answer
from tests.darknet.training.scenes import Scene
from undertow.darknet import load

CFG = """[net]
width=32
height=32
channels=3
[convolutional]
filters=8
size=3
stride=8
pad=1
activation=linear
[region]
classes=3
num=1
coords=4
anchors=2,2
softmax=1
tree=tree.txt
"""


@pytest.mark.parametrize(("hier", "name"), [("0.3", "red"), ("0.9", "thing")])
@pytest.mark.parametrize("function", ["test", "demo"])
def test_the_threshold_decides_how_far_down(
    undertow: Callable[..., Answer], scene: Scene, tmp_path: Path, hier: str, name: str, function: str
) -> None:
    """The net is sure of a thing (1 in its group) and says red with 0.73."""
    (tmp_path / "tree.txt").write_text("thing -1\nred 0\nblue 0\n")
    (tmp_path / "names").write_text("thing\nred\nblue\n")
    (tmp_path / "tree.cfg").write_text(CFG)
    (tmp_path / "tree.data").write_text("names=names\n")
    net = load("tree.cfg")
    net.layers[0].weights[...] = 0
    net.layers[0].biases[...] = np.array([0, 0, 0, 0, 4, 0, 1, 0])
    net.save_weights("tree.weights")
    words = ("darknet", "detector", function, "tree.data", "tree.cfg", "tree.weights", scene.image(0))
    answer = undertow(*words, "-hier", hier, "-nms", "0.1")
    assert {line.split(":")[0] for line in answer.out.splitlines() if line.endswith("%")} == {name}
    assert "-hier 2: at most 1" in undertow(*words, "-hier", "2").error
