"""What is wrong with the data set of a classifier or a segmenter: labels, trees and masks, for `check`."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

from undertow.darknet.files.class_labels import Labels, PathLabels, TagFiles
from undertow.darknet.files.datafile import DataFile
from undertow.darknet.files.imagelist import ImageList
from undertow.darknet.files.masks import Mask, read_masks
from undertow.darknet.files.names import read_names
from undertow.darknet.files.options_heads import IsegOptions
from undertow.darknet.files.options_layers import SoftmaxOptions
from undertow.darknet.files.paths import label_path, mask_path, named_file
from undertow.darknet.files.shapes import NetworkShapes
from undertow.darknet.files.tree import ClassTree, check_tree, read_tree
from undertow.darknet.learning.classifier import check_classifier
from undertow.darknet.learning.segmenter import INSTANCES, check_segmenter, classes_of
from undertow.data.images import check_image
from undertow.errors import FormatError, UndertowError
from undertow.findings import Level, Report

_T = TypeVar("_T")
_SHOWN = 3
# Of so many pictures at most the classes are looked at, as a training does before it begins.
_LOOKED_AT = 20_000
_ANY_CLASS = 10**9


def some(report: Report, level: Level, what: str, names: Sequence[str]) -> None:
    """A finding about some files: how many, and the first of them; nothing for none."""
    if names:
        more = f"; and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        report.add(level, "data", f"{len(names)} {what}: {'; '.join(names[:_SHOWN])}{more}")


def listed(numbers: Sequence[int]) -> str:
    """The first ten of some numbers."""
    shown = ", ".join(map(str, numbers[:10]))
    return f"{shown}..." if len(numbers) > 10 else shown


def of_classes(numbers: Sequence[int]) -> str:
    """Some classes, for a finding about them."""
    return f"class {numbers[0]}" if len(numbers) == 1 else f"{len(numbers)} classes: {listed(numbers)}"


def check_lists(report: Report, images: ImageList, valid: ImageList | None = None) -> None:
    """Findings about pictures that a list names again, or that are learned from and measured on."""
    learned = {os.path.abspath(path): path for path in reversed(images.paths)}
    again = [path for path, count in Counter(images.paths).items() if count > 1]
    measured = set(map(os.path.abspath, valid.paths)) if valid else set()
    shared = [learned[path] for path in learned if path in measured][::-1]
    report.numbers[images.file] |= {"named_again": len(again), "in_valid": len(shared)}
    some(report, "note", f"pictures that {images.file} names more than once", again)
    if shared and valid:
        same = "is" if len(shared) == len(learned) else "shares pictures with"
        text = f"{valid.file} (valid=) {same} the list of train=: what is measured says nothing about other pictures"
        report.add("warning", "data", f"{text}. {len(shared)} of {len(learned)}, the first: {shared[0]}")


def is_segmenter(shapes: NetworkShapes) -> bool:
    """Whether a net without boxes learns maps: an output of several cells, or objects in them."""
    _, height, width = shapes.output.out_shape
    return isinstance(shapes[-1].options, IsegOptions) or (shapes.net.channels > 0 and height * width > 1)


def check_masks(report: Report, source: DataFile, shapes: NetworkShapes) -> ImageList:
    """Findings about the pictures and masks of train=, which are the result. Raises UndertowError without a list."""
    instances = isinstance(shapes[-1].options, IsegOptions)
    _found(report, "cfg", lambda: check_segmenter(shapes, instances))
    classes, images = classes_of(shapes), source.read_images("train")
    if source.options.classes not in (None, classes):
        report.add("warning", "data", f"{source.file}: classes={source.options.classes}, the net learns {classes}")
    missing, broken, beyond, outgrown, empty, crowded = [], [], [], [], [], []
    objects: Counter[int] = Counter()
    sizes = _sizes(report, images)
    for path in images.paths:
        file = mask_path(path)
        if not os.path.exists(file):
            missing.append(file)
            continue
        try:
            masks = read_masks(path, _ANY_CLASS)
        except FormatError as problem:
            broken.append(str(problem))
            continue
        objects.update(mask.label for mask in masks)
        beyond += [f"{m.file}:{m.line}: class {m.label}" for m in masks if m.label >= classes][:1]
        outgrown += _outgrown(masks, sizes.get(path))
        if not masks:
            empty.append(file)
        if instances and len(masks) > INSTANCES:
            crowded.append(file)
    report.numbers[images.file] = {
        "pictures": len(images), "objects": sum(objects.values()), "missing": len(images.issues),
        "unreadable": len(images) - len(sizes), "missing_masks": len(missing), "broken_masks": len(broken),
        "classes_out_of_range": len(beyond), "sizes_differ": len(outgrown), "without_objects": len(empty),
    }  # fmt: skip
    report.add("note", "data", f"{images.file}: {len(images)} pictures, {sum(objects.values())} objects")
    some(report, "error", "files of masks that are not there", missing)
    some(report, "error", "broken files of masks", broken)
    some(report, "error", f"files of masks with classes beyond 0 to {classes - 1}", beyond)
    some(report, "error", "files of masks that were not made from their picture", outgrown)
    some(report, "warning", "pictures without an object", empty)
    some(report, "warning", f"pictures with more than the {INSTANCES} objects that count", crowded)
    _tell_absent(report, f"{images.file}: no object", objects, classes)
    check_lists(report, images)
    return images


def _outgrown(masks: Sequence[Mask], size: tuple[int, int] | None) -> list[str]:
    """The first mask of a picture that is longer than it, as a line."""
    if size is None:
        return []
    for mask in masks:
        try:
            mask.check(size)
        except FormatError as problem:
            return [str(problem)]
    return []


def check_classes(report: Report, source: DataFile, shapes: NetworkShapes) -> ImageList:
    """Findings about labels, tree and pictures of a classifier; the pictures of train=. Raises UndertowError."""
    options = source.options
    classes = options.classes or shapes.truths
    _found(report, "cfg", lambda: check_classifier(shapes, classes))
    if options.top > classes:
        report.add("warning", "data", f"{source.file}: top={options.top} of {classes} classes is always right")
    tree = _found(report, "data", lambda: _tree(source, shapes, classes))
    if options.leaves is not None:
        _found(report, "data", lambda: source.path("leaves"))
    names = None
    if not options.tag or options.valid is not None:
        names = _found(report, "data", lambda: read_names(source.path("labels"), classes, source.strict)[:classes])
    lists = [source.read_images(name) for name in (("train", "valid") if options.valid else ("train",))]
    for number, images in enumerate(lists):
        sizes = _sizes(report, images)
        report.numbers[images.file] = {
            "pictures": len(images), "missing": len(images.issues), "unreadable": len(images) - len(sizes)
        }  # fmt: skip
        report.add("note", "data", f"{images.file}: {len(images)} pictures")
        if options.tag and number == 0:
            _check_labels(report, images, TagFiles(), classes, tree)
        elif names is not None:
            _check_labels(report, images, PathLabels(names, os.path.dirname(images.file)), classes, tree)
    check_lists(report, *lists)
    return lists[0]


def _tree(source: DataFile, shapes: NetworkShapes, classes: int) -> ClassTree | None:
    """The hierarchy of tree= in the .data file, else of the last softmax that has one; fits the classes."""
    layer = next(
        (s for s in reversed(shapes) if isinstance(s.options, SoftmaxOptions) and s.options.tree), shapes.output
    )
    if source.options.tree is not None:
        file = source.path("tree")
    elif isinstance(layer.options, SoftmaxOptions) and layer.options.tree:
        file = named_file(layer.options.tree, "tree", shapes.file, layer.line, layer.index)
    else:
        return None
    tree = read_tree(file)
    check_tree(tree, classes, file, shapes.file, layer.line, layer.index)
    return tree


def _check_labels(report: Report, images: ImageList, labels: Labels, classes: int, tree: ClassTree | None) -> None:
    """How many pictures each class has, and which pictures have none, several, or one that does not exist."""
    looked = images.paths[:: max(1, len(images) // _LOOKED_AT)]
    counts: Counter[int] = Counter()
    without, several, beyond, broken = [], [], [], []
    for path in looked:
        try:
            found = labels.all_in(path)
        except FormatError as problem:
            broken.append(str(problem))
            continue
        counts.update(label for label in found if label < classes)
        if not found:
            without.append(label_path(path) if isinstance(labels, TagFiles) else path)
        elif len(found) > 1 and isinstance(labels, PathLabels):
            several.append(path)
        beyond += [f"{label_path(path)}: class {label}" for label in found if label >= classes][:1]
    of = f" of {len(looked)} looked at" if len(looked) < len(images) else ""
    report.numbers[images.file] |= {
        "without_class": len(without), "with_several": len(several), "classes_out_of_range": len(beyond),
        "broken_labels": len(broken), "pictures_of": {str(label): counts[label] for label in sorted(counts)},
    }  # fmt: skip
    level: Level = "error" if len(without) == len(looked) else "warning"
    some(report, level, f"pictures{of} have no class", without)
    some(report, "warning", f"pictures{of} have more than one label in their path", several)
    some(report, "error", f"files of tags{of} with classes beyond 0 to {classes - 1}, which do not count", beyond)
    some(report, "error", f"broken files of tags{of}", broken)
    if counts:
        rare, common = min(counts.values()), max(counts.values())
        report.add(
            "note", "data", f"{images.file}: {len(counts)} of {classes} classes, with {rare} to {common} pictures"
        )
    if tree is not None:  # classes that have children are learned through them
        counts.update(label for label in range(tree.n) if not tree.leaf[label])
    _tell_absent(report, f"{images.file}: no picture", counts, classes)


def _tell_absent(report: Report, what: str, counts: Counter[int], classes: int) -> None:
    absent = [label for label in range(classes) if not counts[label]]
    if absent and len(absent) < classes:
        report.add("warning", "data", f"{what} of {of_classes(absent)}")


def _sizes(report: Report, images: ImageList) -> dict[str, tuple[int, int]]:
    """Of pictures that look whole; tells those that cannot be read, and those that are not there."""
    sizes, unreadable = {}, []
    for path in images.paths:
        try:
            sizes[path] = check_image(path)
        except FormatError as problem:
            unreadable.append(str(problem))
    some(report, "warning" if sizes else "error", "pictures that cannot be read", unreadable)
    some(report, "warning", "pictures of the list that are not there", [str(issue) for issue in images.issues])
    return sizes


def _found(report: Report, about: str, look: Callable[[], _T]) -> _T | None:
    """What `look` gives; an error of it is a finding."""
    try:
        return look()
    except UndertowError as problem:
        report.add("error", about, str(problem))
        return None
