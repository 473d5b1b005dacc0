"""Where Darknet's files point to: looking up a named file, and from an image to its label file."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass

from undertow.darknet.files.textfiles import show
from undertow.errors import FormatError

# Folders that hold images, in the order in which the original replaces them by `labels`.
_IMAGE_FOLDERS = ("images", "JPEGImages", "raw")
_SEPARATOR = re.compile(r"([/\\])")
_EXTENSION = re.compile(r"\.[^./\\]*$")
_LONGEST = 1000  # characters of a name that an error shows


@dataclass(frozen=True)
class FoundFile:
    """A file that exists: its path, and whether it was found beside the file that names it."""

    path: str
    beside: bool = False


def exists(path: str) -> bool:
    """Whether there is such a file or folder; names that no file can have do not exist."""
    return os.path.exists(path)


def find_file(name: str, named_in: str | os.PathLike[str] | None = None) -> FoundFile | None:
    """Look a file up as the original does, from the working folder, and then beside the file that names it.

    Backslashes are tried as slashes too. None when there is no such file.
    """
    spellings = [name] if os.sep == "\\" or "\\" not in name else [name, name.replace("\\", "/")]
    for spelling in spellings:
        if exists(spelling):
            return FoundFile(spelling)
    if named_in is None:
        return None
    folder = os.path.dirname(os.fspath(named_in))
    for spelling in spellings:
        path = os.path.join(folder, spelling)
        if not os.path.isabs(spelling) and exists(path):
            return FoundFile(path, beside=True)
    return None


def named_file(name: str, key: str, cfg: str, line: int | None, layer: int) -> str:
    """The path of a file that `key=` of a cfg's section names; FormatError, at the section, where there is none."""
    found = find_file(name, cfg)
    if found is None:
        raise FormatError(
            f"{key}={show(name, _LONGEST)}: there is no such file",
            file=cfg,
            line=line,
            layer=layer,
            remedy="put it there, seen from the working folder or from the cfg's, or correct the path",
        )
    return found.path


def label_candidates(image: str, folder: str = "labels") -> list[str]:
    """Where the labels of an image can be, likeliest first.

    A whole folder called `images`, `JPEGImages` or `raw` becomes `folder` (each such folder in turn, from the left),
    then the image's own folder is tried. Only the last extension becomes `.txt`.
    """
    parts = _SEPARATOR.split(_EXTENSION.sub("", image) + ".txt")
    candidates = []
    for name in _IMAGE_FOLDERS:
        for index in range(0, len(parts) - 1, 2):
            if parts[index] == name:
                candidates.append("".join([*parts[:index], folder, *parts[index + 1 :]]))
    candidates.append("".join(parts))
    return list(dict.fromkeys(candidates))


def label_path(image: str, exists: Callable[[str], bool] = exists) -> str:
    """The label file of an image: the first candidate that exists.

    Where none exists, the one that belongs there: `labels` for the VOC and COCO layouts (JPEGImages, or folders below
    images), the image's own folder for a flat `images` folder, where the two original programs differ.
    """
    candidates = label_candidates(image)
    found = next((path for path in candidates if exists(path)), None)
    if found is not None:
        return found
    folders = _SEPARATOR.split(image)[::2]
    flat = len(folders) > 1 and folders[-2] in ("images", "raw")
    return candidates[-1] if flat else candidates[0]


def mask_path(image: str) -> str:
    """The file of masks of an image: as its labels, in a folder `mask`; beside the image only where it has no folder
    that could become one, since boxes may lie there.
    """
    *in_folders, beside = label_candidates(image, "mask")
    return next((path for path in in_folders if exists(path)), in_folders[0] if in_folders else beside)
