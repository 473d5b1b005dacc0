"""Running a network over the pictures of a list, each once, while the next ones are being read."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from undertow.darknet.detection.boxes import Candidates
from undertow.darknet.detection.detector import fit_picture
from undertow.darknet.detection.mirrored import predict_mirrored
from undertow.darknet.learning.prefetch import Prefetcher
from undertow.darknet.network import Network
from undertow.data.images import load_image
from undertow.data.resize import Picture
from undertow.errors import FormatError, UndertowWarning, describe

T = TypeVar("T")
Suppress = Callable[[Candidates, float], Candidates]
Tick = Callable[[int, int], None]


@dataclass(frozen=True)
class Found:
    """What was found in a picture. number: its place in the list. size: (width, height). candidates: after
    suppression, relative to the picture.
    """

    number: int
    path: str
    size: tuple[int, int]
    candidates: Candidates


def find_in_pictures(
    net: Network,
    paths: Sequence[str],
    threshold: float,
    nms: float,
    suppress: Suppress,
    tick: Tick | None = None,
    mirrored: bool = False,
) -> Iterator[Found]:
    """Candidates above the threshold in each picture that can be read, in order of the list.

    mirrored: add up what the net says about each picture and about its mirror image, see `predict_mirrored`.
    tick(done, all): called after each picture. About pictures that cannot be read see `LeftOut`.
    """
    left_out = LeftOut(len(paths))
    workers = min(4, max(1, os.cpu_count() or 1))

    def load(number: int) -> tuple[Picture, tuple[int, int]] | FormatError:
        def fitted(picture: Picture) -> tuple[Picture, tuple[int, int]]:
            return fit_picture(net, picture), (picture.shape[2], picture.shape[1])

        return read_or_reason(paths[number], net, fitted)

    with Prefetcher(load, workers=workers, ahead=2 * workers, count=len(paths)) as pictures:
        for number, fitted in enumerate(pictures):
            if isinstance(fitted, FormatError):
                left_out.add(fitted)
            else:
                left_out.read()
                image, size = fitted
                if mirrored:
                    predict_mirrored(net, image)
                else:
                    net.predict(image[None])
                with np.errstate(over="ignore", invalid="ignore"):  # huge boxes of a young net
                    candidates = suppress(net.candidates(size, threshold), nms)
                yield Found(number, paths[number], size, candidates)
            if tick is not None:
                tick(number + 1, len(paths))
    left_out.finish()


def read_or_reason(path: str, net: Network, prepare: Callable[[Picture], T]) -> T | FormatError:
    """A picture of a list, made ready for the net; or why it cannot be read, for `LeftOut`.

    Raises FormatError for a net that takes no pictures, and where a picture was read but cannot be made ready.
    """
    check_takes_pictures(net)
    try:
        picture = load_image(path, net.c)
    except FormatError as problem:
        return problem
    try:
        return prepare(picture)
    except Exception as error:
        raise FormatError(
            f"the picture of {picture.shape[2]} x {picture.shape[1]} cannot be made ready: {error}",
            file=path,
            remedy="take it off the list, or shrink it",
        ) from error


def check_takes_pictures(net: Network) -> None:
    """Raise FormatError for a net that cannot be given pictures."""
    if net.c not in (1, 3):
        takes = f"{net.c} channels" if net.c else "no pictures"
        remedy = "set width=, height= and channels=3 (or 1) in the cfg"
        raise FormatError(f"pictures have 1 or 3 channels, the net takes {takes}", file=net.config.file, remedy=remedy)


class LeftOut:
    """The pictures of a list that cannot be read: each is told by an UndertowWarning with its file and why, as soon as
    one can be read; if none can, that is an error.

    count: pictures of the list.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.problems: list[FormatError] = []
        self._some_read = False

    def add(self, problem: FormatError) -> None:
        """One more, of which no other picture takes the place."""
        self.problems.append(problem)
        if self._some_read:
            _tell(problem)

    def read(self) -> None:
        """A picture that could be read."""
        if not self._some_read:
            self._some_read = True
            for problem in self.problems:
                _tell(problem)

    def finish(self) -> None:
        """At the end of the list: a count. Raises FormatError when no picture could be read."""
        if self.problems and len(self.problems) == self.count:
            last = self.problems[-1]
            raise FormatError(
                f"none of the {self.count} pictures can be read; the last one: {last.reason}",
                file=last.file,
                remedy="check the list and its files",
            )
        if len(self.problems) > 1:
            message = f"{len(self.problems)} of {self.count} pictures cannot be read and do not count"
            warnings.warn(UndertowWarning(message), stacklevel=3)


def _tell(problem: FormatError) -> None:
    message = f"{describe(problem.reason, problem.file)}; the picture does not count"
    warnings.warn(UndertowWarning(message), stacklevel=4)
