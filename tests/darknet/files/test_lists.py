"""Label files, image lists, names and .data files."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from tests.cases.support import warned
from undertow.darknet.files.datafile import read_data
from undertow.darknet.files.imagelist import read_image_list
from undertow.darknet.files.issues import Issue, IssueCounter
from undertow.darknet.files.labels import LabelReader, read_labels
from undertow.darknet.files.names import read_names
from undertow.darknet.files.paths import find_file, label_candidates, label_path
from undertow.errors import FormatError, UndertowWarning


def write(path: Path, text: str | bytes) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


class TestLabels:
    def test_boxes(self, tmp_path: Path) -> None:
        labels = read_labels(write(tmp_path / "a.txt", "0 0.5 0.25 .1 1e-1\n3 1 1 1 1\n"), classes=4, strict=True)
        np.testing.assert_array_equal(labels.boxes, np.float32([[0.5, 0.25, 0.1, 0.1, 0], [1, 1, 1, 1, 3]]))
        assert labels.boxes.dtype == np.float32

    def test_empty_file_means_no_boxes(self, tmp_path: Path) -> None:
        labels = read_labels(write(tmp_path / "a.txt", ""), strict=True)
        assert labels.boxes.shape == (0, 5)
        assert not labels.missing

    @pytest.mark.parametrize(
        ("line", "reason"),
        [
            ("0 .5 .5 .1", "4 values"),
            ("0 .5 .5 .1 .1 .9", "6 values"),
            ("0 .1 .1 .2 .1 .2 .2 .1 .2", "a polygon"),
            ("cat .5 .5 .1 .1", "'cat' is not a number"),
            ("0,.5,.5,.1,.1", "not commas"),
            ("0 0,5 .5 .1 .1", "decimal comma"),
            ("0.5 .5 .5 .1 .1", "class '0.5' is not a whole number"),
            ("0 nan .5 .1 .1", "'nan' is not a number"),
            ("0 inf .5 .1 .1", "'inf' is not a number"),
            ("0 1e999 .5 .1 .1", "too large"),
            ("0 .5 .5 .1 0x1", "'0x1' is not a number"),
            ("0 .5 .5 .1 ." + "1" * 1000, "too long"),
            ("<html> <body> a b c", "'<html>' is not a number"),
        ],
    )
    def test_lines_that_are_no_box(self, tmp_path: Path, line: str, reason: str) -> None:
        path = write(tmp_path / "a.txt", f"0 .5 .5 .1 .1\n{line}\n")
        with pytest.raises(FormatError, match=reason) as caught:
            read_labels(path)
        assert (caught.value.file, caught.value.line) == (path, 2)

    def test_all_bad_lines_are_told(self, tmp_path: Path) -> None:
        with pytest.raises(FormatError, match=r"line 2: .*; line 3: .*; and 5 more"):
            read_labels(write(tmp_path / "a.txt", "a\n" * 10))

    @pytest.mark.parametrize("label", ["-1", "2", "7"])
    def test_class_out_of_range_is_dropped(self, tmp_path: Path, label: str) -> None:
        path = write(tmp_path / "a.txt", f"{label} .5 .5 .1 .1\n1 .5 .5 .1 .1\n")
        labels = read_labels(path, classes=2)
        assert labels.boxes[:, 4].tolist() == [1]
        assert [(issue.kind, issue.dropped) for issue in labels.issues] == [("class out of range", True)]
        with pytest.raises(FormatError, match=f"class {label}"):
            read_labels(path, classes=2, strict=True)

    def test_smallest_box_depends_on_the_size_of_the_net(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.txt", "0 .5 .5 .002 .002\n")
        assert len(read_labels(path).boxes) == 1
        assert len(read_labels(path, size=(416, 416)).boxes) == 0
        assert len(read_labels(path, size=(608, 608)).boxes) == 1

    def test_reader_counts_each_file_once(self, tmp_path: Path) -> None:
        write(tmp_path / "images/a.jpg", b"")
        write(tmp_path / "labels/a.txt", "0 .5 .5 .1 .1\n0 2 .5 .1 .1\n5 .5 .5 .1 .1\n")
        write(tmp_path / "labels/b.txt", "0 .5\n")
        reader = LabelReader(classes=1, size=(32, 32))
        threads = [threading.Thread(target=reader, args=(str(tmp_path / "images/a.jpg"),)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with pytest.raises(FormatError):
            reader(str(tmp_path / "images/b.jpg"))
        reader(str(tmp_path / "images/c.jpg"))
        assert (reader.summary.files, reader.summary.boxes, reader.summary.missing) == (2, 1, 1)
        assert reader.summary.counts == {
            "centre outside the image": 1,
            "class out of range": 1,
            "unreadable label file": 1,
            "label file missing": 1,
        }

    def test_summary_keeps_the_first_findings_and_counts_the_rest(self) -> None:
        counter = IssueCounter(kept=2)
        counter.add("a.txt", 0, tuple(Issue("odd", f"reason {n}", "a.txt", n, True) for n in range(5)))
        assert counter.lines() == [
            "1 label files, 0 boxes, 0 label files missing",
            "  5 x odd",
            "  a.txt:0: reason 0",
            "  a.txt:1: reason 1",
            "  and 3 more",
        ]


class TestPaths:
    @pytest.mark.parametrize(
        ("image", "candidates"),
        [
            ("images/a.b.jpg", ["labels/a.b.txt", "images/a.b.txt"]),
            (
                "/x/images/y/images/a.jpg",
                ["/x/labels/y/images/a.txt", "/x/images/y/labels/a.txt", "/x/images/y/images/a.txt"],
            ),
            ("raw/a", ["labels/a.txt", "raw/a.txt"]),
            ("images.jpg", ["images.txt"]),
            ("my.images/a.jpg", ["my.images/a.txt"]),
            ("data.v1/a", ["data.v1/a.txt"]),
            (r"C:\images\a.JPEG", [r"C:\labels\a.txt", r"C:\images\a.txt"]),
        ],
    )
    def test_candidates(self, image: str, candidates: list[str]) -> None:
        assert label_candidates(image) == candidates

    def test_first_candidate_that_exists(self) -> None:
        assert label_path("a/images/b/c.jpg", exists="a/images/b/c.txt".__eq__) == "a/images/b/c.txt"

    def test_lookup(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        write(tmp_path / "here.txt", "")
        write(tmp_path / "sub/there.txt", "")
        assert find_file("here.txt", "sub/list.txt") is not None
        found = find_file("there.txt", "sub/list.txt")
        assert found is not None
        assert (found.path, found.beside) == ("sub/there.txt", True)
        assert find_file("there.txt") is None
        assert find_file("sub\\there.txt") is not None
        assert find_file("a" * 5000) is None
        assert find_file("a\0b") is None


class TestImageList:
    def test_paths_are_looked_up_and_missing_ones_reported(self, tmp_path: Path) -> None:
        for name in ("a.jpg", "b b.jpg"):
            write(tmp_path / name, b"")
        path = write(tmp_path / "list.txt", f"a.jpg\r\n\r\n{tmp_path}/b b.jpg \r\nc.jpg")
        images = read_image_list(path)
        assert images.paths == (str(tmp_path / "a.jpg"), str(tmp_path / "b b.jpg"))
        assert images.lines == (1, 3)
        assert len(images) == 2
        assert [str(issue) for issue in images.issues] == [f"{path}:4: image not found: c.jpg"]
        assert images.notes == (f"1 images were found relative to the folder of {path}",)
        with pytest.raises(FormatError, match=r":4: image not found: c\.jpg"):
            read_image_list(path, strict=True)

    def test_lists_without_images(self, tmp_path: Path) -> None:
        with pytest.raises(FormatError, match="names no images"):
            read_image_list(write(tmp_path / "list.txt", "\n \n"))
        with pytest.raises(FormatError, match=r"image not found: a\.jpg \(and 1 more\)"):
            read_image_list(write(tmp_path / "list.txt", "a.jpg\nb.jpg\n"))


class TestNames:
    def test_names_keep_inner_blanks_and_lose_outer_ones(self, tmp_path: Path) -> None:
        assert read_names(write(tmp_path / "n", "\ufeffteddy bear \r\n\ttoothbrush\n\n")) == [
            "teddy bear",
            "toothbrush",
        ]

    def test_older_encodings(self, tmp_path: Path) -> None:
        assert read_names(write(tmp_path / "n", b"caf\xe9\nbar\n")) == ["café", "bar"]

    def test_blank_line_between_names(self, tmp_path: Path) -> None:
        path = write(tmp_path / "n", "cat\n\ndog\n")
        names, told = warned(lambda: read_names(path))
        assert names == ["cat", "", "dog"]
        assert ":2: a blank line between names counts as a class" in told[0]
        names, told = warned(lambda: read_names(path, classes=2))
        assert names == ["cat", "dog"]
        assert "is left out" in told[0]
        with pytest.raises(FormatError, match="blank line"):
            read_names(path, strict=True)

    def test_number_of_names(self, tmp_path: Path) -> None:
        path = write(tmp_path / "n", "cat\ndog\n")
        assert read_names(path, classes=2, strict=True) == ["cat", "dog"]
        with pytest.raises(FormatError, match="classes=3 but 2 names"):
            read_names(path, classes=3)
        with pytest.warns(UndertowWarning, match="classes=1 but 2 names"):
            read_names(path, classes=1)

    def test_no_names(self, tmp_path: Path) -> None:
        with pytest.raises(FormatError, match="holds no names"):
            read_names(write(tmp_path / "n", "\n\n"))


class TestDataFile:
    def test_all_that_it_names(self, tmp_path: Path) -> None:
        write(tmp_path / "my set/train.txt", "a.jpg\n")
        write(tmp_path / "my set/a.jpg", b"")
        write(tmp_path / "a.names", "cat\ndog\n")
        path = write(
            tmp_path / "a.data",
            "# a set\nclasses= 2\ntrain = my set/train.txt\nnames=a.names # here\nbackup = out\neval=coco\ntop=5\n",
        )
        data = read_data(path, strict=True)
        assert (data.options.classes, data.options.evaluation, data.options.top) == (2, "coco", 5)
        assert data.read_names() == ["cat", "dog"]
        assert data.read_images("train").paths == (str(tmp_path / "my set/a.jpg"),)
        assert data.folder("backup", "backup") == "out"
        assert data.folder("results", "results") == "results"
        assert [note.split(":")[0] for note in data.notes[:2]] == ["names", "train"]

    def test_blanks_in_paths_go_as_in_the_original(self, tmp_path: Path) -> None:
        write(tmp_path / "train.txt", "")
        data = read_data(write(tmp_path / "a.data", "train = tra in.txt\n"))
        assert data.path("train") == str(tmp_path / "train.txt")

    def test_labels_stand_in_for_names(self, tmp_path: Path) -> None:
        write(tmp_path / "l", "cat\n")
        assert read_data(write(tmp_path / "a.data", "classes=1\nlabels=l\n")).read_names() == ["cat"]

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("", "the file is empty"),
            ("classes=0\n", "too small"),
            ("classes=many\n", "not a whole number"),
            ("[data]\nclasses=2\n", r"'\[data\]' has no '='"),
            ("classes\n", "has no '='"),
        ],
    )
    def test_broken_files(self, tmp_path: Path, text: str, reason: str) -> None:
        with pytest.raises(FormatError, match=reason):
            read_data(write(tmp_path / "a.data", text))

    def test_what_is_missing_is_told(self, tmp_path: Path) -> None:
        data = read_data(write(tmp_path / "a.data", "classes=2\ntrain=absent.txt\n"))
        with pytest.raises(FormatError, match="valid= is missing"):
            data.path("valid")
        with pytest.raises(FormatError, match=r"a\.data:2: train=absent\.txt does not exist"):
            data.path("train")

    def test_unknown_and_repeated_keys(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.data", "classes=2\nclasses=3\nname=a.names\n")
        data, told = warned(lambda: read_data(path))
        assert data.options.classes == 2
        assert "lines 1 and 2" in told[0]
        assert "did you mean 'names'?" in told[1]


@pytest.mark.reference
def test_the_blood_cell_set(reference_data: Path) -> None:
    data = read_data(str(reference_data / "data" / "detection" / "bccd" / "obj.data"), strict=True)
    names = data.read_names()
    assert names == ["RBC", "WBC", "Platelets"]
    images = data.read_images("train")
    assert not images.issues
    reader = LabelReader(classes=len(names), size=(416, 416))
    boxes = sum(len(reader(image).boxes) for image in images.paths)
    assert boxes == reader.summary.boxes > 2000
    assert reader.summary.missing == 0
