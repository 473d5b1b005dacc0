"""Loader: orders, batches, determinism with any timing, errors, clean ends, resuming."""

from __future__ import annotations

import itertools
import random
import threading
import time
from typing import Any

import numpy as np
import pytest

from undertow.data import ArrayDataset, InOrder, Loader, LoadError, MappedDataset, Shuffled, Subset, Weighted, stack
from undertow.errors import FormatError, ShapeError, UndertowError

WORKERS = [0, 1, 3]


class Slow:
    """Items that take a random time, so that workers finish out of order."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.asked: list[int] = []

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        self.asked.append(index)
        time.sleep(random.random() * 0.004)
        return np.full(2, index, np.float32), index

    def describe(self, index: int) -> str:
        return f"folder/{index}.png"


def labels(batches: Any) -> list[list[int]]:
    return [batch[1].tolist() for batch in batches]


def loader_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("undertow-loader")]


@pytest.fixture(autouse=True)
def no_thread_stays() -> Any:
    yield
    assert loader_threads() == []


@pytest.mark.parametrize("workers", WORKERS)
def test_batches_in_order(workers: int) -> None:
    loader = Loader(Slow(7), 3, workers=workers)
    batches = list(loader)
    assert labels(batches) == [[0, 1, 2], [3, 4, 5], [6]]
    assert batches[0][0].shape == (3, 2)
    assert len(loader) == 3
    assert labels(Loader(Slow(7), 3, workers=workers, drop_last=True)) == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("workers", WORKERS)
def test_shuffling_follows_from_seed_and_epoch_alone(workers: int) -> None:
    loader = Loader(Slow(20), 4, shuffle=True, seed=9, workers=workers)
    first, second = labels(loader), labels(loader)
    assert sorted(itertools.chain(*first)) == sorted(itertools.chain(*second)) == list(range(20))
    assert first != second
    reference = Loader(ArrayDataset(np.zeros((20, 2)), np.arange(20)), 4, shuffle=True, seed=9)
    assert labels(reference) == first
    reference.seek(epoch=1)
    assert labels(reference) == second
    assert labels(Loader(Slow(20), 4, shuffle=True, seed=10)) != first


@pytest.mark.parametrize("workers", [1, 4])
def test_random_changes_do_not_depend_on_the_workers(workers: int) -> None:
    def jitter(item: Any, rng: np.random.Generator) -> Any:
        time.sleep(random.random() * 0.002)
        return item[0] + rng.normal(size=2), item[1]

    def run(count: int) -> np.ndarray:
        loader = Loader(Slow(12), 5, shuffle=True, seed=3, augment=jitter, workers=count)
        return np.concatenate([x for x, _ in itertools.chain(loader, loader)])

    values = run(workers)
    np.testing.assert_array_equal(values, run(0))
    assert len(np.unique(values)) == values.size  # another draw for every item and epoch


def test_workers_stay_a_bounded_way_ahead() -> None:
    dataset = Slow(100)
    iterator = iter(Loader(dataset, 2, workers=2, ahead=3))
    next(iterator)
    time.sleep(0.1)
    assert max(dataset.asked) <= 7  # the batch handed out and three more
    assert len(dataset.asked) == 8
    iterator.close()  # type: ignore[attr-defined]


def test_workers_really_load_at_the_same_time() -> None:
    barrier = threading.Barrier(3, timeout=10)

    class Together:
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> int:
            barrier.wait()  # returns only when three items are being loaded at once
            return index

    assert [batch.tolist() for batch in Loader(Together(), 1, workers=3)] == [[0], [1], [2]]


@pytest.mark.parametrize("workers", WORKERS)
def test_an_error_reaches_the_consumer_with_number_and_path(workers: int) -> None:
    class Broken(Slow):
        def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
            if index == 4:
                raise FormatError("cut short", file="4.png")
            return super().__getitem__(index)

    dataset = Subset(MappedDataset(Broken(10), lambda item: item), [0, 1, 2, 3, 5, 4])
    iterator = iter(Loader(dataset, 2, workers=workers))
    assert labels([next(iterator), next(iterator)]) == [[0, 1], [2, 3]]
    with pytest.raises(LoadError, match=r"item 5 \(folder/4.png\) could not be loaded: FormatError: 4.png: cut") as e:
        next(iterator)
    assert (e.value.index, e.value.origin) == (5, "folder/4.png")
    assert isinstance(e.value.__cause__, FormatError)


@pytest.mark.parametrize("workers", WORKERS)
def test_leaving_the_loop_ends_the_threads_and_keeps_the_place(workers: int) -> None:
    loader = Loader(Slow(20), 2, workers=workers)
    for batch in loader:
        if 4 in batch[1]:
            break
    assert loader_threads() == []
    assert (loader.epoch, loader.position, loader.epochs_done) == (0, 3, 0)
    assert labels(loader)[0] == [6, 7]
    assert loader.epochs_done == 1
    assert labels(itertools.islice(loader, 1)) == [[0, 1]]
    assert loader.epoch == 1


def test_an_error_in_the_loop_ends_the_threads() -> None:
    def consume() -> None:
        for batch in Loader(Slow(50), 2, workers=2):
            raise KeyboardInterrupt(batch)

    with pytest.raises(KeyboardInterrupt):
        consume()


@pytest.mark.parametrize("workers", [0, 2])
def test_resuming_in_the_middle_of_an_epoch(workers: int) -> None:
    def make() -> Loader:
        return Loader(Slow(11), 2, shuffle=True, seed=1, workers=workers)

    whole = labels(itertools.islice(make().forever(), 15))
    first = make()
    seen = labels(itertools.islice(first.forever(), 8))
    state = first.state()
    second = make()
    second.load_state(state)
    assert seen + labels(itertools.islice(second.forever(), 7)) == whole


def test_a_state_taken_at_the_end_of_an_epoch_leads_to_the_next() -> None:
    loader = Loader(Slow(4), 2, shuffle=True)
    list(loader)
    other = Loader(Slow(4), 2, shuffle=True)
    other.load_state(loader.state())
    assert labels(other) == labels(loader)
    assert other.epoch == 1


def test_states_of_other_loaders_are_refused() -> None:
    state = Loader(Slow(10), 2).state()
    with pytest.raises(UndertowError, match="saved loader had items=10, this one has 11"):
        Loader(Slow(11), 2).load_state(state)
    with pytest.raises(UndertowError, match="batch_size=2, this one has 5"):
        Loader(Slow(10), 5).load_state(state)
    with pytest.raises(UndertowError, match="seed=0, this one has 4"):
        Loader(Slow(10), 2, seed=4).load_state(state)
    del state["epoch"]
    with pytest.raises(UndertowError, match="lacks 'epoch'"):
        Loader(Slow(10), 2).load_state(state)


@pytest.mark.parametrize("workers", [0, 2])
def test_two_loops_over_one_loader_do_not_mix(workers: int) -> None:
    loader = Loader(Slow(8), 2, workers=workers)
    first = iter(loader)
    next(first)
    second = iter(loader)
    assert next(second)[1].tolist() == [2, 3]
    with pytest.raises(UndertowError, match="another one has begun"):
        next(first)
    second.close()  # type: ignore[attr-defined]


def test_own_samplers() -> None:
    dataset = ArrayDataset(np.arange(4))
    backwards = Loader(dataset, 3, sampler=lambda epoch: np.arange(4)[::-1])
    assert [batch.tolist() for batch in backwards] == [[3, 2, 1], [0]]
    draws = np.concatenate(list(Loader(dataset, 100, sampler=Weighted((0, 1, 3, 0), draws=4000, seed=2))))
    assert set(draws) == {1, 2}
    assert (draws == 2).mean() == pytest.approx(0.75, abs=0.03)
    assert not np.array_equal(Weighted((1, 1), 50)(0), Weighted((1, 1), 50)(1))
    assert InOrder(3)(5).tolist() == [0, 1, 2]
    assert not np.array_equal(Shuffled(50, 1)(0), Shuffled(50, 2)(0))


def test_stack_joins_arrays_numbers_tuples_and_dicts() -> None:
    items = [{"image": np.ones((2, 3)), "boxes": (1, 2.5)}, {"image": np.zeros((2, 3)), "boxes": (3, 4.5)}]
    batch = stack(items)
    assert batch["image"].shape == (2, 2, 3)
    assert batch["boxes"][0].tolist() == [1, 3]
    assert batch["boxes"][1].tolist() == [2.5, 4.5]


@pytest.mark.parametrize("workers", [0, 2])
def test_items_of_different_shapes_name_themselves(workers: int) -> None:
    ragged = MappedDataset(ArrayDataset(np.arange(6)), lambda n: np.zeros(1 + n // 5))
    with pytest.raises(ShapeError, match=r"items 4, 5 do not make a batch: shapes \(1,\), \(2,\) cannot"):
        list(Loader(ragged, 2, workers=workers))
    lists = Loader(ragged, 2, workers=workers, collate=list)
    assert [len(batch) for batch in lists] == [2, 2, 2]


def test_impossible_loaders_are_refused() -> None:
    for options in ({"batch_size": 0}, {"batch_size": 1, "workers": -1}, {"batch_size": 1, "ahead": 0}):
        with pytest.raises(ValueError, match="at least 1, 0 and 1"):
            Loader(Slow(3), **options)
    with pytest.raises(ValueError, match="leave out shuffle"):
        Loader(Slow(3), 1, shuffle=True, sampler=InOrder(3))
    with pytest.raises(UndertowError, match="3 items gives no batch of 4"):
        Loader(Slow(3), 4, drop_last=True)
    with pytest.raises(UndertowError, match="0 items gives no batch"):
        Loader(Slow(0), 4)
