"""Pictures one after another, from a folder or a video, and back into files. Videos are read and written by PyAV."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from undertow.data.images import load_pixels, save_image, to_pixels
from undertow.data.resize import Picture
from undertow.errors import FormatError, MissingPackage, UndertowWarning
from undertow.files import unfinished

PathLike = str | os.PathLike[str]
PICTURES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".ppm", ".pgm", ".tga", ".tif", ".tiff", ".webp")
VIDEOS = (".mp4", ".mkv", ".mov", ".avi")
_RATE = Fraction(25)


@dataclass(frozen=True)
class Frames:
    """Where frames come from. path: a folder, a picture or a video. rate: frames a second, of a video."""

    path: str
    video: bool
    rate: Fraction = _RATE

    def __iter__(self) -> Iterator[NDArray[np.uint8]]:
        """Each frame as uint8 (height, width, 3); pictures that cannot be read are left out, with an UndertowWarning.

        A video that breaks off gives what came before, with one. Raises FormatError when there is no frame at all.
        """
        count = 0
        for frame in self._decoded() if self.video else self._pictures():
            count += 1
            yield frame
        if not count:
            raise FormatError("no frame can be read", file=self.path, remedy="give a video, or a folder of pictures")

    def _pictures(self) -> Iterator[NDArray[np.uint8]]:
        folder = Path(self.path)
        files = sorted(file for file in folder.iterdir() if file.is_file()) if folder.is_dir() else [folder]
        for file in files:
            if file.suffix.lower() in PICTURES:
                try:
                    frame = load_pixels(file, 3)
                except FormatError as problem:
                    warnings.warn(UndertowWarning(f"{problem}; left out"), stacklevel=2)
                    continue
                yield frame

    def _decoded(self) -> Iterator[NDArray[np.uint8]]:
        av = _package("reading videos")
        with _opened(av, self.path) as container:
            try:
                for frame in container.decode(video=0):
                    yield np.asarray(frame.to_ndarray(format="rgb24"))
            except av.FFmpegError as problem:
                reason = f"{self.path}: the video cannot be read further ({_said(problem)})"
                warnings.warn(UndertowWarning(reason), stacklevel=2)


def open_frames(path: PathLike) -> Frames:
    """Frames of a folder (its pictures by name), of one picture, or of a video.

    Raises FormatError for what is none of these, MissingPackage for a video without PyAV.
    """
    name = os.fspath(path)
    if not os.path.exists(name):
        raise FormatError("there is no such file or folder", file=name, remedy="give a video, or a folder of pictures")
    if os.path.isdir(name) or Path(name).suffix.lower() in PICTURES:
        return Frames(name, video=False)
    av = _package("reading videos")
    with _opened(av, name) as container:
        if not container.streams.video:
            raise FormatError("the file holds no video", file=name, remedy="give a video, or a folder of pictures")
        return Frames(name, video=True, rate=container.streams.video[0].average_rate or _RATE)


class PictureWriter:
    """Writes frames as PREFIX_00000000.jpg and so on, as the C program does with -prefix."""

    def __init__(self, prefix: str) -> None:
        self.prefix, self.count = prefix, 0

    def write(self, picture: Picture) -> None:
        """picture: (3, h, w), 0..1. Raises OSError or FormatError where it cannot be written."""
        save_image(picture, f"{self.prefix}_{self.count:08d}.jpg")
        self.count += 1

    def __str__(self) -> str:
        return f"{self.prefix}_00000000.jpg to {self.prefix}_{max(0, self.count - 1):08d}.jpg"


class VideoWriter:
    """Writes frames as a video beside `path`, which gets its name when the block ends well. All frames take the size of
    the first one; an odd last row or column is left out, since the usual codecs want even sizes.

    Raises FormatError for another ending than those of `VIDEOS`, MissingPackage without PyAV.
    """

    def __init__(self, path: PathLike, rate: Fraction = _RATE) -> None:
        self.path, self.count = Path(path), 0
        if self.path.suffix.lower() not in VIDEOS:
            raise FormatError(
                f"cannot write a video named '*{self.path.suffix}'", file=path, remedy=f"end it in {', '.join(VIDEOS)}"
            )
        self._av = _package("writing videos")
        if not self.path.parent.is_dir():
            raise FormatError("the folder does not exist", file=path, remedy="make it, or name another")
        self._rate = Fraction(rate).limit_denominator(65535)
        self._beside = ExitStack()
        self._container: Any = None
        self._stream: Any = None

    def __enter__(self) -> VideoWriter:
        return self

    def write(self, picture: Picture) -> None:
        """picture: (3, h, w), 0..1."""
        pixels = to_pixels(picture)
        if self._container is None:
            self._begin(max(2, pixels.shape[1] // 2 * 2), max(2, pixels.shape[0] // 2 * 2))
        width, height = self._stream.width, self._stream.height
        if pixels.shape[0] < height or pixels.shape[1] < width:
            short = height - min(height, pixels.shape[0]), width - min(width, pixels.shape[1])
            pixels = np.pad(pixels, ((0, short[0]), (0, short[1]), (0, 0)))
        frame = self._av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels[:height, :width]), format="rgb24")
        self._container.mux(self._stream.encode(frame))
        self.count += 1

    def _begin(self, width: int, height: int) -> None:
        available = self._av.codecs_available
        codec = "libx264" if self.path.suffix.lower() != ".avi" and "libx264" in available else "mpeg4"
        beside = self._beside.enter_context(unfinished(self.path, ending=self.path.suffix.lower()))
        self._container = self._av.open(str(beside), "w")
        self._stream = self._container.add_stream(codec, rate=self._rate)
        self._stream.width, self._stream.height, self._stream.pix_fmt = width, height, "yuv420p"
        if codec == "mpeg4":
            self._stream.bit_rate = 8 * width * height  # the codec's own default is far too low to look at

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # What `unfinished` renames or removes when this closes.
        with self._beside:
            if self._container is not None:
                if error is None:
                    self._container.mux(self._stream.encode())
                self._container.close()
            if error is not None:
                raise error

    def __str__(self) -> str:
        return str(self.path)


def _package(purpose: str) -> Any:
    try:
        import av
    except ImportError:
        raise MissingPackage("av", "video", purpose) from None
    return av


def _opened(av: Any, path: str) -> Any:
    remedy = "give a video, or a folder of pictures"
    try:
        container = av.open(path)
    except (av.FFmpegError, OSError) as problem:
        raise FormatError(f"cannot be read as a video ({_said(problem)})", file=path, remedy=remedy) from problem
    if container.format.name == "tty":  # FFmpeg would show a list of pictures as a film of its letters
        container.close()
        raise FormatError("this is a text, not a video", file=path, remedy=remedy)
    return container


def _said(problem: Exception) -> str:
    return getattr(problem, "strerror", None) or str(problem)
