"""`undertow darknet detector calc_anchors`: the words, lines and files of AlexeyAB's program."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from undertow.cli.messages import say, warn
from undertow.cli.shared import DEVICES, GPUS_IDLE, STRICT
from undertow.cli.words import Command, Flag, UsageError, Words
from undertow.files import atomic_write


def calc_anchors(words: Words) -> int:
    """detector calc_anchors DATA -num_of_clusters N -width W -height H"""
    from undertow.darknet.detection.anchors import calc_anchors
    from undertow.darknet.files.datafile import read_data
    from undertow.darknet.files.labels import LabelReader
    from undertow.darknet.learning.dataset import read_all_labels
    from undertow.darknet.runs import listed

    count, width, height = words["num_of_clusters"], words["width"], words["height"]
    print(f"\n num_of_clusters = {count}, width = {width}, height = {height} ")
    source = read_data(words["DATA"], words["strict"])
    images = listed(source, "train")
    classes = source.options.classes or len(source.read_names())
    print(f" read labels from {len(images)} images ")
    boxes = np.concatenate(read_all_labels(images.paths, LabelReader(classes, strict=words["strict"])))
    usable = (boxes[:, 2:4] > 0).all(axis=1)
    if not usable.any():
        raise UsageError(
            f"{images.file}: no labels with boxes beside its pictures", remedy="check train= and the labels"
        )
    if not usable.all():
        warn(f"{int((~usable).sum())} boxes without width or height are left out")
    print(f" loaded \t image: {len(images)} \t box: {len(boxes)}\n all loaded. \n\n calculating k-means++ ...")
    boxes = boxes[usable]
    found = calc_anchors(boxes[:, 2:4] * np.array([width, height]), count, fine=width <= 32)
    per_class = np.bincount(boxes[:, 4].astype(np.intp), minlength=classes)
    counters = f"counters_per_class = {', '.join(map(str, per_class))}"
    print(f"\n{counters}\n\n avg IoU = {100 * found.average_iou:2.2f} % ")
    print(f"\nSaving anchors to the file: anchors.txt \nanchors = {found.text()}")
    for name, text in (("anchors.txt", found.text()), ("counters_per_class.txt", counters)):
        with atomic_write(Path(name), "w", encoding="utf-8") as stream:
            stream.write(text)
    say(f"boxes that each anchor fits best: {', '.join(map(str, found.counts))}")
    return 0


ANCHORS = Command(
    "darknet detector calc_anchors",
    ("DATA",),
    (
        Flag("num_of_clusters", "whole", "how many anchors (9)", "N", 9, least=1, most=1000),
        Flag("width", "whole", "width of the net's input (416)", "N", 416, least=1),
        Flag("height", "whole", "height of the net's input (416)", "N", 416, least=1),
        Flag("show", "switch", "accepted: no windows are opened", answer="no windows are opened here"),
        STRICT,
        GPUS_IDLE,
        *DEVICES,
    ),
    "anchors that fit the boxes of train=: anchors.txt and counters_per_class.txt in the working folder",
    calc_anchors,
)
