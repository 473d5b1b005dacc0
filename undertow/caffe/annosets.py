"""Programs of the fork of SSD: convert_annoset makes a database of pictures with boxes from annotation files,
get_image_size the list of sizes that DetectionEvaluate reads (`name_size_file`).
"""

from __future__ import annotations

import json
import os
import warnings
import xml.etree.ElementTree as xml
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from undertow.caffe.data.database import check_backend, new_database
from undertow.caffe.data.datum import datum_from_pixels, encoded_datum
from undertow.caffe.data.feed import read_lines
from undertow.caffe.data.imagelist import root_remedy
from undertow.caffe.data.pictures import encode_picture, encoder, read_file, read_picture, resize_picture
from undertow.caffe.proto.api import read_prototxt
from undertow.caffe.proto.message import Message, new_message
from undertow.caffe.tools import Converted, Tick, check_same_size, no_tick
from undertow.errors import FormatError, UndertowWarning
from undertow.files import atomic_write

PathLike = str | os.PathLike[str]
LABEL_TYPES = ("xml", "json", "txt")


class Box(NamedTuple):
    """One object: its class, corners in parts of the picture, and whether it is difficult."""

    label: int
    corners: tuple[float, float, float, float]
    difficult: bool


@dataclass(frozen=True)
class AnnosetOptions:
    """The flags of convert_annoset, under their names there.

    label_type: "xml" (Pascal VOC), "json" (COCO, one file per picture), "txt" (lines `class xmin ymin xmax ymax`, in
    pixels). label_map_file: a LabelMap prototxt, needed but for txt. check_size: refuse pictures that differ in size,
    unless they are stored as files. min_dim, max_dim: the shorter side is brought to min_dim, unless the longer one
    would pass max_dim.
    """

    gray: bool = False
    shuffle: bool = False
    backend: str = "lmdb"
    label_type: str = "xml"
    label_map_file: str = ""
    check_label: bool = False
    check_size: bool = False
    min_dim: int = 0
    max_dim: int = 0
    resize_width: int = 0
    resize_height: int = 0
    encoded: bool = False
    encode_type: str = ""
    seed: int = 0


def convert_annoset(
    root_folder: str, list_file: PathLike, database: PathLike, options: AnnosetOptions | None = None,
    *, tick: Tick = no_tick,
) -> Converted:  # fmt: skip
    """Put pictures and their annotation files (lines `picture annotation`) into a new database of AnnotatedDatum.

    root_folder is put before both paths. Pictures that cannot be read are left out, each with an UndertowWarning; an
    annotation file that is missing means that nothing is on the picture. Raises FormatError.
    """
    o = options or AnnosetOptions()
    check_backend(o.backend)
    if o.encode_type:
        encoder(o.encode_type)
    labels = read_label_map(o.label_map_file, o.check_label) if o.label_type != "txt" else {}
    pairs = _read_pairs(list_file)
    if o.shuffle:
        pairs = [pairs[i] for i in np.random.default_rng(o.seed).permutation(len(pairs))]
    stored = size = 0
    with new_database(database, o.backend) as put:
        for number, (name, annotation) in enumerate(pairs):
            try:
                record = _record(root_folder + name, root_folder + annotation, labels, o)
            except PictureError as error:
                warnings.warn(UndertowWarning(f"left out: {error}"), stacklevel=2)
                continue
            if o.check_size and not record.datum.encoded:
                size = size or len(record.datum.data)
                check_same_size(name, len(record.datum.data), size, list_file)
            put(f"{number:08d}_{name}".encode("utf-8", "surrogateescape"), record.to_bytes())
            stored += 1
            tick(number + 1, len(pairs))
        if not stored:
            remedy = root_remedy(root_folder, (name for name, _ in pairs))
            raise FormatError("none of the pictures could be read", file=list_file, remedy=remedy)
    return Converted(stored, len(pairs) - stored)


