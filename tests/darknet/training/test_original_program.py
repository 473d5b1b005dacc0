"""Our weights in the original program, where Debian's `darknet` is installed: it finds the same boxes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.darknet.training.scenes import Scene
from undertow.darknet import load, train
from undertow.darknet.detection.pictures import Found, find_in_pictures
from undertow.darknet.detection.results import write_results

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


def test_valid2_gives_the_same_boxes_in_its_dialect(scene: Scene) -> None:
    """The mean of a picture and its mirror image, with the program's own sign of x. Of [region] layers: for [yolo] the
    program makes room for the boxes of the picture alone, and dies where the mean has more.
    """
    text = scene.cfg.read_text()
    head = "[region]\nanchors=1,1,2,2\nclasses=2\nnum=2\nsoftmax=1\n"
    scene.cfg.write_text(text[: text.index("[yolo]")] + head)
    weights = scene.folder / "some.weights"
    load(scene.cfg, seed=4).save_weights(weights)
    (scene.folder / "results").mkdir()
    darknet(scene.folder, "detector", "valid2", scene.data, scene.cfg, weights)
    net = load(scene.cfg, weights, dialect="darknet-cpu")
    paths = [str(scene.image(number)) for number in range(6)]
    found = find_in_pictures(net, paths, 0.005, 0.45, net.suppress, mirrored=True)
    write_results(found, "voc", scene.folder / "ours", ["red", "blue"])
    compared = 0
    for name in ("comp4_det_test_red.txt", "comp4_det_test_blue.txt"):
        theirs, ours = rows(scene.folder / "results" / name), rows(scene.folder / "ours" / name)
        for (picture, *their), (same, *our) in zip(theirs, ours, strict=True):
            assert picture == same
            assert their == pytest.approx(our, abs=2e-3, rel=1e-4)
            compared += 1
    assert compared > 20


def test_valid_gives_the_same_boxes(scene: Scene, weights: Path) -> None:
    """`detector valid` writes every box with its confidence: picture, confidence, left, top, right, bottom."""
    results = scene.folder / "results"
    results.mkdir()
    darknet(scene.folder, "detector", "valid", scene.data, scene.cfg, weights)
    write_results(find(scene, weights), "voc", scene.folder / "ours", ["red", "blue"])
    compared = 0
    for name in ("comp4_det_test_red.txt", "comp4_det_test_blue.txt"):
        theirs, ours = rows(results / name), rows(scene.folder / "ours" / name)
        assert [picture for picture, *_ in theirs] == [picture for picture, *_ in ours]
        for (_, *their), (_, *our) in zip(theirs, ours, strict=True):
            assert their == pytest.approx(our, abs=2e-3, rel=1e-4)
            compared += 1
    assert compared > 20


def test_valid_writes_the_same_coco_results(scene: Scene, weights: Path) -> None:
    (scene.folder / "results").mkdir()
    with open(scene.data, "a") as stream:
        stream.write("eval=coco\n")
    darknet(scene.folder, "detector", "valid", scene.data, scene.cfg, weights)
    (file,) = write_results(find(scene, weights), "coco", scene.folder / "ours", ["red", "blue"])
    theirs = json.loads((scene.folder / "results" / "coco_results.json").read_text())
    ours = json.loads(file.read_text())
    assert file.name == "coco_results.json"
    assert len(theirs) == len(ours) > 20
    for their, our in zip(theirs, ours, strict=True):
        assert {key: their[key] for key in ("image_id", "category_id")} == {
            key: our[key] for key in ("image_id", "category_id")
        }
        assert their["score"] == pytest.approx(our["score"], abs=1e-4)
        assert their["bbox"] == pytest.approx(our["bbox"], abs=5e-3)


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


def find(scene: Scene, weights: Path) -> list[Found]:
    net = load(scene.cfg, weights)
    paths = [str(scene.image(number)) for number in range(6)]
    return list(find_in_pictures(net, paths, 0.005, 0.45, net.suppress))


def rows(path: Path) -> list[tuple[str, float, float, float, float, float]]:
    """The lines of a file of results; those of one picture by confidence."""
    split = [line.split() for line in path.read_text().splitlines()]
    found = [(picture, *map(float, numbers)) for picture, *numbers in split]
    return sorted(found, key=lambda row: (row[0], -row[1]))  # type: ignore[return-value,arg-type]
