"""Layers that read data: Data, AnnotatedData, ImageData, VideoData, HDF5Data, WindowData; and HDF5Output, which writes.

Batches are prepared by a thread in the background, at most `prefetch` ahead. Where a layer stands in its data can be
saved and taken up again exactly: `data_state`, `load_data_state`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from undertow.caffe.blob import Blob, legacy_length
from undertow.caffe.data.ahead import Ahead
from undertow.caffe.data.database import open_database
from undertow.caffe.data.feed import Array, Feed, State, read_lines
from undertow.caffe.data.feed_annotated import AnnotatedFeed
from undertow.caffe.data.feed_database import DatabaseFeed
from undertow.caffe.data.feed_hdf5 import Hdf5Feed
from undertow.caffe.data.feed_images import ImageFeed
from undertow.caffe.data.feed_video import VideoFeed
from undertow.caffe.data.feed_windows import WindowFeed, WindowOptions
from undertow.caffe.data.imagelist import read_image_list, slash_missing
from undertow.caffe.data.transformer import DataTransformer
from undertow.caffe.data.windowfile import read_window_file
from undertow.caffe.layer import Layer, Results, Shapes
from undertow.caffe.proto.api import find_beside
from undertow.core.variable import Variable
from undertow.errors import FormatError, MissingPackage, UndertowError, UndertowWarning, describe
from undertow.files import atomic_write

_PREFETCH = 4


class FeedLayer(Layer):
    """A layer whose tops are filled from a feed; subclasses write `open_feed`.

    options: the field of the LayerParameter that holds its options. has_source: whether they name a source.
    """

    in_place = False
    options = ""
    has_source = True

    def open_feed(self, tops: int) -> Feed:
        """The feed that the options ask for."""
        raise NotImplementedError

    def setup(self, bottom: Shapes, tops: int) -> None:
        o = self.o = getattr(self.message, self.options)
        if self.has_source and not o.source:
            raise self.refusal("the source is not given", f"{self.options} {{ source: ... }}", self.options)
        if o.batch_size < 1:
            raise self.refusal("batch_size must be at least 1", f"{self.options} {{ batch_size: ... }}", self.options)
        self.feed = self.open_feed(tops)
        self._position = self.feed.state()
        prefetch = self.message.data_param.prefetch if self.options == "data_param" else _PREFETCH
        self._ahead = Ahead(self.feed.step, prefetch)

    def top_shapes(self, bottom: Shapes) -> Shapes:
        return self.feed.shapes

    def compute(self, bottom: Sequence[Variable], params: Sequence[Variable]) -> Results:
        raise self.refusal(f"a {self.type} layer computes nothing: its tops are read", remedy="remove its bottoms")

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> float:
        """Hand out the next batch. Raises FormatError or ShapeError for data that cannot be used, each time anew."""
        try:
            arrays, position = self._ahead.next()
        except BaseException as error:  # also Ctrl-C: what was read ahead is dropped and must come again
            self.feed.load_state(self._position)
            if isinstance(error, UndertowError):
                raise self.placed(error) from error
            raise
        self._position = position
        self.shape_tops(bottom, top, [array.shape for array in arrays])
        for blob, array in zip(top, arrays, strict=True):
            blob.data[...] = array
        return self.loss_of(top)

    def backward(self, top: Sequence[Blob], bottom: Sequence[Blob]) -> None:
        """Nothing lies below."""

    def data_state(self) -> State:
        """Where the layer stands, as arrays: after the last batch that `forward` handed out."""
        return dict(self._position)

    def load_data_state(self, state: Mapping[str, Array]) -> None:
        """Go on where `data_state` was taken, with the same draws. Raises UndertowError where it does not fit."""
        self._ahead.close()
        try:
            self.feed.load_state(state)
        except UndertowError as error:
            raise self.placed(error) from error
        self._position = self.feed.state()

    def close(self) -> None:
        """Stop reading ahead and let go of files; `forward` goes on where it was."""
        self._ahead.close()
        self.feed.load_state(self._position)
        self.feed.close()

    # --- what the layers share --------------------------------------------------------------------------

    @property
    def source(self) -> str:
        """The file or database that is read."""
        return self.path(str(self.o.source))

    def placed(self, error: UndertowError) -> UndertowError:
        """An error from below, told with this layer's place and with that of the data."""
        if error.layer is not None or isinstance(error, MissingPackage):
            return error
        reason = describe(error.reason, error.file, error.line, error.offset)
        return super().placed(type(error)(reason, remedy=error.remedy))

    def path(self, name: str) -> str:
        """A file named in the prototxt: as it stands, else beside the prototxt."""
        return find_beside(name, self.context.file) if self.context.file is not None else name

    def transformer(self) -> DataTransformer:
        param = self.message.transform_param
        self._warn_of_ignored()
        mean = self.path(param.mean_file) if param.has_field("mean_file") else None
        return DataTransformer(param, self.phase, mean, self.context.dtype)

    def _warn_of_ignored(self) -> None:
        """Fields that moved to transform_param; where they are, Caffe reads them in nets of the old form only."""
        moved = [name for name in ("scale", "mean_file", "crop_size", "mirror") if self.o.has_field(name)]
        moved = [name for name in moved if (self.options, name) != ("window_data_param", "scale")]
        if moved:
            what = ", ".join(moved)
            line = self.message.line_of(self.options) or self.message.line_of()
            text = describe(
                f"{what} in {self.options} has no effect in a net of this form",
                None if self.context.file is None else str(self.context.file), line, layer=self.name,
                remedy="put it into transform_param",
            )  # fmt: skip
            warnings.warn(UndertowWarning(text), stacklevel=2)

    def new_seed(self, needed: bool) -> int:
        """A seed from the net's random numbers; 0 where it does not matter."""
        return int(self.rng.integers(2**62)) if needed else 0


