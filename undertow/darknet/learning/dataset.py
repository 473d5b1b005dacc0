"""The pictures a detector learns from, as Darknet draws and changes them (src/data.c, load_data_detection)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from undertow.darknet.files.imagelist import ImageList
from undertow.darknet.files.issues import Issue
from undertow.darknet.files.labels import LabelReader
from undertow.data.augment import Boxes, DetectionOptions, augment_detection
from undertow.data.augment_grid import Grid, augment_grid
from undertow.data.crand import CounterRandom, RandomSource
from undertow.data.images import load_pixels
from undertow.data.resize import Picture
from undertow.errors import FormatError, UndertowError


@dataclass(frozen=True)
class Sample:
    """One picture to learn from.

    image: (channels, height, width), 0..1. truth: (5 * boxes,), for each box x, y, w, h relative to the picture and
    its class, zeros after the last. path: where the picture comes from.
    """

    image: Picture
    truth: NDArray[np.float32]
    path: str


class PictureSet:
    """The pictures of a list, of which a training draws one after another, with replacement as in the original.

    Pictures that cannot be read are skipped: another one is drawn in their place, `skipped` tells which. Safe to use
    from several threads.

    seed: of all draws. channels: of the net. strict: pictures that cannot be read are errors.
    """

    def __init__(self, images: ImageList, *, seed: int = 0, channels: int = 3, strict: bool = False) -> None:
        if channels not in (1, 3):
            reason = f"pictures have 1 or 3 channels, the net takes {channels}"
            raise FormatError(reason, file=images.file, remedy="set channels=3 in the cfg")
        self.file, self.paths = images.file, images.paths
        self.seed, self.channels, self.strict = seed, channels, strict
        self.missing: tuple[Issue, ...] = images.issues
        self._skipped: dict[int, Issue] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def skipped(self) -> list[Issue]:
        """One entry for each picture that could not be read so far, in the order they were met."""
        with self._lock:
            return list(self._skipped.values())

    def drawn(self, random: RandomSource) -> tuple[int, NDArray[np.uint8]]:
        """Number and pixels, as stored, of a picture that can be read. Raises FormatError when there is none."""
        while True:
            index = random.index(len(self.paths))
            pixels = self._pixels(index)
            if pixels is not None:
                return index, pixels

    def _labelled(self, index: int) -> bool:
        """Whether boxes belong to this picture."""
        return False

    def _pixels(self, index: int) -> NDArray[np.uint8] | None:
        """The picture as it is stored, None when it cannot be read."""
        if index in self._skipped:
            self._check_left()
            return None
        path = self.paths[index]
        try:
            return load_pixels(path, self.channels, labelled=self._labelled(index))
        except FormatError as problem:
            with self._lock:
                self._skipped[index] = Issue("unreadable picture", problem.reason, path, dropped=True)
            if self.strict:
                raise
            self._check_left()
            return None

    def _check_left(self) -> None:
        """Raise FormatError when no picture can be read: every thread that draws must end, not only the one that met
        the last of them.
        """
        with self._lock:
            if len(self._skipped) < len(self.paths):
                return
            last = next(reversed(self._skipped.values()))
        raise FormatError(
            f"none of the {len(self.paths)} pictures can be read; the last one: {last.file}: {last.reason}",
            file=self.file,
            remedy="check the list and the files it names",
        )


class TrainingSet(PictureSet):
    """The pictures of a list with their boxes; `sample` gives any sample of a training run by its number.

    All label files are read at once, so that a broken one is told before hours are lost. About unreadable pictures,
    seed, channels and strict see `PictureSet`.

    boxes: room for so many boxes in the truth (`max=` of the head). grid: the truth is a grid instead, see
    `fill_truth_grid`, and pictures are changed as YOLOv1's are. Raises FormatError for label files that cannot be
    read.
    """

    def __init__(
        self,
        images: ImageList,
        labels: LabelReader,
        augmentation: DetectionOptions,
        *,
        seed: int = 0,
        boxes: int = 90,
        channels: int = 3,
        strict: bool = False,
        grid: Grid | None = None,
    ) -> None:
        super().__init__(images, seed=seed, channels=channels, strict=strict)
        self.augmentation, self.boxes_in_truth, self.grid = augmentation, boxes, grid
        self.labels = labels
        self.boxes: list[Boxes] = read_all_labels(self.paths, labels)

    def _labelled(self, index: int) -> bool:
        return len(self.boxes[index]) > 0

    @property
    def crowded(self) -> int:
        """Pictures with more boxes than the truth has room for."""
        return 0 if self.grid else sum(len(boxes) > self.boxes_in_truth for boxes in self.boxes)

    def sample(self, counter: int, size: tuple[int, int]) -> Sample:
        """Sample number `counter` of the run, for a net of `size` (width, height).

        Which picture, and what is done to it, follows from (seed, counter) and the files alone. As in the original,
        pictures are drawn with replacement. Raises FormatError when no picture of the list can be read.
        """
        random = CounterRandom(self.seed, counter)
        index, pixels = self.drawn(random)
        try:
            image, truth = self._augmented(pixels.transpose(2, 0, 1), self.boxes[index], size, random)
        except UndertowError:
            raise
        except Exception as error:
            raise UndertowError(f"the picture cannot be made ready: {error}", file=self.paths[index]) from error
        return Sample(image, truth.reshape(-1), self.paths[index])

    def _augmented(
        self, picture: NDArray[np.uint8], boxes: Boxes, size: tuple[int, int], random: RandomSource
    ) -> tuple[Picture, NDArray[np.float32]]:
        if self.grid is not None:
            return augment_grid(picture, boxes, size, self.augmentation, random, self.grid)
        return augment_detection(picture, boxes, size, self.augmentation, random, self.boxes_in_truth)


def read_all_labels(paths: Sequence[str], labels: LabelReader) -> list[Boxes]:
    """The boxes of each picture. Raises FormatError that names the first broken label file and counts the others."""
    boxes, problems = [], []
    for path in paths:
        try:
            boxes.append(labels(path).boxes)
        except FormatError as problem:
            problems.append(problem)
    if not problems:
        return boxes
    first = problems[0]
    more = f"; {len(problems) - 1} more label files are broken" if len(problems) > 1 else ""
    raise FormatError(f"{first.reason}{more}", file=first.file, line=first.line, remedy=first.remedy)
