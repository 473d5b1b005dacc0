"""Lists of image files, one path on each line, as `train=` and `valid=` of a .data file name them."""

from __future__ import annotations

import os
from dataclasses import dataclass

from undertow.darknet.files.issues import Issue
from undertow.darknet.files.paths import find_file
from undertow.darknet.files.textfiles import lines_of, read_text, show
from undertow.errors import FormatError


@dataclass(frozen=True)
class ImageList:
    """The images of a list that exist.

    file: the list. paths: of the images, ready to open. lines: the line of each. issues: one for each image that was
    not found. notes: what a user should know about how paths were understood.
    """

    file: str
    paths: tuple[str, ...]
    lines: tuple[int, ...]
    issues: tuple[Issue, ...] = ()
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.paths)


def read_image_list(path: str | os.PathLike[str], strict: bool = False) -> ImageList:
    """Read a list of images and look each up, from the working folder and then beside the list.

    Blank lines count for nothing; Windows line ends are fine. Images that do not exist are reported in `issues` and
    left out. Names are only ever used to open files.
    Raises FormatError when the list cannot be read, names nothing, or names nothing that exists; when `strict`, also
    for the first image that does not exist.
    """
    file = os.fspath(path)
    paths, lines, issues, beside = [], [], [], 0
    for number, line in enumerate(lines_of(read_text(path)), start=1):
        if not line.strip():
            continue
        found = find_file(line, file) or find_file(line.strip(), file)
        if found is None:
            issues.append(Issue("image missing", f"image not found: {show(line.strip(), 200)}", file, number, True))
            continue
        beside += found.beside
        paths.append(found.path)
        lines.append(number)
    if not paths or (strict and issues):
        raise _error(file, issues)
    notes = (f"{beside} images were found relative to the folder of {file}",) if beside else ()
    return ImageList(file, tuple(paths), tuple(lines), tuple(issues), notes)


def _error(file: str, issues: list[Issue]) -> FormatError:
    if not issues:
        return FormatError("the list names no images", file=file, remedy="write one image path on each line")
    first = issues[0]
    more = f" (and {len(issues) - 1} more)" if len(issues) > 1 else ""
    return FormatError(
        f"{first.reason}{more}",
        file=file,
        line=first.line,
        remedy="paths are looked up from the working folder, then from the folder of the list",
    )