class Data(FeedLayer):
    """Pictures and labels from an LMDB or LevelDB of Datum records."""

    options = "data_param"

    def open_feed(self, tops: int) -> Feed:
        transformer = self.transformer()
        database = open_database(self.path(self.o.source), self.o.backend)
        feed = DatabaseFeed(database, self.o.batch_size, transformer, labels=tops > 1)
        feed.seed = self.new_seed(feed.random)
        return feed


class AnnotatedData(FeedLayer):
    """Pictures and objects (1, 1, m, 8) from an LMDB or LevelDB of AnnotatedDatum records. From SSD."""

    options = "data_param"

    def open_feed(self, tops: int) -> Feed:
        o = self.message.annotated_data_param
        transformer = self.transformer()
        database = open_database(self.path(self.o.source), self.o.backend)
        feed = AnnotatedFeed(
            database, self.o.batch_size, transformer, self.message.transform_param, samplers=o.batch_sampler,
            boxes=True if o.has_field("anno_type") else None, labels=tops > 1,
        )  # fmt: skip
        feed.seed = self.new_seed(feed.random)
        return feed


class ImageData(FeedLayer):
    """Picture files named in a list, with labels."""

    options = "image_data_param"

    def open_feed(self, tops: int) -> Feed:
        o = self.o
        if (o.new_height > 0) != (o.new_width > 0):
            raise self.refusal(
                "new_height and new_width must be given together", field=self.options, remedy="write both, or neither"
            )
        source = self.path(o.source)
        lines = read_image_list(source)
        skip = int(self.rng.integers(o.rand_skip)) if o.rand_skip else 0
        if skip >= len(lines):
            raise self.refusal(
                f"rand_skip skips {skip} lines, the list has {len(lines)}", "use a smaller rand_skip", self.options
            )
        transformer = self.transformer()
        return ImageFeed(
            lines, o.batch_size, transformer,
            find=lambda name: _find_picture(o.root_folder, name, source),
            size=(o.new_height, o.new_width) if o.new_height else None,
            color=o.is_color, shuffle=o.shuffle, skip=skip, seed=self.new_seed(transformer.random or o.shuffle),
        )  # fmt: skip


def _find_picture(root_folder: str, name: str, source: str) -> str:
    """A picture of a list: in Caffe root_folder is put before its name as it is."""
    path = find_beside(root_folder + name, source)
    if slash_missing(root_folder, name) and not os.path.exists(path):
        raise FormatError(
            f"there is no picture '{path}', but one in the folder '{root_folder}'", file=source,
            remedy=f"end root_folder with /: \"{root_folder}/\"",
        )  # fmt: skip
    return path


class VideoData(FeedLayer):
    """The frames of a video file, once, in order; behind the last one there is an error. From SSD.

    A second top has labels, all 0. Needs PyAV: pip install 'undertow[video]'.
    """

    options = "data_param"
    has_source = False

    def open_feed(self, tops: int) -> Feed:
        o = self.message.video_data_param
        if o.video_type != "VIDEO":
            raise self.refusal("cameras are not read here", "write video_type: VIDEO video_file: \"FILE\"",
                               "video_data_param")  # fmt: skip
        if not o.video_file:
            raise self.refusal("the video is not given", "video_data_param { video_file: ... }", "video_data_param")
        transformer = self.transformer()
        feed = VideoFeed(self.source, self.o.batch_size, transformer, skip=o.skip_frames, labels=tops > 1)
        feed.seed = self.new_seed(feed.random)
        return feed

    @property
    def source(self) -> str:
        return self.path(str(self.message.video_data_param.video_file))


