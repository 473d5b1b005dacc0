"""What a classifier says about pictures, and how often it is right (examples/classifier.c)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from undertow.darknet.detection.pictures import LeftOut, read_or_reason
from undertow.darknet.files.class_labels import PathLabels
from undertow.darknet.files.textfiles import lines_of, read_text
from undertow.darknet.files.tree import ClassTree
from undertow.darknet.layers.layers_loss import Softmax
from undertow.darknet.learning.prefetch import Prefetcher
from undertow.darknet.network import Network
from undertow.data.resize import (
    Picture,
    center_crop_image,
    crop_image,
    flip_image,
    letterbox_image,
    resize_image,
    resize_max,
    resize_min,
)
from undertow.errors import FormatError

Array = np.ndarray[Any, Any]
Views = Callable[[Picture, Network], list[Picture]]
Tick = Callable[[int, int], None]

SHIFT = 32  # of the crops of valid10
SCALES = (224, 256, 288, 320)  # of validmulti


def class_tree(net: Network) -> ClassTree | None:
    """The class hierarchy of the last softmax that has one."""
    trees = [layer.softmax_tree for layer in net.layers if isinstance(layer, Softmax)]
    return trees[-1] if trees else None


def with_leaves(tree: ClassTree, path: str | os.PathLike[str]) -> tuple[ClassTree, int]:
    """The tree with just the classes of a list as leaves, and how many of them it has (change_leaves)."""
    names = {line.strip() for line in lines_of(read_text(path))}
    leaf = np.array([name in names for name in tree.names], np.int64)
    return replace(tree, leaf=leaf), int(leaf.sum())


def top_k(values: Array, count: int) -> list[int]:
    """Places of the largest values, largest first; of equal ones the first."""
    return np.argsort(-np.nan_to_num(values, nan=-np.inf), kind="stable")[:count].tolist()


def predictions(net: Network, picture: Picture, tree: ClassTree | None = None, only_leaves: bool = True) -> Array:
    """(outputs,): the net's output for a picture that fits it; with a tree the probability of each class."""
    output = np.array(net.predict(picture[None]).reshape(-1))
    return output if tree is None else tree.predictions(output, only_leaves)


# --- how a picture is brought to the net's size ----------------------------------------------------------------


def letterboxed(picture: Picture, net: Network) -> list[Picture]:
    """With grey bars: predict, csv."""
    return [letterbox_image(picture, net.w, net.h)]


def shrunk_crop(picture: Picture, net: Network) -> list[Picture]:
    """The middle, after the shorter side was brought to the net's width: label, fout, and all that the fork does."""
    small = resize_min(picture, net.w)
    dx, dy = int((small.shape[2] - net.w) / 2), int((small.shape[1] - net.h) / 2)
    return [crop_image(small, dx, dy, net.w, net.h)]


def center_crop(picture: Picture, net: Network) -> list[Picture]:
    """The largest square in the middle: valid."""
    return [center_crop_image(picture, net.w, net.h)]


def stretched(picture: Picture, net: Network) -> list[Picture]:
    """The whole picture without regard to its shape: validcrop, test."""
    return [resize_image(picture, net.w, net.h)]


def ten_crops(picture: Picture, net: Network) -> list[Picture]:
    """Four corners and the middle of a picture that is 32 pixels larger, and their mirror images: valid10."""
    large = resize_image(picture, net.w + SHIFT, net.h + SHIFT)
    places = ((-SHIFT, -SHIFT), (SHIFT, -SHIFT), (0, 0), (-SHIFT, SHIFT), (SHIFT, SHIFT))
    return [crop_image(one, dx, dy, net.w, net.h) for one in (large, flip_image(large)) for dx, dy in places]


def whole(picture: Picture, net: Network) -> list[Picture]:
    """The picture with its shorter side brought to the net's width, for a net that is resized to it: validfull."""
    return [resize_min(picture, net.w)]


