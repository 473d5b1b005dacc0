"""Detections as files that the evaluation programs of VOC, COCO and ImageNet read (validate_detector)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from undertow.darknet.detection.boxes import to_corners
from undertow.darknet.detection.pictures import Found
from undertow.errors import FormatError
from undertow.files import atomic_write

# COCO numbers its 80 classes with gaps.
COCO_GAPS = (12, 26, 29, 30, 45, 66, 68, 69, 71, 83)
COCO_IDS = tuple(number for number in range(1, 91) if number not in COCO_GAPS)
KINDS = ("voc", "coco", "imagenet")

Row = tuple[Found, int, float, tuple[float, float, float, float]]


def write_results(
    found: Iterable[Found],
    kind: str,
    folder: str | os.PathLike[str],
    names: Sequence[str],
    out: str | None = None,
    first_pixel: int = 1,
) -> list[Path]:
    """Write detections and return the files.

    kind: "voc", a file FOLDER/comp4_det_test_NAME.txt per class; "coco", FOLDER/coco_results.json; "imagenet",
    FOLDER/imagenet-detection.txt. Another word counts as voc, as in the original. out: instead of the beginnings of
    these names. first_pixel: the number of a picture's first pixel in VOC's files (examples/yolo.c: 0).
    Raises FormatError where COCO has no number for a class.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if kind == "coco":
        return [_write_coco(found, folder / f"{out or 'coco_results'}.json", names)]
    if kind == "imagenet":
        return [_write_imagenet(found, folder / f"{out or 'imagenet-detection'}.txt")]
    return _write_voc(found, folder, out or "comp4_det_test_", names, first_pixel)


def _write_voc(found: Iterable[Found], folder: Path, prefix: str, names: Sequence[str], first_pixel: int) -> list[Path]:
    """`picture confidence left top right bottom`, in pixels."""
    lines: list[list[str]] = [[] for _ in names]
    for picture, label, confidence, (left, top, right, bottom) in _rows(found, first_pixel):
        box = f"{left:.6f} {top:.6f} {right:.6f} {bottom:.6f}"
        lines[label].append(f"{_stem(picture.path)} {confidence:.6f} {box}\n")
    paths = [folder / f"{prefix}{name.replace('/', '_')}.txt" for name in names]
    for path, text in zip(paths, lines, strict=True):
        _write(path, "".join(text))
    return paths


def _write_coco(found: Iterable[Found], path: Path, names: Sequence[str]) -> Path:
    """The image's number is the last one in its name; boxes are left, top, width, height. In the original's writing."""
    if len(names) > len(COCO_IDS):
        raise FormatError(
            f"eval=coco: COCO has {len(COCO_IDS)} classes, the network {len(names)}", remedy="use eval=voc"
        )
    entries = [
        f'{{"image_id":{_last_number(picture.path)}, "category_id":{COCO_IDS[label]}, '
        f'"bbox":[{left:.6f}, {top:.6f}, {right - left:.6f}, {bottom - top:.6f}], "score":{confidence:.6f}}}'
        for picture, label, confidence, (left, top, right, bottom) in _rows(found)
    ]
    _write(path, "[\n" + ",\n".join(entries) + "\n]\n")
    return path


def _write_imagenet(found: Iterable[Found], path: Path) -> Path:
    """`number-of-the-picture class confidence left top right bottom`, both numbers from 1."""
    lines = [
        f"{picture.number + 1} {label + 1} {confidence:.6f} {left:.6f} {top:.6f} {right:.6f} {bottom:.6f}\n"
        for picture, label, confidence, (left, top, right, bottom) in _rows(found)
    ]
    _write(path, "".join(lines))
    return path


def _rows(found: Iterable[Found], first_pixel: int = 0) -> Iterator[Row]:
    """Picture, class, confidence and sides in pixels, clipped to the picture, of every class that is left in a box."""
    for picture in found:
        width, height = picture.size
        corners = to_corners(picture.candidates.boxes) * np.array([width, height, width, height])
        sides = np.nan_to_num(corners) + first_pixel
        probabilities = picture.candidates.probabilities
        for box, label in np.argwhere(probabilities > 0):
            left, top = np.maximum(sides[box, :2], first_pixel)
            right, bottom = np.minimum(sides[box, 2:], (width, height))
            yield picture, int(label), float(probabilities[box, label]), (left, top, right, bottom)


def _stem(path: str) -> str:
    """The file name up to its first point, as the original's basecfg."""
    return os.path.basename(path).split(".")[0]


def _last_number(path: str) -> int:
    """What stands after the last `_` of the file's name, or at its beginning, as a number; 0 when it is none.

    The original also takes a `_` in the names of folders.
    """
    digits = re.match(r"\s*\d+", os.path.basename(path).rpartition("_")[2])
    return int(digits.group()) if digits else 0


def _write(path: Path, text: str) -> None:
    with atomic_write(path, "w", encoding="utf-8") as stream:
        stream.write(text)
