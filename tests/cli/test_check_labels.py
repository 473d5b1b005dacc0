"""`undertow check` on the data sets of classifiers and segmenters: each kind of finding, broken on purpose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.cli.test_check import checked, said
from tests.cli.test_classifier import Pictures
from tests.cli.test_classifier import pictures as pictures
from tests.darknet.training.test_segmenter import Set
from tests.darknet.training.test_segmenter import scene as masks  # noqa: F401  a fixture


def counted(numbers: dict[str, Any], name: str) -> dict[str, Any]:
    return next(value for key, value in numbers.items() if key.endswith(name))


# --- segmenters ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("instances", [False, True])
def test_sound_masks(undertow: Any, masks: Set, instances: bool) -> None:  # noqa: F811
    status, lines, numbers = checked(undertow, masks.cfg(instances), masks.data)
    assert status == 0, lines
    counts = counted(numbers, "train.txt")
    assert (counts.pop("pictures"), counts.pop("objects")) == (6, 12)
    assert set(counts.values()) == {0}
    assert numbers["rounds"] == 6 * 4 / 6


@pytest.mark.parametrize("instances", [False, True])
def test_broken_masks(undertow: Any, masks: Set, instances: bool) -> None:  # noqa: F811
    masks.mask(0).unlink()
    masks.mask(1).write_text("0 5,5\nno mask\n")
    masks.mask(2).write_text("0 5,5\n2 5,5\n3 5,5\n")
    masks.mask(3).write_text("0 2240,1\n")
    masks.mask(4).write_text("\n")
    Path(masks.image(5)).write_bytes(b"not a picture")
    (masks.folder / "train.txt").write_text((masks.folder / "train.txt").read_text() + "images/9.png\n")
    status, lines, numbers = checked(undertow, masks.cfg(instances), masks.data)
    assert status == 1
    counts = counted(numbers, "train.txt")
    wanted = ("missing_masks", "broken_masks", "classes_out_of_range", "sizes_differ", "without_objects", "unreadable")
    assert [counts[name] for name in wanted] == [1] * 6
    assert counts["missing"] == 1
    assert said(lines, "error", "1 files of masks that are not there", "mask/0.txt")
    assert said(lines, "error", "1 broken files of masks", "mask/1.txt:2", "'no mask'")
    assert said(lines, "error", "classes beyond 0 to 1", "mask/2.txt:2: class 2")
    assert said(lines, "error", "not made from their picture", "mask/3.txt:1", "cover 2241 pixels", "56 x 40")
    assert said(lines, "warning", "pictures without an object", "mask/4.txt")
    assert said(lines, "warning", "pictures that cannot be read", "5.png")
    assert said(lines, "warning", "pictures of the list that are not there", "9.png")


def test_classes_and_objects_of_masks_are_counted(undertow: Any, masks: Set) -> None:  # noqa: F811
    masks.data.write_text(masks.data.read_text() + "classes=3\n")
    for number in range(6):
        masks.mask(number).write_text("1 5,5\n" * (91 if number == 0 else 1))
    status, lines, _ = checked(undertow, masks.cfg(True), masks.data)
    assert status == 0, lines
    assert said(lines, "warning", "classes=3, the net learns 2")
    assert said(lines, "warning", "no object of class 0")
    assert said(lines, "warning", "1 pictures with more than the 90 objects")
    assert not said(checked(undertow, masks.cfg(False), masks.data)[1], "more than the 90")


def test_a_net_that_learns_no_masks(undertow: Any, masks: Set) -> None:  # noqa: F811
    cfg = masks.cfg(False)
    cfg.write_text(cfg.read_text().replace("[logistic]", "[maxpool]\nsize=1\nstride=1"))
    status, lines, _ = checked(undertow, cfg, masks.data)
    assert status == 1
    assert said(lines, "error", "seg.cfg:", "[maxpool], which learns no map")


# --- classifiers --------------------------------------------------------------------------------------------------


def test_a_sound_classifier(undertow: Any, pictures: Pictures) -> None:
    status, lines, numbers = checked(undertow, pictures.cfg, pictures.data)
    assert status == 0, lines
    counts = counted(numbers, "all.list")
    assert counts["pictures_of"] == {"0": 4, "1": 4, "2": 4}
    assert (counts["pictures"], counts["without_class"], counts["with_several"], counts["unreadable"]) == (12, 0, 0, 0)
    assert said(lines, "3 of 3 classes, with 4 to 4 pictures")


def rewrite(pictures: Pictures, **values: str | None) -> None:
    """Other values in the .data file, or none."""
    given = dict(line.split("=") for line in pictures.data.read_text().split())
    given.update(values)  # type: ignore[arg-type]
    pictures.data.write_text("".join(f"{key}={value}\n" for key, value in given.items() if value is not None))


@pytest.mark.parametrize(
    ("values", "level", "parts"),
    [
        ({"labels": None}, "error", ["labels= is missing"]),
        ({"labels": "none.list"}, "error", ["labels=none.list does not exist"]),
        ({"classes": "4"}, "error", ["the net gives 3 values", "classes=4"]),
        ({"top": "9"}, "warning", ["top=9 of 3 classes"]),
        ({"tree": "none.tree"}, "error", ["tree=none.tree does not exist"]),
        ({"tree": "short.tree"}, "error", ["short.tree", "2 classes"]),
        ({"tree": "broken.tree"}, "error", ["broken.tree:2", "'x' is no parent"]),
        ({"leaves": "none.leaves"}, "error", ["leaves=none.leaves does not exist"]),
        ({"train": None}, "error", ["train= is missing"]),
        ({"tag": "1"}, "error", ["12 pictures have no class", ".txt"]),
    ],
)
def test_files_of_a_classifier(
    undertow: Any,
    pictures: Pictures,
    values: dict[str, str | None],
    level: str,
    parts: list[str],
) -> None:
    Path("short.tree").write_text("a -1\nb -1\n")
    Path("broken.tree").write_text("a -1\nb x\nc -1\n")
    rewrite(pictures, **values)
    status, lines, _ = checked(undertow, pictures.cfg, pictures.data)
    assert status == (level == "error"), lines
    assert said(lines, level, *parts), lines


def test_labels_in_paths_are_counted(undertow: Any, pictures: Pictures) -> None:
    (pictures.folder / "labels.list").write_text("_red\n_green\n_gre\n")
    pictures.paths[0].write_bytes(b"not a picture")
    status, lines, numbers = checked(undertow, pictures.cfg, pictures.data)
    assert status == 0, lines
    counts = counted(numbers, "all.list")
    assert counts["pictures_of"] == {"0": 4, "1": 4, "2": 4}
    assert (counts["without_class"], counts["with_several"], counts["unreadable"]) == (4, 4, 1)
    assert said(lines, "warning", "4 pictures have no class", "2_blue.png")
    assert said(lines, "warning", "4 pictures have more than one label", "1_green.png")
    (pictures.folder / "labels.list").write_text("_red\n_pink\n_gre\n")
    assert said(checked(undertow, pictures.cfg, pictures.data)[1], "warning", "no picture of class 1")


def test_tags_are_read(undertow: Any, pictures: Pictures) -> None:
    rewrite(pictures, tag="1", labels=None, valid=None)
    (pictures.folder / "pictures" / "labels").mkdir()
    for path, text in zip(pictures.paths, ("0 2", "1", "7", "x", *["0"] * 7), strict=False):
        path.with_suffix(".txt").write_text(text)
    status, lines, numbers = checked(undertow, pictures.cfg, pictures.data)
    assert status == 1
    counts = counted(numbers, "all.list")
    assert counts["pictures_of"] == {"0": 8, "1": 1, "2": 1}
    assert (counts["without_class"], counts["classes_out_of_range"], counts["broken_labels"]) == (1, 1, 1)
    assert said(lines, "error", "classes beyond 0 to 2", "class 7")
    assert said(lines, "error", "broken files of tags", "'x' is no class number")


def test_a_tree_of_the_cfg_counts_parents_too(undertow: Any, pictures: Pictures) -> None:
    (pictures.folder / "c.tree").write_text("a -1\nb 0\nc 0\n")
    pictures.cfg.write_text(pictures.cfg.read_text().replace("[softmax]", "[softmax]\ntree=c.tree"))
    (pictures.folder / "labels.list").write_text("_pink\n_red\n_green\n")
    status, lines, _ = checked(undertow, pictures.cfg, pictures.data)
    assert status == 0, lines
    assert not said(lines, "no picture of")
    (pictures.folder / "c.tree").write_text("a -1\nb 0\n")
    status, lines, _ = checked(undertow, pictures.cfg, pictures.data)
    assert status == 1
    assert said(lines, "error", "class tree", "has 2 classes")


def test_pictures_that_are_not_square(undertow: Any, pictures: Pictures) -> None:
    pictures.cfg.write_text(pictures.cfg.read_text().replace("height=", "height=3"))
    status, lines, _ = checked(undertow, pictures.cfg, pictures.data)
    assert status == 1
    assert said(lines, "error", "colour.cfg:1", "square pictures")


def test_a_net_of_texts_reads_no_pictures(undertow: Any, tmp_path: Path) -> None:
    (tmp_path / "a.cfg").write_text(
        "[net]\nbatch=2\ninputs=5\nmax_batches=3\n[rnn]\noutput=4\n[connected]\noutput=5\n[softmax]\n[cost]\n"
    )
    (tmp_path / "a.data").write_text("train=none\n")
    Image.fromarray(np.zeros((2, 2, 3), np.uint8)).save(tmp_path / "a.png")
    status, lines, _ = checked(undertow, tmp_path / "a.cfg", tmp_path / "a.data")
    assert status == 0, lines
    assert said(lines, "warning", "a.data is not looked at", "reads no pictures")


def test_a_net_that_only_fits_one_size_and_random(undertow: Any, pictures: Pictures) -> None:
    text = pictures.cfg.read_text().replace("[avgpool]", "[connected]\noutput=3\nactivation=linear")
    pictures.cfg.write_text(text)
    assert checked(undertow, pictures.cfg, pictures.data)[0] == 0
    pictures.cfg.write_text(text.replace("random=0", "random=1"))
    status, lines, _ = checked(undertow, pictures.cfg, pictures.data)
    assert status == 1
    assert said(lines, "error", "cannot be resized", "layer 2 [connected]", "leave out random=1 or [connected]")
