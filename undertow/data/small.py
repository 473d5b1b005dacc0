"""Small datasets that need no download: handwritten digits from scikit-learn, spirals, a noisy sine."""

from __future__ import annotations

import numpy as np

from undertow.data.datasets import ArrayDataset
from undertow.errors import MissingPackage


def digits(train: bool = True, scale: int = 1, pad: int = 0) -> ArrayDataset:
    """scikit-learn's 1,797 handwritten digits: (image, label) pairs, the same four fifths for training each time.

    image: (1, s, s) float32, 0 (paper) to 1 (ink), s = 8 * scale + 2 * pad: every pixel becomes scale x scale, and
    `pad` rows of paper lie around (scale=3, pad=2 gives MNIST's 28x28). label: 0 to 9, int64.

    Raises MissingPackage where scikit-learn is not installed.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise MissingPackage("scikit-learn", "demo", "the handwritten digits") from None
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    cut = len(labels) * 4 // 5
    chosen = order[:cut] if train else order[cut:]
    pictures = images[chosen].reshape(-1, 1, 8, 8).astype(np.float32) / np.float32(16)
    pictures = pictures.repeat(scale, axis=2).repeat(scale, axis=3)
    pictures = np.pad(pictures, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    return ArrayDataset(pictures, labels[chosen].astype(np.int64))


def spirals(arms: int = 3, points: int = 100, noise: float = 0.2, turns: float = 0.65, seed: int = 0) -> ArrayDataset:
    """Points on spiral arms, which no straight line separates: (point, arm) pairs, arm by arm.

    point: (2,) float32 in about -1..1. arm: 0 to arms - 1, int64. points: per arm, from the centre outwards.
    noise: standard deviation of the angle, in radians. turns: how far an arm winds.
    """
    rng = np.random.default_rng(seed)
    radius = np.tile(np.linspace(0, 1, points), arms)
    arm = np.repeat(np.arange(arms), points)
    angle = 2 * np.pi * (arm / arms + turns * radius) + rng.normal(0, noise, arms * points)
    positions = np.stack([radius * np.sin(angle), radius * np.cos(angle)], axis=1)
    return ArrayDataset(positions.astype(np.float32), arm.astype(np.int64))


def sine(length: int = 1000, periods: float = 10.0, noise: float = 0.05, seed: int = 0) -> ArrayDataset:
    """A noisy sine wave to be foretold: (value, next value) pairs, each (1,) float32, in the order of time."""
    rng = np.random.default_rng(seed)
    wave = np.sin(np.linspace(0, 2 * np.pi * periods, length + 1)) + rng.normal(0, noise, length + 1)
    column = wave.astype(np.float32)[:, None]
    return ArrayDataset(column[:-1], column[1:])
