"""Segmenters from files: training them, and what they say about a picture."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from undertow.darknet.detection.draw import class_color
from undertow.darknet.dialect import Dialect
from undertow.darknet.files.datafile import read_data
from undertow.darknet.files.imagelist import read_image_list
from undertow.darknet.learning.classifier import ClassifierOutput
from undertow.darknet.learning.segmenter import (
    SegmentationSet,
    SegmenterTrainer,
    augmentation_of,
    check_segmenter,
    classes_of,
)
from undertow.darknet.learning.trainer import TrainingWatcher, TrainOptions
from undertow.darknet.network import Network
from undertow.darknet.runs import base_name, network_to_train
from undertow.data.resize import Picture, letterbox_image

PathLike = str | os.PathLike[str]


def segmenter_training(
    data: PathLike,
    cfg: PathLike,
    weights: PathLike | None = None,
    options: TrainOptions | None = None,
    *,
    instances: bool,
    dialect: Dialect | None = None,
    watcher: TrainingWatcher | None = None,
    strict: bool = False,
) -> SegmenterTrainer:
    """A trainer for the pictures of a .data file and the masks that belong to them, ready to `run`.

    instances: objects are told apart (isegmenter, for nets that end in [iseg]); otherwise classes alone (segmenter).
    Other arguments and errors as for `undertow.darknet.runs.training`.
    """
    options, watcher = options or TrainOptions(), watcher or TrainingWatcher()
    source = read_data(data, strict)
    net, begun = network_to_train(
        cfg, weights, options, dialect, watcher, strict, lambda net: check_segmenter(net.shapes, instances)
    )
    _, height, width = net.shapes.output.out_shape
    pictures = SegmentationSet(
        read_image_list(source.path("train"), strict), classes_of(net.shapes), augmentation_of(net, options.mirror),
        (width, height), instances, seed=options.seed, channels=net.c, strict=strict,
    )  # fmt: skip
    for note in (*source.notes, *pictures.findings()):
        watcher.note(note)
    output = ClassifierOutput(Path(source.folder("backup", "backup")), base_name(cfg))
    return SegmenterTrainer(net, pictures, output, options, watcher=watcher).begin_with(begun)


def predict_maps(net: Network, picture: Picture, instances: bool) -> Picture:
    """(classes, h, w): how likely each class is in each cell of the output; the picture is fitted in with bars."""
    output = net.predict(letterbox_image(picture, net.w, net.h)[None])
    return output.reshape(net.shapes.output.out_shape)[: classes_of(net.shapes)]


def mask_to_rgb(maps: Picture) -> Picture:
    """(classes, h, w) -> (3, h, w), 0..1: each class in its colour, as the original shows them."""
    colours = np.array([class_color(label, len(maps)) for label in range(len(maps))], np.float32) / 255
    return np.clip(np.einsum("khw,kc->chw", maps, colours), 0, 1).astype(np.float32)
