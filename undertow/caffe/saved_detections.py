"""The files of SSD's `save_output_param`: what DetectionOutput has found in a set of test images.

Formats, by `output_format`: VOC, one file per class, `PREFIXclass.txt` with lines `image score left top right bottom`;
COCO, `PREFIX.json` with one list of objects; ILSVRC, `PREFIX.txt` with the number of the class in each line. Boxes are
in pixels of the image as `name_size_file` gives its size. Source: SSD's detection_output_layer.cpp and bbox_util.cpp.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from undertow.caffe.boxes import project
from undertow.caffe.data.feed import read_lines
from undertow.caffe.data.resizing import Resizer
from undertow.caffe.proto.api import read_prototxt
from undertow.caffe.proto.message import Message
from undertow.errors import FormatError, WriteError
from undertow.files import atomic_write

Array = np.ndarray[Any, Any]
FORMATS = ("VOC", "COCO", "ILSVRC")
# What the original writes into JSON without quotes, as far as JSON takes it.
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?|null|true|false")


class _Found(NamedTuple):
    """box: left, top, width, height in pixels, to hundredths."""

    image: str
    label: int
    score: np.float32
    box: Array


class SavedDetections:
    """Collects detections image by image, in the order of `name_size_file`, and writes them after the last.

    param: a SaveOutputParameter. background: the class that has no file. find: from a path in the prototxt to the file.
    After `num_test_image` images (all of the list by default) the files are written, whole or not at all, and the list
    begins anew. Raises FormatError for a map or list that cannot be used.
    """

    def __init__(self, param: Message, background: int, find: Callable[[str], str] = str) -> None:
        self.folder, self.prefix = str(param.output_directory), str(param.output_name_prefix)
        self.format, self.background = str(param.output_format), background
        if self.format not in FORMATS:
            raise FormatError(f"output_format '{self.format}' is unknown", remedy=f"use {', '.join(FORMATS)}")
        self.classes = _class_names(find(str(param.label_map_file)))
        self.images = read_name_sizes(find(str(param.name_size_file)))
        self.count = int(param.num_test_image) if param.has_field("num_test_image") else len(self.images)
        if not 0 < self.count <= len(self.images):
            raise FormatError(
                f"num_test_image is {self.count}, name_size_file has {len(self.images)} images",
                remedy="give as many as the test has, or leave it out",
            )
        self.resizer = Resizer(param.resize_param) if param.has_field("resize_param") else None
        self._found: list[_Found] = []
        self._seen = 0

    def add(self, rows: Array) -> None:
        """The next image's detections: rows (n, 6) of class, score, left, top, right, bottom in parts of the image."""
        name, height, width = self.images[self._seen]
        boxes = self.in_pixels(rows[:, 2:6].astype(np.float32), height, width)
        for row, box in zip(rows, boxes, strict=True):
            label = int(row[0])
            if label not in self.classes:
                raise FormatError(f"class {label} is not in the label map", remedy="add an item with this label to it")
            self._found.append(_Found(name, label, np.float32(row[1]), box))
        self._seen += 1
        if self._seen == self.count:
            try:
                self._write()
            finally:
                self._seen, self._found = 0, []

    def in_pixels(self, boxes: Array, height: int, width: int) -> Array:
        """Left, top, width, height (n, 4), float32 rounded to hundredths, of corners in parts of the net's picture."""
        scale = np.array([width, height] * 2, np.float32)
        resizer = self.resizer
        if resizer is not None and resizer.mode == "FIT_LARGE_SIZE_AND_PAD":
            boxes = self._without_padding(boxes, width / height)
        if resizer is not None and resizer.units is not None:
            scale = np.array([resizer.units[1], resizer.units[0]] * 2, np.float32)
            corners = (boxes * scale).clip(0, [width, height] * 2)
        else:
            corners = boxes.clip(0, 1) * scale
        corners = corners.astype(np.float32)
        sized = np.concatenate([corners[:, :2], corners[:, 2:] - corners[:, :2]], 1) * np.float32(100)
        return np.asarray(np.trunc(sized + np.copysign(0.5, sized).astype(np.float64)) / 100).astype(np.float32)

    def _without_padding(self, boxes: Array, aspect: float) -> Array:
        """Seen from the part that the image has of the net's picture; boxes beside it stay, as in the original."""
        assert self.resizer is not None
        height, width = self.resizer.height, self.resizer.width
        if aspect > width / height:
            border = np.array([0, (height - width / aspect) / 2 / height])
        else:
            border = np.array([(width - height * aspect) / 2 / width, 0])
        window = np.concatenate([border, 1 - border])
        moved, _ = project(boxes, window)
        outside = (boxes[:, :2] >= window[2:]) | (boxes[:, 2:] <= window[:2])
        return np.where(outside.any(1, keepdims=True), boxes, moved)

    # --- files ------------------------------------------------------------------------------------------

    def _write(self) -> None:
        try:
            os.makedirs(self.folder, exist_ok=True)
        except OSError as problem:
            raise WriteError(self.folder, problem, "give output_directory a folder that can be made") from problem
        if self.format == "VOC":
            lines: dict[str, list[str]] = {n: [] for label, n in self.classes.items() if label != self.background}
            for found in self._found:
                lines[self.classes[found.label]].append(_line(found, found.image))
            for name, part in lines.items():
                self._put(f"{name}.txt", part)
        elif self.format == "ILSVRC":
            self._put(".txt", [_line(found, f"{found.image} {found.label}") for found in self._found])
        else:
            items = ",\n    ".join(self._object(found) for found in self._found)
            self._put(".json", [f"[\n    {items}" if items else "[", "]"])

    def _put(self, ending: str, lines: list[str]) -> None:
        path = os.path.join(self.folder, self.prefix + ending)
        with atomic_write(path, "w", encoding="utf-8", errors="surrogateescape", newline="") as stream:
            stream.writelines(f"{line}\n" for line in lines)

    def _object(self, found: _Found) -> str:
        box = ", ".join(f"{value:.9g}" for value in found.box)
        return (
            f'{{"image_id": {_json(found.image)}, "category_id": {_json(self.classes[found.label])}, '
            f'"bbox": [{box}], "score": {found.score:.9g}}}'
        )


