"""Classifier: a Net that takes pictures of any size and gives class probabilities."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from undertow.caffe import io
from undertow.caffe.arguments import WrongKind, is_sequence, lengths_of, shown
from undertow.caffe.pycaffe import Net
from undertow.caffe.runtime import TEST
from undertow.errors import ShapeError

Array = np.ndarray[Any, Any]
PathLike = str | os.PathLike[str]


class PictureNet(Net):
    """A net in phase TEST with a transformer for its first input.

    mean, input_scale, raw_scale, channel_swap: see `io.Transformer`; pictures are (height, width, channels).
    """

    def __init__(
        self,
        model_file: PathLike,
        pretrained_file: PathLike,
        mean: Array | None = None,
        input_scale: float | None = None,
        raw_scale: float | None = None,
        channel_swap: Sequence[int] | None = None,
    ) -> None:
        super().__init__(model_file, TEST, weights=pretrained_file)
        name = self.inputs[0]
        self.transformer = io.Transformer({name: self.blobs[name].data.shape})
        self.transformer.set_transpose(name, (2, 0, 1))
        settings: list[tuple[Any, Any]] = [
            (self.transformer.set_mean, mean),
            (self.transformer.set_input_scale, input_scale),
            (self.transformer.set_raw_scale, raw_scale),
            (self.transformer.set_channel_swap, channel_swap),
        ]
        for put, value in settings:
            if value is not None:
                put(name, value)

    def predict_windows(self, pictures: Sequence[Array] | Array) -> Array:
        """The first output for each of these pictures, brought to the net's size by the transformer."""
        name = self.inputs[0]
        given: Any = np.array([self.transformer.preprocess(name, picture) for picture in pictures], np.float32)
        return self.forward_all(**{name: given})[self.outputs[0]]


class Classifier(PictureNet):
    """Class probabilities of pictures, each as a whole, its middle, or ten crops of it.

    image_dims: (height, width) that pictures are resized to before they are cropped; by default the net's input size.
    """

    def __init__(
        self,
        model_file: PathLike,
        pretrained_file: PathLike,
        image_dims: Sequence[int] | None = None,
        mean: Array | None = None,
        input_scale: float | None = None,
        raw_scale: float | None = None,
        channel_swap: Sequence[int] | None = None,
    ) -> None:
        super().__init__(model_file, pretrained_file, mean, input_scale, raw_scale, channel_swap)
        self.crop_dims = np.array(self.blobs[self.inputs[0]].data.shape[2:])
        empty = image_dims is None or (is_sequence(image_dims) and not list(image_dims))
        self.image_dims = self.crop_dims if empty else lengths_of(image_dims, "image_dims", 2, 1)

    def predict(self, inputs: Sequence[Array], oversample: bool = True) -> Array:
        """Probabilities (pictures, classes).

        inputs: pictures (height, width, channels). oversample: the mean over the corners, the middle and their mirror
        images; otherwise the middle alone.
        """
        if not is_sequence(inputs):
            raise WrongKind(f"inputs is a list of pictures, not {shown(inputs)}", remedy="give [picture]")
        inputs = list(inputs)
        if not inputs:
            raise ShapeError("there are no pictures to predict", remedy="give a list of at least one")
        size = (int(self.image_dims[0]), int(self.image_dims[1]))
        resized = np.array([io.resize_image(picture, size) for picture in inputs], np.float32)
        if not oversample:
            corner = [int(whole / 2.0 - part / 2.0) for whole, part in zip(size, self.crop_dims, strict=True)]
            last = [int(whole / 2.0 + part / 2.0) for whole, part in zip(size, self.crop_dims, strict=True)]
            return self.predict_windows(resized[:, corner[0] : last[0], corner[1] : last[1]])
        found = self.predict_windows(io.oversample(resized, self.crop_dims))
        mean: Array = found.reshape(len(found) // 10, 10, -1).mean(1)
        return mean