def _read_pairs(list_file: PathLike) -> list[list[str]]:
    """The pictures of a list with what stands beside each."""
    pairs = []
    for number, line in enumerate(read_lines(list_file), 1):
        words = line.split()
        if len(words) != 2:
            raise FormatError(
                f"a line is `picture annotation`, this one is '{line[:80]}'",
                file=list_file,
                line=number,
                remedy="write both paths, without spaces in them, and no empty lines",
            )
        pairs.append(words)
    return pairs


def get_image_size(
    root_folder: PathLike, list_file: PathLike, output: PathLike, name_id_file: str = "", *, tick: Tick = no_tick
) -> int:
    """Write lines `name height width` of the pictures in a list (lines `picture annotation`); their number.

    name: of the file without folder and ending, or with name_id_file (lines `name id`) its id. Sizes are those after
    EXIF's rotation, as pictures are read. Raises FormatError, also for a picture that cannot be read.
    """
    pairs, ids = _read_pairs(list_file), _read_ids(name_id_file) if name_id_file else None
    rows = []
    for number, (path, _) in enumerate(pairs):
        height, width = read_picture(os.path.join(root_folder, path)).shape[1:]
        name = Path(path).stem
        if ids is not None and name not in ids:
            raise FormatError(
                f"'{name}' has no id in '{name_id_file}'", file=list_file, line=number + 1, remedy="add a line for it"
            )
        rows.append(f"{name if ids is None else ids[name]} {height} {width}\n")
        tick(number + 1, len(pairs))
    with atomic_write(output) as stream:
        stream.write("".join(rows).encode("utf-8", "surrogateescape"))
    return len(rows)


def _read_ids(path: str) -> dict[str, int]:
    ids: dict[str, int] = {}
    for number, line in enumerate(read_lines(path), 1):
        words = line.split()
        if len(words) != 2 or not words[1].isdecimal() or words[0] in ids:
            raise FormatError(
                f"a line is `name id`, each name once, this one is '{line[:80]}'", file=path, line=number,
                remedy="write the name of the picture's file without its ending, and a number",
            )  # fmt: skip
        ids[words[0]] = int(words[1])
    return ids


class PictureError(FormatError):
    """A picture that cannot be read: it is left out, other errors stop the conversion."""


def _record(path: str, annotation: str, labels: Mapping[str, int], o: AnnosetOptions) -> Message:
    try:
        picture = read_picture(path, not o.gray)
    except FormatError as error:
        raise PictureError(error.reason, file=path, remedy=error.remedy) from error
    height, width = picture.shape[1:]
    record = new_message("AnnotatedDatum", datum=_datum(path, picture, o), type="BBOX")
    groups: dict[int, Message] = {}
    for box in read_boxes(annotation, o.label_type, labels, height, width):
        if box.label not in groups:
            groups[box.label] = record.add("annotation_group")
            groups[box.label].group_label = box.label
        one = groups[box.label].add("annotation")
        one.instance_id = len(groups[box.label].annotation) - 1
        place = one.mutable("bbox")
        place.xmin, place.ymin, place.xmax, place.ymax = box.corners
        place.difficult = box.difficult
    return record


def _datum(path: str, picture: Any, o: AnnosetOptions) -> Message:
    size = _new_size(picture.shape[1], picture.shape[2], o)
    encoding = o.encode_type or (os.path.splitext(path)[1].lower().removeprefix(".") if o.encoded else "")
    small = resize_picture(picture, *size)
    if not encoding:
        datum = datum_from_pixels(small, -1)
        datum.encoded = False
        return datum
    same = small is picture and path.lower().endswith(f".{encoding.lower()}")
    datum = encoded_datum(read_file(path) if same else encode_picture(small, encoding), -1)
    datum.channels, datum.height, datum.width = small.shape
    return datum


def _new_size(height: int, width: int, o: AnnosetOptions) -> tuple[int, int]:
    if o.resize_height > 0 and o.resize_width > 0:
        return o.resize_height, o.resize_width
    if o.min_dim <= 0 and o.max_dim <= 0:
        return height, width
    scale = o.min_dim / min(height, width) if o.min_dim > 0 else o.max_dim / max(height, width)
    if o.max_dim > 0:
        scale = min(scale, o.max_dim / max(height, width))
    return max(1, int(height * scale)), max(1, int(width * scale))


