"""detector valid2: the mean of a picture and its mirror image, as it is meant and as the C program computes it."""

from __future__ import annotations

import numpy as np
import pytest

from undertow.darknet import DIALECTS, Dialect
from undertow.darknet.detection.mirrored import mean_misread, mean_of_mirrored, predict_mirrored
from undertow.darknet.files.cfg import parse_cfg
from undertow.darknet.network import Network
from undertow.data.resize import flip_image

# What avg_flipped_yolo of the C program, compiled by itself, makes of values ((37 i) mod 101) / 100: two anchors of six
# entries, a grid of 2 x 2 rows and columns or of 3 columns. The first rows and the last.
COLUMNS_4 = [-0.135, -0.27, 0.1, -0.035, -0.135, 0.235, 0.1, -0.035, 0.37, -0.27, 0.1, -0.035, -0.135, 0.235, -0.405,
             -0.035, 0.5, 0.5, 0.5, 0.5, 0.465, 0.465, 0.465, 0.465]  # fmt: skip
COLUMNS_3 = [-0.055, 0.56, 0.18, -0.055, 0.66, 0.18, -0.055, 0.76, 0.18, -0.055, 0.355, -0.325, 0.455, 0.455, 0.455]

NET = """[net]
width=32
height=32
channels=3
[convolutional]
batch_normalize=1
filters=8
size=3
stride=8
pad=1
activation=leaky
[convolutional]
filters={filters}
size=1
activation=linear
{head}
"""
HEADS = {
    "yolo": (14, "[yolo]\nmask=0,1\nanchors=8,8,16,16\nclasses=2\nnum=2"),
    "region": (14, "[region]\nanchors=1,1,2,2\nclasses=2\nnum=2\nsoftmax=1"),
}


def network(head: str, dialect: Dialect) -> Network:
    filters, text = HEADS[head]
    return Network(parse_cfg(NET.format(filters=filters, head=text)), dialect, seed=2)


@pytest.mark.parametrize(("width", "expected"), [(4, COLUMNS_4), (3, COLUMNS_3)])
def test_the_original_by_its_own_numbers(width: int, expected: list[float]) -> None:
    values = ((np.arange(2 * 12 * 2 * width) * 37) % 101 / 100).astype(np.float32).reshape(2, 12, 2, width)
    found = mean_misread(values[0], values[1], 2).reshape(-1)
    np.testing.assert_allclose(found[: len(expected)], expected, atol=1e-6)


def test_a_mirror_image_seen_as_such_changes_nothing() -> None:
    output = np.random.default_rng(1).random((12, 3, 5), np.float32)
    mirrored = output[:, :, ::-1].copy()
    mirrored[[0, 6]] = 1 - mirrored[[0, 6]]
    np.testing.assert_allclose(mean_of_mirrored(output, mirrored, 2), output, atol=1e-6)


@pytest.mark.parametrize("head", HEADS)
def test_boxes_of_a_mirror_image_are_mirrored(head: str) -> None:
    """The mean does not depend on which of the two came first."""
    net = network(head, DIALECTS["exact"])
    picture = np.random.default_rng(3).random((3, 32, 32), np.float32)
    predict_mirrored(net, picture)
    found = net.candidates((32, 32), 0.0)
    predict_mirrored(net, flip_image(picture))
    other = net.candidates((32, 32), 0.0)
    boxes, back = found.boxes.copy(), other.boxes.copy()
    back[:, 0] = 1 - back[:, 0]
    order, same = np.lexsort(boxes.round(4).T), np.lexsort(back.round(4).T)
    np.testing.assert_allclose(boxes[order], back[same], atol=1e-4)
    assert len(boxes) > 10


@pytest.mark.parametrize("head", HEADS)
def test_the_dialect_decides(head: str) -> None:
    picture = np.random.default_rng(3).random((3, 32, 32), np.float32)
    for name, mean in (("exact", mean_of_mirrored), ("darknet-cpu", mean_misread)):
        net = network(head, DIALECTS[name])
        both = np.concatenate([net.predict(one[None]) for one in (picture, flip_image(picture))])
        predict_mirrored(net, picture)
        np.testing.assert_allclose(net.output[0], mean(both[0], both[1], 2), rtol=1e-5, atol=1e-5)
