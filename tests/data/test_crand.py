"""The C library's rand() and Darknet's draws on top of it."""

from __future__ import annotations

import ctypes
import ctypes.util
import math

import numpy as np
import pytest

from undertow.data.crand import RAND_MAX, CounterRandom, GeneratorRandom, GlibcRandom, RandomSource


@pytest.fixture(scope="module")
def libc() -> ctypes.CDLL:
    library = ctypes.CDLL(ctypes.util.find_library("c"))
    if not hasattr(library, "gnu_get_libc_version"):
        pytest.skip("this system's C library is not glibc")
    return library


@pytest.mark.parametrize("seed", [0, 1, 77, 1234, 2**31 - 1, 2**31, 2**32 - 1])
def test_sequence_is_that_of_the_c_library(libc: ctypes.CDLL, seed: int) -> None:
    libc.srand(ctypes.c_uint(seed))
    ours = GlibcRandom(seed)
    assert [ours.rand() for _ in range(1000)] == [libc.rand() for _ in range(1000)]


def test_first_numbers_of_the_default_seed() -> None:
    ours = GlibcRandom()
    assert [ours.rand() for _ in range(3)] == [1804289383, 846930886, 1681692777]


def test_uniform_is_float32_and_takes_bounds_in_either_order() -> None:
    a, b, raw = GlibcRandom(5), GlibcRandom(5), GlibcRandom(5)
    value = a.uniform(-2.5, 3)
    assert value == b.uniform(3, -2.5)
    assert value.dtype == np.float32
    assert float(value) == pytest.approx(raw.rand() / RAND_MAX * 5.5 - 2.5, rel=1e-6)


def test_scale_draws_the_value_then_the_coin() -> None:
    ours, raw = GlibcRandom(9), GlibcRandom(9)
    for _ in range(50):
        factor = raw.rand() / RAND_MAX * 0.5 + 1
        expected = factor if raw.rand() % 2 else 1 / factor
        assert float(ours.scale(1.5)) == pytest.approx(expected, rel=1e-6)


def test_integer_includes_both_ends() -> None:
    ours = GlibcRandom(3)
    assert {ours.integer(2, 5) for _ in range(200)} == {2, 3, 4, 5}


def test_normal_pairs_share_a_radius() -> None:
    ours, raw = GlibcRandom(11), GlibcRandom(11)
    radius = math.sqrt(-2 * math.log(raw.rand() / RAND_MAX))
    angle = 2 * math.pi * raw.rand() / RAND_MAX
    assert ours.normal() == pytest.approx(radius * math.cos(angle))
    assert ours.normal() == pytest.approx(radius * math.sin(angle))


def test_normal_has_mean_0_and_variance_1() -> None:
    source = CounterRandom(1, 2)
    values = np.array([source.normal() for _ in range(20000)])
    assert abs(values.mean()) < 0.03
    assert abs(values.var() - 1) < 0.05


def test_counter_random_is_addressed_by_seed_and_counter() -> None:
    def first(seed: int, counter: int) -> list[int]:
        source = CounterRandom(seed, counter)
        return [source.rand() for _ in range(5)]

    assert first(7, 3) == first(7, 3)
    assert first(7, 3) != first(7, 4)
    assert first(7, 3) != first(8, 3)
    assert first(0, 0) == [1367864807, 579362556, 87989972, 35492827, 1746484540]


@pytest.mark.parametrize("source", [CounterRandom(1, 1), GeneratorRandom(np.random.default_rng(1)), GlibcRandom(1)])
def test_sources_cover_the_range_evenly(source: RandomSource) -> None:
    values = np.array([source.rand() for _ in range(4000)])
    assert values.min() >= 0
    assert values.max() <= RAND_MAX
    counts = np.histogram(values, bins=8, range=(0, RAND_MAX))[0]
    assert np.all(np.abs(counts - 500) < 120)


def test_generator_random_follows_its_generator() -> None:
    first, again = (GeneratorRandom(np.random.default_rng([4, 7])) for _ in range(2))
    assert [first.rand() for _ in range(5)] == [again.rand() for _ in range(5)]
