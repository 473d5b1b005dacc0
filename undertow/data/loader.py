"""Loader: batches of a dataset, prepared ahead by worker threads, always in the same order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from undertow.data.datasets import Dataset, describe
from undertow.data.samplers import InOrder, Sampler, Shuffled
from undertow.errors import ShapeError, UndertowError

Augment = Callable[[Any, np.random.Generator], Any]


class LoadError(UndertowError):
    """An item could not be loaded; the original error is its cause.

    index: the item's number in the dataset. origin: where it comes from (its path), "" when unknown.
    """

    def __init__(self, index: int, origin: str, error: BaseException) -> None:
        self.index, self.origin = index, origin
        where = f"item {index} ({origin})" if origin else f"item {index}"
        super().__init__(f"{where} could not be loaded: {type(error).__name__}: {error}")


class Loader:
    """Batches of a dataset; iterating gives those of one epoch.

    batch_size: items per batch. drop_last: leave out a last batch that is smaller.
    shuffle: a new order each epoch, drawn from (seed, epoch). sampler: another order instead; see `samplers`.
    augment: `augment(item, rng)` changes each item; rng follows from (seed, epoch, item number) alone.
    collate: joins the list of items into a batch; see `stack`.
    workers: threads that load; 0 loads in the thread that iterates. ahead: batches held ready at most (2 per worker).

    The order and every random draw are the same for any number of workers and any timing. The loader stands at a
    position (`epoch`, `position` in batches): iterating goes on from there to the end of the epoch, and a `break`
    leaves it after the last batch handed out. `state()` is that position.

    Raises LoadError, from the place that iterates, when an item fails; the worker threads end with the iteration,
    however it ends.
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int,
        *,
        shuffle: bool = False,
        seed: int = 0,
        sampler: Sampler | None = None,
        augment: Augment | None = None,
        collate: Callable[[list[Any]], Any] | None = None,
        workers: int = 0,
        ahead: int | None = None,
        drop_last: bool = False,
    ) -> None:
        if batch_size < 1 or workers < 0 or (ahead is not None and ahead < 1):
            raise ValueError(f"batch_size={batch_size}, workers={workers}, ahead={ahead}: at least 1, 0 and 1")
        if shuffle and sampler is not None:
            raise ValueError("a sampler already says the order: leave out shuffle")
        self.dataset, self.batch_size, self.seed, self.drop_last = dataset, batch_size, seed, drop_last
        self.sampler: Sampler = sampler or (Shuffled(len(dataset), seed) if shuffle else InOrder(len(dataset)))
        self.augment, self.collate = augment, collate or stack
        self.workers, self.ahead = workers, ahead or max(1, 2 * workers)
        self.epoch = self.position = 0
        self.items = len(self.sampler(0))
        self._turn = 0
        if len(self) == 0:
            raise UndertowError(f"a dataset of {self.items} items gives no batch of {batch_size}")

    def __len__(self) -> int:
        """Batches per epoch."""
        return self.items // self.batch_size if self.drop_last else -(-self.items // self.batch_size)

    @property
    def epochs_done(self) -> int:
        """Number of epochs handed out to their end."""
        return self.epoch + (self.position >= len(self))

    def __iter__(self) -> Iterator[Any]:
        if self.position >= len(self):
            self.seek(self.epoch + 1)
        self._turn += 1
        return self._batches(self._turn, self.epoch, self.position)

    def forever(self) -> Iterator[Any]:
        """Batches without end, epoch after epoch."""
        while True:
            yield from self

    def seek(self, epoch: int, position: int = 0) -> None:
        """Stand before batch number `position` of an epoch; iterations that are under way end with an error."""
        self.epoch, self.position = epoch, position
        self._turn += 1

    def state(self) -> dict[str, np.ndarray]:
        """Where the loader stands, and what it is, so that a later `load_state` can tell whether it fits."""
        values = {
            "epoch": self.epoch,
            "position": self.position,
            "items": self.items,
            "batch_size": self.batch_size,
            "seed": self.seed,
        }
        return {name: np.array(value, dtype=np.int64) for name, value in values.items()}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Stand where `state()` was taken. Raises UndertowError when data, batch size or seed are others."""
        for name, value in self.state().items():
            if name not in state:
                raise UndertowError(f"the state of this loader lacks '{name}'")
            if name not in ("epoch", "position") and int(state[name]) != int(value):
                raise UndertowError(
                    f"the saved loader had {name}={int(state[name])}, this one has {int(value)}",
                    remedy="continue with the same data, batch size and seed, or start the loader anew",
                )
        self.seek(int(state["epoch"]), int(state["position"]))

    # --- loading ----------------------------------------------------------------------------------------

    def _batches(self, turn: int, epoch: int, first: int) -> Iterator[Any]:
        order = self.sampler(epoch)
        source = self._prepared_ahead if self.workers else self._prepared_here
        batches = source(epoch, order, first)
        try:
            for number in range(first, len(self)):
                batch = next(batches)
                self._check_turn(turn)
                self.epoch, self.position = epoch, number + 1
                yield batch
                self._check_turn(turn)
        finally:
            batches.close()  # type: ignore[attr-defined]

    def _check_turn(self, turn: int) -> None:
        if turn != self._turn:
            raise UndertowError(
                "this iteration over the loader is over: another one has begun, or the loader was moved",
                remedy="use one loader per loop",
            )

    def _prepared_here(self, epoch: int, order: np.ndarray, first: int) -> Iterator[Any]:
        for number in range(first, len(self)):
            yield self._load(epoch, order, number)

    def _prepared_ahead(self, epoch: int, order: np.ndarray, first: int) -> Iterator[Any]:
        """Batches in order, while the workers are up to `ahead` batches further."""
        pool = ThreadPoolExecutor(self.workers, thread_name_prefix="undertow-loader")
        waiting: deque[Future[Any]] = deque()
        asked = first
        try:
            for number in range(first, len(self)):
                while asked < min(number + 1 + self.ahead, len(self)):
                    waiting.append(pool.submit(self._load, epoch, order, asked))
                    asked += 1
                yield waiting.popleft().result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _load(self, epoch: int, order: np.ndarray, number: int) -> Any:
        indexes = [int(i) for i in order[number * self.batch_size : (number + 1) * self.batch_size]]
        items = [self._item(epoch, index) for index in indexes]
        try:
            return self.collate(items)
        except ShapeError as error:
            raise ShapeError(f"items {_listed(indexes)} do not make a batch: {error}") from error

    def _item(self, epoch: int, index: int) -> Any:
        try:
            item = self.dataset[index]
            if self.augment is not None:
                item = self.augment(item, np.random.default_rng((self.seed, epoch, index)))
            return item
        except Exception as error:
            raise LoadError(index, describe(self.dataset, index), error) from error


def stack(items: list[Any]) -> Any:
    """Join items along a new first axis: arrays and numbers into arrays, tuples and dicts part by part.

    Raises ShapeError when the items differ in shape.
    """
    first = items[0]
    if isinstance(first, tuple):
        return tuple(stack(list(parts)) for parts in zip(*items, strict=True))
    if isinstance(first, Mapping):
        return {key: stack([item[key] for item in items]) for key in first}
    arrays = [np.asarray(item) for item in items]
    shapes = {array.shape for array in arrays}
    if len(shapes) > 1:
        raise ShapeError(f"shapes {', '.join(str(shape) for shape in sorted(shapes))} cannot be stacked")
    return np.stack(arrays)


def _listed(indexes: list[int], most: int = 10) -> str:
    return ", ".join(map(str, indexes[:most])) + (", ..." if len(indexes) > most else "")
