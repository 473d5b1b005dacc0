"""Adding up what a network says about a picture and its mirror image: `detector valid2` of the C program."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from undertow.core.variable import Variable
from undertow.darknet.layers.layers_heads import Detection
from undertow.darknet.layers.layers_loss import HeadLayer
from undertow.darknet.network import Network
from undertow.data.resize import Picture, flip_image

Floats = NDArray[np.float32]


def predict_mirrored(net: Network, picture: Picture) -> None:
    """Leave in the heads the mean of their outputs for a picture (c, h, w) of the net's size and its mirror image.

    A [detection] layer keeps what it gave for the picture itself, as in the C program.
    """
    net.predict(np.stack([picture, flip_image(picture)]))
    for head in net.layers:
        if isinstance(head, HeadLayer):
            outputs = head.output
            mean = outputs[:1] if isinstance(head, Detection) else _mean(head, outputs)[None]
            head.take_output(Variable(np.ascontiguousarray(mean), requires_grad=False))


def _mean(head: HeadLayer, outputs: Floats) -> Floats:
    misread = head.dialect.mirror_misread
    return (mean_misread if misread else mean_of_mirrored)(outputs[0], outputs[1], head.n)


def mean_of_mirrored(output: Floats, mirrored: Floats, anchors: int) -> Floats:
    """The mean of two outputs (anchors * entries, h, w), the second for the mirror image; x is the first entry."""
    back = mirrored[:, :, ::-1].copy()
    entries = len(back) // anchors
    back[::entries] = 1 - back[::entries]  # a place within a cell, from its other side
    return (output + back) / np.float32(2)


def mean_misread(output: Floats, mirrored: Floats, anchors: int) -> Floats:
    """The same as avg_flipped_yolo of yolo_layer.c computes it.

    It takes minus x for what x is from the other side, and that of the first maps instead of each anchor's x; the
    middle column of an odd number keeps its sign.
    """
    back = mirrored[:, :, ::-1].copy()
    width = back.shape[2]
    turned = np.arange(width) != width // 2 if width % 2 else np.ones(width, bool)
    back[:anchors, :, turned] *= -1
    return (output + back) / np.float32(2)
