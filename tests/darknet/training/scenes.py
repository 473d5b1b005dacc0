"""A small data set that is made in a moment: coloured rectangles on noise, with labels, lists and a cfg."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

COLORS = ((220, 40, 40), (40, 60, 230))

CFG = """[net]
batch={batch}
subdivisions={subdivisions}
width={size}
height={size}
channels=3
momentum=0.9
decay=0.0005
saturation=1.5
exposure=1.5
hue=.1
learning_rate={rate}
burn_in=4
max_batches={max_batches}
policy=steps
steps=10,20
scales=.5,.5

[convolutional]
batch_normalize=1
filters=6
size=3
stride=2
pad=1
activation=leaky

[convolutional]
batch_normalize=1
filters=8
size=3
stride=2
pad=1
activation=leaky

[convolutional]
size=1
stride=1
pad=1
filters=14
activation=linear

[yolo]
mask=0,1
anchors=8,8,16,16
classes=2
num=2
jitter=.2
random={random}
"""


@dataclass
class Scene:
    """A folder with obj.data, obj.names, train.txt, valid.txt, images/ and tiny.cfg."""

    folder: Path
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def data(self) -> Path:
        return self.folder / "obj.data"

    @property
    def cfg(self) -> Path:
        return self.folder / "tiny.cfg"

    @property
    def backup(self) -> Path:
        return self.folder / "backup" / "tiny.backup"

    def image(self, number: int) -> Path:
        return self.folder / "images" / f"{number}.png"

    def write_cfg(self, **options: Any) -> None:
        """Write tiny.cfg with other values."""
        defaults = {"batch": 4, "subdivisions": 2, "size": 32, "rate": 0.01, "max_batches": 6, "random": 0}
        self.cfg.write_text(CFG.format(**(defaults | self.options | options)))


def make_scene(folder: Path, pictures: int = 6, **options: Any) -> Scene:
    """Write the data set; all paths in its files are relative to the folder."""
    rng = np.random.default_rng(5)
    scene = Scene(folder, options)
    (folder / "images").mkdir(parents=True)
    for number in range(pictures):
        pixels = rng.integers(90, 160, (40, 56, 3), dtype=np.uint8)
        lines = []
        for label in range(2):
            width, height = rng.integers(8, 20, 2)
            x, y = rng.integers(0, 56 - width), rng.integers(0, 40 - height)
            pixels[y : y + height, x : x + width] = COLORS[label]
            box = (x + width / 2) / 56, (y + height / 2) / 40, width / 56, height / 40
            lines.append(" ".join([str(label), *(f"{value:.6f}" for value in box)]))
        Image.fromarray(pixels).save(scene.image(number))
        scene.image(number).with_suffix(".txt").write_text("\n".join(lines) + "\n")
    listed = "".join(f"images/{number}.png\n" for number in range(pictures))
    (folder / "train.txt").write_text(listed)
    (folder / "valid.txt").write_text(listed)
    (folder / "obj.names").write_text("red\nblue\n")
    scene.data.write_text(f"classes=2\ntrain=train.txt\nvalid=valid.txt\nnames=obj.names\nbackup={folder / 'backup'}\n")
    scene.write_cfg()
    return scene
