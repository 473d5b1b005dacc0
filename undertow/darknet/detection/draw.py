"""Drawing what was found: boxes and labels in Darknet's colours, readable on any picture."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import groupby
from math import ceil, floor

import numpy as np
from PIL import Image, ImageDraw

from undertow.darknet.detection.boxes import Detection
from undertow.darknet.detection.lettering import Font, lettering
from undertow.data.images import save_image, to_float, to_pixels
from undertow.data.resize import Picture

__all__ = ["class_color", "draw_detections", "save_image"]

Color = tuple[int, int, int]
# The corners of Darknet's colour walk.
_CORNERS = np.array([(1, 0, 1), (0, 0, 1), (0, 1, 1), (0, 1, 0), (1, 1, 0), (1, 0, 0)], np.float64)
_LINE_SHARE = 0.006  # of the picture's shorter side
_SMALLEST_LETTERS = 11


def class_color(class_id: int, classes: int) -> Color:
    """Darknet's colour of a class among `classes`: places far apart on a walk magenta, blue, cyan, green, yellow, red.

    The channels come in the original's order: its third corner value is drawn as red.
    """
    walk = (class_id * 123457 % max(1, classes)) / max(1, classes) * 5
    low, high = _CORNERS[floor(walk)], _CORNERS[ceil(walk)]
    mixed = low + (walk - floor(walk)) * (high - low)
    blue, green, red = (round(255 * value) for value in mixed)
    return red, green, blue


def draw_detections(
    image: Picture, detections: Sequence[Detection], classes: int, font: str | os.PathLike[str] | None = None
) -> Picture:
    """A copy of the picture (1 or 3 channels, h, w), 0..1, as (3, h, w) with a box and a label per detection.

    classes: how many there are in all (it fixes the colours). Detections of one candidate share a box and a label,
    as in the original. Lines and letters grow with the picture; labels stay inside it; the surest are drawn last.
    font: a font file for the labels; otherwise one is looked for that has the letters of the names.
    """
    pixels = to_pixels(image)
    canvas = Image.fromarray(np.repeat(pixels, 3, axis=2) if pixels.shape[2] == 1 else pixels)
    groups = [list(group) for _, group in groupby(detections, key=lambda found: found.candidate)]
    groups.sort(key=lambda group: max(found.confidence for found in group))
    shorter = min(canvas.size)
    line = max(1, round(shorter * _LINE_SHARE))
    letters = max(_SMALLEST_LETTERS, round(4 + shorter * 0.025))
    draw = ImageDraw.Draw(canvas)
    corners = [_corners(group[0], canvas.size) for group in groups]
    for group, corner in zip(groups, corners, strict=True):
        draw.rectangle(corner, outline=class_color(group[0].class_id, classes), width=line)
    for group, corner in zip(groups, corners, strict=True):
        text = ", ".join(f"{found.name} {found.confidence:.0%}" for found in group)
        color = class_color(group[0].class_id, classes)
        _label(draw, lettering(text, letters, font), corner, color, canvas.size)
    return to_float(np.asarray(canvas))


def _corners(found: Detection, size: tuple[int, int]) -> tuple[int, int, int, int]:
    """Left, top, right, bottom in whole pixels of the picture, all inside it and in order."""
    limits = (size[0] - 1, size[1] - 1) * 2
    left, top, right, bottom = (
        round(min(max(0, np.nan_to_num(side)), limit))
        for side, limit in zip(found.pixel_box.sides, limits, strict=True)
    )
    return left, top, max(left, right), max(top, bottom)


def _label(
    draw: ImageDraw.ImageDraw,
    written: tuple[Font, str],
    corner: tuple[int, int, int, int],
    color: Color,
    size: tuple[int, int],
) -> None:
    """The text on a plate of the box's colour: above the box where there is room, else inside it at the top."""
    font, text = written
    left, _, right, _ = draw.textbbox((0, 0), text, font=font)
    _, top, _, bottom = draw.textbbox((0, 0), f"{text}Ag", font=font)  # the same height for all words
    margin = max(1, round((bottom - top) * 0.2))
    plate_width, plate_height = ceil(right - left) + 2 * margin, ceil(bottom - top) + 2 * margin
    x = max(0, min(corner[0], size[0] - plate_width))
    y = corner[1] - plate_height if corner[1] >= plate_height else corner[1]
    y = max(0, min(y, size[1] - plate_height))
    draw.rectangle((x, y, x + plate_width - 1, y + plate_height - 1), fill=color)
    draw.text((x + margin - left, y + margin - top), text, font=font, fill=_ink(color))


def _ink(plate: Color) -> Color:
    """Black or white, whichever reads better on the plate (relative luminance of sRGB)."""
    red, green, blue = ((value / 255) ** 2.2 for value in plate)
    return (0, 0, 0) if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18 else (255, 255, 255)