def all_scales(picture: Picture, net: Network) -> list[Picture]:
    """The longer side at four sizes, each as it is and mirrored: validmulti."""
    sizes = [resize_max(picture, scale) for scale in SCALES]
    return [view for one in sizes for view in (one, flip_image(one))]


# Names of the C program's functions; for the last two the net takes the size of each picture.
FORMS: dict[str, Views] = {
    "valid": center_crop,
    "valid10": ten_crops,
    "validcrop": stretched,
    "validfull": whole,
    "validmulti": all_scales,
}
RESIZING = (whole, all_scales)


@dataclass(frozen=True)
class Guess:
    """What a net says about a picture. number: its place in the list. label: of its true class, -1 for none known.
    values: for each class; of several views their sum. best: numbers of the likeliest classes, likeliest first.
    """

    number: int
    path: str
    label: int
    values: Array
    best: list[int]


@dataclass(frozen=True)
class Accuracy:
    """How often a classifier is right. top1, topk: shares of 1: its first guess, one of its first k. pictures: all."""

    top1: float
    topk: float
    k: int
    pictures: int

    @property
    def mean_average_precision(self) -> float:
        """topk: what decides which weights are the best."""
        return self.topk

    def lines(self) -> list[str]:
        return [f" accuracy top1 = {self.top1:f}, top{self.k} = {self.topk:f} "]


def guesses(
    net: Network,
    paths: Sequence[str],
    labels: PathLabels | None,
    k: int,
    views: Views = center_crop,
    tree: ClassTree | None = None,
    only_leaves: bool = True,
    tick: Tick | None = None,
) -> Iterator[Guess]:
    """What a net says about each picture that can be read, in order of the list.

    labels: tell the true classes. views: how pictures are brought to the net's size; see `FORMS`. tick(done, all):
    called after each. About pictures that cannot be read see `LeftOut`.
    """
    size, left_out = (net.w, net.h), LeftOut(len(paths))
    workers = min(4, max(1, os.cpu_count() or 1))

    def load(number: int) -> list[Picture] | FormatError:
        return read_or_reason(paths[number], net, lambda picture: views(picture, net))

    # Where the net is resized, the views must be made while it has its own size.
    pictures: Iterator[list[Picture] | FormatError]
    resizing = views in RESIZING
    planned, net.planned = net.planned, net.planned and not resizing
    ahead = Prefetcher(load, workers=workers, ahead=2 * workers, count=0 if resizing else len(paths))
    try:
        with ahead:
            pictures = map(load, range(len(paths))) if resizing else ahead
            for number, made in enumerate(pictures):
                if isinstance(made, FormatError):
                    left_out.add(made)
                else:
                    left_out.read()
                    values = _summed(net, made, tree, only_leaves, size)
                    label = -1 if labels is None else labels.first_in(paths[number])
                    yield Guess(number, paths[number], label, values, top_k(values, k))
                if tick is not None:
                    tick(number + 1, len(paths))
    finally:
        net.planned = planned
    left_out.finish()


def _summed(
    net: Network, views: list[Picture], tree: ClassTree | None, only_leaves: bool, size: tuple[int, int]
) -> Array:
    """The sum of what the net says about each view, resized to it where need be."""
    total: Array | None = None
    for view in views:
        if view.shape[1:] != (net.h, net.w):
            net.resize(view.shape[2], view.shape[1])
        found = predictions(net, view, tree, only_leaves)
        total = found if total is None else total + found
    if (net.w, net.h) != size:
        net.resize(*size)
    assert total is not None
    return total


def measure(
    net: Network, paths: Sequence[str], labels: PathLabels, k: int, views: Views = center_crop,
    tree: ClassTree | None = None, tick: Tick | None = None,
) -> Accuracy:  # fmt: skip
    """How often the net is right about the pictures; see `guesses`."""
    right = top = count = 0
    for guess in guesses(net, paths, labels, k, views, tree, tick=tick):
        count += 1
        right += guess.best[0] == guess.label
        top += guess.label in guess.best
    return Accuracy(right / count, top / count, k, count)