def read_label_map(path: PathLike, check: bool = False) -> dict[str, int]:
    """Numbers of classes by name. check: refuse names that are given twice. Raises FormatError."""
    if not path:
        raise FormatError("the label map is not given", remedy="--label_map_file=labelmap.prototxt")
    found: dict[str, int] = {}
    for item in read_prototxt(path, "LabelMap").item:
        if check and item.name in found:
            raise FormatError(
                f"the name '{item.name}' is given twice",
                file=path,
                line=item.line_of(),
                remedy="give every class a name of its own",
            )
        found.setdefault(item.name, int(item.label))
    return found


def read_boxes(path: str, kind: str, labels: Mapping[str, int], height: int, width: int) -> list[Box]:
    """The objects of an annotation file; none where there is no file. height, width: of the picture, where the file
    does not tell. Raises FormatError."""
    if kind not in LABEL_TYPES:
        raise FormatError(f"there is no label_type '{kind}'", remedy=f"use {', '.join(LABEL_TYPES)}")
    if not os.path.exists(path):
        return []
    try:
        return {"xml": _from_xml, "json": _from_json, "txt": _from_txt}[kind](path, labels, height, width)
    except KeyError as problem:
        raise FormatError(f"the class {problem} is not in the label map", file=path, remedy="add it there") from problem
    except (ValueError, TypeError, AttributeError, OSError, xml.ParseError) as problem:
        if isinstance(problem, FormatError):
            raise
        raise FormatError(
            f"this is no annotation of type {kind} ({problem})",
            file=path,
            remedy=f"give -label_type as the files are: {', '.join(LABEL_TYPES)}",
        ) from problem


def _from_xml(path: str, labels: Mapping[str, int], height: int, width: int) -> list[Box]:
    tree = xml.parse(path).getroot()
    height, width = int(tree.findtext("size/height", str(height))), int(tree.findtext("size/width", str(width)))
    if min(height, width) < 1:
        raise FormatError(f"the picture's size is {width} x {height}", file=path, remedy="correct <size>")
    found = []
    for thing in tree.iter("object"):
        name = thing.findtext("name", "").strip()
        corners = [int(float(thing.findtext(f"bndbox/{side}", "0"))) for side in ("xmin", "ymin", "xmax", "ymax")]
        found.append(_box(path, labels[name], corners, height, width, thing.findtext("difficult", "0").strip() == "1"))
    return found


def _from_json(path: str, labels: Mapping[str, int], height: int, width: int) -> list[Box]:
    content = json.loads(read_file(path))
    image = content.get("image", {})
    height, width = int(image.get("height", height)), int(image.get("width", width))
    found = []
    for thing in content.get("annotation", []):
        left, top, w, h = (float(value) for value in thing["bbox"])
        label = labels[str(thing["category_id"])]
        found.append(_box(path, label, [left, top, left + w, top + h], height, width, bool(thing.get("iscrowd", 0))))
    return found


def _from_txt(path: str, labels: Mapping[str, int], height: int, width: int) -> list[Box]:
    words = read_file(path).decode().split()
    rows = [words[i : i + 5] for i in range(0, len(words), 5)]
    return [_box(path, int(row[0]), [float(value) for value in row[1:5]], height, width, False) for row in rows]


def _box(path: str, label: int, corners: Sequence[float], height: int, width: int, difficult: bool) -> Box:
    left, top, right, bottom = corners
    if not (0 <= left <= right <= width and 0 <= top <= bottom <= height):
        warnings.warn(
            UndertowWarning(
                f"{path}: the box {tuple(corners)} leaves the picture of {width} x {height}, or is turned round"
            ),
            stacklevel=6,
        )
    return Box(label, (left / width, top / height, right / width, bottom / height), difficult)
