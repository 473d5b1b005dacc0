"""The class of a picture, from its path or from a file of tags beside it (src/data.c fill_truth, load_tags_paths)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from undertow.darknet.files.paths import label_path
from undertow.darknet.files.textfiles import read_text, show
from undertow.darknet.files.tree import ClassTree
from undertow.errors import FormatError

Array = np.ndarray[Any, Any]
MASKED = -1234.0  # a group of the tree that says nothing about this picture (the original's SECRET_NUM)


class PathLabels:
    """Classes whose labels stand in the paths of pictures.

    labels: of the classes, in order; an empty one stands in no path. folder: the beginning of paths that does not
    count, since the list they come from names them without it.
    """

    def __init__(self, labels: Sequence[str], folder: str = "") -> None:
        self.labels = tuple(labels)
        self._prefix = os.path.join(folder, "") if folder else ""

    def all_in(self, path: str) -> list[int]:
        """Every class whose label stands in the path."""
        listed = path.removeprefix(self._prefix)
        return [number for number, label in enumerate(self.labels) if label and label in listed]

    def first_in(self, path: str) -> int:
        """The first such class, -1 when there is none: what the original's validations take."""
        listed = path.removeprefix(self._prefix)
        return next((number for number, label in enumerate(self.labels) if label and label in listed), -1)

    def truth(self, path: str, classes: int) -> Array:
        """(classes,): 1 for every class whose label stands in the path."""
        truth = np.zeros(classes, np.float32)
        truth[self.all_in(path)] = 1
        return truth


class TagFiles:
    """Classes as numbers in a text file that belongs to each picture, `labels/NAME.txt` (tag=1)."""

    def all_in(self, path: str) -> list[int]:
        """The numbers of the file; none when there is no file. Raises FormatError for words that are none."""
        file = label_path(path)
        if not os.path.exists(file):
            return []
        found = []
        for word in read_text(file).split():
            if not (word.isascii() and word.isdigit()):
                remedy = "write the numbers of the classes, from 0, with blanks between them"
                raise FormatError(f"'{show(word)}' is no class number", file=file, remedy=remedy)
            found.append(int(word))
        return found

    def truth(self, path: str, classes: int) -> Array:
        """(classes,): 1 for every number of the file that is a class."""
        truth = np.zeros(classes, np.float32)
        truth[[number for number in self.all_in(path) if number < classes]] = 1
        return truth


Labels = PathLabels | TagFiles


def fill_hierarchy(truth: Array, tree: ClassTree) -> Array:
    """Truth for a class tree: the parents of each class are true too, and groups without a true class are MASKED."""
    filled = truth.copy()
    for label in np.flatnonzero(truth):
        filled[tree.path(int(label))] = 1
    for start, size in zip(tree.group_offset, tree.group_size, strict=True):
        group = filled[start : start + size]
        if not group.any():
            group[:] = MASKED
    return filled
