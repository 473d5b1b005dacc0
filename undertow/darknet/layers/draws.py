"""Random numbers while a network runs: which values drop out, where a picture is cropped.

Operations hold a `LayerDraws` or `SamplesSeen`. Both are dataclasses whose fields are what tells one from another; what
they ask for while they run is no field, so that plans see the same operation in every pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from undertow.data.crand import GeneratorRandom, RandomSource

Array = np.ndarray[Any, Any]


@dataclass(init=False)
class SamplesSeen:
    """Tells, whenever it is called, how many samples were seen in training."""

    def __init__(self, ask: Callable[[], int]) -> None:
        self._ask = ask

    def __call__(self) -> int:
        return self._ask()


@dataclass(init=False)
class LayerDraws:
    """What one layer draws: the numbers follow from a seed, from how many samples were seen and from the layer alone.

    So a pass that is run twice, or by a run that was resumed, draws the same. source: drawn from instead, if there is
    one.
    """

    seed: int
    layer: int
    source: RandomSource | None

    def __init__(self, seed: int, layer: int, seen: Callable[[], int], source: RandomSource | None = None) -> None:
        self.seed, self.layer, self.source, self._seen = seed, layer, source, seen

    def start(self) -> RandomSource:
        """What to draw from during one pass."""
        if self.source is not None:
            return self.source
        return _Generated(np.random.default_rng((self.seed, self._seen(), self.layer)))


class Draws:
    """Where the layers of one network take their random numbers."""

    def __init__(self, seed: int, seen: Callable[[], int]) -> None:
        self.seed, self.seen = seed, seen
        self._source: RandomSource | None = None
        self._layers: dict[int, LayerDraws] = {}

    @property
    def source(self) -> RandomSource | None:
        """When set, all layers draw from it in the order in which they run.

        `undertow.data.crand.GlibcRandom(seed)` draws what the C program would.
        """
        return self._source

    @source.setter
    def source(self, source: RandomSource | None) -> None:
        self._source = source
        for draws in self._layers.values():
            draws.source = source

    def of(self, layer: int) -> LayerDraws:
        """Those of the layer with this index."""
        if layer not in self._layers:
            self._layers[layer] = LayerDraws(self.seed, layer, self.seen, self._source)
        return self._layers[layer]


class _Generated(GeneratorRandom):
    """Draws from a NumPy generator, many at once too."""

    def uniforms(self, shape: tuple[int, ...]) -> Array:
        return self._generator.random(shape, dtype=np.float32)


def uniforms(source: RandomSource, shape: tuple[int, ...]) -> Array:
    """An array of rand_uniform(0, 1), float32."""
    if isinstance(source, _Generated):
        return source.uniforms(shape)
    return np.array([source.uniform(0, 1) for _ in range(int(np.prod(shape)))], np.float32).reshape(shape)
