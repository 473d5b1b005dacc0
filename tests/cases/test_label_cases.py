"""Cases 49 to 59: label files, image lists, names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.cases.support import case, copied
from undertow.darknet.files.datafile import read_data
from undertow.darknet.files.imagelist import read_image_list
from undertow.darknet.files.labels import LabelReader, read_labels
from undertow.darknet.files.names import read_names
from undertow.darknet.files.paths import label_path
from undertow.errors import FormatError


def label_file(name: str) -> str:
    return str(case(name) / "img.txt")


def test_49_missing_label_file_is_reported_once_and_counted(tmp_path: Path) -> None:
    image = str(tmp_path / "img.jpg")
    reader = LabelReader(classes=2)
    for _ in range(3):
        labels = reader(image)
        assert labels.missing
        assert labels.boxes.shape == (0, 5)
    assert reader.summary.missing == 1
    (issue,) = reader.summary.first
    assert str(tmp_path / "img.txt") in str(issue)
    assert "1 label files missing" in reader.summary.lines()[0]


def test_49_missing_label_file_as_an_error(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"img\.txt"):
        LabelReader(missing="error")(str(tmp_path / "img.jpg"))


def test_50_boxes_outside_the_image() -> None:
    labels = read_labels(label_file("50"), classes=2, size=(416, 416))
    np.testing.assert_allclose(labels.boxes, [[0.5, 0.5, 1, 0.2, 0], [0.3, 0.6, 0.2, 0.4, 1]])
    assert [(issue.line, issue.dropped) for issue in labels.issues] == [(1, True), (2, False), (3, True), (4, True)]
    assert all(f"{labels.path}:{issue.line}: " in str(issue) for issue in labels.issues)
    assert [issue.kind for issue in labels.issues] == [
        "centre outside the image",
        "box larger than the image",
        "centre outside the image",
        "box too small",
    ]


def test_52_class_written_as_a_float() -> None:
    labels = read_labels(label_file("52"))
    np.testing.assert_allclose(labels.boxes, [[0.5, 0.5, 0.2, 0.2, 0]])
    assert "'0.0' is read as 0" in str(labels.issues[0])


def test_53_decimal_comma() -> None:
    with pytest.raises(FormatError, match="decimal comma") as caught:
        read_labels(label_file("53"))
    assert caught.value.line == 1


def test_55_mixed_blanks_blank_line_no_last_newline() -> None:
    labels = read_labels(label_file("55"))
    np.testing.assert_allclose(labels.boxes, [[0.5, 0.5, 0.2, 0.2, 0], [0.25, 0.25, 0.1, 0.1, 1]])
    assert labels.issues == ()


def test_56_label_paths() -> None:
    images = (case("56") / "list.txt").read_text().splitlines()
    assert [label_path(image, exists=lambda path: False) for image in images] == [
        "data/my_raw_image.txt",
        "data/aaa.jpg.b.txt",
        "data/images/cat.txt",
        "data/cat_images/x.txt",
        "VOC/labels/1.txt",
        "coco/labels/train2017/1.txt",
        "d\\labels\\2.txt",
    ]


def test_56_labels_folder_comes_first_where_it_exists() -> None:
    assert label_path("data/images/cat.jpg", exists=lambda path: True) == "data/labels/cat.txt"


def test_58_names_a_shell_would_run_are_only_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = copied("58", tmp_path / "case")
    monkeypatch.chdir(folder)
    with pytest.raises(FormatError, match=r"image not found: x; touch OWNED ;\.jpg") as caught:
        read_image_list("list.txt")
    assert caught.value.line == 1
    (folder / "$(touch OWNED).jpg").write_bytes(b"")
    images = read_image_list("list.txt")
    assert images.paths == ("$(touch OWNED).jpg",)
    assert [issue.line for issue in images.issues] == [1]
    assert not (folder / "OWNED").exists()


def test_59_names_with_windows_ends_and_a_blank_last_line() -> None:
    assert read_names(case("59") / "a.names") == ["cat", "dog"]


def test_59_number_of_names_is_checked() -> None:
    data = read_data(case("59") / "a.data")
    assert data.options.classes == 3
    assert data.options.backup == "out"
    with pytest.raises(FormatError, match="classes=3 but 2 names"):
        data.read_names()
    assert any("a.names" in note for note in data.notes)  # found beside the .data file, which is said
