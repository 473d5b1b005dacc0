"""Our weights in the original program, where Debian's `darknet` is installed: it finds the same boxes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.darknet.training.scenes import Scene
from undertow.darknet import Network, load, train
from undertow.darknet.detector import as_picture, find_candidates

pytestmark = [
    pytest.mark.darknet_program,
    pytest.mark.skipif(shutil.which("darknet") is None, reason="the original darknet program is not installed"),
]


def darknet(folder: Path, *words: str | Path) -> str:
    """Run the program in a folder of its own; what it prints. It opens a window unless told where to draw."""
    finished = subprocess.run(
        ["darknet", *map(str, words)],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env=os.environ | {"QT_QPA_PLATFORM": "offscreen"},
    )
    return finished.stdout


@pytest.fixture
def weights(scene: Scene) -> Path:
    scene.write_cfg(max_batches=150, rate=0.005)
    return train(scene.data, scene.cfg).weights


def test_valid_gives_the_same_boxes(scene: Scene, weights: Path) -> None:
    """`detector valid` writes every box with its confidence: picture, confidence, left, top, right, bottom."""
    (scene.folder / "results").mkdir()
    darknet(scene.folder, "detector", "valid", scene.data, scene.cfg, weights)
    net = load(scene.cfg, weights)
    compared = 0
    for label, name in enumerate(("red", "blue")):
        theirs = read_results(scene.folder / "results" / f"comp4_det_test_{name}.txt")
        ours = our_results(net, scene, label)
        assert theirs.keys() == ours.keys()
        for picture, boxes in theirs.items():
            assert len(boxes) == len(ours[picture])
            for their, our in zip(boxes, ours[picture], strict=True):
                assert their == pytest.approx(our, abs=2e-3, rel=1e-4)
                compared += 1
    assert compared > 20


def test_the_program_prints_the_same_objects(scene: Scene, weights: Path) -> None:
    printed = darknet(
        scene.folder,
        "detector",
        "test",
        scene.data,
        scene.cfg,
        weights,
        scene.image(2),
        "-thresh",
        ".05",
        "-out",
        "drawn",
    )
    theirs = re.findall(r"^(red|blue): (\d+)%$", printed, re.MULTILINE)
    found = load(scene.cfg, weights, names=["red", "blue"]).detect(scene.image(2), threshold=0.05)
    assert theirs == [(one.name, f"{100 * one.confidence:.0f}") for one in found]
    assert len(theirs) > 1


def test_our_file_comes_out_of_the_program_as_it_went_in(scene: Scene, weights: Path) -> None:
    """`partial` loads and saves, and sets the number of images seen (bytes 12 to 19) to 0."""
    darknet(scene.folder, "partial", scene.cfg, weights, "copy.weights", "100")
    theirs, ours = (scene.folder / "copy.weights").read_bytes(), weights.read_bytes()
    assert theirs[:12] == ours[:12]
    assert int.from_bytes(ours[12:20], "little") == 600
    assert theirs[20:] == ours[20:]


def read_results(path: Path) -> dict[str, list[tuple[float, ...]]]:
    results: dict[str, list[tuple[float, ...]]] = {}
    for line in path.read_text().splitlines():
        picture, *numbers = line.split()
        results.setdefault(picture, []).append(tuple(map(float, numbers)))
    return {picture: sorted(boxes) for picture, boxes in results.items()}


def our_results(net: Network, scene: Scene, label: int) -> dict[str, list[tuple[float, ...]]]:
    """The same from our detections; the program counts pixels from 1 and clips boxes to the picture."""
    results: dict[str, list[tuple[float, ...]]] = {}
    for number in range(6):
        found = find_candidates(net, as_picture(scene.image(number)), 0.005, 0.45).detections([], 0.0, (56, 40))
        for one in found:
            if one.class_id == label:
                left, top, right, bottom = one.pixel_box.sides
                box = max(left + 1, 1), max(top + 1, 1), min(right + 1, 56), min(bottom + 1, 40)
                results.setdefault(str(number), []).append((one.confidence, *box))
    return {picture: sorted(boxes) for picture, boxes in results.items()}
