from __future__ import annotations

import threading
import time

import pytest

from undertow.darknet.learning.prefetch import Prefetcher


def test_results_come_in_order_whatever_the_timing() -> None:
    def load(number: int) -> int:
        time.sleep(0.004 if number % 3 == 0 else 0)
        return number

    with Prefetcher(load, workers=4, ahead=8, count=30) as results:
        assert list(results) == list(range(30))


def test_no_more_than_ahead_results_wait() -> None:
    begun: list[int] = []
    with Prefetcher(lambda number: begun.append(number), workers=3, ahead=5) as results:
        for _ in range(4):
            next(results)
        time.sleep(0.05)
        assert sorted(begun) == list(range(9))


def test_an_error_is_raised_where_its_result_is_asked_for() -> None:
    def load(number: int) -> int:
        if number == 2:
            raise ValueError("picture 2")
        return number

    with Prefetcher(load, workers=2, ahead=4) as results:
        assert [next(results), next(results)] == [0, 1]
        with pytest.raises(ValueError, match="picture 2"):
            next(results)
        assert next(results) == 3


def test_no_thread_is_left_after_close() -> None:
    before = set(threading.enumerate())
    results = Prefetcher(lambda number: number, workers=4, ahead=8)
    next(results)
    started = set(threading.enumerate()) - before
    assert started
    results.close()
    assert not any(thread.is_alive() for thread in started)
    with pytest.raises(StopIteration):
        next(results)
