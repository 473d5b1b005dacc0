"""Pictures for the demo: real handwritten digits painted onto real photographs, with the box of each digit.

Digits: scikit-learn's copy of the UCI set of 1,797 handwritten digits. Photographs: those inside scikit-image.
Everything follows from a seed; nothing is downloaded. Digits and photographs for testing are never used in training.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from undertow.errors import MissingPackage, UndertowError

TRAINING_PHOTOS = (
    "astronaut.png", "camera.png", "motorcycle_left.png", "ihc.png",
    "coins.png", "brick.png", "gravel.png", "grass.png",
)  # fmt: skip
TEST_PHOTOS = ("chelsea.png", "coffee.png", "rocket.jpg")
WIDTH, HEIGHT = 480, 360
NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")

# Every fifth digit is for testing.
_HELD_OUT = 5
_MOST_DIGITS, _SMALLEST, _LARGEST = 6, 60, 150
_LARGEST_TURN = 12  # degrees
_GAP = 6
_INKS = ((250, 250, 245), (25, 25, 30), (225, 40, 45), (250, 205, 40), (35, 90, 220), (40, 165, 80), (225, 95, 200))
_LIGHT, _DARK = (250, 250, 245), (25, 25, 30)
_RIM = 0.035  # of the digit's height

Mask = NDArray[np.float64]
Pixels = NDArray[np.uint8]


@dataclass(frozen=True)
class Scene:
    """pixels (HEIGHT, WIDTH, 3). labels: rows of class, x, y, width, height, relative to the picture."""

    pixels: Pixels
    labels: list[tuple[int, float, float, float, float]]


class SceneMaker:
    """Makes scenes. training: with the digits and photographs for training, or those held out for testing.

    Raises MissingPackage without scikit-learn or scikit-image.
    """

    def __init__(self, training: bool, seed: int = 0) -> None:
        self.digits, self.targets = _digits(training)
        self.photos = [_photo(name) for name in (TRAINING_PHOTOS if training else TEST_PHOTOS)]
        self._seed = (seed, int(training))

    def scene(self, number: int) -> Scene:
        """Scene number so and so; the same for the same seed."""
        rng = np.random.default_rng((*self._seed, number))
        pixels = self._background(rng).astype(np.float64)
        labels: list[tuple[int, float, float, float, float]] = []
        taken: list[tuple[int, int, int, int]] = []
        for _ in range(int(rng.integers(2, _MOST_DIGITS + 1))):
            which = int(rng.integers(len(self.digits)))
            ink, rim = _turned(self.digits[which], rng)
            place = _free_place(rng, ink.shape, taken)
            if place is None:
                continue
            taken.append((*place, place[0] + ink.shape[1], place[1] + ink.shape[0]))
            _paint(pixels, ink, rim, place, rng)
            x, y = place[0] + ink.shape[1] / 2, place[1] + ink.shape[0] / 2
            labels.append(
                (int(self.targets[which]), x / WIDTH, y / HEIGHT, ink.shape[1] / WIDTH, ink.shape[0] / HEIGHT)
            )
        return Scene(np.clip(np.rint(pixels), 0, 255).astype(np.uint8), labels)

    def _background(self, rng: np.random.Generator) -> Pixels:
        """A random part of a photograph, as large as it can be or down to half of that."""
        photo = self.photos[int(rng.integers(len(self.photos)))]
        width = min(photo.width, photo.height * WIDTH // HEIGHT) * rng.uniform(0.5, 1)
        height = width * HEIGHT / WIDTH
        left, top = rng.uniform(0, photo.width - width), rng.uniform(0, photo.height - height)
        part = photo.resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC, (left, top, left + width, top + height))
        return np.asarray(part)


def _digits(training: bool) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Images (n, 8, 8) of 0..1 and what they show."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise MissingPackage("scikit-learn", "demo", "the demo's handwritten digits") from None
    data: Any = load_digits()
    mine = (np.arange(len(data.images)) % _HELD_OUT != 0) == training
    return data.images[mine] / 16, data.target[mine]


def _photo(name: str) -> Image.Image:
    found = importlib.util.find_spec("skimage")
    if found is None or found.origin is None:
        raise MissingPackage("scikit-image", "demo", "the demo's photographs")
    path = Path(found.origin).parent / "data" / name
    if not path.exists():
        raise UndertowError("scikit-image comes without this photograph", file=path, remedy="pip install scikit-image")
    with Image.open(path) as image:
        return image.convert("RGB")


def _turned(digit: NDArray[np.float64], rng: np.random.Generator) -> tuple[Mask, Mask]:
    """The digit as ink 0..1 of some size, a little turned and squeezed; and the same with a rim around it.

    Both are cut to where the rim ends.
    """
    side = int(rng.uniform(_SMALLEST, _LARGEST))
    width = int(side * rng.uniform(0.8, 1.15))
    framed = Image.fromarray(np.rint(np.pad(digit, 1) * 255).astype(np.uint8))
    large = framed.resize((width * 10 // 8, side * 10 // 8), Image.Resampling.BICUBIC)
    turned = large.rotate(rng.uniform(-_LARGEST_TURN, _LARGEST_TURN), Image.Resampling.BICUBIC)
    ink = _pen(turned)
    wide = Image.fromarray(np.rint(ink * 255).astype(np.uint8)).filter(ImageFilter.GaussianBlur(_RIM * side))
    rim = np.clip(np.asarray(wide, np.float64) / 255 * 6 - 0.6, 0, 1)
    rows, columns = np.flatnonzero(rim.max(axis=1) > 0.5), np.flatnonzero(rim.max(axis=0) > 0.5)
    cut = slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1)
    return ink[cut], rim[cut]


def _pen(grey: Image.Image) -> Mask:
    """The middle greys become a clean edge, as a pen leaves it."""
    return np.clip((np.asarray(grey, np.float64) / 255 - 0.43) / 0.22, 0, 1)


def _free_place(
    rng: np.random.Generator, shape: tuple[int, ...], taken: list[tuple[int, int, int, int]]
) -> tuple[int, int] | None:
    """Left and top of a place that touches no other digit; None when twenty tries find none."""
    height, width = shape
    for _ in range(20):
        left, top = int(rng.integers(2, WIDTH - width - 2)), int(rng.integers(2, HEIGHT - height - 2))
        if all(
            left > right + _GAP
            or left + width + _GAP < other_left
            or top > bottom + _GAP
            or top + height + _GAP < other_top
            for other_left, other_top, right, bottom in taken
        ):
            return left, top
    return None


def _paint(pixels: NDArray[np.float64], ink: Mask, rim: Mask, place: tuple[int, int], rng: np.random.Generator) -> None:
    """Lay ink of some colour over the pixels, with a rim that sets it off from any ground."""
    left, top = place
    below = pixels[top : top + ink.shape[0], left : left + ink.shape[1]]
    color = np.array(_INKS[int(rng.integers(len(_INKS)))], np.float64)
    edge = np.array(_DARK if color @ (0.299, 0.587, 0.114) > 120 else _LIGHT, np.float64)
    below += rim[:, :, None] * (edge - below)
    below += ink[:, :, None] * (color - below)
