"""Detector: a Net that classifies windows of pictures (R-CNN)."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from undertow.caffe import io
from undertow.caffe.arguments import WrongKind, WrongValue, array_of, is_sequence, shown, whole
from undertow.caffe.classifier import PictureNet
from undertow.errors import MissingPackage, ShapeError

Array = np.ndarray[Any, Any]
PathLike = str | os.PathLike[str]


class Detector(PictureNet):
    """Predictions for windows (ymin, xmin, ymax, xmax) of pictures.

    context_pad: a border of so many pixels of the net's input shows what surrounds the window; where the picture ends
    there is the mean. The net's input is taken for square then, as in the original.
    """

    def __init__(
        self,
        model_file: PathLike,
        pretrained_file: PathLike,
        mean: Array | None = None,
        input_scale: float | None = None,
        raw_scale: float | None = None,
        channel_swap: Sequence[int] | None = None,
        context_pad: int | None = None,
    ) -> None:
        super().__init__(model_file, pretrained_file, mean, input_scale, raw_scale, channel_swap)
        self.configure_crop(context_pad)

    def configure_crop(self, context_pad: int | None) -> None:
        """Set the border, and the mean to fill it with, in the values of pictures before the transformer."""
        name = self.inputs[0]
        channels, height, width = self.blobs[name].data.shape[1:]
        self.crop_dims = np.array([height, width, channels])
        self.context_pad = None if context_pad is None else whole(context_pad, "context_pad", 0)
        self.crop_mean = np.zeros((height, width, channels), np.float32)
        mean = self.transformer.mean.get(name)
        if not context_pad or mean is None:
            return
        fill = np.broadcast_to(mean, (channels, height, width)).transpose(1, 2, 0).astype(np.float32)
        swap = self.transformer.channel_swap.get(name)
        if swap is not None:
            fill = fill[:, :, np.argsort(swap)]
        scale = self.transformer.raw_scale.get(name)
        self.crop_mean = fill / scale if scale is not None else fill

    def detect_windows(
        self, images_windows: Iterable[tuple[PathLike, Iterable[Sequence[float]]]]
    ) -> list[dict[str, Any]]:
        """From (picture's path, its windows) to dicts of window, prediction and filename, in order."""
        crops: list[Array] = []
        places: list[tuple[PathLike, Sequence[float]]] = []
        for path, windows in _pairs(images_windows):
            picture = io.load_image(path).astype(np.float32)
            for window in windows:
                crops.append(self.crop(picture, window))
                places.append((path, window))
        if not crops:
            return []
        found = self.predict_windows(crops)
        return [
            {"window": window, "prediction": prediction, "filename": path}
            for (path, window), prediction in zip(places, found, strict=True)
        ]

    def detect_selective_search(self, image_fnames: Sequence[PathLike]) -> list[dict[str, Any]]:
        """The same for windows that the package selective_search_ijcv_with_python proposes."""
        try:
            selective_search: Any = importlib.import_module("selective_search_ijcv_with_python")
        except ImportError:
            raise MissingPackage(
                "selective_search_ijcv_with_python", "", "detect_selective_search",
                remedy="put github.com/sergeyk/selective_search_ijcv_with_python on PYTHONPATH, or give windows to "
                "detect_windows",
            ) from None  # fmt: skip
        paths = [os.path.abspath(path) for path in image_fnames]
        windows = selective_search.get_windows(paths, cmd="selective_search_rcnn")
        return self.detect_windows(zip(paths, windows, strict=True))

    def crop(self, im: Array, window: Sequence[float]) -> Array:
        """The part of a picture (height, width, channels) in a window, with its border of `context_pad`."""
        sides = array_of(window, "a window")
        if sides.shape != (4,) or not np.isfinite(sides).all():
            raise WrongValue(f"a window is four numbers, not {shown(window)}", remedy="give (ymin, xmin, ymax, xmax)")
        top, left, bottom, right = (int(side) for side in sides)
        part = im[top:bottom, left:right]
        if not part.size:
            raise ShapeError(
                f"the window {tuple(window)} is empty in a picture of {im.shape[0]} x {im.shape[1]}",
                remedy="give (ymin, xmin, ymax, xmax) inside the picture",
            )
        return self._with_context(im, np.asarray(window, float)) if self.context_pad else part

    def _with_context(self, im: Array, window: Array) -> Array:
        size = int(self.blobs[self.inputs[0]].width)
        if 2 * (self.context_pad or 0) >= size:
            raise ShapeError(f"context_pad {self.context_pad} on both sides leaves nothing of {size} pixels",
                             remedy="give a smaller context_pad")  # fmt: skip
        enlarged = size / (size - 2.0 * (self.context_pad or 0))
        half = (window[2:] - window[:2] + 1) / 2
        center = window[:2] + half
        box = np.round(np.concatenate([center - enlarged * half, center + enlarged * half]))
        scale = size / (box[2:] - box[:2] + 1)
        outside = np.round(np.maximum(0, -box[:2]) * scale).astype(int)
        box = np.clip(box, 0, [*im.shape[:2], *im.shape[:2]])
        inside = np.round((box[2:] - box[:2] + 1) * scale).astype(int)
        inside = np.minimum(inside, size - outside)
        top, left, bottom, right = box.astype(int)
        result = self.crop_mean.copy()
        place = np.s_[outside[0] : outside[0] + inside[0], outside[1] : outside[1] + inside[1]]
        result[place] = io.resize_image(im[top:bottom, left:right], (int(inside[0]), int(inside[1])))
        return result


def _pairs(images_windows: Any) -> Iterator[tuple[PathLike, Iterable[Sequence[float]]]]:
    """Pairs of a path and its windows. Raises WrongKind for anything else."""
    remedy = "give [(path, [(ymin, xmin, ymax, xmax), ...]), ...]"
    if isinstance(images_windows, str | bytes) or not is_sequence(images_windows):
        raise WrongKind(f"pairs of a picture and its windows are needed, not {shown(images_windows)}", remedy=remedy)
    for pair in images_windows:
        windows = pair[1] if isinstance(pair, tuple | list) and len(pair) == 2 else None
        if isinstance(windows, str | bytes | dict) or not is_sequence(windows):
            raise WrongKind(f"a pair of a picture and its windows is needed, not {shown(pair)}", remedy=remedy)
        yield pair[0], windows
