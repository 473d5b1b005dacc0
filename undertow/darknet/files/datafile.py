""".data files: where the images, names and results of a training are (src/option_list.c read_data_cfg)."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import cast

from undertow.darknet.files.cfg import Section, parse_entries
from undertow.darknet.files.imagelist import ImageList, read_image_list
from undertow.darknet.files.names import read_names
from undertow.darknet.files.option_fields import Options, key_of, option
from undertow.darknet.files.options import SectionType, read_section
from undertow.darknet.files.paths import find_file
from undertow.darknet.files.textfiles import read_text
from undertow.errors import FormatError


@dataclass(frozen=True, kw_only=True)
class DataOptions(Options):
    """The keys of a .data file; None where one is not given.

    train, valid, test: lists of images. names: list of names to show; labels: of names that appear in file names
    (classifiers). backup: folder for weights. results: folder for results. evaluation: which form results take
    (`eval=`). top: how many guesses count. map: class numbers of the data set. tree, leaves: a class hierarchy.
    difficult: list of images whose objects do not count (AlexeyAB's fork).
    """

    classes: int | None = option(None, least=1)
    train: str | None = option(None, file_name=True)
    valid: str | None = option(None, file_name=True)
    test: str | None = option(None, file_name=True)
    names: str | None = option(None, file_name=True)
    labels: str | None = option(None, file_name=True)
    backup: str | None = option(None, file_name=True)
    results: str | None = option(None, file_name=True)
    evaluation: str = option("voc", key="eval")
    top: int = option(1, least=1)
    tag: bool = option(False)
    map: str | None = option(None, file_name=True)
    tree: str | None = option(None, file_name=True)
    leaves: str | None = option(None, file_name=True)
    difficult: str | None = option(None, file_name=True)


_KIND = SectionType("data", DataOptions)


@dataclass(frozen=True)
class DataFile:
    """A .data file.

    file: its name. options: its values. notes: which named files were found beside it instead of from the working
    folder, as lookups go on.
    """

    file: str
    options: DataOptions
    section: Section
    strict: bool = False
    notes: list[str] = field(default_factory=list)

    def path(self, name: str) -> str:
        """The file that an option names, looked up from the working folder and then beside the .data file.

        Raises FormatError with the line when the option is missing or there is no such file.
        """
        value = getattr(self.options, name)
        key = key_of(DataOptions, name)
        if value is None:
            raise FormatError(f"{key}= is missing", file=self.file, remedy=f"add a line {key} = FILE")
        found = find_file(value, self.file) or find_file("".join(value.split()), self.file)
        if found is None:
            raise FormatError(
                f"{key}={value} does not exist",
                file=self.file,
                line=self.section.line_of(key),
                remedy="paths are looked up from the working folder, then from the folder of this file",
            )
        note = f"{key}: using {found.path}, beside {self.file}"
        if found.beside and note not in self.notes:
            self.notes.append(note)
        return found.path

    def folder(self, name: str, default: str) -> str:
        """The folder that `backup` or `results` names; it need not exist."""
        return getattr(self.options, name) or default

    def read_names(self, classes: int | None = None) -> list[str]:
        """The names of the classes, from names= or else labels=, checked against the number of classes.

        classes: the number to check against; classes= of the file unless given.
        """
        key = "names" if self.options.names is not None or self.options.labels is None else "labels"
        return read_names(self.path(key), self.options.classes if classes is None else classes, self.strict)

    def read_images(self, name: str) -> ImageList:
        """The list of images that `train`, `valid` or `test` names."""
        images = read_image_list(self.path(name), self.strict)
        self.notes.extend(note for note in images.notes if note not in self.notes)
        return images


def read_data(path: str | os.PathLike[str], strict: bool = False) -> DataFile:
    """Read a .data file: `key = value` lines, comments as in a cfg, the first of two equal keys wins.

    Unknown and repeated keys are told with an UndertowWarning, or are errors when `strict`.
    Raises FormatError with file, line and remedy.
    """
    file = os.fspath(path)
    section = parse_entries(read_text(path), file, "data", strict=strict)
    if not section.entries:
        raise FormatError("the file is empty", file=file, remedy="give at least classes=, train= and names=")
    return DataFile(file, cast(DataOptions, read_section(section, _KIND)), section, strict)
