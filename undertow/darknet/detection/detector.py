"""Finding objects in a picture: Darknet's `test_detector` as a function."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from undertow.darknet.detection.boxes import Candidates, Detection
from undertow.darknet.network import Network
from undertow.data.images import load_image
from undertow.data.resize import Picture, letterbox_image, resize_image, stretch_image
from undertow.errors import ShapeError

Image = str | os.PathLike[str] | NDArray[np.generic]


def detect(
    net: Network,
    image: Image,
    threshold: float = 0.5,
    nms: float = 0.45,
    names: Sequence[str] | None = None,
) -> list[Detection]:
    """What a network finds in one picture, in the order Darknet prints it.

    image: a path; or float (channels, height, width) of 0..1, red first; or uint8 (height, width, channels).
    threshold: confidences above it count. nms: of boxes of one class that overlap by more (IoU), the surest stays; 0
    keeps all. names: of the classes; those of the network unless given.
    """
    picture = as_picture(image, net.c)
    size = picture.shape[2], picture.shape[1]
    found = find_candidates(net, picture, threshold, nms)
    return found.detections(net.names if names is None else names, threshold, size)


def find_candidates(net: Network, picture: Picture, threshold: float, nms: float) -> Candidates:
    """All boxes above the threshold after suppression, relative to the picture (channels, height, width)."""
    net.predict(fit_picture(net, picture)[None])
    with np.errstate(over="ignore", invalid="ignore"):  # huge boxes of a young net
        candidates = net.candidates((picture.shape[2], picture.shape[1]), threshold)
        return net.suppress(candidates, nms) if nms else candidates


def fit_picture(net: Network, picture: Picture) -> Picture:
    """The picture in the size of the network's input, with grey bars or stretched as its dialect says.

    For nets of YOLOv1 the 2018 program stretches by its `resize_image`, the fork by the rule of OpenCV.
    """
    if net.letterbox:
        return letterbox_image(picture, net.w, net.h)
    return (resize_image if net.dialect.letterbox else stretch_image)(picture, net.w, net.h)


def as_picture(image: Image, channels: int = 3) -> Picture:
    """A path or an array as float32 (channels, height, width) of 0..1.

    Raises FormatError for a file that cannot be read, ShapeError for an array of another form.
    """
    if isinstance(image, (str, os.PathLike)):
        return load_image(image, channels)
    if image.dtype == np.uint8 and image.ndim == 3 and image.shape[2] == channels:
        return np.divide(image.transpose(2, 0, 1), np.float32(255), dtype=np.float32, order="C")
    if image.dtype.kind == "f" and image.ndim == 3 and image.shape[0] == channels:
        return np.ascontiguousarray(image, np.float32)
    raise ShapeError(
        f"a picture for this network is float ({channels}, height, width) of 0..1 or uint8 (height, width, "
        f"{channels}), not {image.dtype} {image.shape}"
    )
