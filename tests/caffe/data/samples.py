"""Small databases, lists and nets for the tests in this folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from undertow.caffe.data import datum_from_pixels, new_database
from undertow.caffe.net import Net
from undertow.caffe.proto import parse_text


def pictures(count: int, shape: tuple[int, int, int] = (3, 6, 8), seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, *shape)).astype(np.uint8)


def make_database(path: Path, images: np.ndarray, backend: str = "LMDB") -> Path:
    """Pictures under keys of eight digits; labels count from 0."""
    with new_database(path, backend) as put:
        for number, image in enumerate(images):
            put(b"%08d" % number, datum_from_pixels(image, number).to_bytes())
    return path


def make_images(folder: Path, images: np.ndarray, name: str = "list.txt") -> Path:
    """PNG files (colours as stored in the arrays: blue first) and their list."""
    lines = []
    for number, image in enumerate(images):
        Image.fromarray(image[::-1].transpose(1, 2, 0)).save(folder / f"{number}.png")
        lines.append(f"{number}.png {number}\n")
    (folder / name).write_text("".join(lines))
    return folder / name


def data_net(layer: str, phase: str = "TRAIN", seed: int = 3, tops: str = 'top: "data" top: "label"') -> Net:
    """A net of one layer, given as text without its name and tops."""
    text = f'layer {{ name: "d" {tops} {layer} }}'
    return Net(parse_text(text, "NetParameter"), phase, seed=seed)


def labels_of(net: Net, passes: int) -> list[int]:
    found = []
    for _ in range(passes):
        net.forward()
        found += [int(label) for label in net.blobs["label"].data]
    return found
