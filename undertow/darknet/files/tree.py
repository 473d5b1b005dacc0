"""Class hierarchies (`tree=`): every line a name and the number of its parent, -1 for the roots (src/tree.c).

Children of one parent stand together and form a group; a softmax gives each group probabilities that add up to 1,
which hold under the condition of the parent.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from undertow.darknet.files.textfiles import lines_of, read_text, show
from undertow.errors import FormatError, ShapeError

Array = np.ndarray[Any, Any]

_LARGEST = 16 * 1024 * 1024
_ROOT = -1


@dataclass(frozen=True)
class ClassTree:
    """n classes in groups.

    parent: of each class, -1 for none. child: the group of its children, -1 for none. group: the group it is in.
    group_size, group_offset: of each group. leaf: whether it has no children.
    """

    names: tuple[str, ...]
    parent: Array
    child: Array
    group: Array
    group_size: Array
    group_offset: Array
    leaf: Array

    @property
    def n(self) -> int:
        return len(self.names)

    @property
    def groups(self) -> int:
        return len(self.group_size)

    def path(self, label: int) -> list[int]:
        """The class, its parent, and so on up to a root."""
        found = []
        while label >= 0:
            found.append(label)
            label = int(self.parent[label])
        return found

    def probability(self, conditional: Array, label: int) -> Any:
        """Of a class, (...), from conditional probabilities (n, ...) (get_hierarchy_probability)."""
        return np.prod([conditional[one] for one in self.path(label)], axis=0)

    def predictions(self, conditional: Array, only_leaves: bool = False) -> Array:
        """Of all classes, from conditional probabilities (n, ...); a new array (hierarchy_predictions).

        only_leaves: classes with children get 0.
        """
        found = conditional.copy()
        for label in np.flatnonzero(self.parent >= 0):
            found[label] *= found[self.parent[label]]
        if only_leaves:
            found[self.leaf == 0] = 0
        return found

    def top_prediction(self, predictions: Array, threshold: float) -> int:
        """Down the tree along the likeliest children while the product of the numbers stays above the threshold.

        predictions: (n,). Returns the last class above it, or the likeliest root (hierarchy_top_prediction).
        """
        product, group = 1.0, 0
        while True:
            first = int(self.group_offset[group])
            best = first + int(np.argmax(predictions[first : first + int(self.group_size[group])]))
            largest = max(float(predictions[best]), 0.0)
            if product * largest > threshold:
                product *= largest
                group = int(self.child[best])
                if group < 0:
                    return best
            elif group == 0:
                return best
            else:
                return int(self.parent[first])


def read_tree(path: str | os.PathLike[str]) -> ClassTree:
    """Read a class tree. Raises FormatError, with the line, for one that is none."""
    file = os.fspath(path)
    names: list[str] = []
    parents: list[int] = []
    lines = [line.split() for line in lines_of(read_text(path, _LARGEST))]
    while lines and not lines[-1]:
        lines.pop()
    for number, words in enumerate(lines, 1):
        names.append(words[0] if words else "")
        parents.append(_parent(words, len(parents), file, number))
    if not names:
        raise FormatError("the file holds no classes", file=file, remedy="write a name and its parent on each line")
    return _grouped(names, np.array(parents), file)


def check_tree(tree: ClassTree, classes: int, file: str, cfg: str, line: int | None, layer: int) -> None:
    """Raise ShapeError when a layer has another number of values than the tree has classes.

    file: of the tree. cfg, line, layer: where the layer stands.
    """
    if tree.n != classes:
        raise ShapeError(
            f"the class tree {show(file)} has {tree.n} classes, the layer has {classes} values for them",
            file=cfg,
            line=line,
            layer=layer,
            remedy=f"correct tree=, or let the layer have {tree.n} classes",
        )


def _parent(words: list[str], index: int, file: str, line: int) -> int:
    if not words:
        raise FormatError("a blank line between classes", file=file, line=line, remedy="remove it")
    if len(words) == 1:
        return _ROOT
    try:
        parent = int(words[1])
    except ValueError:
        parent = -2
    if not _ROOT <= parent < index:
        raise FormatError(
            f"'{show(words[1])}' is no parent of class {index}",
            file=file,
            line=line,
            remedy="give -1 for a root, or the number (from 0) of a class before it",
        )
    return parent


def _grouped(names: list[str], parents: Array, file: str) -> ClassTree:
    """Runs of lines with one parent are the groups."""
    begins = np.flatnonzero(np.diff(parents, prepend=-2))
    if parents[0] != _ROOT:
        raise FormatError("the first class has a parent", file=file, line=1, remedy="give -1")
    leaders = parents[begins]
    again = next((i for i in range(1, len(begins)) if leaders[i] in leaders[:i]), None)
    if again is not None:
        line = int(begins[again]) + 1
        reason = f"the children of class {leaders[again]} stand in two places"
        raise FormatError(reason, file=file, line=line, remedy="put the children of one class on following lines")
    child = np.full(len(names), -1)
    child[leaders[1:]] = np.arange(1, len(begins))
    return ClassTree(
        names=tuple(names),
        parent=parents,
        child=child,
        group=np.repeat(np.arange(len(begins)), np.diff(begins, append=len(names))),
        group_size=np.diff(begins, append=len(names)),
        group_offset=begins,
        leaf=(child < 0).astype(np.int64),
    )
