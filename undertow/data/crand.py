"""Random numbers as the C programs draw them, and the same draws from a stream that can be addressed.

Darknet draws everything from the C library's `rand()`. `GlibcRandom` reproduces that sequence, so recorded
runs can be replayed. `CounterRandom` is what training uses: its numbers follow from (seed, counter) alone, so the
augmentation of image number n does not depend on what was drawn before it, or on which worker drew it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import numpy as np

RAND_MAX = 2**31 - 1
_TWO_PI = 6.2831853071795864769252866  # as utils.h writes it
Real = float | np.floating


class RandomSource(ABC):
    """Something with `rand()`; the other draws are those of Darknet's utils.c, in its float32 arithmetic."""

    def __init__(self) -> None:
        self._spare: tuple[float, float] | None = None

    @abstractmethod
    def rand(self) -> int:
        """The next integer, 0 <= r <= RAND_MAX."""

    def uniform(self, low: Real, high: Real) -> np.float32:
        """rand_uniform: low + (high - low) * rand()/RAND_MAX in float32; the bounds may come in either order."""
        low32, high32 = np.float32(min(low, high)), np.float32(max(low, high))
        return np.float32(self.rand()) / np.float32(RAND_MAX) * (high32 - low32) + low32

    def integer(self, low: int, high: int) -> int:
        """rand_int: an integer of low..high, both included; the bounds may come in either order."""
        low, high = min(low, high), max(low, high)
        return self.rand() % (high - low + 1) + low

    def scale(self, largest: Real) -> np.float32:
        """rand_scale: a factor between 1 and `largest`, or its reciprocal, with equal chances."""
        factor = self.uniform(1, largest)
        return factor if self.coin() else np.float32(1.0 / float(factor))

    def coin(self) -> bool:
        """rand() % 2, as Darknet decides whether to flip."""
        return self.rand() % 2 == 1

    def index(self, count: int) -> int:
        """rand() % count, as Darknet picks an image or a box."""
        return self.rand() % count

    def normal(self) -> float:
        """rand_normal: mean 0, variance 1, Box-Muller in double precision; every second value is a kept spare."""
        if self._spare is not None:
            radius, angle = self._spare
            self._spare = None
            return radius * math.sin(angle)
        radius = math.sqrt(-2 * math.log(max(self.rand() / RAND_MAX, 1e-100)))
        angle = self.rand() / RAND_MAX * _TWO_PI
        self._spare = radius, angle
        return radius * math.cos(angle)


class GlibcRandom(RandomSource):
    """`srand(seed)` followed by `rand()`, as in the GNU C library (additive feedback, x^31 + x^3 + 1).

    seed: taken as an unsigned 32-bit integer; 0 counts as 1, as in the library.
    """

    def __init__(self, seed: int = 1) -> None:
        super().__init__()
        self._state = _initial_state(seed)
        self._front, self._rear = 3, 0
        for _ in range(310):
            self.rand()

    def rand(self) -> int:
        value = (self._state[self._front] + self._state[self._rear]) & 0xFFFFFFFF
        self._state[self._front] = value
        self._front = (self._front + 1) % 31
        self._rear = (self._rear + 1) % 31
        return value >> 1

    def skip(self, count: int) -> None:
        """Leave out so many numbers, in time that grows with the logarithm of count.

        The words follow w[i] = w[i-3] + w[i-31]; those after `count` steps are sums of today's, weighted by the
        coefficients of x^count modulo x^31 - x^28 - 1.
        """
        power = _power_of_x(count)
        words = np.array([self._state[(self._front + place) % 31] for place in range(31)], np.uint64)
        for _ in range(30):
            words = np.append(words, words[-3] + words[-31])
        later = [int((power * words[place : place + 31]).sum()) & 0xFFFFFFFF for place in range(31)]
        self._state, self._front, self._rear = later, 0, 28


def _power_of_x(exponent: int) -> np.ndarray:
    """Coefficients of x^exponent modulo x^31 - x^28 - 1, lowest first, modulo 2^32."""
    result = np.zeros(31, np.uint64)
    result[0] = 1
    for bit in bin(exponent)[2:]:
        product = np.convolve(result, result)
        if bit == "1":
            product = np.append(np.zeros(1, np.uint64), product)
        product &= np.uint64(0xFFFFFFFF)
        for degree in range(len(product) - 1, 30, -1):
            product[degree - 3] += product[degree]
            product[degree - 31] += product[degree]
        result = product[:31] & np.uint64(0xFFFFFFFF)
    return result


def _initial_state(seed: int) -> list[int]:
    """31 words by Lehmer's generator 16807 x mod 2^31-1, with C's signed arithmetic for seeds above 2^31."""
    word = seed & 0xFFFFFFFF or 1
    state = [word]
    if word >= 2**31:
        word -= 2**32
    for _ in range(30):
        high, low = int(word / 127773), math.fmod(word, 127773)
        word = 16807 * int(low) - 2836 * high
        if word < 0:
            word += RAND_MAX
        state.append(word)
    return state


class CounterRandom(RandomSource):
    """Draws that follow from (seed, counter) alone; the same on every machine and NumPy release.

    seed, counter: integers of at least 0; the counter numbers the images of a training run.
    """

    def __init__(self, seed: int, counter: int) -> None:
        super().__init__()
        self._bits = np.random.PCG64(np.random.SeedSequence((seed, counter)))

    def rand(self) -> int:
        return int(self._bits.random_raw()) >> 33


class GeneratorRandom(RandomSource):
    """Draws from a NumPy generator, such as the one a `Loader` hands to its `augment` for each item."""

    def __init__(self, generator: np.random.Generator) -> None:
        super().__init__()
        self._generator = generator

    def rand(self) -> int:
        return int(self._generator.integers(0, RAND_MAX, endpoint=True))
