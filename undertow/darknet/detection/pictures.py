"""Running a network over the pictures of a list, each once, while the next ones are being read."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from undertow.darknet.detection.boxes import Candidates
from undertow.darknet.detection.detector import fit_picture
from undertow.darknet.learning.prefetch import Prefetcher
from undertow.darknet.network import Network
from undertow.data.images import load_image
from undertow.data.resize import Picture
from undertow.errors import FormatError, UndertowWarning

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
) -> Iterator[Found]:
    """Candidates above the threshold in each picture that can be read, in order of the list.

    tick(done, all): called after each picture. Pictures that cannot be read are left out, with an UndertowWarning at
    the end; FormatError when none can.
    """
    unreadable = []
    workers = min(4, max(1, os.cpu_count() or 1))

    def load(number: int) -> tuple[Picture, tuple[int, int]] | None:
        try:
            picture = load_image(paths[number], net.c)
        except FormatError:
            return None
        return fit_picture(net, picture), (picture.shape[2], picture.shape[1])

    with Prefetcher(load, workers=workers, ahead=2 * workers, count=len(paths)) as pictures:
        for number, fitted in enumerate(pictures):
            if fitted is None:
                unreadable.append(paths[number])
            else:
                image, size = fitted
                net.predict(image[None])
                with np.errstate(over="ignore", invalid="ignore"):  # huge boxes of a young net
                    candidates = suppress(net.candidates(size, threshold), nms)
                yield Found(number, paths[number], size, candidates)
            if tick is not None:
                tick(number + 1, len(paths))
    _tell(unreadable, len(paths))


def _tell(unreadable: list[str], count: int) -> None:
    if unreadable and len(unreadable) == count:
        raise FormatError(
            f"none of the {count} pictures can be read", file=unreadable[0], remedy="check the list and its files"
        )
    if unreadable:
        message = f"{len(unreadable)} pictures cannot be read and do not count, the first is {unreadable[0]}"
        warnings.warn(UndertowWarning(message), stacklevel=3)
