"""The augmentation and the truth of YOLOv1: pictures cropped and stretched, boxes written into a grid of cells.

As Darknet's `load_data_region` and `fill_truth_region` (src/data.c). Boxes as in `undertow.data.augment`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from undertow.data.augment import Boxes, DetectionOptions, correct_boxes, shuffled
from undertow.data.colour import distort_image, random_distort
from undertow.data.crand import RandomSource
from undertow.data.resize import Picture, crop_image, flip_image, resize_image

SMALLEST_GRID_SIDE = 0.005


@dataclass(frozen=True)
class Grid:
    """side x side cells, each with room for one object of `classes` classes."""

    side: int
    classes: int


def fill_truth_grid(boxes: NDArray[np.float32], labels: NDArray[np.floating], grid: Grid) -> NDArray[np.float32]:
    """(n, 4) boxes and (n,) classes -> (side * side, 5 + classes), cells row by row.

    A cell holds 1, its class as a row of 0 and 1, x and y within the cell, w and h relative to the picture; zeros
    where it has no object. The first box whose centre lies in a cell takes it; those with a side below 0.005, and
    those centred outside the picture (through which the original writes), are left out.
    """
    truth = np.zeros((grid.side * grid.side, 5 + grid.classes), np.float32)
    for (x, y, w, h), label in zip(np.asarray(boxes, np.float32), labels, strict=True):
        across, down = x * np.float32(grid.side), y * np.float32(grid.side)
        inside = 0 <= across < grid.side and 0 <= down < grid.side
        if min(w, h) < SMALLEST_GRID_SIDE or not inside:
            continue
        column, row = int(across), int(down)
        cell = truth[row * grid.side + column]
        if cell[0]:
            continue
        cell[0] = 1
        if label < grid.classes:
            cell[1 + int(label)] = 1
        cell[1 + grid.classes :] = across - column, down - row, w, h
    return truth


def augment_grid(
    picture: NDArray[np.generic],
    boxes: Boxes,
    net_size: tuple[int, int],
    options: DetectionOptions,
    random: RandomSource,
    grid: Grid,
) -> tuple[Picture, NDArray[np.float32]]:
    """One training sample of YOLOv1: picture (c, h, w) of net_size (width, height), truth as `fill_truth_grid`.

    picture: (c, h, w), float 0..1 or uint8. Each edge moves by up to `jitter` of the picture's side, outwards too,
    where the edge's pixels are repeated. Draws in the original's order.
    """
    height, width = picture.shape[1:]
    left, right = (_reach(random, int(np.float32(width) * np.float32(options.jitter))) for _ in range(2))
    top, bottom = (_reach(random, int(np.float32(height) * np.float32(options.jitter))) for _ in range(2))
    new_width, new_height = max(1, width - left - right), max(1, height - top - bottom)
    scale_x, scale_y = np.float32(new_width) / np.float32(width), np.float32(new_height) / np.float32(height)
    flip = random.coin() and options.flip
    view = crop_image(np.asarray(picture), left, top, new_width, new_height)
    if view.dtype == np.uint8:
        view = view / np.float32(255)
    view = resize_image(view, *net_size)
    view = flip_image(view) if flip else view
    colours = options.colours
    hue, saturation, exposure = random_distort(random, colours.hue, colours.saturation, colours.exposure)
    if len(view) == 3:
        view = distort_image(view, float(hue), float(saturation), float(exposure))
    else:
        view = np.clip(view * exposure, 0, 1)
    boxes = np.asarray(boxes, np.float32).reshape(-1, 5)
    order = shuffled(random, len(boxes))
    dx = np.float32(left) / np.float32(width) / scale_x
    dy = np.float32(top) / np.float32(height) / scale_y
    moved = correct_boxes(boxes[order, :4], dx, dy, 1 / scale_x, 1 / scale_y, flip)
    return view, fill_truth_grid(moved, boxes[order, 4], grid)


def _reach(random: RandomSource, most: int) -> int:
    """A whole number of pixels to either side."""
    return int(random.uniform(-most, most))