class HDF5Data(FeedLayer):
    """Rows of datasets named as the tops, from the HDF5 files of a list."""

    options = "hdf5_data_param"

    def open_feed(self, tops: int) -> Feed:
        if self.message.has_field("transform_param"):
            raise self.refusal("HDF5Data does not transform data", "remove transform_param", "transform_param")
        o = self.o
        source = self.path(o.source)
        names = [word for line in read_lines(source) for word in line.split()]
        paths = [find_beside(name, source) for name in names]
        return Hdf5Feed(paths, list(self.message.top), o.batch_size, shuffle=o.shuffle, seed=self.new_seed(o.shuffle),
                        dtype=self.context.dtype)  # fmt: skip


class WindowData(FeedLayer):
    """Windows cut out of pictures, a share of them with objects."""

    options = "window_data_param"

    def open_feed(self, tops: int) -> Feed:
        o, transform = self.o, self.message.transform_param
        source = self.path(o.source)
        transformer = self.transformer()
        if transform.has_field("mean_file"):
            mean: Array | None = transformer.mean
        else:
            values = transformer.mean_values
            mean = values.reshape(-1, 1, 1) if values.size else None
        if o.crop_mode not in ("warp", "square"):
            raise self.refusal(f"crop_mode '{o.crop_mode}'", "use warp or square", self.options)
        options = WindowOptions(
            batch_size=o.batch_size, crop_size=transform.crop_size, context_pad=o.context_pad,
            square=o.crop_mode == "square", mirror=transform.mirror, scale=o.scale, foreground_share=o.fg_fraction,
            mean=mean, cache=o.cache_images, dtype=self.context.dtype,
        )  # fmt: skip
        windows = read_window_file(source, o.fg_threshold, o.bg_threshold)
        return WindowFeed(
            windows, options, lambda name: _find_picture(o.root_folder, name, source), self.new_seed(True)
        )


class HDF5Output(Layer):
    """Writes its two bottoms to a file as `data` and `label`, with four axes; every forward pass writes it anew."""

    in_place = False

    def setup(self, bottom: Shapes, tops: int) -> None:
        if not self.message.hdf5_output_param.file_name:
            raise self.refusal("file_name is not given", "hdf5_output_param { file_name: ... }", "hdf5_output_param")

    def top_shapes(self, bottom: Shapes) -> Shapes:
        for shape in bottom:
            legacy_length(shape, 0)
        if legacy_length(bottom[0], 0) != legacy_length(bottom[1], 0):
            raise self.error(f"the bottoms have {bottom[0][0]} and {bottom[1][0]} rows", "they need as many")
        return []

    def compute(self, bottom: Sequence[Variable], params: Sequence[Variable]) -> Results:
        return []

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> float:
        self.reshape(bottom, top)
        try:
            import h5py
        except ImportError:
            raise MissingPackage("h5py", "caffe", "an HDF5Output layer") from None
        name = self.message.hdf5_output_param.file_name
        try:
            with atomic_write(name, "w+b") as stream, h5py.File(stream, "w") as file:
                for dataset, blob in zip(("data", "label"), bottom, strict=True):
                    shape = tuple(legacy_length(blob.shape, axis) for axis in range(4))
                    file.create_dataset(dataset, data=np.asarray(blob.data).reshape(shape))
        except OSError as problem:
            raise self.placed(
                FormatError(
                    f"{name} cannot be written: {problem.strerror or problem}",
                    remedy="check file_name: its folder must be there, with leave to write and room",
                )
            ) from problem
        return 0.0

    def backward(self, top: Sequence[Blob], bottom: Sequence[Blob]) -> None:
        """No gradient comes from a file: the diffs below stay as they are."""


def data_states(layers: Sequence[Any]) -> dict[str, State]:
    """Where all data layers stand, by the names of the layers."""
    return {layer.name: layer.data_state() for layer in layers if isinstance(layer, FeedLayer)}


def load_data_states(layers: Sequence[Any], states: Mapping[str, Mapping[str, Array]]) -> None:
    """Bring data layers to saved positions; layers without one stay where they are."""
    for layer in layers:
        if isinstance(layer, FeedLayer) and layer.name in states:
            layer.load_data_state(states[layer.name])
