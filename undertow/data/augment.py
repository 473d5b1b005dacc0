"""Darknet's augmentation, split in two: what is drawn, and what is done with it.

A draw (`DetectionDraw`, `ClassifierDraw`) is a plain record, taken from a `RandomSource` in the order of the original,
so recorded runs replay with `GlibcRandom`. Training takes `CounterRandom(seed, image_counter)`, so a picture's
augmentation depends on nothing that was drawn before. Applying a draw is a pure function of picture and boxes.

Boxes are float32 rows (x, y, w, h, class): centre and size relative to the picture, as Darknet's truth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from undertow.data.colour import distort_image, random_distort
from undertow.data.crand import RandomSource, Real
from undertow.data.resize import GREY, Picture, center_crop_image, flip_image, place_image
from undertow.data.rotate import rotate_crop_image
from undertow.errors import ShapeError

Boxes = NDArray[np.float32]
TRUTH_BOXES = 90
SMALLEST_SIDE = 0.001
_FAR_AWAY = 999999


@dataclass(frozen=True)
class Colours:
    """How far colours may go. hue: turns to either side; saturation, exposure: factors up to this or its inverse.

    From the keys of the same names in [net]; the defaults are the original's.
    """

    hue: float = 0.0
    saturation: float = 1.0
    exposure: float = 1.0


@dataclass(frozen=True)
class DetectionOptions:
    """colours, and: jitter (0 <= jitter < 1, [yolo]): share by which width and height may change; flip: allowed."""

    jitter: float = 0.2
    colours: Colours = Colours()
    flip: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.jitter < 1:
            raise ValueError(f"jitter is a share of the picture's size, 0 <= jitter < 1, not {self.jitter}")


@dataclass(frozen=True)
class DetectionDraw:
    """Where a picture goes on the network's canvas, and how it is coloured.

    width, height, dx, dy: place on the canvas in pixels (not whole; drawing truncates, boxes do not).
    """

    width: np.float32
    height: np.float32
    dx: np.float32
    dy: np.float32
    hue: np.float32
    saturation: np.float32
    exposure: np.float32
    flip: bool


def draw_detection(
    random: RandomSource, picture_size: tuple[int, int], net_size: tuple[int, int], options: DetectionOptions
) -> DetectionDraw:
    """Draw as `load_data_detection` does, in its order; sizes are (width, height)."""
    picture_width, picture_height = picture_size
    net_width, net_height = net_size
    reach_x = np.float32(options.jitter) * np.float32(picture_width)
    reach_y = np.float32(options.jitter) * np.float32(picture_height)
    jittered_width = np.float32(picture_width) + random.uniform(-reach_x, reach_x)
    jittered_height = np.float32(picture_height) + random.uniform(-reach_y, reach_y)
    aspect = jittered_width / jittered_height
    if aspect < 1:
        height = np.float32(net_height)
        width = height * aspect
    else:
        width = np.float32(net_width)
        height = width / aspect
    dx = random.uniform(0, net_width - width)
    dy = random.uniform(0, net_height - height)
    colours = options.colours
    hue, saturation, exposure = random_distort(random, colours.hue, colours.saturation, colours.exposure)
    flip = random.coin() and options.flip
    return DetectionDraw(width, height, dx, dy, hue, saturation, exposure, flip)


def apply_to_picture(picture: NDArray[np.generic], draw: DetectionDraw, net_size: tuple[int, int]) -> Picture:
    """Place the picture on a grey canvas of net_size (width, height), distort its colours, flip it.

    picture: (channels, h, w), float 0..1 or uint8 0..255. One channel takes the exposure alone. Result: 0..1.
    """
    width, height = net_size
    whole = 255 if picture.dtype == np.uint8 else 1
    canvas = np.full((picture.shape[0], height, width), GREY * whole, np.float32)
    place_image(picture, int(draw.width), int(draw.height), int(draw.dx), int(draw.dy), canvas)
    if whole != 1:
        canvas /= np.float32(whole)
    if canvas.shape[0] == 3:
        canvas = distort_image(canvas, float(draw.hue), float(draw.saturation), float(draw.exposure))
    else:
        canvas = np.clip(canvas * draw.exposure, 0, 1)
    return flip_image(canvas) if draw.flip else canvas


def apply_to_boxes(
    boxes: Boxes, draw: DetectionDraw, net_size: tuple[int, int], random: RandomSource, limit: int = TRUTH_BOXES
) -> Boxes:
    """The truth of the augmented picture: (limit, 5) rows x, y, w, h, class, zeros after the last box.

    As `fill_truth_detection`: the boxes are shuffled (drawn from `random`), moved and clipped; the first `limit` are
    looked at, and those with a side below 0.001 dropped. A box centred on the exact corner (0, 0), which the
    original sends to 999999 and then writes through, is dropped.
    """
    boxes = np.asarray(boxes, np.float32).reshape(-1, 5)
    order = shuffled(random, len(boxes))
    width, height = net_size
    moved = correct_boxes(
        boxes[order, :4],
        -draw.dx / np.float32(width),
        -draw.dy / np.float32(height),
        draw.width / np.float32(width),
        draw.height / np.float32(height),
        draw.flip,
    )
    return fill_truth(moved, boxes[order, 4], limit)


def fill_truth(boxes: NDArray[np.float32], classes: NDArray[np.floating], limit: int = TRUTH_BOXES) -> Boxes:
    """(n, 4) boxes and (n,) classes -> (limit, 5); only the first `limit` count, tiny and lost ones are dropped."""
    boxes, classes = boxes[:limit], classes[:limit]
    kept = (boxes[:, 2:] >= SMALLEST_SIDE).all(axis=1) & (boxes[:, 0] < _FAR_AWAY)
    truth = np.zeros((limit, 5), np.float32)
    count = int(kept.sum())
    truth[:count, :4] = boxes[kept]
    truth[:count, 4] = classes[kept]
    return truth


def correct_boxes(
    boxes: NDArray[np.float32], dx: Real, dy: Real, sx: Real, sy: Real, flip: bool
) -> NDArray[np.float32]:
    """Move (n, 4) boxes x, y, w, h: each side becomes side * s - d, is flipped if asked, and clipped to 0..1.

    As Darknet's `correct_boxes`; a box with x = y = 0 comes back as 999999 in all four.
    """
    x, y, w, h = np.asarray(boxes, np.float32).reshape(-1, 4).T
    half_w, half_h = w / 2, h / 2
    shift_x, shift_y, scale_x, scale_y = np.array([dx, dy, sx, sy], np.float32)
    left, right = (x - half_w) * scale_x - shift_x, (x + half_w) * scale_x - shift_x
    top, bottom = (y - half_h) * scale_y - shift_y, (y + half_h) * scale_y - shift_y
    if flip:
        left, right = 1 - right, 1 - left
    left, right, top, bottom = np.clip([left, right, top, bottom], 0, 1)
    moved = np.stack([(left + right) / 2, (top + bottom) / 2, right - left, bottom - top], axis=1)
    moved[(x == 0) & (y == 0)] = _FAR_AWAY
    return moved


def shuffled(random: RandomSource, count: int) -> list[int]:
    """An order of 0..count-1 by Darknet's `randomize_boxes`: each place swaps with one drawn from all places."""
    order = list(range(count))
    for place in range(count):
        other = random.index(count)
        order[place], order[other] = order[other], order[place]
    return order


