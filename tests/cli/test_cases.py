"""The named cases of broken and odd files through the command: one message and status 2, or a result and a warning."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.cases.support import case
from tests.cli.conftest import Answer
from tests.darknet.training.scenes import Scene

Command = Callable[..., Answer]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("04", ["a.cfg:1: ", "outside a section"]),
        ("05", ["a.cfg: ", "the file is empty"]),
        ("11", ["a.cfg:", "value list ended with a comma"]),
        ("13", ["a.cfg:", "21", "255"]),
        ("17", ["a.cfg:", "layer 1", "-8"]),
        ("19", ["a.cfg:", "16x16", "32x32"]),
        ("20", ["a.cfg:", "6x6", "5x5", "multiple"]),
        ("22", ["a.cfg:", "did you mean [convolutional]?"]),
        ("25", ["a.cfg:9: ", "line 13"]),
        ("28", ["a.cfg:", "batch (4) must be a multiple of subdivisions (8)"]),
        ("29", ["a.cfg:", "memory"]),
    ],
)
def test_cfgs_that_cannot_be_used(undertow: Command, scene: Scene, name: str, words: list[str]) -> None:
    cfg = case(name) / "a.cfg"
    for command in (
        ["train", scene.data, cfg],
        ["test", scene.data, cfg, "no.weights", scene.image(0)],
        ["map", scene.data, cfg, "no.weights"],
    ):
        error = undertow("darknet", "detector", *command).error
        for word in words:
            assert word in error


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("08", ["a.cfg:3: ", "lines 2 and 3", "the first value counts"]),
        ("23", ["a.cfg:9: ", "filtres", "did you mean 'filters'?"]),
    ],
)
def test_cfgs_that_are_odd_are_warned_of_and_refused_when_strict(
    undertow: Command, scene: Scene, name: str, words: list[str]
) -> None:
    """They hold no head, which is the error that follows the warning."""
    cfg = case(name) / "a.cfg"
    answer = undertow("darknet", "detector", "train", scene.data, cfg)
    assert "cannot find objects" in answer.error
    assert len(answer.warnings) == 1
    for word in words:
        assert word.casefold() in answer.warnings[0].casefold()
    strict = undertow("darknet", "detector", "train", scene.data, cfg, "-strict")
    assert not strict.warnings
    assert words[1] in strict.error


@pytest.mark.parametrize(
    ("name", "file", "warning"),
    [
        ("43", "a.weights", "4 bytes"),
        ("44", "a.conv.1", "1 of 2 layers loaded"),
        ("46", "a.weights", "layer 0"),
    ],
)
def test_weights_that_are_odd_are_warned_of(
    undertow: Command, scene: Scene, name: str, file: str, warning: str
) -> None:
    folder = case(name)
    answer = undertow("darknet", "detector", "test", scene.data, folder / "a.cfg", folder / file, scene.image(0))
    assert "cannot find objects" in answer.error
    assert any(warning in line for line in answer.warnings)


def test_weights_that_are_text(undertow: Command, scene: Scene) -> None:
    folder = case("47")
    words = ("darknet", "detector", "test", scene.data, folder / "a.cfg", folder / "a.weights", scene.image(0))
    assert "15 bytes" in undertow(*words).error


def test_weights_of_another_net(undertow: Command, scene: Scene) -> None:
    error = undertow("darknet", "detector", "train", scene.data, scene.cfg, case("40") / "a.weights").error
    assert "a.weights" in error
    assert "byte" in error


def test_missing_labels_are_told_once_with_the_path_that_was_tried(undertow: Command, scene: Scene) -> None:
    scene.image(0).with_suffix(".txt").unlink()
    answer = undertow("darknet", "detector", "train", scene.data, scene.cfg)
    assert answer.status == 0
    assert "5 label files, 10 boxes, 1 label files missing" in answer.err
    told = [line for line in answer.err.splitlines() if "no label file for" in line]
    assert len(told) == 1
    assert "labels/0.txt" in told[0]


def test_labels_outside_the_picture_are_told_line_by_line(undertow: Command, scene: Scene) -> None:
    shutil.copy(case("50") / "img.txt", scene.image(2).with_suffix(".txt"))
    answer = undertow("darknet", "detector", "train", scene.data, scene.cfg)
    assert answer.status == 0
    for line in (1, 2, 3, 4):
        assert f"2.txt:{line}: " in answer.err
    assert "2.txt:5: " not in answer.err


@pytest.mark.parametrize(("name", "status"), [("52", 0), ("53", 2), ("55", 0)])
def test_labels_written_in_other_ways(undertow: Command, scene: Scene, name: str, status: int) -> None:
    shutil.copy(case(name) / "img.txt", scene.image(1).with_suffix(".txt"))
    answer = undertow("darknet", "detector", "train", scene.data, scene.cfg)
    assert answer.status == status
    if status:
        assert "1.txt:1: " in answer.error
        assert "decimal comma" in answer.error


def test_no_shell_is_started_for_file_names(undertow: Command, scene: Scene) -> None:
    shutil.copy(case("58") / "list.txt", scene.folder / "train.txt")
    assert "image not found" in undertow("darknet", "detector", "train", scene.data, scene.cfg).error
    assert not list(scene.folder.parent.rglob("OWNED"))
    with open(scene.folder / "train.txt", "a") as stream:
        stream.write("images/0.png\n")
    answer = undertow("darknet", "detector", "train", scene.data, scene.cfg)
    assert answer.status == 0
    assert "2 pictures of the list are not there" in answer.err
    assert not list(scene.folder.parent.rglob("OWNED"))


def test_names_that_are_too_few(undertow: Command, scene: Scene) -> None:
    text = scene.cfg.read_text().replace("classes=2", "classes=3").replace("filters=14", "filters=16")
    scene.cfg.write_text(text)
    answer = undertow("darknet", "detector", "test", case("59") / "a.data", scene.cfg, "", scene.image(0))
    assert "classes=3 but 2 names" in answer.error


def picture(folder: Path, kind: str) -> Path:
    """A picture of one of the odd kinds, 32 x 16."""
    pixels = np.random.default_rng(0).integers(0, 255, (16, 32, 3), dtype=np.uint8)
    image = Image.fromarray(pixels)
    path = folder / "odd.jpg"
    if kind == "exif":
        exif = Image.Exif()
        exif[0x0112] = 6
        image.save(path, exif=exif)
    elif kind == "cmyk":
        image.convert("CMYK").save(path)
    elif kind == "grey":
        image.convert("L").save(path, format="PNG")
    elif kind == "alpha":
        image.putalpha(100)
        image.save(path, format="PNG")
    else:
        image.save(path, format="PNG")  # a .jpg by name only
    return path


@pytest.mark.parametrize("kind", ["exif", "cmyk", "grey", "alpha", "lying name"])
def test_pictures_of_odd_kinds(undertow: Command, scene: Scene, kind: str) -> None:
    """Cases 61, 62, 64, 65, 68: read, looked at, drawn."""
    net = scene.folder / "fresh.weights"
    from undertow.darknet import load

    load(scene.cfg).save_weights(net)
    answer = undertow("darknet", "detector", "test", scene.data, scene.cfg, net, picture(scene.folder, kind))
    assert answer.status == 0
    with Image.open("predictions.jpg") as drawn:
        assert drawn.size == (32, 16)


def test_a_rotation_tag_is_told_once_in_training(undertow: Command, scene: Scene) -> None:
    path = picture(scene.folder, "exif")
    path.with_suffix(".txt").write_text("0 0.5 0.5 0.2 0.4\n")
    (scene.folder / "train.txt").write_text("odd.jpg\n")
    answer = undertow("darknet", "detector", "train", scene.data, scene.cfg)
    assert answer.status == 0
    assert len([line for line in answer.warnings if "EXIF orientation 6" in line]) == 1


def test_truncated_pictures_are_skipped_and_counted_in_training(undertow: Command, scene: Scene) -> None:
    """Case 67; as the one picture to test it is an error."""
    path = scene.folder / "cut.jpg"
    Image.fromarray(np.zeros((64, 64, 3), np.uint8)).save(path)
    path.write_bytes(path.read_bytes()[:-200])
    with open(scene.folder / "train.txt", "a") as stream:
        stream.write("cut.jpg\n" * 6)
    scene.write_cfg(max_batches=8)
    answer = undertow("darknet", "detector", "train", scene.data, scene.cfg)
    assert answer.status == 0
    assert "cut.jpg" in answer.err
    assert "skipped" in answer.err.splitlines()[-1]
    from undertow.darknet import load

    load(scene.cfg).save_weights(scene.folder / "fresh.weights")
    words = ("darknet", "detector", "test", scene.data, scene.cfg, scene.folder / "fresh.weights", path)
    assert "cut.jpg" in undertow(*words).error
