"""Label files: one `class x y width height` line for each box, sizes as parts of the image (src/data.c read_boxes).

The original reads with scanf and stops at the first thing it does not understand, losing the rest in silence. Here a
line that is not five numbers is an error with its line; a box that cannot be right is dropped or clipped and reported.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from undertow.darknet.files.issues import Issue, IssueCounter
from undertow.darknet.files.paths import label_candidates, label_path
from undertow.darknet.files.textfiles import lines_of, read_text, show
from undertow.errors import FormatError

# A label file beyond this size is something else; at 30 bytes a line it would hold a million boxes.
_LARGEST = 32 * 1024 * 1024
# The 2018 program leaves out boxes narrower than this part of the image; used where the net's size is not known.
_SMALLEST = 0.001
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_DECIMAL_COMMA = re.compile(r"[+-]?[0-9]*,[0-9]+")
_SHOWN = 5
_LONGEST, _GREATEST = 64, 1e9


@dataclass(frozen=True)
class Labels:
    """The boxes of one image.

    boxes: (n, 5) float32, x, y, width, height of each box, as parts of the image with x and y the centre, and its
    class. path: the label file. issues: what was dropped, clipped or read leniently. missing: there is no such file.
    """

    path: str
    boxes: NDArray[np.float32]
    issues: tuple[Issue, ...] = ()
    missing: bool = False


def read_labels(
    path: str, classes: int | None = None, *, size: tuple[int, int] | None = None, strict: bool = False
) -> Labels:
    """Read one label file.

    classes: boxes of a class at or above it are dropped (not checked when None). size: (width, height) of the net's
    input; boxes smaller than one of its pixels are dropped, without it those below a thousandth of the image.
    strict: raise for what would be dropped, clipped or read leniently.
    Raises FormatError, naming each line, for a line that is not five numbers.
    """
    reader = _Reader(path, classes, size)
    for number, line in enumerate(lines_of(read_text(path, _LARGEST)), start=1):
        reader.take(line, number)
    if reader.errors or (strict and reader.issues):
        raise _error(path, reader.errors or reader.issues)
    boxes = np.array(reader.boxes, dtype=np.float32).reshape(-1, 5)
    return Labels(path, boxes, tuple(reader.issues))


@dataclass
class LabelReader:
    """Labels by image path, with all findings counted in `summary`; safe to use from several threads.

    missing: what an absent label file means, no boxes ("empty") or an error ("error").
    """

    classes: int | None = None
    size: tuple[int, int] | None = None
    missing: Literal["empty", "error"] = "empty"
    strict: bool = False
    summary: IssueCounter = field(default_factory=IssueCounter)

    def __call__(self, image: str) -> Labels:
        """The labels of an image. Raises FormatError for a label file that cannot be read."""
        path = label_path(image)
        try:
            labels = read_labels(path, self.classes, size=self.size, strict=self.strict)
        except FormatError as problem:
            if not isinstance(problem.__cause__, FileNotFoundError):
                self.summary.add(path, 0, (Issue("unreadable label file", problem.reason, path, problem.line, True),))
                raise
            labels = self._without_file(image, path)
        self.summary.add(path, len(labels.boxes), labels.issues, labels.missing)
        return labels

    def _without_file(self, image: str, path: str) -> Labels:
        tried = ", ".join(label_candidates(image))
        if self.missing == "error" or self.strict:
            raise FormatError(
                f"no label file for this image; looked for {tried}",
                file=image,
                remedy="an image without objects needs an empty label file",
            )
        issue = Issue("label file missing", f"no label file for {image}; looked for {tried}", path)
        return Labels(path, np.zeros((0, 5), np.float32), (issue,), missing=True)


@dataclass
class _Reader:
    path: str
    classes: int | None
    size: tuple[int, int] | None
    boxes: list[tuple[float, float, float, float, int]] = field(default_factory=list)
    issues: list[Issue] = field(default_factory=list)
    errors: list[Issue] = field(default_factory=list)

    def take(self, line: str, number: int) -> None:
        words = line.split()
        if not words:
            return
        reason = _misread(words)
        if reason is not None:
            self.errors.append(Issue("malformed line", reason, self.path, number))
            return
        label = self._class(words[0], number)
        if label is not None:
            self._box(label, [float(word) for word in words[1:]], number)

    def _class(self, word: str, number: int) -> int | None:
        value = float(word)
        if value != int(value):
            self.errors.append(
                Issue("malformed line", f"class '{show(word)}' is not a whole number", self.path, number)
            )
            return None
        label = int(value)
        if not word.lstrip("+-").isdigit():
            self._tell("class not written as an integer", f"class '{show(word)}' is read as {label}", number, False)
        if label < 0 or (self.classes is not None and label >= self.classes):
            last = f"0 to {self.classes - 1}" if self.classes is not None else "0 and up"
            self._tell("class out of range", f"class {label} is not one of {last}; the box is dropped", number)
            return None
        return label

    def _box(self, label: int, values: list[float], number: int) -> None:
        x, y, width, height = values
        for axis, centre in (("x", x), ("y", y)):
            if not 0 < centre <= 1:
                self._tell("centre outside the image", f"{axis}={centre:g} is not in 0..1; the box is dropped", number)
                return
        least_width, least_height = self._smallest()
        if width < least_width or height < least_height:
            unit = "one pixel of the network's input" if self.size else "a thousandth of the image"
            reason = f"a box of {width:g} x {height:g} is smaller than {unit}; it is dropped"
            self._tell("box too small", reason, number)
            return
        for axis, extent in (("width", width), ("height", height)):
            if extent > 1:
                self._tell("box larger than the image", f"{axis}={extent:g} is clipped to 1", number, False)
        self.boxes.append((x, y, min(width, 1.0), min(height, 1.0), label))

    def _smallest(self) -> tuple[float, float]:
        if self.size is None:
            return _SMALLEST, _SMALLEST
        width, height = self.size
        return 1 / width, 1 / height

    def _tell(self, kind: str, reason: str, line: int, dropped: bool = True) -> None:
        self.issues.append(Issue(kind, reason, self.path, line, dropped))


def _misread(words: list[str]) -> str | None:
    """Why these are not five numbers; None when they are."""
    if any(_DECIMAL_COMMA.fullmatch(word) for word in words):
        return "decimal comma: write numbers with a point"
    wrong = next((word for word in words if not _NUMBER.fullmatch(word)), None)
    if wrong is not None:
        comma = "; values are separated by blanks, not commas" if "," in wrong else ""
        return f"'{show(wrong)}' is not a number{comma}"
    if len(words) != 5:
        kind = " (a polygon?)" if len(words) > 6 else ""
        return f"{len(words)} values{kind}, a box is 'class x y width height'"
    if any(len(word) > _LONGEST or abs(float(word)) > _GREATEST for word in words):
        return "a value is too large or too long"
    return None


def _error(path: str, problems: list[Issue]) -> FormatError:
    first, *others = problems
    parts = [first.reason, *(f"line {issue.line}: {issue.reason}" for issue in others[: _SHOWN - 1])]
    if len(others) >= _SHOWN:
        parts.append(f"and {len(others) - _SHOWN + 1} more")
    return FormatError("; ".join(parts), file=path, line=first.line, remedy="correct the label file")
