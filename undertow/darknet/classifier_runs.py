"""Classifiers from files: training them and measuring them on the pictures of a .data file."""

from __future__ import annotations

import os
from pathlib import Path

from undertow.darknet.detection.classify import Accuracy, class_tree, measure
from undertow.darknet.dialect import Dialect
from undertow.darknet.files.class_labels import Labels, PathLabels, TagFiles
from undertow.darknet.files.datafile import DataFile, read_data
from undertow.darknet.files.imagelist import ImageList, read_image_list
from undertow.darknet.files.names import read_names
from undertow.darknet.files.tree import ClassTree, check_tree, read_tree
from undertow.darknet.learning.classifier import (
    ClassifierOutput,
    ClassifierSet,
    ClassifierTrainer,
    augmentation_of,
    check_classifier,
)
from undertow.darknet.learning.trainer import TrainingWatcher, TrainOptions, Validator
from undertow.darknet.network import Network
from undertow.darknet.runs import base_name, listed, network_to_train

PathLike = str | os.PathLike[str]


def classifier_training(
    data: PathLike,
    cfg: PathLike,
    weights: PathLike | None = None,
    options: TrainOptions | None = None,
    *,
    dialect: Dialect | None = None,
    watcher: TrainingWatcher | None = None,
    strict: bool = False,
) -> ClassifierTrainer:
    """A trainer for the pictures of a .data file, ready to `run`.

    The class of a picture is the one whose label (labels=) stands in its path; with tag=1 numbers in labels/NAME.txt
    count. options.validate: measure the accuracy on the pictures of valid=, of the first guesses that top= says.
    Other arguments and errors as for `undertow.darknet.runs.training`.
    """
    options, watcher = options or TrainOptions(), watcher or TrainingWatcher()
    source = read_data(data, strict)
    given = source.options.classes
    net, begun = network_to_train(
        cfg, weights, options, dialect, watcher, strict, lambda net: check_classifier(net.shapes, given or net.truths)
    )
    classes = given or net.truths
    pictures = _pictures(source, net, classes, options, strict)
    for note in (*source.notes, *pictures.findings()):
        watcher.note(note)
    output = ClassifierOutput(Path(source.folder("backup", "backup")), base_name(cfg))
    validator = _validator(source, net, classes) if options.validate else None
    return ClassifierTrainer(net, pictures, output, options, validator=validator, watcher=watcher).begin_with(begun)


def path_labels(source: DataFile, classes: int, images: ImageList) -> PathLabels:
    """The labels of a .data file, for the pictures of a list."""
    names = read_names(source.path("labels"), classes, source.strict)[:classes]
    return PathLabels(names, os.path.dirname(images.file))


def _pictures(source: DataFile, net: Network, classes: int, options: TrainOptions, strict: bool) -> ClassifierSet:
    images = read_image_list(source.path("train"), strict)
    labels: Labels = TagFiles() if source.options.tag else path_labels(source, classes, images)
    return ClassifierSet(
        images, labels, classes, augmentation_of(net, options.mirror),
        tree=_tree(source, net, classes), seed=options.seed, channels=net.c, strict=strict,
    )  # fmt: skip


def _tree(source: DataFile, net: Network, classes: int) -> ClassTree | None:
    """The hierarchy of tree= in the .data file, else that of the cfg."""
    if source.options.tree is None:
        return class_tree(net)
    file = source.path("tree")
    tree = read_tree(file)
    check_tree(tree, classes, file, net.shapes.file, net.shapes.output.line, net.shapes.output.index)
    return tree


def _validator(source: DataFile, net: Network, classes: int) -> Validator:
    images = listed(source, "valid")
    labels, tree = path_labels(source, classes, images), class_tree(net)
    count = min(source.options.top, classes)

    def validator(net: Network) -> Accuracy:
        return measure(net, images.paths, labels, count, tree=tree)

    return validator
