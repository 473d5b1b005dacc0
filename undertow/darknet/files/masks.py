"""Masks of objects: for each picture a text file mask/NAME.txt (src/data.c, fill_truth_iseg, load_rle).

A line is `class run,run,run...`: lengths of runs over the picture's pixels, row by row, in turn outside and inside the
object, outside first. What follows the last run has the other kind.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from undertow.darknet.files.paths import mask_path
from undertow.darknet.files.textfiles import lines_of, read_text, show
from undertow.data.images import image_size
from undertow.errors import FormatError

_LINE = re.compile(r"\s*([0-9]{1,9})\s+([0-9]{1,18}(?:,[0-9]{1,18})*+)\s*")
_REMEDY = "write lines such as `3 120,5,35,5`: a class, and lengths of runs outside and inside the object in turn"
_LARGEST_RUN = 2**31


@dataclass(frozen=True)
class Mask:
    """One object. label: its class. runs: lengths, outside first. file, line: where it is written."""

    label: int
    runs: NDArray[np.int64]
    file: str
    line: int

    def pixels(self, size: tuple[int, int]) -> NDArray[np.float32]:
        """(height, width): 1 inside, 0 outside. size: (width, height). Raises FormatError where the runs do not fit."""
        width, height = size
        self.check(size)
        inside = np.arange(len(self.runs) + 1) % 2
        rest = width * height - int(self.runs.sum())
        return np.repeat(inside.astype(np.float32), [*self.runs, rest]).reshape(height, width)

    def check(self, size: tuple[int, int]) -> None:
        """Raise FormatError where the runs are longer than a picture of (width, height)."""
        covered = int(self.runs.sum())
        if covered > size[0] * size[1]:
            raise FormatError(
                f"the runs cover {covered} pixels, the picture of {size[0]} x {size[1]} has {size[0] * size[1]}",
                file=self.file,
                line=self.line,
                remedy="make the masks from this picture, in its full size",
            )


def read_masks(image: str, classes: int) -> list[Mask]:
    """The masks of a picture, in the order of the file. Raises FormatError with file and line."""
    file = mask_path(image)
    masks = []
    for number, line in enumerate(lines_of(read_text(file)), start=1):
        if not line.strip():
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise FormatError(f"'{show(line)}' is no mask", file=file, line=number, remedy=_REMEDY)
        runs = np.fromstring(match[2], np.int64, sep=",")
        if runs.max() >= _LARGEST_RUN:
            raise FormatError(f"a run of {runs.max()} pixels", file=file, line=number, remedy=_REMEDY)
        label = int(match[1])
        if label >= classes:
            raise FormatError(
                f"class {label}, the network knows 0 to {classes - 1}",
                file=file,
                line=number,
                remedy="correct the class, or classes in the cfg",
            )
        masks.append(Mask(label, runs, file, number))
    return masks


def read_all_masks(paths: Sequence[str], classes: int) -> list[list[Mask]]:
    """The masks of each picture, checked against its size; those of pictures that cannot be read are left as they are.

    Raises FormatError that names the first broken file and counts the others.
    """
    found: list[list[Mask]] = []
    problems: list[FormatError] = []
    for path in paths:
        try:
            masks = read_masks(path, classes)
        except FormatError as problem:
            problems.append(problem)
            continue
        found.append(masks)
        try:
            size = image_size(path)
        except FormatError:
            continue  # told when it is drawn
        for mask in masks:
            try:
                mask.check(size)
            except FormatError as problem:
                problems.append(problem)
                break
    if not problems:
        return found
    first = problems[0]
    more = f"; {len(problems) - 1} more files of masks are broken" if len(problems) > 1 else ""
    raise FormatError(f"{first.reason}{more}", file=first.file, line=first.line, remedy=first.remedy)