def _line(found: _Found, beginning: str) -> str:
    left, top, width, height = (int(value) for value in found.box)
    return f"{beginning} {found.score:g} {left} {top} {left + width} {top + height}"


def _json(text: str) -> str:
    return text if _NUMBER.fullmatch(text) else json.dumps(text)


def _class_names(path: str) -> dict[int, str]:
    """Names of classes by their numbers."""
    names: dict[int, str] = {}
    for item in read_prototxt(path, "LabelMap").item:
        name, label = str(item.name), int(item.label)
        if label in names or name in names.values():
            raise FormatError(f"label {label} or name '{name}' is given twice", file=path, line=item.line_of(),
                              remedy="give every class a number and a name of its own")  # fmt: skip
        if not name or "/" in name or "\0" in name:
            raise FormatError(f"'{name}' cannot be part of a file's name", file=path, line=item.line_of(),
                              remedy="name the class with letters and digits")  # fmt: skip
        names[label] = name
    return names


def read_name_sizes(path: str) -> list[tuple[str, int, int]]:
    """Name, height and width of each image from a file of lines `name height width`. Raises FormatError."""
    found = []
    for number, line in enumerate(read_lines(path), 1):
        words = line.split()
        if len(words) != 3 or not all(_is_length(word) for word in words[1:]):
            raise FormatError(
                f"{path}:{number}: a line is `name height width`",
                remedy="correct the line; convert_annoset's lists have no such lines: they come from get_image_size",
            )  # fmt: skip
        found.append((words[0], int(words[1]), int(words[2])))
    return found


def _is_length(word: str) -> bool:
    return word.isascii() and word.isdigit() and 0 < int(word) < 2**31 if len(word) < 12 else False


def missing_for_saving(param: Message) -> str | None:
    """The field without which the original writes no files; None where it has all."""
    return next((name for name in ("label_map_file", "name_size_file") if not getattr(param, name)), None)