def augment_detection(
    picture: NDArray[np.generic],
    boxes: Boxes,
    net_size: tuple[int, int],
    options: DetectionOptions,
    random: RandomSource,
    limit: int = TRUTH_BOXES,
) -> tuple[Picture, Boxes]:
    """One training sample as `load_data_detection` makes it: picture (c, h, w) of net_size, truth (limit, 5)."""
    draw = draw_detection(random, (picture.shape[2], picture.shape[1]), net_size, options)
    return apply_to_picture(picture, draw, net_size), apply_to_boxes(boxes, draw, net_size, random, limit)


@dataclass(frozen=True)
class ClassifierOptions:
    """smallest, largest: the shorter side is scaled into this range; size: of the square that comes out;
    angle: degrees to either side; aspect: factor up to this or its inverse; center: crop the middle instead;
    flip: mirroring is allowed.
    """

    smallest: int
    largest: int
    size: int
    angle: float = 0.0
    aspect: float = 1.0
    colours: Colours = Colours()
    center: bool = False
    flip: bool = True

    def __post_init__(self) -> None:
        if min(self.smallest, self.largest, self.size) < 1 or self.aspect <= 0:
            raise ShapeError(f"sizes must be at least 1 and the aspect positive: {self}")


@dataclass(frozen=True)
class ClassifierDraw:
    """The view of `rotate_crop_image` (None: the centre crop), and the colours."""

    view: tuple[float, float, float, float, float] | None
    flip: bool
    hue: np.float32
    saturation: np.float32
    exposure: np.float32


def draw_classifier(random: RandomSource, picture_size: tuple[int, int], options: ClassifierOptions) -> ClassifierDraw:
    """Draw as `load_data_augment` does: `random_augment_args`, the flip, the colours."""
    view = None if options.center else _draw_view(random, picture_size, options)
    flip = random.coin() and options.flip
    colours = options.colours
    return ClassifierDraw(view, flip, *random_distort(random, colours.hue, colours.saturation, colours.exposure))


def _draw_view(
    random: RandomSource, picture_size: tuple[int, int], options: ClassifierOptions
) -> tuple[float, float, float, float, float]:
    """(radians, scale, dx, dy, aspect). The range of dy comes from the size, as that of dx (the original's w)."""
    width, height = picture_size
    aspect = random.scale(options.aspect)
    shorter_to = random.integer(options.smallest, options.largest)
    shorter = max(1, int(min(np.float32(height), np.float32(width) * aspect)))
    scale = np.float32(shorter_to) / np.float32(shorter)
    radians = math.radians(random.uniform(-options.angle, options.angle))
    reach_x = (np.float32(width) * scale / aspect - options.size) / np.float32(2)
    reach_y = (np.float32(height) * scale - options.size) / np.float32(2)
    dx = random.uniform(-reach_x, reach_x)
    dy = random.uniform(-reach_y, reach_y)
    return radians, float(scale), float(dx), float(dy), float(aspect)


def augment_classifier(picture: Picture, options: ClassifierOptions, random: RandomSource) -> Picture:
    """One training picture as `load_image_augment_paths` makes it: (3, size, size), 0..1."""
    draw = draw_classifier(random, (picture.shape[2], picture.shape[1]), options)
    size = options.size
    if draw.view is None:
        view = center_crop_image(picture, size, size)
    else:
        radians, scale, dx, dy, aspect = draw.view
        view = rotate_crop_image(picture, radians, scale, size, size, dx, dy, aspect)
    view = flip_image(view) if draw.flip else view
    return distort_image(view, float(draw.hue), float(draw.saturation), float(draw.exposure))
