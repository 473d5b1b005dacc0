"""Work done ahead by threads, handed out in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Generic, TypeVar

T = TypeVar("T")


class Prefetcher(Generic[T]):
    """load(0), load(1), ... in this order, whatever the timing; worker threads are at most `ahead` results further.

    count: how many there are; without end when None. Use it as a context manager, or call `close`. An exception of
    load(n) is raised where result n is asked for.
    """

    def __init__(self, load: Callable[[int], T], *, workers: int, ahead: int, count: int | None = None) -> None:
        self._load, self._count, self._next = load, count, 0
        self._waiting: deque[Future[T]] = deque()
        self._pool = ThreadPoolExecutor(max(1, workers), thread_name_prefix="undertow-prefetch")
        for _ in range(max(1, ahead)):
            self._submit()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        if not self._waiting:
            raise StopIteration
        future = self._waiting.popleft()
        self._submit()
        return future.result()

    def close(self) -> None:
        """End the threads; what they have begun is finished and thrown away."""
        self._count = 0
        self._waiting.clear()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> Prefetcher[T]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _submit(self) -> None:
        if self._count is None or self._next < self._count:
            self._waiting.append(self._pool.submit(self._load, self._next))
            self._next += 1
