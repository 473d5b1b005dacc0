"""The feed of VideoData layers: the frames of a video file, once, in order. Videos are decoded by PyAV."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np

from undertow.caffe.data.feed import Array, Feed, stack_into
from undertow.caffe.data.transformer import DataTransformer
from undertow.errors import FormatError, MissingPackage


class VideoFeed(Feed):
    """Batches of frames, and labels of 0 where wanted. skip: how many frames are left out before each one.

    The position is the number of frames handed out. Behind the last frame there is nothing: FormatError.
    """

    def __init__(
        self, path: str, batch_size: int, transformer: DataTransformer, *, skip: int = 0, labels: bool, seed: int = 0
    ) -> None:
        super().__init__(seed)
        self.path, self.batch_size, self.transformer = path, batch_size, transformer
        self.skip, self.labels, self.random = skip, labels, transformer.random
        self._frames: Iterator[Array] | None = None
        first = next(iter(read_frames(path)), None)
        if first is None:
            raise FormatError("the video has no frame", file=path, remedy="give another video_file")
        self.shapes = [(batch_size, *transformer.shape_of(first.shape))] + ([(batch_size,)] if labels else [])

    def load(self) -> list[Array]:
        batch = None
        for index in range(self.batch_size):
            rng = self.draws(self.counter) if self.transformer.random else None
            frame = self._next()
            values = self.transformer.transform(frame, rng)
            batch = stack_into(batch, index, values, self.batch_size, f"frame {self.counter}")
            self.counter += 1
        assert batch is not None
        return [batch, np.zeros(self.batch_size, self.transformer.dtype)] if self.labels else [batch]

    def _next(self) -> Array:
        if self._frames is None:
            step = self.skip + 1
            self._frames = islice(read_frames(self.path), self.counter * step + self.skip, None, step)
        frame = next(self._frames, None)
        if frame is None:
            self._frames = None
            raise FormatError(
                f"the video is over: {self.counter} frames have been handed out", file=self.path,
                remedy="run for so many frames divided by batch_size, or give a longer video",
            )  # fmt: skip
        return frame

    def load_state(self, state: Mapping[str, Array]) -> None:
        super().load_state(state)
        self._frames = None

    def close(self) -> None:
        self._frames = None


def read_frames(path: str) -> Iterator[Array]:
    """Each frame of a video as uint8 (3, height, width), blue first.

    Raises FormatError, and MissingPackage without PyAV.
    """
    try:
        import av
    except ImportError:
        raise MissingPackage("av", "video", "a VideoData layer") from None
    if not os.path.isfile(path):  # FFmpeg would open addresses too
        raise FormatError(
            "there is no such file", file=path, remedy="check video_file; cameras and addresses are not read"
        )
    try:
        with av.open(path) as container:
            if container.format.name == "tty" or not container.streams.video:
                raise FormatError("the file holds no video", file=path, remedy="give another video_file")
            for frame in container.decode(video=0):
                pixels: Any = frame.to_ndarray(format="bgr24")
                yield pixels.transpose(2, 0, 1)
    except (av.FFmpegError, OSError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise FormatError(f"cannot be read as a video ({reason})", file=path, remedy="check video_file") from problem
