"""Batches prepared in the background: a queue with an end, in a fixed order, with the position of each."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

T = TypeVar("T")


class Ahead(Generic[T]):
    """Results of `load`, called again and again by one thread that is at most `count` results ahead.

    After an error the waiting results are dropped; the error is raised where its result is asked for. The thread ends
    with `close`, or when the object is no longer used.
    """

    def __init__(self, load: Callable[[], T], count: int) -> None:
        self._load, self._count = load, max(1, count)
        self._waiting: deque[Future[T]] = deque()
        self._pool: ThreadPoolExecutor | None = None

    def next(self) -> T:
        """The next result."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="undertow-caffe-data")
        while len(self._waiting) < self._count + 1:
            self._waiting.append(self._pool.submit(self._load))
        try:
            return self._waiting.popleft().result()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop; what is being loaded is finished and thrown away. `next` begins anew."""
        pool, self._pool = self._pool, None
        self._waiting.clear()
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)
