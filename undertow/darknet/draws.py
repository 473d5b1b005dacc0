"""Random numbers while a network runs: which values drop out, where a picture is cropped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from undertow.data.crand import RAND_MAX, RandomSource

Array = np.ndarray[Any, Any]


class PassRandom(RandomSource):
    """Draws that follow from a seed and from how many samples were seen, so that a resumed run draws the same.

    seen: tells how many; whenever the number has changed, the stream starts anew.
    """

    def __init__(self, seed: int, seen: Callable[[], int]) -> None:
        super().__init__()
        self.seed, self.seen = seed, seen
        self._at = -1
        self._generator = np.random.default_rng(seed)

    def rand(self) -> int:
        return int(self._current().integers(0, RAND_MAX, endpoint=True))

    def uniforms(self, shape: tuple[int, ...]) -> Array:
        """Numbers from 0 up to 1, float32."""
        return self._current().random(shape, dtype=np.float32)

    def _current(self) -> np.random.Generator:
        if self.seen() != self._at:
            self._at = self.seen()
            self._generator = np.random.default_rng((self.seed, self._at))
        return self._generator


class Draws:
    """What the layers of one network draw from, in the order in which they run.

    source: anything with `rand()`; `undertow.data.crand.GlibcRandom(seed)` draws what the C program would.
    """

    def __init__(self, seed: int, seen: Callable[[], int]) -> None:
        self.source: RandomSource = PassRandom(seed, seen)

    def index(self, count: int) -> int:
        """rand() % count."""
        return self.source.index(count)

    def coin(self) -> bool:
        """rand() % 2."""
        return self.source.coin()

    def uniforms(self, shape: tuple[int, ...]) -> Array:
        """An array of rand_uniform(0, 1), float32."""
        if isinstance(self.source, PassRandom):
            return self.source.uniforms(shape)
        count = int(np.prod(shape))
        return np.array([self.source.uniform(0, 1) for _ in range(count)], np.float32).reshape(shape)
