"""Training a net of YOLOv2's kind, with dropout and Adam: it learns, is measured, and goes on where it stopped."""

from __future__ import annotations

import numpy as np
import pytest

from tests.darknet.training.scenes import Scene
from tests.darknet.training.test_checkpoint import run, same
from undertow.darknet import detect, load, validate
from undertow.errors import FormatError

REGION = """[dropout]
probability=.2

[convolutional]
size=1
stride=1
pad=1
filters=14
activation=linear

[region]
anchors=1,1,2,2
classes=2
num=2
softmax=1
bias_match=1
jitter=.2
rescore=1
"""


@pytest.fixture
def region_scene(scene: Scene) -> Scene:
    text = scene.cfg.read_text()
    before = text[: text.index("[convolutional]\nsize=1")]
    scene.cfg.write_text(before.replace("momentum=0.9", "momentum=0.9\nadam=1") + REGION)
    return scene


def test_a_stopped_run_goes_on_bit_for_bit(region_scene: Scene) -> None:
    whole, told = run(region_scene)
    run(region_scene, stop_after=5)
    resumed, second = run(region_scene, region_scene.backup)
    assert any("going on exactly" in note for note in second.notes)
    assert same(whole.net, resumed.net)
    assert second.iterations[-1].loss == told.iterations[-1].loss


def test_the_loss_falls_and_boxes_are_found(region_scene: Scene) -> None:
    region_scene.cfg.write_text(region_scene.cfg.read_text().replace("max_batches=6", "max_batches=60"))
    _, told = run(region_scene)
    losses = [iteration.loss for iteration in told.iterations]
    assert np.mean(losses[-10:]) < 0.7 * np.mean(losses[:10])
    evaluation = validate(region_scene.data, region_scene.cfg, region_scene.backup.with_name("tiny_final.weights"))
    assert 0 <= evaluation.mean_average_precision <= 1
    net = load(region_scene.cfg, region_scene.backup.with_name("tiny_final.weights"), names=["a", "b"])
    for found in detect(net, region_scene.image(0), threshold=0.01):
        assert found.name in ("a", "b")


def test_nets_without_a_list_of_boxes_are_told(region_scene: Scene) -> None:
    text = region_scene.cfg.read_text()
    region_scene.cfg.write_text(text[: text.index("[region]")] + "[cost]\n")
    with pytest.raises(FormatError, match=r"no \[yolo\], \[region\] or \[detection\] layer"):
        run(region_scene)
